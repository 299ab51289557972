// Sends damaged requests to the endpoints of models, on several threads, until the time is over. Built with sanitizers, which end the
// program at the first fault: make torture.
//
//     fm2_torture_requests SECONDS SEED MODEL...
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "fm2/endpoint.h"
#include "fm2/json.h"
#include "kernels/kernels.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t threads = 2;
std::atomic<long> answered, refused, wrong;

struct Request {
    enum class Kind { predict, infer, rank } kind;
    std::string body;
    std::size_t header_length = 0;
};

// A JSON value that any column may have.
std::string value_of(std::size_t number) {
    static constexpr const char* values[]{
        "\"a\"", "17", "-2.5e1", "null", "true", "\"\\u00e9\\n\"", "\"a|b:2|c\"", "\"2024-05-05 05:05:05\""};
    return values[number % std::size(values)];
}

std::vector<Request> requests_for(const fm2::CompiledModel& model) {
    const std::vector<std::string>& columns = model.encoder.columns();
    std::string all_rows, candidates, context, inputs, header, binary, lists;
    for (std::size_t c = 0; c < columns.size(); ++c) {
        std::string name;
        fm2::append_json(name, columns[c]);
        const std::string comma = c ? "," : "";
        const std::string member = comma + name + ":" + value_of(c);
        all_rows += member;
        lists += comma + name + (c % 2 ? ":[\"a\",1,null]" : ":{\"a\":1,\"b\":0.5}");
        (c < columns.size() / 2 ? context : candidates) += (c == columns.size() / 2 ? "" : comma) + name + ":" + value_of(c);
        const std::string start = comma + R"({"name":)" + name + R"(,"shape":[2],"datatype":)";
        inputs += start + R"("BYTES","data":["a","b"]})";
        header += start + (c % 2 ? R"("FP32","parameters":{"binary_data_size":8}})" : R"("BYTES","parameters":{"binary_data_size":10}})");
        binary += c % 2 ? std::string("\0\0\x80\x3f\0\0\0\x40", 8) : std::string("\1\0\0\0a\1\0\0\0b", 10);
    }
    header = R"({"id":"x","parameters":{"binary_data_output":true},"inputs":[)" + header + "]}";
    const std::string ids = R"({"inputs":[{"name":"ids","datatype":"INT64","shape":[1,)" + std::to_string(model.scorer.fields()) +
                            R"(],"parameters":{"binary_data_size":)" + std::to_string(8 * model.scorer.fields()) + "}}]}";
    using enum Request::Kind;
    return {{predict, R"({"rows":[{)" + all_rows + "},{" + all_rows + "}]}"},
            {predict, R"({"rows":[{)" + lists + "}]}"},
            {infer, R"({"inputs":[)" + inputs + R"(],"outputs":[{"name":"logits"},{"name":"probabilities"}]})"},
            {infer, header + binary, header.size()},
            {infer, ids + std::string(8 * model.scorer.fields(), '\0'), ids.size()},
            {rank, R"({"context":{)" + context + R"(},"candidates":[{)" + candidates + "},{" + candidates + R"(}],"top":1})"},
            {rank, R"({"context":{)" + context + R"(},"catalog":"ads"})"}};
}

class Attacker {
public:
    explicit Attacker(std::uint64_t seed) : random_(seed) {}

    void attack(const fm2::Endpoint& endpoint, const Request& original) {
        std::string body = original.body;
        for (std::uint64_t change = below(4); change; --change) mutate(body);
        std::size_t header_length = original.header_length;
        if (header_length && !below(4)) header_length += below(2) ? body.size() - original.body.size() : below(5) - 2;
        const std::vector<char> exact(body.begin(), body.end());  // so that the sanitizer sees reads beyond the end
        const std::string_view view(exact.data(), exact.size());
        fm2::Response response;
        if (original.kind == Request::Kind::predict) endpoint.predict(view, response);
        else if (original.kind == Request::Kind::rank) endpoint.rank(view, response);
        else endpoint.infer(view, header_length, response);
        check(response);
    }

private:
    std::uint64_t below(std::uint64_t end) { return random_() % end; }

    void mutate(std::string& body) {
        static const std::string pieces[]{"\"",        "\\",    "\\ud800", "{",    "}",    "[",    "]",      ",",
                                          ":",         "null",  "1e999",   "-1",   "\xff", "\xc3", "\\u0",   "\"ids\"",
                                          "\"shape\"", "INT64", "FP16",    "[[[[", "0.",   "true", "1e-999", "99999999999999999999"};
        const std::size_t at = below(body.size() + 1), size = below(9);
        switch (below(5)) {
            case 0: body.insert(at, pieces[below(std::size(pieces))]); break;
            case 1: body.erase(at, size); break;
            case 2: body.insert(at, body.substr(at, 4 * size)); break;
            case 3: body.resize(at); break;
            default:
                if (at < body.size()) body[at] = static_cast<char>(random_());
        }
    }

    // Every response is complete JSON, and every failure has a message.
    void check(const fm2::Response& response) {
        const std::size_t length = response.header_length ? response.header_length : response.body.size();
        bool has_error = false;
        try {
            fm2::TextArena arena;
            fm2::JsonReader json(std::string_view(response.body).substr(0, length), arena);
            json.object([&](std::string_view key) {
                has_error |= key == "error";
                json.skip();
            });
            json.finish();
        } catch (const fm2::RequestError&) {
            has_error = response.status == 200;
        }
        ++(response.status == 200 ? answered : refused);
        if (has_error != (response.status != 200) || response.status >= 500) {
            ++wrong;
            std::fprintf(stderr, "status %d: %s\n", response.status, response.body.c_str());
        }
    }

    std::mt19937_64 random_;
};

void attack_model(const char* path, std::uint64_t seed, Clock::time_point end) {
    const fm2::CompiledModel model(std::make_shared<fm2::ModelFile>(path, true, 1));
    std::vector<std::uint64_t> counters(2 * model.scorer.fields());
    fm2::Endpoint endpoint(model, {"m", "1", {100, 10'000}, threads, counters, {}});
    const std::vector<Request> requests = requests_for(model);
    std::vector<std::thread> team;
    for (std::size_t thread = 0; thread < threads; ++thread)
        team.emplace_back([&, thread] {
            Attacker attacker(seed + thread);
            for (std::size_t round = 0; Clock::now() < end; ++round) attacker.attack(endpoint, requests[round % requests.size()]);
        });
    for (std::thread& thread : team) thread.join();
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 4) return std::fprintf(stderr, "usage: fm2_torture_requests SECONDS SEED MODEL...\n"), 2;
    const double seconds = std::atof(arguments[1]) / (count - 3);
    for (int i = 3; i < count; ++i)
        attack_model(arguments[i], std::strtoull(arguments[2], nullptr, 10) + static_cast<std::uint64_t>(i),
                     Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
    std::printf("requests: %ld answered, %ld refused, %ld wrong\n", answered.load(), refused.load(), wrong.load());
    return wrong.load() != 0;
}
