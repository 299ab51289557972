#include "fm2/file_encoder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <stdexcept>

namespace fm2 {
namespace {

// The section "encoder.fields": one such row per field. What follows `multivalued` is 0 if that is 0.
struct FieldEntry {
    std::int32_t column;  // -1: the field is derived
    std::int32_t kind, hash_bits, boundaries;
    std::int32_t multivalued, separator, pooling, max_values, keep_last, weighted, empty_is_missing;
    std::int32_t weight_column;  // 1 + its number; 0: none
};
// The section "crosses", which a model without crosses does not have: one such row per cross, in the order of the fields.
struct CrossEntry {
    std::int32_t field;
    std::array<std::int32_t, max_parts> parts;  // the last one is -1 if there are two
};
constexpr std::int32_t max_hash_bits = 30;
constexpr std::size_t max_missing = 1 << 12;

// Reads zero-terminated texts. Each takes memory, so a section of millions of zeros is rejected.
std::vector<std::string> read_texts(const ModelFile& file, std::string_view name, std::size_t max) {
    const auto bytes = file.numbers<char>(name);
    std::vector<std::string> texts;
    for (auto begin = bytes.begin(); begin != bytes.end();) {
        const auto end = std::find(begin, bytes.end(), '\0');
        if (end == bytes.end()) file.reject("section '" + std::string(name) + "' is truncated");
        if (texts.size() == max) file.reject("section '" + std::string(name) + "' has more than " + std::to_string(max) + " texts");
        texts.emplace_back(begin, end);
        begin = end + 1;
    }
    return texts;
}

bool is_flag(std::int32_t value) { return value == 0 || value == 1; }

std::optional<ListFormat> read_list_format(const ModelFile& file, const FieldEntry& entry, std::size_t columns) {
    if (!is_flag(entry.multivalued)) file.reject("invalid field description");
    if (!entry.multivalued) {
        if (entry.separator || entry.pooling || entry.max_values || entry.keep_last || entry.weighted || entry.empty_is_missing ||
            entry.weight_column)
            file.reject("invalid field description");
        return std::nullopt;
    }
    if (entry.separator < 1 || entry.separator > 127 || entry.pooling < 0 || entry.pooling > static_cast<std::int32_t>(Pooling::sqrt) ||
        entry.max_values < 0 || !is_flag(entry.keep_last) || !is_flag(entry.weighted) || !is_flag(entry.empty_is_missing) ||
        entry.weight_column < 0 || static_cast<std::size_t>(entry.weight_column) > columns || (entry.weight_column && !entry.weighted) ||
        entry.kind != static_cast<std::int32_t>(Transform::Kind::none))
        file.reject("invalid description of a multi-valued field");
    ListFormat format;
    format.separator = static_cast<char>(entry.separator);
    format.pooling = static_cast<Pooling>(entry.pooling);
    format.max_values = static_cast<std::size_t>(entry.max_values);
    format.keep_last = entry.keep_last;
    format.weighted = entry.weighted;
    format.empty_is_missing = entry.empty_is_missing;
    if (entry.weight_column) format.weight_column = static_cast<std::size_t>(entry.weight_column) - 1;
    return format;
}

// Boundaries and knots are sorted; "linear" has a mean and a positive standard deviation. Without training rows there are none.
bool are_boundaries(Transform::Kind kind, std::span<const float> numbers) {
    using Kind = Transform::Kind;
    const auto is_finite = [](float number) { return std::isfinite(number); };
    if (kind == Kind::linear || kind == Kind::interpolate)
        if (!std::ranges::all_of(numbers, is_finite)) return false;
    if (kind == Kind::linear) return numbers.empty() || (numbers.size() == 2 && numbers[1] > 0);
    return std::ranges::is_sorted(numbers) && std::ranges::none_of(numbers, [](float number) { return std::isnan(number); });
}

// Returns the parts of each field; fields that are read from a column have none. The encoder checks them.
std::vector<std::vector<std::size_t>> read_parts(const ModelFile& file, std::size_t fields) {
    std::vector<std::vector<std::size_t>> parts(fields);
    if (!file.has("crosses")) return parts;
    for (const CrossEntry& entry : file.numbers<CrossEntry>("crosses")) {
        const auto field = static_cast<std::size_t>(entry.field);  // huge if negative
        if (field >= fields || !parts[field].empty()) file.reject("invalid field of a cross");
        for (const std::int32_t part : entry.parts)
            if (part != -1) parts[field].push_back(static_cast<std::size_t>(part));
        if (parts[field].empty()) file.reject("a cross has no parts");
    }
    return parts;
}

// Takes the next `count` numbers of a section.
template <class T>
std::span<const T> take(const ModelFile& file, std::span<const T>& remaining, std::uint64_t count) {
    if (count > remaining.size()) file.reject("a section of the encoder is truncated");
    const auto taken = remaining.first(count);
    remaining = remaining.subspan(count);
    return taken;
}

// The section "trees", which a model without trees does not have, describes the trees of one field after the other: the field, the number
// of its parts, the number of words of its trees, the parts, and the words. Calls visit(field, parts, words).
template <class Visit>
void visit_trees(const ModelFile& file, const Visit& visit) {
    if (!file.has("trees")) return;
    auto words = file.numbers<std::uint32_t>("trees");
    while (!words.empty()) {
        const auto counts = take(file, words, 3);
        const auto parts = take(file, words, counts[1]);
        visit(counts[0], parts, take(file, words, counts[2]));
    }
}

Field read_trees(const ModelFile& file, const FieldEntry& entry, std::vector<std::size_t> parts) {
    if (entry.column != -1 || entry.kind || entry.hash_bits || entry.boundaries || entry.multivalued)
        file.reject("invalid description of a tree field");
    return {0, {}, 0, read_list_format(file, entry, 0), std::move(parts), true};
}

Field read_cross(const ModelFile& file, const FieldEntry& entry, std::vector<std::size_t> parts) {
    if (entry.column != -1 || entry.kind || entry.boundaries || entry.multivalued || entry.hash_bits < 0 || entry.hash_bits > max_hash_bits)
        file.reject("invalid description of a cross");
    return {0, {}, static_cast<unsigned>(entry.hash_bits), read_list_format(file, entry, 0), std::move(parts), false};
}

Field read_field(const ModelFile& file, const FieldEntry& entry, const std::string& format, std::span<const float> boundaries,
                 std::size_t columns) {
    using Kind = Transform::Kind;
    if (entry.column < 0 || static_cast<std::size_t>(entry.column) >= columns || entry.kind < 0 ||
        entry.kind > static_cast<std::int32_t>(Kind::linear) || entry.hash_bits < 0 || entry.hash_bits > max_hash_bits)
        file.reject("invalid field description");
    Field field{static_cast<std::size_t>(entry.column), {}, static_cast<unsigned>(entry.hash_bits),
                read_list_format(file, entry, columns), {}, false};
    field.transform.kind = static_cast<Kind>(entry.kind);
    field.transform.boundaries.assign(boundaries.begin(), boundaries.end());
    if (!are_boundaries(field.transform.kind, boundaries)) file.reject("the boundaries of a field are invalid or not sorted");
    if (field.transform.kind == Kind::weekday || field.transform.kind == Kind::hour) {
        try {
            field.transform.time.emplace(format);
        } catch (const std::invalid_argument& error) {
            file.reject(error.what());
        }
    }
    return field;
}

std::vector<Field> read_fields(const ModelFile& file, std::size_t count, std::size_t columns) {
    const auto entries = file.numbers<FieldEntry>("encoder.fields", count);
    const auto boundaries = file.numbers<float>("encoder.boundaries");
    const auto formats = read_texts(file, "encoder.formats", count);
    if (formats.size() != count) file.reject("expected one time format per field");
    std::vector<std::vector<std::size_t>> parts = read_parts(file, count);
    std::vector<bool> has_trees(count);
    visit_trees(file, [&](std::size_t field, std::span<const std::uint32_t> inputs, auto) {
        if (field >= count || !parts[field].empty() || inputs.empty()) file.reject("invalid field of trees");
        parts[field].assign(inputs.begin(), inputs.end());
        has_trees[field] = true;
    });
    std::vector<Field> fields;
    std::size_t at = 0;
    for (std::size_t f = 0; f < count; ++f) {
        const auto size = static_cast<std::size_t>(entries[f].boundaries);
        if (entries[f].boundaries < 0 || size > boundaries.size() - at) file.reject("section 'encoder.boundaries' is too short");
        fields.push_back(has_trees[f]       ? read_trees(file, entries[f], std::move(parts[f]))
                         : parts[f].empty() ? read_field(file, entries[f], formats[f], boundaries.subspan(at, size), columns)
                                            : read_cross(file, entries[f], std::move(parts[f])));
        at += size;
    }
    if (at != boundaries.size()) file.reject("section 'encoder.boundaries' is too long");
    return fields;
}

Encoder make_encoder(const ModelFile& file, std::size_t fields, std::size_t columns) {
    try {
        return Encoder(read_fields(file, fields, columns), read_texts(file, "encoder.missing", max_missing));
    } catch (const std::invalid_argument& error) {
        file.reject(error.what());
    }
}

}  // namespace

FileEncoder::FileEncoder(std::shared_ptr<const ModelFile> file, const Scorer& scorer)
    : file_(std::move(file)),
      columns_(read_texts(*file_, "encoder.columns", 2 * scorer.fields())),  // a field may have a column of weights
      encoder_(make_encoder(*file_, scorer.fields(), columns_.size())) {
    read_vocabularies(scorer);
    read_crosses(scorer.sizes());
    read_trees(scorer.sizes());
}

// The section "trees.slots" has the hash tables of the pairs of all tree fields.
void FileEncoder::read_trees(std::span<const std::int32_t> sizes) {
    if (encoder_.trees().empty()) return;
    auto remaining = file_->numbers<std::uint64_t>("trees.slots");
    visit_trees(*file_, [&](std::size_t field, auto, std::span<const std::uint32_t> words) {
        try {
            const auto slots = take(*file_, remaining, Trees::count_slots(words));
            encoder_.set_trees(field, words, static_cast<std::size_t>(sizes[field]), slots);
        } catch (const std::invalid_argument& error) {
            file_->reject(error.what());
        }
    });
    if (!remaining.empty()) file_->reject("section 'trees.slots' is too long");
}

void FileEncoder::read_vocabularies(const Scorer& scorer) {
    const std::span<const std::int32_t> sizes = scorer.sizes();
    const auto counts = file_->numbers<std::uint64_t>("vocabulary.counts", 3 * sizes.size());
    auto slots = file_->numbers<StringIndexView::Slot>("vocabulary.slots");
    auto ends = file_->numbers<std::uint64_t>("vocabulary.ends");
    auto bytes = file_->numbers<char>("vocabulary.bytes");
    const auto entries = file_->numbers<FieldEntry>("encoder.fields", sizes.size());
    for (std::size_t f = 0; f < sizes.size(); ++f) {
        const std::uint64_t size = static_cast<std::uint64_t>(sizes[f]),
                            hashed = entries[f].hash_bits ? std::uint64_t{1} << entries[f].hash_bits : 0;
        const StringIndexView table{take(*file_, slots, counts[3 * f]), take(*file_, ends, counts[3 * f + 1]),
                                    take(*file_, bytes, counts[3 * f + 2])};
        if (encoder_.field(f).is_list() != (scorer.lists()[f] != 0))
            file_->reject("the plan and the encoder differ in multi-valued fields");
        if (!encoder_.field(f).is_cross() && !table.slots.empty() && !std::has_single_bit(table.slots.size()))
            file_->reject("the size of a vocabulary's hash table is not a power of two");
        if ((hashed ? hashed : table.ends.size()) + 1 != size) file_->reject("a vocabulary and its field differ in size");
        encoder_.set_vocabulary(f, table);
    }
    if (!slots.empty() || !ends.empty() || !bytes.empty()) file_->reject("there are more vocabularies than fields");
}

// The slots of a cross are those of its combinations. The section "crosses.hashes" has the hashes of the features of all parts of hashed
// crosses, in the order of the fields; those of parts that are hashed themselves follow from their ids.
void FileEncoder::read_crosses(std::span<const std::int32_t> sizes) {
    if (encoder_.crosses().empty()) return;
    auto remaining = file_->numbers<std::uint64_t>("crosses.hashes");
    std::vector<std::span<const std::uint64_t>> hashes(sizes.size());
    const auto is_hashed_part = [&](std::size_t field) {
        return std::ranges::any_of(encoder_.crosses(), [&](const Cross& cross) {
            return cross.hash_bits && std::ranges::find(cross.fields(), field) != cross.fields().end();
        });
    };
    for (std::size_t f = 0; f < sizes.size(); ++f)
        if (!encoder_.field(f).hash_bits && is_hashed_part(f)) hashes[f] = take(*file_, remaining, static_cast<std::uint64_t>(sizes[f]));
    if (!remaining.empty()) file_->reject("section 'crosses.hashes' is too long");
    for (Cross cross : std::vector<Cross>(encoder_.crosses().begin(), encoder_.crosses().end())) {
        const auto bytes = std::as_bytes(encoder_.vocabulary(cross.field).slots);
        if (bytes.size() % (Cross::line_slots * sizeof(std::uint64_t))) file_->reject("the hash table of a cross is truncated");
        cross.slots = {reinterpret_cast<const std::uint64_t*>(bytes.data()), bytes.size() / sizeof(std::uint64_t)};
        if (!cross.hash_bits) cross.set_sizes(sizes[cross.field], encoder_.part_sizes(cross));
        for (std::size_t i = 0; i < cross.part_count && cross.hash_bits; ++i) cross.hashes[i] = hashes[cross.parts[i]];
        encoder_.set_cross(cross);
    }
}

}  // namespace fm2
