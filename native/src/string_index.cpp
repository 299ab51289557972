#include "fm2/string_index.h"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>

#include "fm2/hash.h"

namespace fm2 {
namespace {

constexpr std::size_t short_text = 8;
constexpr std::size_t batch = 64;

}  // namespace

StringIndex::StringIndex() : slots_(64, Slot{0, 0, absent}) {}

std::string_view StringIndexView::text(std::size_t number) const {
    if (number >= ends.size()) return {};
    const std::uint64_t begin = number ? ends[number - 1] : 0, end = ends[number];
    return begin <= end && end <= bytes.size() ? std::string_view(bytes.data() + begin, end - begin) : std::string_view();
}

StringIndexView::Probe StringIndexView::probe(std::string_view text) {
    if (text.size() > short_text) {
        const std::uint64_t hash = hash_long(text);
        return {hash, hash};
    }
    const std::uint64_t key = pack_short(text.data(), text.size());
    return {key, hash_packed(key, text.size())};
}

const StringIndexView::Slot* StringIndexView::locate(std::string_view text, Probe at) const {
    const std::size_t mask = slots.size() - 1;
    for (std::size_t i = at.hash & mask, seen = 0; seen < slots.size(); i = (i + 1) & mask, ++seen) {
        const Slot& slot = slots[i];
        if (slot.number == absent) return &slot;
        if (slot.key == at.key && slot.size == text.size() &&
            (text.size() <= short_text || this->text(static_cast<std::size_t>(slot.number)) == text))
            return &slot;
    }
    return nullptr;
}

std::int32_t StringIndexView::find(std::string_view text) const {
    const Slot* slot = locate(text, probe(text));
    return slot && static_cast<std::uint32_t>(slot->number) < ends.size() ? slot->number : absent;
}

void StringIndexView::find(std::span<const std::string_view> texts, std::int32_t* numbers) const {
    std::array<Probe, batch> probes;
    for (std::size_t first = 0; first < texts.size(); first += batch) {
        const std::size_t count = std::min(batch, texts.size() - first);
        for (std::size_t i = 0; i < count; ++i) {
            probes[i] = probe(texts[first + i]);
            if (!slots.empty()) __builtin_prefetch(&slots[probes[i].hash & (slots.size() - 1)]);
        }
        for (std::size_t i = 0; i < count; ++i) {
            const Slot* slot = locate(texts[first + i], probes[i]);
            numbers[first + i] = slot && static_cast<std::uint32_t>(slot->number) < ends.size() ? slot->number : absent;
        }
    }
}

std::int32_t StringIndex::add(std::string_view text, StringIndexView::Probe at) {
    Slot& slot = const_cast<Slot&>(*view().locate(text, at));  // never null: a third of the slots are free
    if (slot.number != absent) return slot.number;
    if (size() >= std::numeric_limits<std::int32_t>::max() - 1)
        throw std::length_error("a field has more than 2^31 distinct values; set hash_bits");
    const auto number = static_cast<std::int32_t>(size());
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    ends_.push_back(bytes_.size());
    slot = {at.key, static_cast<std::uint32_t>(text.size()), number};
    if (size() * 3 > slots_.size() * 2) grow();
    return number;
}

void StringIndex::grow() {
    std::vector<Slot> old(slots_.size() * 2, Slot{0, 0, absent});
    old.swap(slots_);
    const std::size_t mask = slots_.size() - 1;
    for (const Slot& slot : old) {
        if (slot.number == absent) continue;
        std::size_t i = (slot.size > short_text ? slot.key : hash_packed(slot.key, slot.size)) & mask;
        while (slots_[i].number != absent) i = (i + 1) & mask;
        slots_[i] = slot;
    }
}

std::int32_t StringIndex::add(std::string_view text) { return add(text, StringIndexView::probe(text)); }

void StringIndex::add(std::span<const std::string_view> texts, std::int32_t* numbers) {
    std::array<StringIndexView::Probe, batch> probes;
    for (std::size_t first = 0; first < texts.size(); first += batch) {
        const std::size_t count = std::min(batch, texts.size() - first);
        for (std::size_t i = 0; i < count; ++i) {
            probes[i] = StringIndexView::probe(texts[first + i]);
            __builtin_prefetch(&slots_[probes[i].hash & (slots_.size() - 1)]);
        }
        for (std::size_t i = 0; i < count; ++i) numbers[first + i] = add(texts[first + i], probes[i]);
    }
}

StringIndex make_string_index(std::string_view bytes, std::span<const std::uint64_t> ends) {
    StringIndex index;
    std::uint64_t begin = 0;
    for (const std::uint64_t end : ends) {
        if (end < begin || end > bytes.size()) throw std::invalid_argument("the ends of a vocabulary do not match its bytes");
        const std::size_t size = index.size();
        if (index.add(bytes.substr(begin, end - begin)) != static_cast<std::int32_t>(size))
            throw std::invalid_argument("a vocabulary contains a value twice");
        begin = end;
    }
    return index;
}

}  // namespace fm2
