// Crafted model files: whatever they contain, they are rejected or they score.
#include <unistd.h>

#include <cmath>
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

Bytes integers(const std::vector<std::int32_t>& values) { return bytes_of(values); }

std::size_t rounded(std::size_t size) { return (size + 63) / 64 * 64; }

// Returns the index and the sections of a file, without the header.
Bytes body_of(const Sections& sections) {
    Bytes body(sections.size() * 64);
    std::size_t entry = 0;
    for (const auto& [name, content] : sections) {
        const std::uint64_t extent[]{64 + body.size(), content.size()};
        std::memcpy(&body[entry * 64], name.data(), name.size());
        std::memcpy(&body[entry * 64 + 48], extent, sizeof extent);
        body.insert(body.end(), content.begin(), content.end());
        body.resize(rounded(body.size()));
        ++entry;
    }
    return body;
}

class TemporaryFile {
public:
    TemporaryFile() : path_(std::filesystem::temp_directory_path() / ("fm2_model_test." + std::to_string(getpid()))) {}
    ~TemporaryFile() { std::filesystem::remove(path_); }
    std::string path() const { return path_.string(); }

    void write(const Sections& sections) const { write(body_of(sections), static_cast<std::uint32_t>(sections.size())); }
    void write(const Bytes& body, std::uint32_t sections) const {
        std::filesystem::remove(path_);  // the previous one may still be mapped
        const Bytes header = fm2::model_header(sections, body, 1);
        std::ofstream file(path_, std::ios::binary);
        for (const Bytes* part : {&header, &body})
            file.write(reinterpret_cast<const char*>(part->data()), static_cast<std::streamsize>(part->size()));
    }

private:
    std::filesystem::path path_;
};

// Opens a model, then scores the first and the last feature of every field and a few values. Returns whether the file was accepted.
bool usable(const std::string& path) {
    return !throws<fm2::BadModel>([&] {
        const auto file = std::make_shared<fm2::ModelFile>(path, true, 1);
        const fm2::Scorer scorer(file);
        const fm2::FileEncoder encoder(file, scorer);
        fm2::RowBuffer row;
        float logit;
        for (const bool last : {false, true}) {
            row.start(scorer, 1);
            for (std::size_t f = 0; f < scorer.fields(); ++f) {
                const std::int32_t id = last ? scorer.sizes()[f] - 1 : 0;
                row.lists()[f].add(id, 0.5f);
                row.row(0)[f] = scorer.lists()[f] ? row.lists()[f].finish() : id;
            }
            scorer.score(fm2::kernels(), row.view(scorer), &logit, 1);
        }
        for (const std::string_view value : {"", "a", "a text that is long", "@-9223372036854775808", "1e308"}) {
            const std::vector<std::string_view> cells(encoder.columns().size(), value);
            row.start(scorer, 1);
            encoder.encoder().encode(cells, row.row(0), row.lists());
            scorer.score(fm2::kernels(), row.view(scorer), &logit, 1);
        }
    });
}

bool usable(const Sections& sections) {
    const TemporaryFile file;
    file.write(sections);
    return usable(file.path());
}

// Two fields: one with the values "a" and "a text that is long", one with hours.
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
            {"encoder.fields", integers({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})},
            {"encoder.boundaries", {}},
            {"encoder.formats", bytes_of("\0unix\0"sv)},
            {"encoder.missing", bytes_of("none\0"sv)},
            {"vocabulary.counts", bytes_of(std::vector<std::uint64_t>{64, 2, 20, 64, 1, 0})},
            {"vocabulary.slots", bytes_of(slots)},
            {"vocabulary.ends", bytes_of(std::vector<std::uint64_t>{1, 20, 0})},
            {"vocabulary.bytes", bytes_of("aa text that is long"sv)},
            {"sizes", integers({3, 2})},
            {"lists", Bytes(2)},
            {"bias", bytes_of(std::vector<float>{0.5f})}};
}

Bytes plan(std::int64_t kind, std::int64_t dtype, std::int64_t fields, std::int64_t dim = 0, std::int64_t hash_bits = 0,
           std::int64_t diagonal = 0) {
    return bytes_of(std::vector<std::int64_t>{kind, dtype, fields, dim, hash_bits, diagonal});
}

Sections sums() {
    Sections sections = encoder_sections();
    const std::size_t stride = fm2::RowLayout(fm2::Dtype::f32, 3, 0).stride;
    sections["plan"] = plan(1, 0, 2, 3);
    sections["signs"] = Bytes(8 * 4);
    sections["rows"] = Bytes(rounded(3 * stride) + rounded(2 * stride));
    return sections;
}

Sections field_aware() {
    Sections sections = encoder_sections();
    const std::size_t stride = fm2::RowLayout(fm2::Dtype::i8, 0, 5).stride;
    sections["plan"] = plan(2, 2, 2, 5);
    sections["rows"] = Bytes(rounded(3 * stride) + rounded(2 * stride));
    return sections;
}

Sections field_matrices() {
    Sections sections = encoder_sections();
    using fm2::Dtype;
    sections["plan"] = plan(0, 1, 2);
    sections["order"] = integers({1, 0});
    sections["dims"] = integers({3, 9});
    sections["cached"] = integers({2, 1});
    sections["ranges"] = integers({1, 0, 8});
    sections["rows"] = Bytes(rounded(2 * fm2::RowLayout(Dtype::f16, 0, 3).stride) + rounded(fm2::RowLayout(Dtype::f16, 8, 9).stride) +
                             rounded(2 * fm2::RowLayout(Dtype::f16, 0, 9).stride));
    sections["matrices"] = Bytes(rounded(9 * 8 * 4));
    return sections;
}

// Three fields of dimensions 30, 20 and 1 with one feature each. Only the third interacts with others, through a cached product. All
// numbers are 1, so its pair term is the number of columns it interacts with; the bias is 0.5.
Sections pruned(const std::vector<std::int32_t>& ranges, std::size_t products) {
    Sections sections;
    const std::size_t stride = fm2::RowLayout(fm2::Dtype::f32, products, 1).stride;
    sections["plan"] = plan(0, 0, 3);
    sections["sizes"] = integers({1, 1, 1});
    sections["lists"] = Bytes(3);
    sections["bias"] = bytes_of(std::vector<float>{0.5f});
    sections["order"] = integers({2, 0, 1});
    sections["dims"] = integers({30, 20, 1});
    sections["cached"] = integers({0, 0, 1});
    sections["ranges"] = bytes_of(ranges);
    sections["matrices"] = Bytes(rounded(products * 4));
    std::vector<float> rows(rounded(31 * 4) / 4 + rounded(21 * 4) / 4 + rounded(stride) / 4);
    std::fill_n(rows.begin(), 30, 1.0f);
    std::fill_n(rows.begin() + 32, 20, 1.0f);
    std::fill_n(rows.begin() + 64, products, 1.0f);
    sections["rows"] = bytes_of(rows);
    return sections;
}

float logit_of(const Sections& sections) {
    const TemporaryFile file;
    file.write(sections);
    const fm2::Scorer scorer(std::make_shared<fm2::ModelFile>(file.path(), true, 1));
    const std::int32_t ids[3]{};
    float logit;
    scorer.score(fm2::kernels(), {ids, 1, 3, {}}, &logit, 1);
    return logit;
}

bool accepts_ranges(const std::vector<std::int32_t>& ranges, std::size_t products) {
    return !throws<fm2::BadModel>([&] { logit_of(pruned(ranges, products)); });
}

// Replaces the number at an index of a section.
template <class T>
Sections with(Sections sections, const std::string& name, std::size_t index, T value) {
    std::memcpy(&sections.at(name).at(index * sizeof(T)), &value, sizeof(T));
    return sections;
}

// The same model with a multi-valued first field, divided by "|".
Sections with_list(Sections sections) {
    const std::int32_t settings[]{1, '|', 0, 3, 1, 1, 1, 2};  // with weights in the second column
    for (std::size_t i = 0; i < std::size(settings); ++i) sections = with(sections, "encoder.fields", 4 + i, settings[i]);
    return with<std::uint8_t>(sections, "lists", 0, 1);
}

}  // namespace

TEST(unmodified_models_score) {
    for (const Sections& model : {sums(), field_aware(), field_matrices()}) CHECK(usable(model) && usable(with_list(model)));
}

TEST(invalid_plans_are_rejected) {
    for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{1} << 17, INT64_MAX, INT64_MIN})
        for (std::size_t index = 0; index < 6; ++index)
            for (const Sections& model : {sums(), field_aware(), field_matrices()}) CHECK(!usable(with(model, "plan", index, wrong)));
    CHECK(!usable(with<std::int64_t>(field_aware(), "plan", 3, 0)));   // a dimension
    CHECK(!usable(with<std::int64_t>(sums(), "plan", 3, 9)));    // a rank the rows do not have
    CHECK(!usable(with<std::int64_t>(sums(), "plan", 4, 30)));   // missing pairs
    CHECK(!usable(with<std::int64_t>(field_matrices(), "plan", 5, 1)));   // diagonals of unequal dimensions
    CHECK(!usable(with<std::int64_t>(sums(), "plan", 2, 1)));    // one field too few
}

TEST(inconsistent_sizes_are_rejected) {
    for (const std::int32_t wrong : {0, -1, INT32_MIN, INT32_MAX, 4}) {
        for (const Sections& model : {sums(), field_aware(), field_matrices()}) CHECK(!usable(with(model, "sizes", 0, wrong)));
        for (const char* name : {"order", "dims", "cached"}) {
            if (wrong == 0 && std::string_view(name) != "dims") continue;  // a valid value
            CHECK(!usable(with(field_matrices(), name, 1, wrong)));
        }
    }
    CHECK(!usable(with<std::int32_t>(field_matrices(), "order", 0, 0)));  // a repeated field
    for (const Sections& original : {sums(), field_aware(), field_matrices()})
        for (const auto& [name, content] : original) {
            Sections longer = original, shorter = original, without = original;
            longer[name].resize(content.size() + 64);
            without.erase(name);
            CHECK(!usable(without));
            CHECK(!usable(longer) || name == "encoder.missing");  // any number of texts is valid
            if (content.empty()) continue;
            shorter[name].resize(content.size() > 64 ? content.size() - 64 : content.size() - 1);
            CHECK(!usable(shorter));
        }
}

TEST(fields_interact_with_their_column_ranges) {
    CHECK(logit_of(pruned({}, 0)) == 0.5f);
    CHECK(logit_of(pruned({2, 0, 8}, 8)) == 8.5f);
    CHECK(logit_of(pruned({2, 3, 8, 2, 30, 16}, 24)) == 24.5f);
    CHECK(logit_of(pruned({2, 0, 32, 2, 45, 8}, 40)) == 37.5f);  // only three of the last eight columns precede the field
    CHECK(logit_of(pruned({2, 0, 56}, 56)) == 50.5f);
}

TEST(invalid_column_ranges_are_rejected) {
    CHECK(accepts_ranges({2, 0, 8, 2, 8, 8}, 16) && accepts_ranges({2, 49, 8}, 8));
    for (const std::int32_t wrong : {-1, 50, INT32_MIN, INT32_MAX, INT32_MAX - 7}) CHECK(!accepts_ranges({2, wrong, 8}, 8));   // begins
    for (const std::int32_t wrong : {-8, 0, 1, 7, 12, 64, INT32_MIN, INT32_MAX - 7}) CHECK(!accepts_ranges({2, 0, wrong}, 8));  // lengths
    for (const std::int32_t wrong : {-1, 0, 3, INT32_MIN, INT32_MAX}) CHECK(!accepts_ranges({wrong, 0, 8}, 8));  // fields
    CHECK(!accepts_ranges({2, 8, 8, 2, 0, 8}, 16));  // unsorted
    CHECK(!accepts_ranges({2, 0, 16, 2, 8, 8}, 24));  // overlapping
    CHECK(!accepts_ranges({2, 0, 8, 1, 0, 8}, 16));  // of an earlier field
    CHECK(!accepts_ranges({2, 0, 8, 2, 16}, 16));  // truncated
    CHECK(!accepts_ranges({2, 0, 16}, 8) && !accepts_ranges({2, 0, 8}, 16));  // more or fewer products than the rows have
}

TEST(invalid_encoders_are_rejected) {
    for (std::size_t index = 0; index < 6; ++index)
        for (const std::uint64_t wrong : {std::uint64_t{3}, std::uint64_t{1} << 60, UINT64_MAX})
            CHECK(!usable(with(sums(), "vocabulary.counts", index, wrong)));
    for (const std::int32_t wrong : {-1, 31, INT32_MIN, INT32_MAX})
        for (std::size_t index = 0; index < 24; ++index) CHECK(!usable(with(sums(), "encoder.fields", index, wrong)));
    Sections zeros = sums();
    zeros["encoder.columns"] = Bytes(1 << 20);
    CHECK(!usable(zeros));
    zeros = sums();
    zeros["encoder.missing"] = Bytes(1 << 20);
    CHECK(!usable(zeros));
    Sections format = sums();
    format["encoder.formats"] = bytes_of(std::string_view("\0%\0", 3));
    CHECK(!usable(format));
}

TEST(invalid_calibrations_are_rejected) {
    const auto calibrated = [](const std::vector<double>& knots, std::int32_t field, const std::vector<float>& shifts) {
        Sections model = sums();
        model["calibration.knots"] = bytes_of(knots);
        model["calibration.field"] = integers({field});
        model["calibration.shifts"] = bytes_of(shifts);
        return usable(model);
    };
    const std::vector<float> shifts(2);
    CHECK(calibrated({0, 0, 1, 2}, 1, shifts));
    for (const std::vector<double>& wrong : std::vector<std::vector<double>>{{},
                                                                             {0, 0},
                                                                             {0, 0, 1},
                                                                             {0, 0, 1, 0},
                                                                             {0, 0, 0, 1},
                                                                             {1, 0, 0, 1},
                                                                             {0, 1, 1, 0},
                                                                             {0, 0, NAN, 1},
                                                                             {0, 0, 1, INFINITY},
                                                                             {-INFINITY, 0, 1, 1},
                                                                             {0, 0, 1, 1, 2, 1},
                                                                             {0, 0, 5e-324, 1e300},
                                                                             {0, 0, 1e308, 5e-324}})
        CHECK(!calibrated(wrong, 1, shifts));
    for (const std::int32_t field : {-1, 2, INT32_MAX}) CHECK(!calibrated({0, 0, 1, 2}, field, shifts));
    CHECK(!calibrated({0, 0, 1, 2}, 1, std::vector<float>(shifts.size() + 1)));
    CHECK(!calibrated({0, 0, 1, 2}, 1, std::vector<float>(shifts.size(), NAN)));
    Sections by_list = with_list(sums());
    by_list["calibration.knots"] = bytes_of(std::vector<double>{0, 0, 1, 2});
    by_list["calibration.field"] = integers({1});
    by_list["calibration.shifts"] = bytes_of(shifts);
    CHECK(usable(by_list));
    by_list["calibration.field"] = integers({0});
    by_list["calibration.shifts"] = bytes_of(std::vector<float>(3));
    CHECK(!usable(by_list));
}

TEST(calibrations_interpolate_between_their_knots) {
    const std::vector<double> knots{-1, -3, 0, 0, 2, 1};
    const std::vector<float> shifts{0.5, -0.25};
    const fm2::Calibration calibration(knots, 1, shifts);
    for (const auto& [logit, expected] : std::vector<std::pair<float, double>>{{-2, -6}, {-1, -3}, {-0.5, -1.5}, {0, 0}, {1, 0.5}, {4, 2}})
        CHECK(calibration.logit(logit) == expected && calibration.logit(logit, 0.5) == expected + 0.5);
    CHECK(fm2::Calibration().logit(1.5) == 1.5 && calibration.probability(0) == 0.5f);
    const std::int32_t ids[]{0, 1};
    const std::size_t fields[]{1, 0}, others[]{0, 2};
    CHECK(calibration.shift(ids) == -0.25f && calibration.shift(fields, ids) == 0.5f && calibration.shift(others, ids) == 0);
    const std::int32_t outside[]{0, 2}, negative[]{0, -1};
    CHECK(calibration.shift(outside) == 0 && calibration.shift(negative) == 0);
}

TEST(invalid_lists_are_rejected) {
    const Sections model = with_list(sums());
    for (const std::int32_t wrong : {-1, 128, INT32_MIN, INT32_MAX})
        for (std::size_t index = 4; index < 12; ++index)
            CHECK(usable(with(model, "encoder.fields", index, wrong)) == (index == 7 && wrong > 0));  // any limit of values is valid
    CHECK(!usable(with<std::uint8_t>(model, "lists", 0, 0)) && !usable(with<std::uint8_t>(model, "lists", 1, 1)));
    CHECK(!usable(with<std::uint8_t>(model, "lists", 1, 2)));
    CHECK(!usable(with<std::int32_t>(model, "encoder.fields", 9, 0)));  // a column of weights without weights
    CHECK(!usable(with<std::int32_t>(model, "encoder.fields", 1, 2)));  // a transform
}

TEST(vocabularies_may_contain_anything) {
    for (const std::uint64_t wrong : {std::uint64_t{0}, std::uint64_t{21}, std::uint64_t{1} << 63, UINT64_MAX})
        for (std::size_t index = 0; index < 3; ++index) CHECK(usable(with(sums(), "vocabulary.ends", index, wrong)));
    for (const std::int32_t number : {0, 2, 3, -1, -2, INT32_MIN, INT32_MAX}) {  // all slots are taken, by this number
        Sections full = sums();
        for (std::size_t slot = 0; slot < 128; ++slot) {
            full = with<std::int32_t>(full, "vocabulary.slots", 4 * slot + 3, number);
            full = with<std::uint64_t>(full, "vocabulary.slots", 2 * slot, fm2::StringIndexView::probe("a text that is long").key);
            full = with<std::uint32_t>(full, "vocabulary.slots", 4 * slot + 2, 19);
        }
        CHECK(usable(full));
    }
}

TEST(lookups_in_an_untrusted_table_stay_within_bounds) {
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

TEST(sections_outside_the_file_are_rejected) {
    const TemporaryFile file;
    const Sections sections = with_list(sums());
    const auto count = static_cast<std::uint32_t>(sections.size());
    for (std::size_t entry = 0; entry < sections.size(); ++entry)
        for (const std::uint64_t wrong : {std::uint64_t{1}, std::uint64_t{65}, std::uint64_t{1} << 20, UINT64_MAX, UINT64_MAX - 63})
            for (const std::size_t index : {48, 56}) {
                Bytes body = body_of(sections);
                std::memcpy(&body[entry * 64 + index], &wrong, sizeof wrong);
                file.write(body, count);
                CHECK(!usable(file.path()));
            }
    for (const std::uint32_t wrong : {0u, 1u, 60000u, 70000u, UINT32_MAX}) {
        file.write(body_of(sections), wrong);
        CHECK(!usable(file.path()));
    }
}

// Thousands of models with a few changed numbers; `make sanitize` checks every access.
TEST(changed_bytes_never_cause_invalid_accesses) {
    const TemporaryFile file;
    std::uint64_t state = 1;
    const auto random = [&](std::size_t below) {
        return static_cast<std::size_t>((state = fm2::mix(state + 0x9e3779b97f4a7c15u, 0xd1342543de82ef95u)) % below);
    };
    constexpr std::uint64_t numbers[]{
        0, 1, 2, 7, 64, 255, 1 << 16, INT32_MAX, 0x80000000u, UINT32_MAX, std::uint64_t{1} << 32, INT64_MAX, UINT64_MAX};
    std::size_t scored = 0, tried = 0;
    for (const Sections& model :
         {sums(), field_aware(), field_matrices(), with_list(sums()), with_list(field_aware()), with_list(field_matrices())}) {
        const Bytes original = body_of(model);
        for (int i = 0; i < 700; ++i, ++tried) {
            Bytes body = original;
            for (std::size_t changes = 1 + random(3); changes; --changes) {
                const std::size_t width = random(2) ? 4 : 8;
                std::memcpy(&body[random(body.size() / 8) * 8], &numbers[random(std::size(numbers))], width);
            }
            file.write(body, static_cast<std::uint32_t>(model.size()));
            scored += usable(file.path());
        }
    }
    CHECK(scored > 0 && scored < tried);
}
