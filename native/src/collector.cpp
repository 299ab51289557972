#include "fm2/collector.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "fm2/pool.h"

namespace fm2 {
namespace {

std::optional<std::uint8_t> parse_label(std::string_view text) {
    if (text.size() == 1 && (text[0] == '0' || text[0] == '1')) return text[0] == '1';
    if (text == "true" || text == "True") return 1;
    if (text == "false" || text == "False") return 0;
    const auto value = parse_number(text);
    if (!value || (*value != 0 && *value != 1)) return std::nullopt;
    return *value == 1;
}

// Splits text at line ends, one part per thread. Text with quotes is not split, because a quoted cell may contain line ends.
std::vector<std::string_view> split_lines(std::string_view text, const TextFormat& format, std::size_t pieces) {
    if (format.quotes && text.find('"') != text.npos) return {text};
    std::vector<std::string_view> parts;
    for (std::size_t begin = 0, i = 1; begin < text.size() || i == 1; ++i) {
        std::size_t end = text.size();
        if (i < pieces && text.size() * i / pieces > begin) {
            const std::size_t line_end = text.find('\n', text.size() * i / pieces);
            if (line_end != text.npos) end = line_end + 1;
        }
        parts.push_back(text.substr(begin, end - begin));
        begin = end;
    }
    return parts;
}

}  // namespace

Collector::Collector(std::vector<Field> fields, std::size_t label_column, std::optional<Time> time, std::vector<std::string> missing,
                     std::size_t threads)
    : fields_(std::move(fields)),
      label_column_(label_column),
      time_(std::move(time)),
      reader_(std::move(missing)),
      threads_(threads ? threads : default_threads()),
      values_(fields_.size()),
      invalid_utf8_(fields_.size()),
      bad_(fields_.size() + 2) {}

const Block& Collector::read(std::string_view text, const TextFormat& format, const std::vector<std::size_t>& positions, bool last) {
    const std::vector<std::string_view> texts = split_lines(text, format, threads_);
    parts_.resize(texts.size());
    parallel_for(texts.size(), threads_, [&](std::size_t i) { parts_[i].block.read(texts[i], format, last || i + 1 < texts.size()); });
    std::vector<Piece> pieces;
    std::vector<BadRow> misshapen;
    block_.consumed = block_.lines = 0;
    std::size_t rows = 0;
    for (TextPart& part : parts_) {
        part.first_row = rows;
        part.first_line = block_.lines;
        Columns columns;
        for (const std::size_t position : positions) columns.push_back(part.block.column(position));
        pieces.push_back({std::move(columns), 0, part.block.rows(), rows});
        for (BadRow row : part.block.bad()) row.row += rows, misshapen.push_back(std::move(row));
        rows += part.block.rows();
        block_.consumed += part.block.consumed();
        block_.lines += part.block.lines();
    }
    collect(pieces);
    add_shape_faults(std::move(misshapen));
    return block_;
}

// A row with a wrong number of cells has empty cells, whose faults are not worth reporting.
void Collector::add_shape_faults(std::vector<BadRow> misshapen) {
    const auto by_row = [](const BadRow& a, const BadRow& b) { return a.row < b.row; };
    std::erase_if(block_.bad, [&](const BadRow& row) { return std::binary_search(misshapen.begin(), misshapen.end(), row, by_row); });
    block_.bad.insert(block_.bad.end(), misshapen.begin(), misshapen.end());
    std::stable_sort(block_.bad.begin(), block_.bad.end(), by_row);
}

const Block& Collector::read(const ArrowReader& frame, std::size_t first, std::size_t count, const std::vector<std::size_t>& positions) {
    Columns columns;
    for (const std::size_t position : positions) columns.push_back(frame.column(position));
    std::vector<Piece> pieces;
    pieces.push_back({std::move(columns), first, count, 0});
    parts_.clear();
    block_.consumed = block_.lines = 0;
    return collect(pieces);
}

const Block& Collector::collect(const std::vector<Piece>& pieces) {
    block_.rows = pieces.back().block_row + pieces.back().rows;
    block_.codes.resize(fields_.size() * block_.rows);
    block_.labels.resize(block_.rows);
    block_.times.resize(time_ ? block_.rows : 0);
    for (auto& list : bad_) list.clear();
    // One thread reads all rows of a field, so that the codes do not depend on the timing of threads.
    parallel_for(fields_.size() + 2, threads_, [&](std::size_t task) {
        for (const Piece& piece : pieces) {
            if (task < fields_.size()) collect_field(task, piece);
            else if (task == fields_.size()) collect_labels(piece);
            else if (time_) collect_times(piece);
        }
    });
    block_.bad.clear();
    for (auto& list : bad_) block_.bad.insert(block_.bad.end(), list.begin(), list.end());
    std::stable_sort(block_.bad.begin(), block_.bad.end(), [](auto& a, auto& b) { return a.row < b.row; });
    return block_;
}

void Collector::collect_field(std::size_t index, const Piece& piece) {
    const Field& field = fields_[index];
    if (field.transform.kind == Transform::Kind::quantiles) return collect_quantiles(index, piece);
    StringIndex& values = values_[index];
    std::unordered_set<std::int32_t>& invalid_utf8 = invalid_utf8_[index];
    Batch batch;
    std::vector<std::size_t> unreadable;
    by_batch(piece.rows, [&](std::size_t first, std::size_t count) {
        reader_.read(*piece.columns[field.column], piece.first + first, count, batch);
        std::int32_t* out = &block_.codes[index * block_.rows + piece.block_row + first];
        const auto fail = [&](std::size_t i, Fault fault) {
            add_bad(index, piece.block_row + first + i, static_cast<std::int32_t>(index), fault, batch.cells[i]);
            batch.cells[i] = {};
        };
        unreadable.clear();
        field.transform.apply(batch, unreadable);
        for (const std::size_t i : unreadable) fail(i, field.transform.fault());
        if (field.hash_bits) {
            for (std::size_t i = 0; i < count; ++i) {
                if (!is_utf8(batch.cells[i])) fail(i, Fault::encoding);
                out[i] = field.hashed(batch.cells[i]);
            }
            return;
        }
        const auto known = static_cast<std::int32_t>(values.size());
        values.add({batch.cells.data(), count}, out);
        for (std::size_t i = 0; i < count; ++i) {  // only new values need to be validated
            if (out[i] >= known ? !is_utf8(batch.cells[i]) : !invalid_utf8.empty() && invalid_utf8.contains(out[i])) {
                invalid_utf8.insert(out[i]);
                fail(i, Fault::encoding);
            }
        }
    });
}

// Calls body(row of the block, cell) for all rows of a piece.
template <class Body>
void Collector::for_cells(std::size_t column, const Piece& piece, const Body& body) const {
    Batch batch;
    by_batch(piece.rows, [&](std::size_t first, std::size_t count) {
        reader_.read(*piece.columns[column], piece.first + first, count, batch);
        for (std::size_t i = 0; i < count; ++i) body(piece.block_row + first + i, batch.cells[i]);
    });
}

void Collector::collect_quantiles(std::size_t index, const Piece& piece) {
    for_cells(fields_[index].column, piece, [&](std::size_t row, std::string_view cell) {
        const auto number = parse_number(cell);
        if (!number && !cell.empty()) add_bad(index, row, static_cast<std::int32_t>(index), Fault::number, cell);
        const float value = number ? static_cast<float>(*number) : std::numeric_limits<float>::quiet_NaN();
        block_.codes[index * block_.rows + row] = std::bit_cast<std::int32_t>(value);
    });
}

void Collector::collect_labels(const Piece& piece) {
    for_cells(label_column_, piece, [&](std::size_t row, std::string_view cell) {
        const auto label = parse_label(cell);
        block_.labels[row] = label.value_or(0);
        if (!label) add_bad(fields_.size(), row, -1, Fault::label, cell);
    });
}

void Collector::collect_times(const Piece& piece) {
    for_cells(time_->column, piece, [&](std::size_t row, std::string_view cell) {
        const auto seconds = time_->format.parse(cell);
        block_.times[row] = seconds.value_or(0);
        if (!seconds) add_bad(fields_.size() + 1, row, -1, Fault::time, cell);
    });
}

void Collector::add_bad(std::size_t task, std::size_t row, std::int32_t field, Fault fault, std::string_view value) {
    bad_[task].push_back({row, field, fault, excerpt(value)});
}

const Collector::TextPart& Collector::part_of(std::size_t row) const {
    return *std::prev(std::upper_bound(parts_.begin(), parts_.end(), row,
                                       [](std::size_t value, const TextPart& part) { return value < part.first_row; }));
}

std::size_t Collector::line(std::size_t row) const {
    if (parts_.empty()) return 0;
    const TextPart& part = part_of(row);
    return part.first_line + part.block.line(row - part.first_row);
}

std::string_view Collector::row_text(std::size_t row) const {
    if (parts_.empty()) return {};
    const TextPart& part = part_of(row);
    return part.block.row(row - part.first_row);
}

void count_codes(const std::int32_t* codes, std::size_t rows, std::span<const std::uint8_t> counted,
                 const std::vector<std::span<std::int64_t>>& counts, std::size_t threads) {
    parallel_for(counts.size(), threads, [&](std::size_t field) {
        if (counts[field].empty()) return;
        const std::int32_t* column = codes + field * rows;
        std::int64_t* count = counts[field].data();
        for (std::size_t i = 0; i < rows; ++i) count[column[i]] += counted[i];
    });
}

void codes_to_ids(const std::int32_t* codes, std::size_t rows, std::span<const std::int32_t> order,
                  const std::vector<std::span<const std::int32_t>>& ids_of, std::int32_t* ids, std::size_t threads) {
    const std::size_t fields = ids_of.size();
    constexpr std::size_t block = 1024;  // rows whose ids stay in the cache while all fields are filled in
    parallel_ranges(order.size(), block, threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t field = 0; field < fields; ++field) {
            const std::int32_t* column = codes + field * rows;
            const std::int32_t* id = ids_of[field].data();
            for (std::size_t i = begin; i < end; ++i) ids[i * fields + field] = id[column[order[i]]];
        }
    });
}

}  // namespace fm2
