#include "fm2/information.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "fm2/pool.h"

namespace fm2 {
namespace {

// With f(n) = n ln n, and n = n0 + n1 rows of a cell (one value, or one pair of values) by label:
// N I = f(N) - f(N0) - f(N1) + the sum over all cells of f(n0) + f(n1) - f(n).
struct Sums {
    double information = 0, chance = 0;
};

class Terms {
public:
    Terms(std::size_t rows, std::size_t clicks) : rows_(rows), clicks_(clicks), f_(rows + 1), expected_(rows + 1) {
        for (std::size_t n = 1; n <= rows; ++n) f_[n] = static_cast<double>(n) * std::log(static_cast<double>(n));
        for (auto& value : expected_) value.store(unknown, std::memory_order_relaxed);
    }

    void add(std::size_t n0, std::size_t n1, Sums& sums) const {
        const std::size_t n = n0 + n1;
        if (n < 2) return;  // f(0) and f(1) are zero
        sums.information += f_[n0] + f_[n1] - f_[n];
        sums.chance += expected(n) - f_[n];
    }

    // The mutual information for a sum over all cells; rounding errors cannot make it negative.
    double information_of(double sum) const {
        return rows_ ? std::max((f_[rows_] - f_[clicks_] - f_[rows_ - clicks_] + sum) / static_cast<double>(rows_), 0.0) : 0.0;
    }

private:
    static constexpr double unknown = -1;

    // Threads may compute the same value twice; they all store the same result.
    double expected(std::size_t n) const {
        double value = expected_[n].load(std::memory_order_relaxed);
        if (value == unknown) expected_[n].store(value = average(n), std::memory_order_relaxed);
        return value;
    }

    // The mean of f(k) + f(n - k) if n rows are drawn at random and k of them are clicks. k has a hypergeometric distribution; the sum
    // starts at its mode and stops when the terms become negligible.
    double average(std::size_t n) const {
        const std::size_t others = rows_ - clicks_, least = n > others ? n - others : 0, most = std::min(n, clicks_);
        const double all = static_cast<double>(n), a = static_cast<double>(clicks_), b = static_cast<double>(others);
        const double middle = (all + 1) * (a + 1) / (static_cast<double>(rows_) + 2);
        const std::size_t mode = std::clamp(static_cast<std::size_t>(middle), least, most);
        double total = 1, sum = f_[mode] + f_[n - mode], share = 1;
        for (std::size_t k = mode; k < most && share > negligible; ++k) {
            const double x = static_cast<double>(k);
            share *= (all - x) * (a - x) / ((x + 1) * (b - all + x + 1));
            total += share;
            sum += share * (f_[k + 1] + f_[n - k - 1]);
        }
        share = 1;
        for (std::size_t k = mode; k > least && share > negligible; --k) {
            const double x = static_cast<double>(k);
            share *= x * (b - all + x) / ((all - x + 1) * (a - x + 1));
            total += share;
            sum += share * (f_[k - 1] + f_[n - k + 1]);
        }
        return sum / total;
    }

    static constexpr double negligible = 1e-18;

    std::size_t rows_, clicks_;
    std::vector<double> f_;
    mutable std::vector<std::atomic<double>> expected_;
};

// A field's column holds twice the id plus the label, so that the two counts of a cell are adjacent.
using Column = std::vector<std::uint32_t>;

std::vector<Column> columns_of(const std::int32_t* ids, const std::uint8_t* labels, std::size_t rows,
                               const std::vector<std::int32_t>& sizes, std::size_t threads) {
    constexpr std::size_t block = 1024;  // rows that stay in the cache while all fields read them
    std::vector<Column> columns(sizes.size(), Column(rows));
    parallel_ranges(rows, block, threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t row = begin; row < end; ++row)
            if (labels[row] > 1)
                throw std::out_of_range("the label of row " + std::to_string(row) + " must be 0 or 1, got " + std::to_string(labels[row]));
        for (std::size_t field = 0; field < sizes.size(); ++field)
            for (std::size_t row = begin; row < end; ++row) {
                const std::int32_t id = ids[row * sizes.size() + field];
                if (id < 0 || id >= sizes[field])
                    throw std::out_of_range("row " + std::to_string(row) + ", field " + std::to_string(field) +
                                            ": the id must be between 0 and " + std::to_string(sizes[field] - 1) + ", got " +
                                            std::to_string(id));
                columns[field][row] = static_cast<std::uint32_t>(id) << 1 | labels[row];
            }
    });
    return columns;
}

// The rows of each id of a field, in order.
struct Groups {
    std::vector<std::uint32_t> rows, ends;

    void sort(const Column& column, std::size_t size) {
        ends.assign(size + 1, 0);
        for (const std::uint32_t cell : column) ++ends[(cell >> 1) + 1];
        std::partial_sum(ends.begin(), ends.end(), ends.begin());
        rows.resize(column.size());
        for (std::size_t row = 0; row < column.size(); ++row) rows[ends[column[row] >> 1]++] = static_cast<std::uint32_t>(row);
        ends.pop_back();  // the loop moved each group's begin to its end
    }
};

Sums one_field(const Column& column, std::size_t size, const Terms& terms) {
    std::vector<std::uint32_t> counts(2 * size);
    for (const std::uint32_t cell : column) ++counts[cell];
    Sums sums;
    for (std::size_t id = 0; id < size; ++id) terms.add(counts[2 * id], counts[2 * id + 1], sums);
    return sums;
}

// Counts the other field's values, group by group. For a small group, a second walk over its rows collects the counts; for a large group,
// a scan over all values is faster.
Sums two_fields(const Groups& groups, const Column& other, std::size_t size, const Terms& terms) {
    std::vector<std::uint32_t> counts(2 * size);
    Sums sums;
    const auto collect = [&](std::size_t cell) {
        terms.add(counts[cell], counts[cell + 1], sums);
        counts[cell] = counts[cell + 1] = 0;
    };
    std::size_t begin = 0;
    for (const std::size_t end : groups.ends) {
        for (std::size_t i = begin; i < end; ++i) ++counts[other[groups.rows[i]]];
        if (end - begin < size)
            for (std::size_t i = begin; i < end; ++i) collect(other[groups.rows[i]] & ~1u);
        else
            for (std::size_t id = 0; id < size; ++id) collect(2 * id);
        begin = end;
    }
    return sums;
}

}  // namespace

void mutual_information(const std::int32_t* ids, const std::uint8_t* labels, std::size_t rows, const std::vector<std::int32_t>& sizes,
                        double* information, double* chance, std::size_t threads) {
    const std::size_t n = sizes.size();
    const std::vector<Column> columns = columns_of(ids, labels, rows, sizes, threads);
    const Terms terms(rows, static_cast<std::size_t>(std::count(labels, labels + rows, 1)));
    const auto size_of = [&](std::size_t field) { return static_cast<std::size_t>(sizes[field]); };
    // The smaller field defines the groups: they are few and large, so the accesses to the other column are nearly sequential.
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return sizes[a] < sizes[b]; });
    Groups groups;
    for (std::size_t place = 0; place < n; ++place) {
        const std::size_t i = order[place];
        groups.sort(columns[i], size_of(i));
        parallel_for(n - place, threads, [&](std::size_t further) {
            const std::size_t j = order[place + further];
            const Sums sums = further ? two_fields(groups, columns[j], size_of(j), terms) : one_field(columns[i], size_of(i), terms);
            information[i * n + j] = information[j * n + i] = terms.information_of(sums.information);
            chance[i * n + j] = chance[j * n + i] = terms.information_of(sums.chance);
        });
    }
}

}  // namespace fm2
