#include "fm2/endpoint.h"

#include <chrono>
#include <cmath>
#include <new>
#include <utility>

#include "fm2/expect.h"
#include "fm2/infer_request.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t nanoseconds(Clock::duration duration) { return std::chrono::nanoseconds(duration).count(); }

void write_error(const RequestError& error, Response& response) {
    response.status = error.status;
    response.reason = error.reason;
    response.header_length = 0;
    response.body = R"({"error":)";
    append_json(response.body, error.message());
    if (!error.column().empty()) append_json(response.body += R"(,"column":)", error.column());
    response.body += '}';
}

void append_numbers(std::string& out, std::span<const float> numbers) {
    out += '[';
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (i) out += ',';
        append_json(out, numbers[i]);
    }
    out += ']';
}

std::string_view bytes_of(std::span<const float> numbers) { return {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()}; }

}  // namespace

// What requests need on a thread. It keeps its memory, unless a request was large.
struct Endpoint::Scratch {
    CellTable table;
    InferRequest request;
    RowBuffer rows;
    std::vector<float> logits, probabilities;
    std::vector<std::uint64_t> counts;
    bool was_large = false;
};

Endpoint::Endpoint(const CompiledModel& model, EndpointOptions options)
    : model_(model), options_(std::move(options)), columns_(model.encoder) {
    expect(options_.counters.size() == 2 * model.scorer.fields(), "expected ", 2 * model.scorer.fields(), " counters, two per field, got ",
           options_.counters.size());
    append_json(predict_head_ = R"({"model":)", options_.name);
    append_json(predict_head_ += R"(,"version":)", options_.version);
    append_json(infer_head_ = R"({"model_name":)", options_.name);
    append_json(infer_head_ += R"(,"model_version":)", options_.version);
}

// Calls answer(scratch) and turns everything that it throws into a response.
template <class Answer>
void Endpoint::answer(Response& response, const Answer& answer) const {
    static thread_local std::unique_ptr<Scratch> thread_scratch;
    response.body.clear();
    const Clock::time_point began = Clock::now();
    try {
        std::unique_ptr<Scratch> scratch = thread_scratch ? std::move(thread_scratch) : std::make_unique<Scratch>();
        answer(*scratch, began);
        if (!scratch->was_large) thread_scratch = std::move(scratch);
    } catch (const RequestError& error) {
        write_error(error, response);
    } catch (const std::bad_alloc&) {
        write_error({too_large, reason::too_large, "the request needs more memory than there is"}, response);
    } catch (const std::exception& error) {
        write_error({model_failed, reason::model, error.what()}, response);
    }
    if (response.status != 200) response.parse_ns = nanoseconds(Clock::now() - began) - response.score_ns;
}

void Endpoint::predict(std::string_view body, Response& response) const {
    answer(response, [&](Scratch& scratch, Clock::time_point began) {
        CellTable& table = scratch.table;
        table.start(columns_.size());
        JsonReader json(body, table.arena);
        ValueReader values(json, columns_, options_.limits, table);
        bool has_values = false;
        std::string_view id;
        json.object([&](std::string_view key) {
            if (key == "rows" || key == "columns") {
                if (std::exchange(has_values, true)) refuse(reason::request, "the request has more than one of 'rows' and 'columns'");
                key == "rows" ? values.rows() : values.columns();
            } else if (key == "id") {
                if (json.peek() != '"') json.expected("a string as 'id'");
                id = json.raw();
            } else {
                static const std::vector<std::string> keys{"rows", "columns", "id"};
                refuse(reason::request, "unexpected member ", quoted(key), "; ", suggest(key, keys));
            }
        });
        json.finish();
        if (!has_values) refuse(reason::request, "the request has neither 'rows' nor 'columns'");
        table.encode(model_, scratch.rows, options_.threads);
        const Rows rows = scratch.rows.view(model_.scorer);
        response.parse_ns = nanoseconds(Clock::now() - began);
        score(rows, scratch, response);
        response.body = predict_head_;
        if (!id.empty()) (response.body += R"(,"id":)") += id;
        append_numbers(response.body += R"(,"probabilities":)", scratch.probabilities);
        response.body += '}';
    });
}

void Endpoint::infer(std::string_view body, std::size_t header_length, Response& response) const {
    answer(response, [&](Scratch& scratch, Clock::time_point began) {
        InferRequest& request = scratch.request;
        read_infer(body, header_length, columns_, model_.scorer, options_.limits, scratch.table, request);
        Rows rows{request.ids.data(), request.rows, model_.scorer.fields(), {}};
        if (!request.has_ids) {
            scratch.table.encode(model_, scratch.rows, options_.threads);
            rows = scratch.rows.view(model_.scorer);
        }
        response.parse_ns = nanoseconds(Clock::now() - began);
        score(rows, scratch, response);
        std::string& out = response.body;
        out = infer_head_;
        if (!request.id.empty()) (out += R"(,"id":)") += request.id;
        out += R"(,"outputs":[)";
        bool binary = false;
        for (std::size_t i = 0; i < request.outputs.size(); ++i) {
            const auto& [logits, is_binary] = request.outputs[i];
            const std::vector<float>& numbers = logits ? scratch.logits : scratch.probabilities;
            out += i ? ",{" : "{";
            out += logits ? R"("name":"logits")" : R"("name":"probabilities")";
            out += R"(,"datatype":"FP32","shape":[)";
            append_json(out, std::uint64_t{rows.count});
            if (*is_binary) {
                append_json(out += R"(],"parameters":{"binary_data_size":)", std::uint64_t{4 * rows.count});
                out += "}}";
                binary = true;
            } else {
                append_numbers(out += R"(],"data":)", numbers);
                out += '}';
            }
        }
        out += "]}";
        if (!binary) return;
        response.header_length = out.size();
        for (const auto& [logits, is_binary] : request.outputs)
            if (*is_binary) out += bytes_of(logits ? scratch.logits : scratch.probabilities);
    });
}

void Endpoint::score(const Rows& rows, Scratch& scratch, Response& response) const {
    constexpr std::size_t many_rows = 1 << 12;
    const Clock::time_point began = Clock::now();
    scratch.was_large = rows.count > many_rows;
    scratch.logits.resize(rows.count);
    scratch.probabilities.resize(rows.count);
    try {
        if (options_.score) options_.score(rows, scratch.logits.data());
        else model_.scorer.score(kernels(), rows, scratch.logits.data(), options_.threads);
    } catch (const std::out_of_range& error) {  // only ids from a request can be
        refuse(reason::value, error.what());
    }
    const Calibration& calibration = model_.scorer.calibration();
    double sum = 0;
    for (std::size_t r = 0; r < rows.count; ++r) {
        const float probability = calibration.probability(scratch.logits[r], calibration.shift(rows.row(r)));
        if (!std::isfinite(probability) || !std::isfinite(scratch.logits[r]))
            throw RequestError(model_failed, reason::model, "the model's logit of row " + std::to_string(r) + " is not a finite number");
        scratch.probabilities[r] = probability;
        sum += probability;
    }
    count(rows, scratch);
    response.rows = rows.count;
    response.probability_sum = sum;
    response.score_ns = nanoseconds(Clock::now() - began);
}

void Endpoint::count(const Rows& rows, Scratch& scratch) const {
    std::vector<std::uint64_t>& counts = scratch.counts;
    counts.assign(2 * rows.fields, 0);
    for (std::size_t r = 0; r < rows.count; ++r)
        for (std::size_t f = 0; f < rows.fields; ++f) {
            counts[2 * f] += 1;
            counts[2 * f + 1] += rows.row(r)[f] == 0;
        }
    for (std::size_t f = 0; f < rows.fields; ++f) {
        if (!rows.is_list(f)) continue;
        counts[2 * f] = rows.lists[f].ids.size();
        counts[2 * f + 1] = static_cast<std::uint64_t>(std::ranges::count(rows.lists[f].ids, 0));
    }
    for (std::size_t i = 0; i < counts.size(); ++i)
        if (counts[i]) std::atomic_ref(options_.counters[i]).fetch_add(counts[i], std::memory_order_relaxed);
}

}  // namespace fm2
