#include "fm2/file_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

namespace fm2 {
namespace {

// The section "encoder.fields": one such row per field. What follows `multivalued` is 0 if that is 0.
struct FieldEntry {
    std::int32_t column, kind, hash_bits, boundaries;
    std::int32_t multivalued, separator, pooling, max_values, keep_last, weighted, empty_is_missing;
    std::int32_t weight_column;  // 1 + its number; 0: none
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

Field read_field(const ModelFile& file, const FieldEntry& entry, const std::string& format, std::span<const float> boundaries,
                 std::size_t columns) {
    using Kind = Transform::Kind;
    if (entry.column < 0 || static_cast<std::size_t>(entry.column) >= columns || entry.kind < 0 ||
        entry.kind > static_cast<std::int32_t>(Kind::linear) || entry.hash_bits < 0 || entry.hash_bits > max_hash_bits)
        file.reject("invalid field description");
    Field field{static_cast<std::size_t>(entry.column), {}, static_cast<unsigned>(entry.hash_bits), read_list_format(file, entry, columns)};
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
    std::vector<Field> fields;
    std::size_t at = 0;
    for (std::size_t f = 0; f < count; ++f) {
        const auto size = static_cast<std::size_t>(entries[f].boundaries);
        if (entries[f].boundaries < 0 || size > boundaries.size() - at) file.reject("section 'encoder.boundaries' is too short");
        fields.push_back(read_field(file, entries[f], formats[f], boundaries.subspan(at, size), columns));
        at += size;
    }
    if (at != boundaries.size()) file.reject("section 'encoder.boundaries' is too long");
    return fields;
}

// Takes the next `count` numbers of a section.
template <class T>
std::span<const T> take(const ModelFile& file, std::span<const T>& remaining, std::uint64_t count) {
    if (count > remaining.size()) file.reject("a vocabulary is truncated");
    const auto taken = remaining.first(count);
    remaining = remaining.subspan(count);
    return taken;
}

}  // namespace

FileEncoder::FileEncoder(std::shared_ptr<const ModelFile> file, const Scorer& scorer)
    : file_(std::move(file)),
      columns_(read_texts(*file_, "encoder.columns", 2 * scorer.fields())),  // a field may have a column of weights
      encoder_(read_fields(*file_, scorer.fields(), columns_.size()), read_texts(*file_, "encoder.missing", max_missing)) {
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
        if (!table.slots.empty() && !std::has_single_bit(table.slots.size()))
            file_->reject("the size of a vocabulary's hash table is not a power of two");
        if ((hashed ? hashed : table.ends.size()) + 1 != size) file_->reject("a vocabulary and its field differ in size");
        encoder_.set_vocabulary(f, table);
    }
    if (!slots.empty() || !ends.empty() || !bytes.empty()) file_->reject("there are more vocabularies than fields");
}

}  // namespace fm2
