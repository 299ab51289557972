#include "fm2/cross.h"

#include <map>
#include <random>
#include <string>

#include "check.h"
#include "fm2/combination_counter.h"

namespace {

std::string text_of(std::initializer_list<std::string_view> parts) {
    std::string text;
    for (const std::string_view& part : parts) fm2::append_part(part, &part == parts.begin(), text);
    return text;
}

bool splits_into(std::initializer_list<std::string_view> parts) {
    const auto split = fm2::split_combination(text_of(parts), parts.size());
    return split && std::equal(parts.begin(), parts.end(), split->begin());
}

// Rows of three columns with few values, some of them unknown.
std::vector<std::int32_t> random_rows(std::size_t rows, std::int32_t values) {
    std::mt19937 random(7);
    std::vector<std::int32_t> ids(3 * rows);
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(values));
    return ids;
}

}  // namespace

TEST(the_text_of_a_combination_identifies_it) {
    CHECK(text_of({"u1", "ad7"}) == "u1 \u00d7 ad7");
    CHECK(text_of({"", "\\", "a\u00d7b"}) == " \u00d7 \\\\ \u00d7 a\\\u00d7b");
    const std::string_view parts[]{"", " ", "\u00d7", " \u00d7 ", "\\", "\\\\", "\\\u00d7", "a ", " a", "\xc3"};
    for (const std::string_view a : parts)
        for (const std::string_view b : parts) {
            CHECK(splits_into({a, b}));
            for (const std::string_view c : parts) CHECK(splits_into({a, b, c}));
        }
}

TEST(other_texts_are_not_combinations) {
    for (const char* text : {"", "a", "a \u00d7 b \u00d7 c", "a\u00d7b", "a \\\u00d7 b", "\\a \u00d7 b", "a \u00d7 b\\"})
        CHECK(!fm2::split_combination(text, 2));
    CHECK(!fm2::split_combination("a \u00d7 b", 3));
}

TEST(a_table_finds_its_combinations) {
    for (const std::size_t part_size : {61ul, 1ul << 21}) {  // keys that are the combination, or a hash
        std::vector<fm2::Combination> combinations;
        for (std::int32_t a = 1; a < 60; ++a)
            for (std::int32_t b = 1; b < 60; b += 2) combinations.push_back({a, b, a * b % 5 + 1});
        fm2::Cross cross;
        cross.part_count = 3;
        cross.set_sizes(static_cast<std::int32_t>(combinations.size()) + 1, {part_size, part_size, part_size});
        CHECK((cross.shifts[1] == 0) == (part_size > 61));
        const std::vector<std::uint64_t> table = cross.make_table(combinations);
        cross.slots = table;
        for (std::size_t i = 0; i < combinations.size(); ++i) CHECK(cross.find(combinations[i]) == static_cast<std::int32_t>(i) + 1);
        CHECK(cross.find({1, 2, 3}) == 0 && cross.find({0, 1, 1}) == 0 && cross.find({-1, 1, 1}) == 0 && cross.find({1, 1, 0}) == 0);
        combinations.push_back(combinations[3]);
        CHECK(throws<std::invalid_argument>([&] { cross.make_table(combinations); }) == (part_size == 61));
    }
}

TEST(a_hostile_table_only_has_valid_ids) {
    fm2::Cross cross;
    cross.part_count = 2;
    cross.set_sizes(7, {3, 3, 0});
    CHECK(cross.find({1, 2, 0}) == 0);  // no table
    for (const std::uint64_t wrong : {~std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{1} << 63}) {
        const std::vector<std::uint64_t> slots(4 * fm2::Cross::line_slots, wrong);
        cross.slots = slots;
        for (std::int32_t a = -1; a < 5; ++a)
            for (std::int32_t b = -1; b < 5; ++b) CHECK(cross.find({a, b, 0}) >= 0 && cross.find({a, b, 0}) < 7);
    }
    std::vector<std::uint64_t> table = cross.make_table(std::vector<fm2::Combination>{{1, 2, 0}});
    for (std::uint64_t& slot : table) slot |= slot ? 7 : 0;  // an id that the field does not have
    cross.slots = table;
    CHECK(cross.find({1, 2, 0}) == 0);
    const std::vector<std::uint64_t> hashes{0, 11, 12};
    fm2::Cross hashed;
    hashed.part_count = 2;
    hashed.size = 9;
    hashed.hash_bits = 3;
    hashed.hashes = {hashes, {}};
    CHECK(hashed.find({3, 1, 0}) == 0 && hashed.find({2, 1 << 30, 0}) >= 1 && hashed.find({2, 1 << 30, 0}) <= 8);
}

TEST(the_hash_of_a_combination_never_changes) {
    const std::vector<std::uint64_t> hashes = fm2::feature_hashes("ab", std::vector<std::uint64_t>{1, 2});
    fm2::Cross hashed;
    hashed.part_count = 2;
    hashed.hash_bits = 20;
    hashed.hashes = {hashes, {}};
    CHECK(hashed.find({1, 3, 0}) == 584933);
    CHECK(hashed.find({2, 3, 0}) == 116208);
}

TEST(combinations_are_counted_in_any_number_of_passes) {
    const std::vector<std::int32_t> ids = random_rows(3000, 12);
    const std::vector<std::uint32_t> counted = [] {
        std::vector<std::uint32_t> counts(3000);
        for (std::size_t r = 0; r < counts.size(); ++r) counts[r] = r % 3;
        return counts;
    }();
    std::map<fm2::Combination, std::int64_t> expected;
    for (std::size_t r = 0; r < counted.size(); ++r) {
        const fm2::Combination parts{ids[3 * r + 2], ids[3 * r], 0};
        if (counted[r] && parts[0] > 0 && parts[1] > 0) expected[parts] += counted[r];
    }
    for (const std::size_t most : {1, 5, 50, 1 << 20}) {
        fm2::CombinationCounter counter({2, 0}, most);
        std::map<fm2::Combination, std::int64_t> found;
        std::size_t passes = 0;
        do {
            counter.add<std::uint32_t>(ids.data(), 3, counted);
            const auto entries = counter.take();
            CHECK(entries.size() <= most);
            for (const auto& [parts, count] : entries) CHECK(found.emplace(parts, count).second);
            ++passes;
        } while (counter.next());
        CHECK(found == expected);
        CHECK((passes == 1) == (expected.size() <= most));
    }
}
