// Reads arbitrary bytes in every format. `make sanitize` runs this under the sanitizers.
#include <random>
#include <string>

#include "check.h"
#include "fm2/collector.h"

namespace {

const std::vector<std::size_t> positions{0, 1, 2};

fm2::Collector make_collector(std::size_t threads) {
    std::vector<fm2::Field> fields(4);
    fields[0].column = 1;
    fields[1].column = 2;
    fields[1].transform.kind = fm2::Transform::Kind::log_square;
    fields[2].column = 2;
    fields[2].hash_bits = 4;
    fields[3].column = 2;
    fields[3].list = {.separator = 'a', .max_values = 3, .weighted = true};
    return fm2::Collector(std::move(fields), {0, {}, {}}, std::nullopt, {"NA"}, threads);
}

std::vector<fm2::TextFormat> formats() {
    fm2::TextFormat libffm{' ', false, 3, true, {}, {fm2::TextFormat::Libffm::single, fm2::TextFormat::Libffm::weighted}};
    libffm.libffm_fields.add("0");
    libffm.libffm_fields.add("1");
    return {{'\t', false, 3, false, {}, {}}, {',', true, 3, false, {}, {}}, std::move(libffm)};
}

std::string junk(std::mt19937& random) {
    const std::string_view pieces[] = {"0", "1", ",", "\t", "\n", "\"", "\r\n", " ", ":", "0:a:1", "NA", "\xff", "ab", "123"};
    std::string text;
    for (std::size_t count = random() % 200; count; --count)
        text += random() % 10 ? std::string(pieces[random() % std::size(pieces)]) : std::string(1, static_cast<char>(random()));
    return text;
}

}  // namespace

TEST(arbitrary_bytes_are_consumed_completely) {
    std::mt19937 random(1);
    for (int repeat = 0; repeat < 3000; ++repeat) {
        const std::string text = junk(random);
        for (const fm2::TextFormat& format : formats()) {
            fm2::Collector collector = make_collector(1 + repeat % 3);
            const fm2::Block& part = collector.read(text, format, positions, false);
            CHECK(part.consumed <= text.size());
            const fm2::Block& block = collector.read(text, format, positions, true);
            CHECK(block.consumed == text.size());
            CHECK(block.codes.size() == 4 * block.rows && block.labels.size() == block.rows);
            CHECK(block.lists[3].offsets.size() == block.rows + 1 && block.lists[3].ids.size() == block.lists[3].weights.size());
            for (const fm2::BadRow& bad : block.bad) {
                CHECK(bad.row < block.rows);
                CHECK(!collector.row_text(bad.row).empty() && collector.line(bad.row) <= block.lines);
            }
        }
    }
}

TEST(the_block_does_not_depend_on_the_number_of_threads) {
    std::mt19937 random(2);
    for (int repeat = 0; repeat < 300; ++repeat) {
        std::string text;
        for (int i = 0; i < 5; ++i) text += junk(random);
        for (const fm2::TextFormat& format : formats()) {
            fm2::Collector one = make_collector(1), three = make_collector(3);
            const fm2::Block& a = one.read(text, format, positions, true);
            const fm2::Block& b = three.read(text, format, positions, true);
            CHECK(a.rows == b.rows && a.lines == b.lines && a.codes == b.codes && a.labels == b.labels);
            CHECK(a.lists[3].offsets == b.lists[3].offsets && a.lists[3].ids == b.lists[3].ids && a.lists[3].weights == b.lists[3].weights);
            CHECK(a.bad.size() == b.bad.size());
            for (std::size_t i = 0; i < std::min(a.bad.size(), b.bad.size()); ++i)
                CHECK(a.bad[i].row == b.bad[i].row && one.line(a.bad[i].row) == three.line(b.bad[i].row));
        }
    }
}

TEST(many_bad_and_empty_lines_are_read_in_linear_time) {
    fm2::Collector collector = make_collector(2);
    for (const fm2::TextFormat& format : formats()) {
        if (format.libffm) continue;
        std::string text = "\"";
        for (int i = 0; i < 200000; ++i) text += i % 3 ? "\n" : "0;x\n";
        text += format.separator == ',' ? "1,a,7\n" : "1\ta\t7\n";
        const fm2::Block& block = collector.read(text, format, positions, true);
        CHECK(block.consumed == text.size() && block.bad.size() + 1 == block.rows && block.labels.back() == 1);
    }
}
