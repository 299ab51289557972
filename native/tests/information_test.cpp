#include "fm2/information.h"

#include <cmath>
#include <stdexcept>

#include "check.h"

namespace {

struct Matrices {
    std::vector<double> information, chance;
};

Matrices compute(const std::vector<std::int32_t>& ids, const std::vector<std::uint8_t>& labels, const std::vector<std::int32_t>& sizes,
                 std::size_t threads = 1) {
    const std::size_t cells = sizes.size() * sizes.size();
    Matrices matrices{std::vector<double>(cells), std::vector<double>(cells)};
    fm2::mutual_information(ids.data(), labels.data(), labels.size(), sizes, matrices.information.data(), matrices.chance.data(), threads);
    return matrices;
}

bool close(double a, double b) { return std::abs(a - b) < 1e-12; }

}  // namespace

TEST(the_information_of_xor_is_in_the_pair) {
    // The label is the exclusive or of two fields: a single field has no information, the pair has all.
    const auto [information, chance] = compute({0, 0, 0, 1, 1, 0, 1, 1}, {0, 1, 1, 0}, {2, 2});
    CHECK(close(information[0], 0) && close(information[3], 0));
    CHECK(close(information[1], std::log(2)) && information[1] == information[2]);
    CHECK(close(chance[1], std::log(2)));  // each pair of values occurs once, so it predicts permuted labels as well
    CHECK(close(chance[0], std::log(2) / 3) && close(chance[3], chance[0]));  // in 2 of the 6 permutations, both clicks have the same value
}

TEST(constant_or_no_labels_have_no_information) {
    for (const double value : compute({0, 1, 1, 0}, {1, 1}, {2, 2}).information) CHECK(value == 0);
    for (const double value : compute({}, {}, {2, 2}).chance) CHECK(value == 0);
}

TEST(the_information_does_not_depend_on_the_number_of_threads) {
    std::vector<std::int32_t> ids;
    std::vector<std::uint8_t> labels;
    std::uint32_t state = 7;
    const auto draw = [&](std::uint32_t below) { return ((state = state * 1664525u + 1013904223u) >> 8) % below; };
    for (int row = 0; row < 5000; ++row) {
        for (const std::uint32_t size : {3u, 900u, 40u, 1u, 5000u}) ids.push_back(static_cast<std::int32_t>(draw(size)));
        labels.push_back(static_cast<std::uint8_t>(draw(4) == 0));
    }
    const Matrices one = compute(ids, labels, {3, 900, 40, 1, 5000}, 1);
    for (const std::size_t threads : {2, 5}) {
        const Matrices other = compute(ids, labels, {3, 900, 40, 1, 5000}, threads);
        CHECK(other.information == one.information && other.chance == one.chance);
    }
}

TEST(ids_and_labels_out_of_range_throw) {
    for (const std::int32_t id : {-1, 2}) CHECK(throws<std::out_of_range>([&] { compute({0, id}, {0, 1}, {2}); }));
    CHECK(throws<std::out_of_range>([] { compute({0, 1}, {0, 2}, {2}); }));
}
