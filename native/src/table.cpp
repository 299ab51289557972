#include "fm2/table.h"

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

Table::Table() : slots_(64, Slot{0, 0, absent}) {}

std::string_view Table::text(std::size_t number) const {
    const std::uint64_t begin = number ? ends_[number - 1] : 0;
    return {bytes_.data() + begin, ends_[number] - begin};
}

Table::Probe Table::probe(std::string_view text) {
    if (text.size() > short_text) {
        const std::uint64_t hash = hash_long(text);
        return {hash, hash};
    }
    const std::uint64_t key = pack_short(text.data(), text.size());
    return {key, hash_packed(key, text.size())};
}

const Table::Slot& Table::locate(std::string_view text, Probe at) const {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = at.hash & mask;; i = (i + 1) & mask) {
        const Slot& slot = slots_[i];
        if (slot.number == absent) return slot;
        if (slot.key == at.key && slot.size == text.size() &&
            (text.size() <= short_text || this->text(static_cast<std::size_t>(slot.number)) == text))
            return slot;
    }
}

std::int32_t Table::add(std::string_view text, Probe at) {
    Slot& slot = const_cast<Slot&>(locate(text, at));
    if (slot.number != absent) return slot.number;
    if (size() >= std::numeric_limits<std::int32_t>::max() - 1)
        throw std::length_error("a field has more than two thousand million different values; give it hash_bits");
    const auto number = static_cast<std::int32_t>(size());
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    ends_.push_back(bytes_.size());
    slot = {at.key, static_cast<std::uint32_t>(text.size()), number};
    if (size() * 3 > slots_.size() * 2) grow();
    return number;
}

void Table::grow() {
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

std::int32_t Table::find(std::string_view text) const { return locate(text, probe(text)).number; }

std::int32_t Table::add(std::string_view text) { return add(text, probe(text)); }

void Table::find(std::span<const std::string_view> texts, std::int32_t* numbers) const {
    std::array<Probe, batch> probes;
    for (std::size_t first = 0; first < texts.size(); first += batch) {
        const std::size_t count = std::min(batch, texts.size() - first);
        for (std::size_t i = 0; i < count; ++i) {
            probes[i] = probe(texts[first + i]);
            __builtin_prefetch(&slots_[probes[i].hash & (slots_.size() - 1)]);
        }
        for (std::size_t i = 0; i < count; ++i) numbers[first + i] = locate(texts[first + i], probes[i]).number;
    }
}

void Table::add(std::span<const std::string_view> texts, std::int32_t* numbers) {
    std::array<Probe, batch> probes;
    for (std::size_t first = 0; first < texts.size(); first += batch) {
        const std::size_t count = std::min(batch, texts.size() - first);
        for (std::size_t i = 0; i < count; ++i) {
            probes[i] = probe(texts[first + i]);
            __builtin_prefetch(&slots_[probes[i].hash & (slots_.size() - 1)]);
        }
        for (std::size_t i = 0; i < count; ++i) numbers[first + i] = add(texts[first + i], probes[i]);
    }
}

}  // namespace fm2
