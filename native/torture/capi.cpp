// Opens changed models through the C interface and uses those that are accepted, on several threads, until the time is over. Built with
// sanitizers, which end the program at the first fault: make torture.
//
//     fm2_torture SECONDS SEED MODEL...
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "fm2.h"
#include "fm2/model_file.h"

namespace {

using Bytes = std::vector<char>;
using Clock = std::chrono::steady_clock;
constexpr std::size_t header_size = 64, threads = 2;

std::atomic<long> opened, rejected, calls;

class Attacker {
public:
    Attacker(std::uint64_t seed, std::string path) : random_(seed), path_(std::move(path)) {}
    ~Attacker() { unlink(path_.c_str()); }

    // Changes a model, opens it, and uses it if it is accepted.
    void attack(const Bytes& original) {
        Bytes bytes = original;
        for (std::uint64_t change = 0; change < 1 + below(3); ++change) mutate(bytes);
        const auto body = std::as_bytes(std::span(bytes)).subspan(header_size);
        std::uint32_t sections;
        std::memcpy(&sections, bytes.data() + 12, sizeof sections);
        const std::vector<std::byte> header = fm2::model_header(sections, body, 1);
        std::memcpy(bytes.data(), header.data(), header.size());
        unlink(path_.c_str());  // an accepted model of the last attack may still be mapped
        std::ofstream(path_, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        fm2_model* model = nullptr;
        if (fm2_open(path_.c_str(), static_cast<int>(below(2)), &model) != FM2_OK) {
            ++rejected;
            return;
        }
        ++opened;
        use(model);
        fm2_close(model);
    }

    // Scores, ranks and encodes odd rows.
    void use(const fm2_model* model) {
        std::size_t fields = 0, columns = 0;
        fm2_field_count(model, &fields);
        fm2_column_count(model, &columns);
        constexpr std::size_t rows = 5;
        std::vector<std::int32_t> ids(rows * fields);
        std::vector<float> scores(rows);
        for (std::size_t i = 0; i < ids.size(); ++i) {
            std::int32_t size = 1;
            fm2_field_size(model, i % fields, &size);
            ids[i] = below(50) ? static_cast<std::int32_t>(below(static_cast<std::uint64_t>(size))) : size;
        }
        fm2_score_ids(model, ids.data(), rows, fields, 0, threads, scores.data());
        static const char* const texts[]{"", "a", "17", "-3", "1e400", "a|b:2|c:-1", "2024-05-05 05:05:05", "\xff", nullptr};
        std::vector<const char*> values(rows * columns);
        for (const char*& value : values) value = texts[below(std::size(texts))];
        fm2_score_values(model, values.data(), nullptr, rows, columns, FM2_LOGITS, threads, scores.data());
        const std::size_t context = 0;
        fm2_ranker* ranker = nullptr;
        if (fm2_ranker_open(model, &context, 1, &ranker) == FM2_OK) {
            fm2_rank_ids(ranker, ids.data(), 1, ids.data() + fields, rows - 1, fields - 1, 0, threads, scores.data());
            fm2_ranker_close(ranker);
        }
        calls += 4;
    }

private:
    std::uint64_t below(std::uint64_t end) { return end ? random_() % end : 0; }

    void mutate(Bytes& bytes) {
        static constexpr std::uint64_t odd[]{0,          1,          2,          7,          64,         255,  1u << 16,
                                             0x7fffffff, 0x80000000, 0xffffffff, 1ull << 62, 1ull << 63, ~0ull};
        const std::size_t width = below(2) ? 4 : 8, words = (bytes.size() - header_size) / width;
        // Half of the changes are in the first kilobyte: the index and the sections that describe the others.
        const std::size_t word = below(2) ? below(words) : below(std::min<std::size_t>(words, 1024 / width));
        char* at = bytes.data() + header_size + word * width;
        std::uint64_t value = 0;
        std::memcpy(&value, at, width);
        const std::uint64_t near[]{value + 1, value - 1, value * 2, value / 2, value ^ (1ull << below(8 * width))};
        value = below(2) ? odd[below(std::size(odd))] : near[below(std::size(near))];
        std::memcpy(at, &value, width);
    }

    std::mt19937_64 random_;
    std::string path_;
};

Bytes read(const char* path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 4) return std::fprintf(stderr, "usage: fm2_torture SECONDS SEED MODEL...\n"), 2;
    const auto end = Clock::now() + std::chrono::duration<double>(std::atof(arguments[1]));
    const std::uint64_t seed = std::strtoull(arguments[2], nullptr, 10);
    const std::string folder = std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "/tmp";
    for (int i = 3; i < count; ++i) {
        const Bytes original = read(arguments[i]);
        fm2_model* shared = nullptr;
        if (original.size() <= header_size || fm2_open(arguments[i], 1, &shared) != FM2_OK) {
            std::fprintf(stderr, "fm2_torture: %s: %s\n", arguments[i], fm2_last_error());
            return 2;
        }
        const auto until = Clock::now() + (end - Clock::now()) / (count - i);
        std::vector<std::thread> attackers;
        for (std::uint64_t number = 0; number < threads; ++number)
            attackers.emplace_back([&, number] {
                Attacker attacker(seed * 1000 + number, folder + "/fm2_torture." + std::to_string(getpid()) + "." + std::to_string(number));
                while (Clock::now() < until) {
                    attacker.attack(original);
                    attacker.use(shared);  // the same model on all threads
                }
            });
        for (std::thread& attacker : attackers) attacker.join();
        fm2_close(shared);
    }
    std::printf("C interface: %ld changed models rejected, %ld accepted, %ld calls; 0 findings\n", rejected.load(), opened.load(),
                calls.load());
}
