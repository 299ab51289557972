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

std::string_view TableView::text(std::size_t number) const {
    if (number >= ends.size()) return {};
    const std::uint64_t begin = number ? ends[number - 1] : 0, end = ends[number];
    return begin <= end && end <= bytes.size() ? std::string_view(bytes.data() + begin, end - begin) : std::string_view();
}

TableView::Probe TableView::probe(std::string_view text) {
    if (text.size() > short_text) {
        const std::uint64_t hash = hash_long(text);
        return {hash, hash};
    }
    const std::uint64_t key = pack_short(text.data(), text.size());
    return {key, hash_packed(key, text.size())};
}

const TableView::Slot* TableView::locate(std::string_view text, Probe at) const {
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

std::int32_t TableView::find(std::string_view text) const {
    const Slot* slot = locate(text, probe(text));
    return slot && static_cast<std::uint32_t>(slot->number) < ends.size() ? slot->number : absent;
}

void TableView::find(std::span<const std::string_view> texts, std::int32_t* numbers) const {
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

std::int32_t Table::add(std::string_view text, TableView::Probe at) {
    Slot& slot = const_cast<Slot&>(*view().locate(text, at));  // never null: a third of the slots is free
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

std::int32_t Table::add(std::string_view text) { return add(text, TableView::probe(text)); }

void Table::add(std::span<const std::string_view> texts, std::int32_t* numbers) {
    std::array<TableView::Probe, batch> probes;
    for (std::size_t first = 0; first < texts.size(); first += batch) {
        const std::size_t count = std::min(batch, texts.size() - first);
        for (std::size_t i = 0; i < count; ++i) {
            probes[i] = TableView::probe(texts[first + i]);
            __builtin_prefetch(&slots_[probes[i].hash & (slots_.size() - 1)]);
        }
        for (std::size_t i = 0; i < count; ++i) numbers[first + i] = add(texts[first + i], probes[i]);
    }
}

Table table_of(std::string_view bytes, std::span<const std::uint64_t> ends) {
    Table table;
    std::uint64_t begin = 0;
    for (const std::uint64_t end : ends) {
        if (end < begin || end > bytes.size()) throw std::invalid_argument("the vocabulary's ends do not fit its bytes");
        const std::size_t size = table.size();
        if (table.add(bytes.substr(begin, end - begin)) != static_cast<std::int32_t>(size))
            throw std::invalid_argument("the vocabulary has a value twice");
        begin = end;
    }
    return table;
}

}  // namespace fm2
