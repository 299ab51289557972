#include "fm2/file_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

namespace fm2 {
namespace {

// The section "encoder.fields": a row of numbers for every field.
struct FieldEntry {
    std::int32_t column, kind, hash_bits, boundaries;
};
constexpr std::int32_t max_hash_bits = 30;
constexpr std::size_t max_missing = 1 << 12;

// Texts that end with a zero byte each. They are few, however many zeros a section has: every one of them takes memory.
std::vector<std::string> texts(const ModelFile& file, std::string_view name, std::size_t most) {
    const auto bytes = file.numbers<char>(name);
    std::vector<std::string> found;
    for (auto begin = bytes.begin(); begin != bytes.end();) {
        const auto end = std::find(begin, bytes.end(), '\0');
        if (end == bytes.end()) file.refuse("the section '" + std::string(name) + "' is cut off");
        if (found.size() == most) file.refuse("the section '" + std::string(name) + "' has more than " + std::to_string(most) + " texts");
        found.emplace_back(begin, end);
        begin = end + 1;
    }
    return found;
}

Field read_field(const ModelFile& file, const FieldEntry& entry, const std::string& format, std::span<const float> boundaries, std::size_t columns) {
    using Kind = Transform::Kind;
    if (entry.column < 0 || static_cast<std::size_t>(entry.column) >= columns || entry.kind < 0 ||
        entry.kind > static_cast<std::int32_t>(Kind::hour) || entry.hash_bits < 0 || entry.hash_bits > max_hash_bits)
        file.refuse("a field is described by numbers that mean nothing");
    Field field{static_cast<std::size_t>(entry.column), {}, static_cast<unsigned>(entry.hash_bits)};
    field.transform.kind = static_cast<Kind>(entry.kind);
    field.transform.boundaries.assign(boundaries.begin(), boundaries.end());
    if (!std::ranges::is_sorted(boundaries) || std::ranges::any_of(boundaries, [](float b) { return std::isnan(b); }))
        file.refuse("the boundaries of a field are not in order");
    if (field.transform.kind == Kind::weekday || field.transform.kind == Kind::hour) {
        try {
            field.transform.time.emplace(format);
        } catch (const std::invalid_argument& wrong) {
            file.refuse(wrong.what());
        }
    }
    return field;
}

std::vector<Field> read_fields(const ModelFile& file, std::size_t count, std::size_t columns) {
    const auto entries = file.numbers<FieldEntry>("encoder.fields", count);
    const auto boundaries = file.numbers<float>("encoder.boundaries");
    const auto formats = texts(file, "encoder.formats", count);
    if (formats.size() != count) file.refuse("it has not a time format for every field");
    std::vector<Field> fields;
    std::size_t at = 0;
    for (std::size_t f = 0; f < count; ++f) {
        const auto own = static_cast<std::size_t>(entries[f].boundaries);
        if (entries[f].boundaries < 0 || own > boundaries.size() - at) file.refuse("the boundaries of a field are cut off");
        fields.push_back(read_field(file, entries[f], formats[f], boundaries.subspan(at, own), columns));
        at += own;
    }
    if (at != boundaries.size()) file.refuse("it has more boundaries than its fields");
    return fields;
}

// Takes the next of a section's numbers.
template <class T>
std::span<const T> next(const ModelFile& file, std::span<const T>& left, std::uint64_t count) {
    if (count > left.size()) file.refuse("a vocabulary is cut off");
    const auto taken = left.first(count);
    left = left.subspan(count);
    return taken;
}

}  // namespace

FileEncoder::FileEncoder(std::shared_ptr<const ModelFile> file, std::span<const std::int32_t> sizes)
    : file_(std::move(file)),
      columns_(texts(*file_, "encoder.columns", sizes.size())),
      encoder_(read_fields(*file_, sizes.size(), columns_.size()), texts(*file_, "encoder.missing", max_missing)) {
    const auto counts = file_->numbers<std::uint64_t>("vocabulary.counts", 3 * sizes.size());
    auto slots = file_->numbers<StringIndexView::Slot>("vocabulary.slots");
    auto ends = file_->numbers<std::uint64_t>("vocabulary.ends");
    auto bytes = file_->numbers<char>("vocabulary.bytes");
    const auto entries = file_->numbers<FieldEntry>("encoder.fields", sizes.size());
    for (std::size_t f = 0; f < sizes.size(); ++f) {
        const std::uint64_t size = static_cast<std::uint64_t>(sizes[f]), hashed = entries[f].hash_bits ? std::uint64_t{1} << entries[f].hash_bits : 0;
        const StringIndexView table{next(*file_, slots, counts[3 * f]), next(*file_, ends, counts[3 * f + 1]), next(*file_, bytes, counts[3 * f + 2])};
        if (!table.slots.empty() && !std::has_single_bit(table.slots.size())) file_->refuse("a vocabulary's table has no size that fits");
        if ((hashed ? hashed : table.ends.size()) + 1 != size) file_->refuse("a vocabulary has another size than its field");
        encoder_.set_vocabulary(f, table);
    }
    if (!slots.empty() || !ends.empty() || !bytes.empty()) file_->refuse("it has more vocabularies than fields");
}

}  // namespace fm2
