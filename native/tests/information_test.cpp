#include "fm2/information.h"

#include <cmath>
#include <stdexcept>

#include "check.h"

namespace {

struct Found {
    std::vector<double> information, chance;
};

Found found(const std::vector<std::int32_t>& ids, const std::vector<std::uint8_t>& labels, const std::vector<std::int32_t>& sizes,
            std::size_t threads = 1) {
    const std::size_t cells = sizes.size() * sizes.size();
    Found matrices{std::vector<double>(cells), std::vector<double>(cells)};
    fm2::mutual_information(ids.data(), labels.data(), labels.size(), sizes, matrices.information.data(), matrices.chance.data(), threads);
    return matrices;
}

bool close(double a, double b) { return std::abs(a - b) < 1e-12; }

}  // namespace

TEST(what_only_a_pair_tells_is_in_the_pair) {
    // The label is the exclusive or of two fields: neither tells anything, both tell all.
    const auto [information, chance] = found({0, 0, 0, 1, 1, 0, 1, 1}, {0, 1, 1, 0}, {2, 2});
    CHECK(close(information[0], 0) && close(information[3], 0));
    CHECK(close(information[1], std::log(2)) && information[1] == information[2]);
    CHECK(close(chance[1], std::log(2)));                                    // each pair of values occurs once, so any labels would do
    CHECK(close(chance[0], std::log(2) / 3) && close(chance[3], chance[0]));  // 2 of the 6 orders have both clicks together
}

TEST(nothing_is_told_of_labels_that_are_all_alike_or_absent) {
    for (const double value : found({0, 1, 1, 0}, {1, 1}, {2, 2}).information) CHECK(value == 0);
    for (const double value : found({}, {}, {2, 2}).chance) CHECK(value == 0);
}

TEST(threads_change_no_information) {
    std::vector<std::int32_t> ids;
    std::vector<std::uint8_t> labels;
    std::uint32_t state = 7;
    const auto draw = [&](std::uint32_t below) { return ((state = state * 1664525u + 1013904223u) >> 8) % below; };
    for (int row = 0; row < 5000; ++row) {
        for (const std::uint32_t size : {3u, 900u, 40u, 1u, 5000u}) ids.push_back(static_cast<std::int32_t>(draw(size)));
        labels.push_back(static_cast<std::uint8_t>(draw(4) == 0));
    }
    const Found one = found(ids, labels, {3, 900, 40, 1, 5000}, 1);
    for (const std::size_t threads : {2, 5}) {
        const Found other = found(ids, labels, {3, 900, 40, 1, 5000}, threads);
        CHECK(other.information == one.information && other.chance == one.chance);
    }
}

TEST(ids_and_labels_out_of_range_are_refused) {
    for (const std::int32_t id : {-1, 2}) {
        bool thrown = false;
        try {
            found({0, id}, {0, 1}, {2});
        } catch (const std::out_of_range&) {
            thrown = true;
        }
        CHECK(thrown);
    }
    bool thrown = false;
    try {
        found({0, 1}, {0, 2}, {2});
    } catch (const std::out_of_range&) {
        thrown = true;
    }
    CHECK(thrown);
}
