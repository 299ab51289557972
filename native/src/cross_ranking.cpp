#include "fm2/cross_ranking.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace fm2 {
namespace {

constexpr std::array<double, 11> ridges{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000};
constexpr std::uint32_t absent = std::numeric_limits<std::uint32_t>::max();

struct Sums {
    Combination ids;
    double count = 0;
    std::array<double, 2> residual{}, curvature{};  // by half

    double weight(std::size_t half, double ridge) const { return residual[half] / (curvature[half] + ridge); }
    double weight(double ridge) const { return (residual[0] + residual[1]) / (curvature[0] + curvature[1] + ridge); }
};

double log_loss(double logit, double label) { return std::max(logit, 0.0) - label * logit + std::log1p(std::exp(-std::abs(logit))); }

// The combinations of the training rows, and what their rows add up to.
class CombinationSums {
public:
    CombinationSums(std::span<const std::size_t> fields, const ResidualRows& training, std::size_t min_count)
        : fields_(fields), min_count_(static_cast<double>(min_count)), index_(std::bit_ceil(2 * training.rows() + 1), absent) {
        const std::size_t mask = index_.size() - 1;
        for (std::size_t r = 0; r < training.rows(); ++r) {
            Combination ids;
            if (!read(training.ids, training.rows(), r, ids)) continue;
            std::size_t at = hash_combination(ids) & mask;
            while (index_[at] != absent && sums_[index_[at]].ids != ids) at = (at + 1) & mask;
            if (index_[at] == absent) {
                index_[at] = static_cast<std::uint32_t>(sums_.size());
                sums_.push_back({ids, 0, {}, {}});
            }
            Sums& sums = sums_[index_[at]];
            sums.count += training.counts[r];
            sums.residual[training.halves[r]] += training.residuals[r];
            sums.curvature[training.halves[r]] += training.curvatures[r];
        }
    }

    // The ridge with the best fit of the other half: the largest sum of w g - w² h / 2.
    double best_ridge() const {
        std::array<double, ridges.size()> fits{};
        for (const Sums& sums : sums_) {
            if (sums.count < min_count_) continue;
            for (std::size_t i = 0; i < ridges.size(); ++i)
                for (const std::size_t half : {0, 1}) {
                    const double weight = sums.weight(half, ridges[i]);
                    fits[i] += weight * (sums.residual[1 - half] - weight * sums.curvature[1 - half] / 2);
                }
        }
        return ridges[static_cast<std::size_t>(std::ranges::max_element(fits) - fits.begin())];
    }

    std::size_t frequent() const {
        return static_cast<std::size_t>(std::ranges::count_if(sums_, [&](const Sums& sums) { return sums.count >= min_count_; }));
    }

    // The sums of a row's combination; null if it is unknown or too rare.
    const Sums* find(const std::int32_t* columns, std::size_t rows, std::size_t row) const {
        Combination ids;
        if (!read(columns, rows, row, ids)) return nullptr;
        const std::size_t mask = index_.size() - 1;
        for (std::size_t at = hash_combination(ids) & mask; index_[at] != absent; at = (at + 1) & mask) {
            const Sums& sums = sums_[index_[at]];
            if (sums.ids == ids) return sums.count >= min_count_ ? &sums : nullptr;
        }
        return nullptr;
    }

private:
    // Reads a combination; returns false if a part is unknown.
    bool read(const std::int32_t* columns, std::size_t rows, std::size_t row, Combination& ids) const {
        ids = {};
        bool known = true;
        for (std::size_t i = 0; i < fields_.size(); ++i) {
            ids[i] = columns[fields_[i] * rows + row];
            known &= ids[i] > 0;
        }
        return known;
    }

    std::span<const std::size_t> fields_;
    double min_count_;
    std::vector<std::uint32_t> index_;  // a hash table of positions in sums_
    std::vector<Sums> sums_;
};

}  // namespace

CrossGain measure_cross(std::span<const std::size_t> fields, const ResidualRows& training, const ValidationRows& validation,
                        std::size_t min_count) {
    const CombinationSums sums(fields, training, min_count);
    const double ridge = sums.best_ridge();
    std::vector<double> gains(validation.rows());
    double total = 0, weights = 0, covered = 0;
    for (std::size_t r = 0; r < validation.rows(); ++r) {
        weights += validation.weights[r];
        const Sums* found = sums.find(validation.ids, validation.rows(), r);
        if (!found) continue;
        const double logit = validation.logits[r], label = validation.labels[r];
        gains[r] = log_loss(logit, label) - log_loss(logit + found->weight(ridge), label);
        total += validation.weights[r] * gains[r];
        covered += validation.weights[r];
    }
    if (weights == 0) return {0, 0, sums.frequent(), 0, ridge};
    double squares = 0;
    for (std::size_t r = 0; r < validation.rows(); ++r) squares += std::pow(validation.weights[r] * (gains[r] - total / weights), 2);
    return {total / weights, std::sqrt(squares) / weights, sums.frequent(), covered / weights, ridge};
}

void cross_shifts(std::span<const std::size_t> fields, const ResidualRows& training, const ValidationRows& validation,
                  std::size_t min_count, float* training_shifts, float* validation_shifts) {
    const CombinationSums sums(fields, training, min_count);
    const double ridge = sums.best_ridge();
    for (std::size_t r = 0; r < training.rows(); ++r) {
        const Sums* found = sums.find(training.ids, training.rows(), r);
        training_shifts[r] = found ? static_cast<float>(found->weight(1u - training.halves[r], ridge)) : 0;
    }
    for (std::size_t r = 0; r < validation.rows(); ++r) {
        const Sums* found = sums.find(validation.ids, validation.rows(), r);
        validation_shifts[r] = found ? static_cast<float>(found->weight(ridge)) : 0;
    }
}

}  // namespace fm2
