#include "fm2/encoder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "fm2/expect.h"
#include "fm2/numbers.h"
#include "fm2/pool.h"

namespace fm2 {
namespace {

// Appends all lists of a buffer to another one.
void append(const ListBuffer& from, ListBuffer& to) {
    const auto begin = static_cast<std::int64_t>(to.ids.size());
    for (std::size_t i = 1; i < from.offsets.size(); ++i) to.offsets.push_back(begin + from.offsets[i]);
    to.ids.insert(to.ids.end(), from.ids.begin(), from.ids.end());
    to.weights.insert(to.weights.end(), from.weights.begin(), from.weights.end());
}

}  // namespace

Encoder::Encoder(std::vector<Field> fields, std::vector<std::string> missing)
    : fields_(std::move(fields)),
      has_lists_(std::ranges::any_of(fields_, &Field::is_list)),
      reader_(std::move(missing)),
      tables_(fields_.size()),
      views_(fields_.size()),
      number_ids_(fields_.size()),
      reads_numbers_(fields_.size()),
      reads_lists_(fields_.size()),
      tree_tables_(fields_.size()),
      cross_tables_(fields_.size()),
      feature_hashes_(fields_.size()) {
    add_crosses();
    add_trees();
}

void Encoder::add_crosses() {
    for (std::size_t index = 0; index < fields_.size(); ++index) {
        const std::vector<std::size_t>& parts = fields_[index].parts;
        if (!fields_[index].is_cross()) continue;
        expect(parts.size() >= 2 && parts.size() <= max_parts, "a cross must have two or three parts, got ", parts.size());
        Cross cross;
        cross.field = index;
        cross.part_count = parts.size();
        cross.hash_bits = fields_[index].hash_bits;
        for (std::size_t i = 0; i < parts.size(); ++i) {
            expect(parts[i] < fields_.size() && !fields_[parts[i]].is_list() && !fields_[parts[i]].is_derived() &&
                       std::find(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1, parts.end(), parts[i]) == parts.end(),
                   "a cross must combine different fields with one value");
            cross.parts[i] = parts[i];
        }
        cross.last_part = std::ranges::max(parts);
        if (cross.hash_bits) cross.size = static_cast<std::int32_t>(1 + (std::size_t{1} << cross.hash_bits));
        crosses_.push_back(cross);
    }
    std::ranges::stable_sort(crosses_, {}, &Cross::last_part);
}

void Encoder::add_trees() {
    for (std::size_t index = 0; index < fields_.size(); ++index) {
        if (!fields_[index].trees) continue;
        Trees trees;
        trees.field = index;
        trees.parts = fields_[index].parts;
        for (const std::size_t part : trees.parts) {
            expect(part < fields_.size() && !fields_[part].trees, "trees must read fields that have no trees");
            trees.has_lists.push_back(fields_[part].list.has_value());
        }
        trees_.push_back(std::move(trees));
    }
}

// The number of features of a field, including the unknown one.
std::size_t Encoder::size_of(std::size_t field) const {
    if (fields_[field].is_cross()) return static_cast<std::size_t>(std::ranges::find(crosses_, field, &Cross::field)->size);
    return 1 + (fields_[field].hash_bits ? std::size_t{1} << fields_[field].hash_bits : views_[field].ends.size());
}

std::vector<std::size_t> Encoder::part_sizes(const Trees& trees) const {
    std::vector<std::size_t> sizes;
    for (const std::size_t part : trees.parts) sizes.push_back(size_of(part));
    return sizes;
}

void Encoder::set_trees(std::size_t field, std::span<const std::uint32_t> words, std::size_t size,
                        std::optional<std::span<const std::uint64_t>> slots) {
    Trees& current = *std::ranges::find(trees_, field, &Trees::field);
    Trees trees = current;  // which stays as it is if the new ones are invalid
    const std::vector<std::size_t> sizes = part_sizes(trees);
    std::vector<std::uint64_t> tables;
    if (!slots) tables = Trees::make_slots(words, sizes);
    trees.open(words, slots ? *slots : tables, sizes, size);
    for (const std::size_t part : trees.number_parts())
        expect(fields_[trees.parts[part]].transform.learns(), "trees read the numbers of a field that has none");
    for (std::size_t part = 0; part < sizes.size(); ++part)
        expect(!fields_[trees.parts[part]].is_list() || !trees.reads_features(part), "trees read the features of a list");
    for (const std::size_t part : trees.number_parts()) reads_numbers_[trees.parts[part]] = 1;
    for (std::size_t part = 0; part < sizes.size(); ++part) reads_lists_[trees.parts[part]] |= trees.reads_lists(part);
    tree_tables_[field] = std::move(tables);
    current = std::move(trees);
}

void Encoder::encode_derived(std::int32_t* ids, std::size_t count, std::span<const float* const> numbers,
                             std::span<const Lists> lists) const {
    for (const Cross& cross : crosses_) cross.encode(ids, count, fields_.size());
    encode_trees(ids, count, numbers, lists);
}

void Encoder::encode_trees(std::int32_t* ids, std::size_t count, std::span<const float* const> numbers,
                           std::span<const Lists> lists) const {
    static thread_local std::vector<const float*> part_numbers;
    static thread_local std::vector<Lists> part_lists;
    for (const Trees& trees : trees_) {
        part_numbers.clear();
        part_lists.clear();
        for (const std::size_t part : trees.parts) {
            part_numbers.push_back(numbers[part]);
            part_lists.push_back(lists[part]);
        }
        trees.encode(ids, count, fields_.size(), part_numbers, part_lists);
    }
}

template <class Read, class ListsOf>
void Encoder::read_trees(std::int32_t* ids, std::size_t count, const Read& read, const ListsOf& lists_of) const {
    if (trees_.empty()) return;
    static thread_local std::vector<float> buffer;
    static thread_local std::vector<const float*> numbers;
    static thread_local std::vector<Lists> lists;
    buffer.resize(std::max(buffer.size(), count * fields_.size()));
    numbers.assign(fields_.size(), nullptr);
    lists.assign(fields_.size(), {});
    for (std::size_t field = 0; field < fields_.size(); ++field) {
        if (reads_lists(field)) lists[field] = lists_of(field);
        if (!reads_numbers(field)) continue;
        read(field, buffer.data() + field * count);
        numbers[field] = buffer.data() + field * count;
    }
    encode_trees(ids, count, numbers, lists);
}

Cross& Encoder::cross_of(std::size_t field) { return *std::ranges::find(crosses_, field, &Cross::field); }

void Encoder::set_cross(const Cross& cross) { cross_of(cross.field) = cross; }

std::array<std::size_t, max_parts> Encoder::part_sizes(const Cross& cross) const {
    std::array<std::size_t, max_parts> sizes{};
    for (std::size_t i = 0; i < cross.part_count; ++i) sizes[i] = size_of(cross.parts[i]);
    return sizes;
}

// Returns the id of a value of a part, as the text of a combination has it.
std::int32_t Encoder::part_id(std::size_t field, std::string_view value) const {
    if (!fields_[field].hash_bits) return views_[field].find(value) + 1;
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(value.data() + value.starts_with('#'), value.data() + value.size(), number);
    const bool valid = value.starts_with('#') && error == std::errc{} && end == value.data() + value.size();
    return valid && number < std::uint32_t{1} << fields_[field].hash_bits ? static_cast<std::int32_t>(number + 1) : 0;
}

void Encoder::make_cross(std::size_t field, std::string_view bytes, std::span<const std::uint64_t> ends) {
    Cross& cross = cross_of(field);
    if (cross.hash_bits) {
        for (std::size_t i = 0; i < cross.part_count; ++i) {
            const std::size_t part = cross.parts[i];
            if (fields_[part].hash_bits) continue;
            if (feature_hashes_[part].empty())
                feature_hashes_[part] = feature_hashes({views_[part].bytes.data(), views_[part].bytes.size()}, views_[part].ends);
            cross.hashes[i] = feature_hashes_[part];
        }
        return;
    }
    const StringIndexView texts{{}, ends, {bytes.data(), bytes.size()}};
    std::vector<Combination> combinations(ends.size());
    for (std::size_t value = 0; value < ends.size(); ++value) {
        const auto parts = split_combination(texts.text(value), cross.part_count);
        expect(parts.has_value(), "a vocabulary of a cross has a value that is not a combination: '", texts.text(value), "'");
        for (std::size_t i = 0; i < cross.part_count; ++i) combinations[value][i] = part_id(cross.parts[i], (*parts)[i]);
    }
    cross.set_sizes(static_cast<std::int32_t>(ends.size() + 1), part_sizes(cross));
    cross_tables_[field] = cross.make_table(combinations);
    cross.slots = cross_tables_[field];
}

void Encoder::set_vocabulary(std::size_t field, std::string_view bytes, std::span<const std::uint64_t> ends) {
    if (fields_[field].is_cross()) return make_cross(field, bytes, ends);
    tables_[field] = make_string_index(bytes, ends);
    set_vocabulary(field, tables_[field].view());
}

void Encoder::set_vocabulary(std::size_t field, const StringIndexView& table) {
    views_[field] = table;
    if (fields_[field].list || !fields_[field].is_list()) return;
    number_ids_[field].clear();
    for (const std::string& text : number_texts(fields_[field].transform)) number_ids_[field].push_back(table.find(text) + 1);
    number_ids_[field].push_back(0);  // unknown
}

void Encoder::encode(const ArrowReader& table, std::size_t first, std::size_t count, const std::vector<std::size_t>& positions,
                     std::size_t threads, std::int32_t* ids, std::vector<ListBuffer>& lists) const {
    Columns columns;
    for (const std::size_t position : positions) columns.push_back(table.column(position));
    encode(columns, first, count, threads, ids, lists);
}

void Encoder::encode(std::string_view text, const TextFormat& format, const std::vector<std::size_t>& positions, bool last,
                     std::size_t threads, EncodedText& out) const {
    out.block.read(text, format, last);
    Columns columns;
    for (const std::size_t position : positions) columns.push_back(out.block.column(position));
    out.ids.resize(out.block.rows() * fields_.size());
    for (ListBuffer& lists : out.lists) lists.clear();
    encode(columns, 0, out.block.rows(), threads, out.ids.data(), out.lists);
    for (const BadRow& bad : out.block.bad())
        for (std::size_t field = 0; field < fields_.size(); ++field)
            if (!fields_[field].is_list()) out.ids[bad.row * fields_.size() + field] = 0;
}

void Encoder::encode(const Columns& columns, std::size_t first, std::size_t count, std::size_t threads, std::int32_t* ids,
                     std::vector<ListBuffer>& lists, std::span<const std::uint8_t> selected) const {
    lists.resize(std::max(lists.size(), fields_.size()));
    // The ids of a block stay in the cache while the fields fill them one by one.
    constexpr std::size_t block = 1024;
    std::vector<std::vector<ListBuffer>> parts;  // the lists of each block
    if (count > block && has_lists()) parts.resize((count + block - 1) / block, std::vector<ListBuffer>(fields_.size()));
    parallel_ranges(count, block, threads, [&](std::size_t begin, std::size_t end) {
        encode_block(columns, first + begin, end - begin, ids + begin * fields_.size(), parts.empty() ? lists : parts[begin / block], lists,
                     selected);
    });
    for (std::size_t part = 0; part < parts.size(); ++part)
        for (std::size_t field = 0; field < fields_.size(); ++field) {
            if (!fields_[field].is_list() || (!selected.empty() && !selected[field])) continue;
            const auto numbered = static_cast<std::int32_t>(lists[field].offsets.size()) - 1;
            append(parts[part][field], lists[field]);
            for (std::size_t row = part * block; row < std::min(count, (part + 1) * block); ++row)
                ids[row * fields_.size() + field] += numbered;
        }
}

void Encoder::encode_block(const Columns& columns, std::size_t first, std::size_t count, std::int32_t* ids, std::vector<ListBuffer>& lists,
                           const std::vector<ListBuffer>& common, std::span<const std::uint8_t> selected) const {
    const auto is_selected = [&](std::size_t field) { return selected.empty() || selected[field]; };
    for (std::size_t field = 0; field < fields_.size(); ++field) {
        if (fields_[field].is_derived() || !is_selected(field)) continue;
        if (fields_[field].list) encode_lists(field, columns, first, count, ids, lists[field]);
        else if (fields_[field].is_list()) encode_numbers(field, *columns[fields_[field].column], first, count, ids, lists[field]);
        else encode_field(field, *columns[fields_[field].column], first, count, ids);
    }
    for (const Cross& cross : crosses_) cross.encode(ids, count, fields_.size());
    const auto read_numbers = [&](std::size_t field, float* numbers) {
        Batch batch;
        by_batch(count, [&](std::size_t begin, std::size_t size) {
            reader_.read(*columns[fields_[field].column], first + begin, size, batch);
            for (std::size_t i = 0; i < size; ++i) numbers[begin + i] = read_number(batch.cells[i]).value_or(NAN);
        });
    };
    read_trees(ids, count, read_numbers, [&](std::size_t field) { return (is_selected(field) ? lists : common)[field].view(); });
}

void Encoder::encode_lists(std::size_t index, const Columns& columns, std::size_t first, std::size_t count, std::int32_t* ids,
                           ListBuffer& lists) const {
    const Field& field = fields_[index];
    const Column* weights = field.list->weight_column ? columns[*field.list->weight_column].get() : nullptr;
    ListCell cell;
    for (std::size_t i = 0; i < count; ++i) {
        reader_.read(*columns[field.column], weights, first + i, *field.list, cell);
        add_list(index, cell, lists);
        ids[i * fields_.size() + index] = lists.finish();
    }
}

void Encoder::encode_numbers(std::size_t index, const Column& column, std::size_t first, std::size_t count, std::int32_t* ids,
                             ListBuffer& lists) const {
    Batch batch;
    by_batch(count, [&](std::size_t begin, std::size_t size) {
        reader_.read(column, first + begin, size, batch);
        for (std::size_t i = 0; i < size; ++i) {
            add_number(index, batch.cells[i], lists);
            ids[(begin + i) * fields_.size() + index] = lists.finish();
        }
    });
}

void Encoder::add_number(std::size_t index, std::string_view cell, ListBuffer& lists) const {
    const auto number = read_number(cell);
    if (!number) return lists.add(0, 1);
    const NumberFeatures features = expand_number(*number, fields_[index].transform);
    for (std::size_t i = 0; i < features.size; ++i)
        lists.add(number_ids_[index][static_cast<std::size_t>(features.codes[i])], features.weights[i]);
}

// A cell that cannot be read is unknown, and so is a value whose weight is invalid.
void Encoder::add_list(std::size_t index, const ListCell& cell, ListBuffer& lists) const {
    if (!cell.is_readable) return lists.add(0, 1);
    const Field& field = fields_[index];
    const std::size_t begin = lists.ids.size();
    lists.ids.resize(begin + cell.values.size());
    std::int32_t* numbers = lists.ids.data() + begin;
    if (field.hash_bits) std::ranges::transform(cell.values, numbers, [&](std::string_view value) { return field.hashed(value); });
    else views_[index].find(cell.values, numbers);
    for (std::size_t i = 0; i < cell.values.size(); ++i) ++numbers[i];
    for (const std::size_t i : cell.invalid) numbers[i] = 0;
    lists.weights.insert(lists.weights.end(), cell.weights.begin(), cell.weights.end());
}

void Encoder::encode_field(std::size_t index, const Column& column, std::size_t first, std::size_t count, std::int32_t* ids) const {
    const Field& field = fields_[index];
    Batch batch;
    std::vector<std::size_t> unreadable;
    std::array<std::int32_t, Batch::capacity> numbers;
    by_batch(count, [&](std::size_t begin, std::size_t size) {
        reader_.read(column, first + begin, size, batch);
        unreadable.clear();
        field.transform.apply(batch, unreadable);
        if (field.hash_bits)
            for (std::size_t i = 0; i < size; ++i) numbers[i] = field.hashed(batch.cells[i]);
        else views_[index].find({batch.cells.data(), size}, numbers.data());
        for (const std::size_t i : unreadable) numbers[i] = StringIndex::absent;
        for (std::size_t i = 0; i < size; ++i) ids[(begin + i) * fields_.size() + index] = numbers[i] + 1;
    });
}

// Encodes one row's cell of a list field, or the values that have been read from it; returns the number of the list.
std::int32_t Encoder::encode_list(std::size_t index, std::span<const std::string_view> cells, ListCell* values, ListBuffer& lists) const {
    static thread_local ListCell read_values;
    const Field& field = fields_[index];
    if (!field.list) {
        add_number(index, reader_.read(cells[field.column]), lists);
    } else if (values) {
        reader_.finish(*field.list, *values);
        add_list(index, *values, lists);
    } else {
        const auto weights = field.list->weight_column ? std::optional(cells[*field.list->weight_column]) : std::nullopt;
        reader_.read(cells[field.column], weights, *field.list, read_values);
        add_list(index, read_values, lists);
    }
    return lists.finish();
}

std::int32_t Encoder::encode_cell(std::size_t index, std::string_view cell, CellScratch& scratch) const {
    auto& [batch, unreadable] = scratch;
    batch.cells[0] = reader_.read(cell);
    unreadable.clear();
    const Field& field = fields_[index];
    field.transform.apply(batch, unreadable);
    if (!unreadable.empty()) return 0;
    return 1 + (field.hash_bits ? field.hashed(batch.cells[0]) : views_[index].find(batch.cells[0]));
}

// Never inlined: the compiler would compute the address of a thread's scratch for every field.
[[gnu::noinline]] void Encoder::encode_row(std::span<const std::string_view> cells, std::int32_t* ids, std::vector<ListBuffer>& lists,
                                           std::span<ListCell* const> values, CellScratch& scratch) const {
    std::array<std::uint64_t, 16> hashes;  // of the first crosses
    std::size_t ready = 0;                 // crosses whose parts have been encoded
    for (std::size_t index = 0; index < fields_.size(); ++index) {
        const Field& field = fields_[index];
        // The table of a cross is fetched into the cache while the fields after its parts are encoded.
        for (; ready < std::min(crosses_.size(), hashes.size()) && crosses_[ready].last_part < index; ++ready) {
            hashes[ready] = hash_combination(crosses_[ready].combination(ids));
            crosses_[ready].prefetch(hashes[ready]);
        }
        if (field.is_derived()) continue;
        if (has_lists_ && field.is_list()) ids[index] = encode_list(index, cells, values.empty() ? nullptr : values[index], lists[index]);
        else ids[index] = encode_cell(index, cells[field.column], scratch);
    }
    for (std::size_t i = 0; i < crosses_.size(); ++i) {
        const Combination parts = crosses_[i].combination(ids);
        ids[crosses_[i].field] = i < ready ? crosses_[i].find(parts, hashes[i]) : crosses_[i].find(parts);
    }
    read_trees(
        ids, 1, [&](std::size_t field, float* number) { *number = read_number(reader_.read(cells[fields_[field].column])).value_or(NAN); },
        [&](std::size_t field) { return lists[field].view(); });
}

void Encoder::encode(std::span<const std::string_view> cells, std::int32_t* ids, std::vector<ListBuffer>& lists,
                     std::span<ListCell* const> values) const {
    static thread_local CellScratch scratch;
    scratch.batch.size = 1;
    if (has_lists_ && lists.size() < fields_.size()) lists.resize(fields_.size());
    encode_row(cells, ids, lists, values, scratch);
}

}  // namespace fm2
