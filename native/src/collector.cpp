#include "fm2/collector.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "fm2/numbers.h"
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

// A whole number that fits into 32 bits.
std::optional<std::uint32_t> parse_count(std::string_view text) {
    const auto value = parse_number(text);
    if (!value || !(*value >= 0 && *value <= std::numeric_limits<std::uint32_t>::max())) return std::nullopt;
    const auto count = static_cast<std::uint32_t>(*value);
    if (static_cast<double>(count) != *value) return std::nullopt;
    return count;
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

Collector::Collector(std::vector<Field> fields, Targets targets, std::optional<Time> time, std::vector<std::string> missing,
                     std::size_t threads, std::vector<std::size_t> owners)
    : fields_(std::move(fields)),
      targets_(targets),
      time_(std::move(time)),
      reader_(std::move(missing)),
      threads_(threads ? threads : default_threads()),
      owners_(std::move(owners)),
      sharing_(fields_.size()),
      values_(fields_.size()),
      invalid_utf8_(fields_.size()),
      bad_(fields_.size() + 2) {
    if (owners_.empty()) {
        owners_.resize(fields_.size());
        std::iota(owners_.begin(), owners_.end(), std::size_t{0});
    }
    for (std::size_t field = 0; field < fields_.size(); ++field) sharing_[owners_[field]].push_back(field);
}

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
    block_.labels.resize(targets_.impressions ? 0 : block_.rows);
    block_.clicks.resize(targets_.impressions ? block_.rows : 0);
    block_.impressions.resize(block_.clicks.size());
    block_.weights.resize(targets_.weight ? block_.rows : 0);
    block_.times.resize(time_ ? block_.rows : 0);
    block_.lists.resize(fields_.size());
    for (ListBuffer& lists : block_.lists) lists.clear();
    for (auto& list : bad_) list.clear();
    // One thread reads all rows of the fields that share codes, so that the codes do not depend on the timing of threads.
    parallel_for(fields_.size() + 2, threads_, [&](std::size_t task) {
        for (const Piece& piece : pieces) {
            if (task == fields_.size()) collect_labels(piece);
            else if (task > fields_.size() && time_) collect_times(piece);
        }
        if (task >= fields_.size()) return;
        for (const std::size_t field : sharing_[task])
            for (const Piece& piece : pieces) collect_field(field, piece);
    });
    block_.bad.clear();
    for (auto& list : bad_) block_.bad.insert(block_.bad.end(), list.begin(), list.end());
    std::stable_sort(block_.bad.begin(), block_.bad.end(), [](auto& a, auto& b) { return a.row < b.row; });
    return block_;
}

void Collector::collect_field(std::size_t index, const Piece& piece) {
    const Field& field = fields_[index];
    if (field.is_derived()) return void(std::fill_n(&block_.codes[index * block_.rows + piece.block_row], piece.rows, 0));
    if (field.transform.learns()) return collect_numbers(index, piece);
    if (field.list) return collect_lists(index, piece);
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
        find_codes(index, {batch.cells.data(), count}, out, [&](std::size_t i) { fail(i, Fault::encoding); });
    });
}

// Writes the codes of tokens, or their hashes. Calls fail(i) for a token that is not valid UTF-8.
template <class Fail>
void Collector::find_codes(std::size_t index, std::span<const std::string_view> tokens, std::int32_t* codes, const Fail& fail) {
    const Field& field = fields_[index];
    if (field.hash_bits) {
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            if (!is_utf8(tokens[i])) fail(i);
            codes[i] = field.hashed(tokens[i]);
        }
        return;
    }
    StringIndex& values = values_[owners_[index]];
    std::unordered_set<std::int32_t>& invalid_utf8 = invalid_utf8_[owners_[index]];
    const auto known = static_cast<std::int32_t>(values.size());
    values.add(tokens, codes);
    for (std::size_t i = 0; i < tokens.size(); ++i) {  // only new values need to be validated
        if (codes[i] >= known ? !is_utf8(tokens[i]) : !invalid_utf8.empty() && invalid_utf8.contains(codes[i])) {
            invalid_utf8.insert(codes[i]);
            fail(i);
        }
    }
}

void Collector::collect_lists(std::size_t index, const Piece& piece) {
    const ListFormat& format = *fields_[index].list;
    const Column& column = *piece.columns[fields_[index].column];
    const Column* weights = format.weight_column ? piece.columns[*format.weight_column].get() : nullptr;
    ListBuffer& lists = block_.lists[index];
    ListCell cell;
    std::vector<std::int32_t> codes;
    for (std::size_t i = 0; i < piece.rows; ++i) {
        const std::size_t row = piece.block_row + i;
        reader_.read(column, weights, piece.first + i, format, cell);
        if (cell.fault) {
            add_bad(index, row, static_cast<std::int32_t>(index), *cell.fault, cell.culprit);
            cell.values.clear();
        }
        codes.resize(cell.values.size());
        find_codes(index, cell.values, codes.data(),
                   [&](std::size_t value) { add_bad(index, row, static_cast<std::int32_t>(index), Fault::encoding, cell.values[value]); });
        for (std::size_t value = 0; value < codes.size(); ++value) lists.add(codes[value], cell.weights[value]);
        lists.finish();
        block_.codes[index * block_.rows + row] = cell.missing;
    }
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

void Collector::collect_numbers(std::size_t index, const Piece& piece) {
    for_cells(fields_[index].column, piece, [&](std::size_t row, std::string_view cell) {
        const auto number = read_number(cell);
        if (!number) add_bad(index, row, static_cast<std::int32_t>(index), Fault::number, cell);
        block_.codes[index * block_.rows + row] = std::bit_cast<std::int32_t>(number.value_or(0));
    });
}

void Collector::collect_labels(const Piece& piece) {
    if (targets_.weight) collect_weights(piece);
    if (targets_.impressions) return collect_counts(piece);
    for_cells(targets_.label, piece, [&](std::size_t row, std::string_view cell) {
        const auto label = parse_label(cell);
        block_.labels[row] = label.value_or(0);
        if (!label) add_bad(fields_.size(), row, -1, Fault::label, cell);
    });
}

void Collector::collect_counts(const Piece& piece) {
    const std::size_t task = fields_.size();
    for_cells(targets_.label, piece, [&](std::size_t row, std::string_view cell) {
        const auto clicks = parse_count(cell);
        block_.clicks[row] = clicks.value_or(0);
        if (!clicks) add_bad(task, row, -1, Fault::clicks, cell);
    });
    for_cells(*targets_.impressions, piece, [&](std::size_t row, std::string_view cell) {
        const std::uint32_t impressions = parse_count(cell).value_or(0), clicks = block_.clicks[row];
        block_.impressions[row] = impressions;
        if (!impressions) add_bad(task, row, -1, Fault::impressions, cell);
        else if (clicks > impressions) add_bad(task, row, -1, Fault::excess, std::to_string(clicks) + " > " + std::to_string(impressions));
    });
}

void Collector::collect_weights(const Piece& piece) {
    for_cells(*targets_.weight, piece, [&](std::size_t row, std::string_view cell) {
        const auto number = parse_number(cell);
        const float weight = number ? static_cast<float>(*number) : -1;
        const bool valid = weight >= 0 && weight <= std::numeric_limits<float>::max();
        block_.weights[row] = valid ? weight : 0;
        if (!valid) add_bad(fields_.size(), row, -1, Fault::weight, cell);
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

template <class Count>
void count_codes(const std::int32_t* codes, std::size_t rows, std::span<const Lists> lists, std::span<const Count> counted,
                 const std::vector<std::span<std::int64_t>>& counts, std::size_t threads) {
    parallel_for(counts.size(), threads, [&](std::size_t field) {
        if (counts[field].empty()) return;
        const std::int32_t* column = codes + field * rows;
        std::int64_t* count = counts[field].data();
        if (!lists.empty() && lists[field]) {
            for (std::size_t i = 0; i < rows; ++i) {
                const List list = lists[field][static_cast<std::int32_t>(i)];
                for (std::size_t value = 0; value < list.size; ++value) count[list.ids[value]] += counted[i];
            }
            return;
        }
        for (std::size_t i = 0; i < rows; ++i) count[column[i]] += counted[i];
    });
}

template void count_codes(const std::int32_t*, std::size_t, std::span<const Lists>, std::span<const std::uint8_t>,
                          const std::vector<std::span<std::int64_t>>&, std::size_t);
template void count_codes(const std::int32_t*, std::size_t, std::span<const Lists>, std::span<const std::uint32_t>,
                          const std::vector<std::span<std::int64_t>>&, std::size_t);

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
