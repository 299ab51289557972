// Model files that were crafted: whatever they hold, they are refused or they score.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "fm2/file_encoder.h"
#include "fm2/hash.h"
#include "fm2/model_file.h"
#include "fm2/plans.h"
#include "fm2/scorer.h"
#include "kernels/kernels.h"

namespace {

using Bytes = std::vector<std::byte>;
using Sections = std::map<std::string, Bytes>;

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
}

Bytes bytes_of(std::string_view text) { return bytes_of(std::vector<char>(text.begin(), text.end())); }

std::size_t rounded(std::size_t size) { return (size + 63) / 64 * 64; }

// Index and sections of a file; all but the header.
Bytes rest_of(const Sections& sections) {
    Bytes rest(sections.size() * 64);
    std::size_t place = 0;
    for (const auto& [name, content] : sections) {
        const std::uint64_t extent[]{64 + rest.size(), content.size()};
        std::memcpy(&rest[place * 64], name.data(), name.size());
        std::memcpy(&rest[place * 64 + 48], extent, sizeof extent);
        rest.insert(rest.end(), content.begin(), content.end());
        rest.resize(rounded(rest.size()));
        ++place;
    }
    return rest;
}

class TemporaryFile {
public:
    TemporaryFile() : path_(std::filesystem::temp_directory_path() / ("fm2_model_test." + std::to_string(getpid()))) {}
    ~TemporaryFile() { std::filesystem::remove(path_); }
    std::string path() const { return path_.string(); }

    void write(const Bytes& rest, std::uint32_t sections) const {
        std::filesystem::remove(path_);  // an older one may still be mapped
        const Bytes header = fm2::model_header(sections, rest, 1);
        std::ofstream file(path_, std::ios::binary);
        for (const Bytes* part : {&header, &rest}) file.write(reinterpret_cast<const char*>(part->data()), static_cast<std::streamsize>(part->size()));
    }

private:
    std::filesystem::path path_;
};

// Opens a model and scores with the first and the last feature of every field, and some values.
bool usable(const std::string& path) {
    try {
        const auto file = std::make_shared<fm2::ModelFile>(path, true, 1);
        const fm2::Scorer scorer(file);
        const fm2::FileEncoder encoder(file, scorer.sizes());
        std::vector<std::int32_t> ids(scorer.fields());
        float logit;
        scorer.score(fm2::kernels(), ids.data(), 1, &logit, 1);
        for (std::size_t f = 0; f < ids.size(); ++f) ids[f] = scorer.sizes()[f] - 1;
        scorer.score(fm2::kernels(), ids.data(), 1, &logit, 1);
        for (const std::string_view value : {"", "a", "a text that is long", "@-9223372036854775808", "1e308"}) {
            const std::vector<std::string_view> cells(encoder.columns().size(), value);
            encoder.encoder().encode(cells, ids.data());
            scorer.score(fm2::kernels(), ids.data(), 1, &logit, 1);
        }
        return true;
    } catch (const fm2::BadModel&) {
        return false;
    }
}

bool usable(const Sections& sections) {
    const TemporaryFile file;
    file.write(rest_of(sections), static_cast<std::uint32_t>(sections.size()));
    return usable(file.path());
}

// Two fields: one of the values "a" and "a text that is long", one of hours.
Sections encoder_sections() {
    fm2::StringIndex table;
    table.add("a");
    table.add("a text that is long");
    fm2::StringIndex hours;
    hours.add("");
    std::vector<fm2::StringIndexView::Slot> slots(table.view().slots.begin(), table.view().slots.end());
    slots.insert(slots.end(), hours.view().slots.begin(), hours.view().slots.end());
    using namespace std::string_view_literals;
    return {{"encoder.columns", bytes_of("x\0y\0"sv)},
            {"encoder.fields", bytes_of(std::vector<std::int32_t>{0, 0, 0, 0, 1, 4, 0, 0})},
            {"encoder.boundaries", {}},
            {"encoder.formats", bytes_of("\0unix\0"sv)},
            {"encoder.missing", bytes_of("none\0"sv)},
            {"vocabulary.counts", bytes_of(std::vector<std::uint64_t>{64, 2, 20, 64, 1, 0})},
            {"vocabulary.slots", bytes_of(slots)},
            {"vocabulary.ends", bytes_of(std::vector<std::uint64_t>{1, 20, 0})},
            {"vocabulary.bytes", bytes_of("aa text that is long"sv)},
            {"sizes", bytes_of(std::vector<std::int32_t>{3, 2})},
            {"bias", bytes_of(std::vector<float>{0.5f})}};
}

Bytes plan(std::int64_t form, std::int64_t number, std::int64_t fields, std::int64_t dim = 0, std::int64_t hash_bits = 0, std::int64_t diagonal = 0) {
    return bytes_of(std::vector<std::int64_t>{form, number, fields, dim, hash_bits, diagonal});
}

Sections squares() {
    Sections sections = encoder_sections();
    const std::size_t stride = fm2::RowLayout(fm2::Number::f32, 3, 0).stride;
    sections["plan"] = plan(1, 0, 2, 3);
    sections["signs"] = Bytes(8 * 4);
    sections["rows"] = Bytes(rounded(3 * stride) + rounded(2 * stride));
    return sections;
}

Sections partners() {
    Sections sections = encoder_sections();
    const std::size_t stride = fm2::RowLayout(fm2::Number::i8, 0, 5).stride;
    sections["plan"] = plan(2, 2, 2, 5);
    sections["rows"] = Bytes(rounded(3 * stride) + rounded(2 * stride));
    return sections;
}

Sections prefixes() {
    Sections sections = encoder_sections();
    using fm2::Number;
    sections["plan"] = plan(0, 1, 2);
    sections["order"] = bytes_of(std::vector<std::int32_t>{1, 0});
    sections["dims"] = bytes_of(std::vector<std::int32_t>{3, 9});
    sections["cached"] = bytes_of(std::vector<std::int32_t>{2, 1});
    sections["stretches"] = bytes_of(std::vector<std::int32_t>{1, 0, 8});
    sections["rows"] = Bytes(rounded(2 * fm2::RowLayout(Number::f16, 0, 3).stride) + rounded(fm2::RowLayout(Number::f16, 8, 9).stride) +
                             rounded(2 * fm2::RowLayout(Number::f16, 0, 9).stride));
    sections["matrix"] = Bytes(rounded(9 * 8 * 4));
    return sections;
}

// Fields of the dimensions 30, 20 and 1, one feature each. Only the third meets others, by a product that is cached. All numbers are 1, so
// that its term is how many it meets; the bias is 0.5.
Sections pruned(const std::vector<std::int32_t>& stretches, std::size_t products) {
    Sections sections;
    const std::size_t stride = fm2::RowLayout(fm2::Number::f32, products, 1).stride;
    sections["plan"] = plan(0, 0, 3);
    sections["sizes"] = bytes_of(std::vector<std::int32_t>{1, 1, 1});
    sections["bias"] = bytes_of(std::vector<float>{0.5f});
    sections["order"] = bytes_of(std::vector<std::int32_t>{2, 0, 1});
    sections["dims"] = bytes_of(std::vector<std::int32_t>{30, 20, 1});
    sections["cached"] = bytes_of(std::vector<std::int32_t>{0, 0, 1});
    sections["stretches"] = bytes_of(stretches);
    sections["matrix"] = Bytes(rounded(products * 4));
    std::vector<float> rows(rounded(31 * 4) / 4 + rounded(21 * 4) / 4 + rounded(stride) / 4);
    std::fill_n(rows.begin(), 30, 1.0f);
    std::fill_n(rows.begin() + 32, 20, 1.0f);
    std::fill_n(rows.begin() + 64, products, 1.0f);
    sections["rows"] = bytes_of(rows);
    return sections;
}

float logit_of(const Sections& sections) {
    const TemporaryFile file;
    file.write(rest_of(sections), static_cast<std::uint32_t>(sections.size()));
    const fm2::Scorer scorer(std::make_shared<fm2::ModelFile>(file.path(), true, 1));
    const std::int32_t ids[3]{};
    float logit;
    scorer.score(fm2::kernels(), ids, 1, &logit, 1);
    return logit;
}

bool meets(const std::vector<std::int32_t>& stretches, std::size_t products) {
    try {
        logit_of(pruned(stretches, products));
        return true;
    } catch (const fm2::BadModel&) {
        return false;
    }
}

// Sets the number at a place of a section.
template <class T>
Sections with(Sections sections, const std::string& name, std::size_t place, T value) {
    std::memcpy(&sections.at(name).at(place * sizeof(T)), &value, sizeof(T));
    return sections;
}

}  // namespace

TEST(crafted_models_are_usable_before_they_are_spoilt) { CHECK(usable(squares()) && usable(partners()) && usable(prefixes())); }

TEST(plans_that_are_none_are_refused) {
    for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{1} << 17, INT64_MAX, INT64_MIN})
        for (std::size_t place = 0; place < 6; ++place)
            for (const Sections& model : {squares(), partners(), prefixes()}) CHECK(!usable(with(model, "plan", place, wrong)));
    CHECK(!usable(with<std::int64_t>(partners(), "plan", 3, 0)));   // a dimension
    CHECK(!usable(with<std::int64_t>(squares(), "plan", 3, 9)));    // a rank that the rows do not have
    CHECK(!usable(with<std::int64_t>(squares(), "plan", 4, 30)));   // pairs that are not there
    CHECK(!usable(with<std::int64_t>(prefixes(), "plan", 5, 1)));   // diagonals of unequal dimensions
    CHECK(!usable(with<std::int64_t>(squares(), "plan", 2, 1)));    // a field too few
}

TEST(sizes_that_do_not_fit_are_refused) {
    for (const std::int32_t wrong : {0, -1, INT32_MIN, INT32_MAX, 4}) {
        for (const Sections& model : {squares(), partners(), prefixes()}) CHECK(!usable(with(model, "sizes", 0, wrong)));
        for (const char* name : {"order", "dims", "cached"}) {
            if (wrong == 0 && std::string_view(name) != "dims") continue;  // which can be
            CHECK(!usable(with(prefixes(), name, 1, wrong)));
        }
    }
    CHECK(!usable(with<std::int32_t>(prefixes(), "order", 0, 0)));  // a field twice
    for (const Sections& whole : {squares(), partners(), prefixes()})
        for (const auto& [name, content] : whole) {
            Sections longer = whole, shorter = whole, without = whole;
            longer[name].resize(content.size() + 64);
            without.erase(name);
            CHECK(!usable(without));
            CHECK(!usable(longer) || name == "encoder.missing");  // there may be any number of such words
            if (content.empty()) continue;
            shorter[name].resize(content.size() > 64 ? content.size() - 64 : content.size() - 1);
            CHECK(!usable(shorter));
        }
}

TEST(fields_meet_the_stretches_that_they_name) {
    CHECK(logit_of(pruned({}, 0)) == 0.5f);
    CHECK(logit_of(pruned({2, 0, 8}, 8)) == 8.5f);
    CHECK(logit_of(pruned({2, 3, 8, 2, 30, 16}, 24)) == 24.5f);
    CHECK(logit_of(pruned({2, 0, 32, 2, 45, 8}, 40)) == 37.5f);  // three of the last eight stand before the field
    CHECK(logit_of(pruned({2, 0, 56}, 56)) == 50.5f);
}

TEST(stretches_that_are_none_are_refused) {
    CHECK(meets({2, 0, 8, 2, 8, 8}, 16) && meets({2, 49, 8}, 8));
    for (const std::int32_t wrong : {-1, 50, INT32_MIN, INT32_MAX, INT32_MAX - 7}) CHECK(!meets({2, wrong, 8}, 8));   // begins
    for (const std::int32_t wrong : {-8, 0, 1, 7, 12, 64, INT32_MIN, INT32_MAX - 7}) CHECK(!meets({2, 0, wrong}, 8));  // lengths
    for (const std::int32_t wrong : {-1, 0, 3, INT32_MIN, INT32_MAX}) CHECK(!meets({wrong, 0, 8}, 8));                 // places
    CHECK(!meets({2, 8, 8, 2, 0, 8}, 16));            // not in their order
    CHECK(!meets({2, 0, 16, 2, 8, 8}, 24));           // two overlap
    CHECK(!meets({2, 0, 8, 1, 0, 8}, 16));            // an earlier field's
    CHECK(!meets({2, 0, 8, 2, 16}, 16));              // cut off
    CHECK(!meets({2, 0, 16}, 8) && !meets({2, 0, 8}, 16));  // other rows than there are
}

TEST(encoders_that_do_not_fit_are_refused) {
    for (std::size_t place = 0; place < 6; ++place)
        for (const std::uint64_t wrong : {std::uint64_t{3}, std::uint64_t{1} << 60, UINT64_MAX}) CHECK(!usable(with(squares(), "vocabulary.counts", place, wrong)));
    for (const std::int32_t wrong : {-1, 31, INT32_MIN, INT32_MAX})
        for (std::size_t place = 0; place < 8; ++place) CHECK(!usable(with(squares(), "encoder.fields", place, wrong)));
    Sections zeros = squares();
    zeros["encoder.columns"] = Bytes(1 << 20);
    CHECK(!usable(zeros));
    zeros = squares();
    zeros["encoder.missing"] = Bytes(1 << 20);
    CHECK(!usable(zeros));
    Sections format = squares();
    format["encoder.formats"] = bytes_of(std::string_view("\0%\0", 3));
    CHECK(!usable(format));
}

TEST(vocabularies_may_hold_anything) {
    for (const std::uint64_t wrong : {std::uint64_t{0}, std::uint64_t{21}, std::uint64_t{1} << 63, UINT64_MAX})
        for (std::size_t place = 0; place < 3; ++place) CHECK(usable(with(squares(), "vocabulary.ends", place, wrong)));
    for (const std::int32_t number : {0, 2, 3, -1, -2, INT32_MIN, INT32_MAX}) {  // slots that are all taken, by this number
        Sections full = squares();
        for (std::size_t slot = 0; slot < 128; ++slot) {
            full = with<std::int32_t>(full, "vocabulary.slots", 4 * slot + 3, number);
            full = with<std::uint64_t>(full, "vocabulary.slots", 2 * slot, fm2::StringIndexView::probe("a text that is long").key);
            full = with<std::uint32_t>(full, "vocabulary.slots", 4 * slot + 2, 19);
        }
        CHECK(usable(full));
    }
}

TEST(a_table_of_anyones_parts_answers_within_bounds) {
    using Slot = fm2::StringIndexView::Slot;
    const std::vector<std::uint64_t> ends{5, 2, UINT64_MAX};
    const std::string_view bytes = "hello";
    CHECK((fm2::StringIndexView{{}, ends, bytes}.find("a") == fm2::StringIndexView::absent));
    for (const std::int32_t number : {0, 1, 2, 3, -2, INT32_MIN, INT32_MAX})
        for (const std::string_view text : {std::string_view("a"), std::string_view("more than eight bytes")}) {
            const std::vector<Slot> slots(4, Slot{fm2::StringIndexView::probe(text).key, static_cast<std::uint32_t>(text.size()), number});
            const fm2::StringIndexView table{slots, ends, bytes};
            const std::int32_t found = table.find(text);
            CHECK(found >= fm2::StringIndexView::absent && found < 3);
            CHECK(table.find("other") == fm2::StringIndexView::absent);
            std::int32_t many[2];
            const std::string_view texts[]{text, "other"};
            table.find(texts, many);
            CHECK(many[0] == found && many[1] == fm2::StringIndexView::absent);
        }
    const fm2::StringIndexView table{{}, ends, bytes};
    CHECK(table.text(0) == "hello" && table.text(1).empty() && table.text(2).empty() && table.text(3).empty());
}

TEST(sections_that_lie_elsewhere_are_refused) {
    const TemporaryFile file;
    const Sections sections = squares();
    const auto count = static_cast<std::uint32_t>(sections.size());
    for (std::size_t entry = 0; entry < sections.size(); ++entry)
        for (const std::uint64_t wrong : {std::uint64_t{1}, std::uint64_t{65}, std::uint64_t{1} << 20, UINT64_MAX, UINT64_MAX - 63})
            for (const std::size_t place : {48, 56}) {
                Bytes rest = rest_of(sections);
                std::memcpy(&rest[entry * 64 + place], &wrong, sizeof wrong);
                file.write(rest, count);
                CHECK(!usable(file.path()));
            }
    for (const std::uint32_t wrong : {0u, 1u, 60000u, 70000u, UINT32_MAX}) {
        file.write(rest_of(sections), wrong);
        CHECK(!usable(file.path()));
    }
}

// Thousands of models with a few numbers changed; the sanitizers look on.
TEST(no_change_of_a_few_bytes_does_harm) {
    const TemporaryFile file;
    std::uint64_t state = 1;
    const auto random = [&](std::size_t below) { return static_cast<std::size_t>((state = fm2::mix(state + 0x9e3779b97f4a7c15u, 0xd1342543de82ef95u)) % below); };
    constexpr std::uint64_t numbers[]{0, 1, 2, 7, 64, 255, 1 << 16, INT32_MAX, 0x80000000u, UINT32_MAX, std::uint64_t{1} << 32, INT64_MAX, UINT64_MAX};
    std::size_t scored = 0, tried = 0;
    for (const Sections& model : {squares(), partners(), prefixes()}) {
        const Bytes whole = rest_of(model);
        for (int i = 0; i < 700; ++i, ++tried) {
            Bytes rest = whole;
            for (std::size_t changes = 1 + random(3); changes; --changes) {
                const std::size_t width = random(2) ? 4 : 8;
                std::memcpy(&rest[random(rest.size() / 8) * 8], &numbers[random(std::size(numbers))], width);
            }
            file.write(rest, static_cast<std::uint32_t>(model.size()));
            scored += usable(file.path());
        }
    }
    CHECK(scored > 0 && scored < tried);
}
