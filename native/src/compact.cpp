#include <algorithm>
#include <bit>
#include <numeric>

#include "fm2/expect.h"
#include "fm2/minibatch.h"
#include "fm2/pool.h"

namespace fm2 {
namespace {

// Numbers distinct ids from 0 on, in order of first appearance: a hash table that is as large as the batch, not as the vocabulary.
class Numbering {
public:
    explicit Numbering(std::size_t values) : slots_(std::bit_ceil(2 * values + 2), empty), shift_(32 - std::countr_zero(slots_.size())) {}

    std::int32_t number(std::int32_t id) {
        std::size_t at = (static_cast<std::uint32_t>(id) * 0x9e3779b9u) >> shift_;
        while (slots_[at] != empty && distinct[static_cast<std::size_t>(slots_[at])] != id) at = (at + 1) & (slots_.size() - 1);
        if (slots_[at] == empty) {
            slots_[at] = static_cast<std::int32_t>(distinct.size());
            distinct.push_back(id);
        }
        return slots_[at];
    }

    std::vector<std::int32_t> distinct;

private:
    static constexpr std::int32_t empty = -1;
    std::vector<std::int32_t> slots_;
    int shift_;
};

// The distinct ids of all groups, by worker and group.
Distributed by_worker(const std::vector<std::vector<std::int32_t>>& distinct, std::size_t workers) {
    Distributed out;
    out.counts.resize(workers * distinct.size());
    const auto run = [&](std::int32_t id, std::size_t group) { return static_cast<std::size_t>(id) % workers * distinct.size() + group; };
    for (std::size_t g = 0; g < distinct.size(); ++g)
        for (const std::int32_t id : distinct[g]) ++out.counts[run(id, g)];
    std::vector<std::size_t> next(out.counts.size());
    std::exclusive_scan(out.counts.begin(), out.counts.end(), next.begin(), std::size_t{0});
    const std::size_t total = next.back() + static_cast<std::size_t>(out.counts.back());
    out.features.resize(total);
    out.ids.resize(total);
    for (std::size_t g = 0; g < distinct.size(); ++g)
        for (std::size_t i = 0; i < distinct[g].size(); ++i) {
            const std::size_t at = next[run(distinct[g][i], g)]++;
            out.features[at] = distinct[g][i] / static_cast<std::int32_t>(workers);
            out.ids[at] = static_cast<std::int32_t>(i);
        }
    return out;
}

}  // namespace

Distributed Minibatch::compact(std::span<const std::size_t> owner, std::size_t workers, std::size_t threads) {
    expect(!full_sizes_.empty() && !compacted_, "compact: the batch cannot be compacted, or has been already");
    expect(owner.size() == fields() && workers >= 1, "compact: expected an owner for every field, and at least one worker");
    std::vector<std::vector<std::size_t>> groups;
    std::vector<std::size_t> group_of(fields());
    for (std::size_t f = 0; f < fields(); ++f) {
        expect(owner[f] <= f && owner[owner[f]] == owner[f] && sizes_[owner[f]] == sizes_[f], "compact: field ", f,
               " has an invalid owner");
        if (owner[f] == f) groups.emplace_back();
        group_of[f] = owner[f] == f ? groups.size() - 1 : group_of[owner[f]];
        groups[group_of[f]].push_back(f);
    }
    std::vector<std::vector<std::int32_t>> distinct(groups.size());
    parallel_for(groups.size(), threads, [&](std::size_t g) {
        std::size_t values = 0;
        for (const std::size_t f : groups[g]) values += count_values(f);
        Numbering numbering(values);
        for (const std::size_t f : groups[g]) {
            std::int32_t* ids = is_list(f) ? values_[f].ids.data() : ids_.data() + f * stride_;
            for (std::size_t i = 0; i < count_values(f); ++i) ids[i] = numbering.number(ids[i]);
        }
        distinct[g] = std::move(numbering.distinct);
        for (const std::size_t f : groups[g]) sizes_[f] = std::max(static_cast<std::int32_t>(distinct[g].size()), 1);
    });
    is_alone_.resize(fields());
    for (std::size_t f = 0; f < fields(); ++f) is_alone_[f] = groups[group_of[f]].size() == 1;
    index();
    compacted_ = true;
    return by_worker(distinct, workers);
}

}  // namespace fm2
