#include "fm2/string_index.h"

#include <string>
#include <unordered_map>
#include <vector>

#include "check.h"
#include "fm2/hash.h"

TEST(numbers_follow_first_appearance) {
    fm2::StringIndex index;
    CHECK(index.add("b") == 0 && index.add("") == 1 && index.add("b") == 0 && index.add("a longer text than eight") == 2);
    CHECK(index.find("") == 1 && index.find("c") == fm2::StringIndex::absent);
    CHECK(index.text(0) == "b" && index.text(1).empty() && index.text(2) == "a longer text than eight");
}

TEST(a_large_index_agrees_with_a_standard_map) {
    fm2::StringIndex index;
    std::unordered_map<std::string, std::int32_t> expected;
    std::vector<std::string> texts;
    for (std::uint64_t i = 0; i < 200000; ++i) {  // texts of all short lengths, many of them repeated
        const std::uint64_t random = fm2::mix(i % 150000 + 1, 0x9e3779b97f4a7c15u);
        texts.push_back(std::to_string(random).substr(0, random % 19));
    }
    std::vector<std::string_view> views(texts.begin(), texts.end());
    std::vector<std::int32_t> numbers(texts.size()), found(texts.size());
    index.add(views, numbers.data());
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto number = expected.emplace(texts[i], static_cast<std::int32_t>(expected.size())).first->second;
        CHECK(numbers[i] == number);
        CHECK(index.text(static_cast<std::size_t>(number)) == texts[i]);
    }
    CHECK(index.size() == expected.size());
    index.find(views, found.data());
    CHECK(found == numbers);
}

TEST(short_texts_with_zero_bytes_are_distinct) {
    fm2::StringIndex index;
    using namespace std::string_view_literals;
    CHECK(index.add("a"sv) == 0 && index.add("a\0"sv) == 1 && index.add("\0a"sv) == 2 && index.add("\0"sv) == 3);
}

TEST(the_hash_never_changes) {
    CHECK(fm2::hash_bytes("") == 0x7a7f4014f9e08e15u);
    CHECK(fm2::hash_bytes("05db9164") == 0x2fab589eb7b678b7u);
    CHECK(fm2::hash_bytes("a text of more than eight bytes") == 0xbe6b723b840dd66cu);
}
