#include "fm2/list_cell.h"

#include <algorithm>
#include <cmath>

#include "fm2/transform.h"

namespace fm2 {
namespace {

// A value in quotes that the separator has cut in two.
bool is_cut_quote(std::string_view value) { return value.starts_with('"') && std::ranges::count(value, '"') % 2; }

void add_item(std::string_view item, bool weighted, ListCell& cell) {
    if (is_cut_quote(item)) cell.fail(Fault::quoted_separator, excerpt(item));
    cell.values.push_back(weighted ? cell.add_weight_of(item) : item);
}

// Calls body(item) for the items between separators, without the blanks around them. Nothing between two separators is no item.
template <class Body>
void for_items(std::string_view text, char separator, const Body& body) {
    constexpr std::string_view blanks = " \t";
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(separator, begin), text.size());
        const std::string_view item = text.substr(begin, end - begin);
        const std::size_t first = item.find_first_not_of(blanks);
        if (first != item.npos) body(item.substr(first, item.find_last_not_of(blanks) - first + 1));
        begin = end + 1;
    }
}

}  // namespace

void ListCell::clear() {
    missing = false;
    total = 0;
    values.clear();
    weights.clear();
    invalid.clear();
    is_readable = true;
    fault.reset();
    copies_.clear();
    ends_.clear();
}

void ListCell::fail(Fault reason, std::string_view text) {
    is_readable = is_readable && reason == Fault::value_weight;
    if (fault) return;
    fault = reason;
    culprit = text;
}

std::pair<std::size_t, std::size_t> ListCell::keep(std::size_t count, const ListFormat& format) {
    total = count;
    if (!format.max_values && count > most_values) return fail(Fault::values, std::to_string(count)), std::pair{0, 0};
    const std::size_t kept = format.max_values ? std::min(count, format.max_values) : count;
    return format.keep_last ? std::pair{count - kept, count} : std::pair{std::size_t{0}, kept};
}

void ListCell::add_weight(std::string_view value, std::string_view weight) {
    const auto number = parse_number(weight);
    weights.push_back(number ? static_cast<float>(*number) : -1.0f);
    if (weights.back() >= 0 && std::isfinite(weights.back())) return;
    invalid.push_back(weights.size() - 1);
    weights.back() = 1;
    fail(Fault::value_weight, excerpt(value) + ":" + excerpt(weight));
}

std::string_view ListCell::add_weight_of(std::string_view item) {
    const std::size_t colon = item.rfind(':');
    const std::string_view value = item.substr(0, colon);
    if (colon == item.npos) weights.push_back(1);
    else add_weight(value, item.substr(colon + 1));
    return value;
}

void ListCell::copy(std::string_view value) {
    copies_ += value;
    ends_.push_back(copies_.size());
}

void ListCell::use_copies() {
    std::size_t begin = 0;
    for (const std::size_t end : ends_) {
        values.push_back(std::string_view(copies_).substr(begin, end - begin));
        begin = end;
    }
}

void split_cell(std::string_view text, const ListFormat& format, ListCell& cell) {
    cell.clear();
    cell.missing = text.empty();
    if (cell.missing) return;
    std::size_t count = 0;
    for_items(text, format.separator, [&](std::string_view) { ++count; });
    const auto [first, last] = cell.keep(count, format);
    std::size_t i = 0;
    for_items(text, format.separator, [&, first = first, last = last](std::string_view item) {
        if (i >= first && i < last) add_item(item, format.weights_in_cell(), cell);
        ++i;
    });
}

void set_weights(const ListCell& weights, ListCell& cell) {
    if (weights.missing) return cell.weights.assign(cell.values.size(), 1.0f);
    if (weights.fault) cell.fail(*weights.fault, weights.culprit);
    if (weights.total != cell.total)
        cell.fail(Fault::value_weights, std::to_string(cell.total) + " values, but " + std::to_string(weights.total) + " weights");
    if (cell.fault) return;
    cell.weights.clear();
    for (std::size_t i = 0; i < cell.values.size(); ++i) cell.add_weight(cell.values[i], weights.values[i]);
}

void pool_weights(Pooling pooling, std::span<float> weights) {
    double sum = 0;
    for (const double weight : weights) sum += pooling == Pooling::sqrt ? weight * weight : weight;
    if (pooling == Pooling::sum || sum == 0) return;
    const double divisor = pooling == Pooling::sqrt ? std::sqrt(sum) : sum;
    for (float& weight : weights) weight = static_cast<float>(weight / divisor);
}

}  // namespace fm2
