#include "fm2/endpoint.h"

#include <cmath>
#include <utility>

#include "endpoint_scratch.h"
#include "fm2/expect.h"
#include "kernels/kernels.h"

namespace fm2 {
namespace {

std::string_view bytes_of(std::span<const float> numbers) { return {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()}; }

}  // namespace

Endpoint::Endpoint(const CompiledModel& model, EndpointOptions options)
    : model_(model), options_(std::move(options)), columns_(model.encoder) {
    expect(options_.counters.size() == 2 * model.scorer.fields(), "expected ", 2 * model.scorer.fields(), " counters, two per field, got ",
           options_.counters.size());
    append_json(predict_head_ = R"({"model":)", options_.name);
    append_json(predict_head_ += R"(,"version":)", options_.version);
    append_json(infer_head_ = R"({"model_name":)", options_.name);
    append_json(infer_head_ += R"(,"model_version":)", options_.version);
}

void Endpoint::write_error(const RequestError& error, Response& response) {
    response.status = error.status;
    response.reason = error.reason;
    response.header_length = 0;
    response.body = R"({"error":)";
    append_json(response.body, error.message());
    if (!error.column().empty()) append_json(response.body += R"(,"column":)", error.column());
    response.body += '}';
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
                key == "rows" ? values.rows("rows") : values.columns();
            } else if (key == "id") {
                if (json.peek() != '"') json.expected("a string as 'id'");
                id = json.raw();
            } else {
                static const std::vector<std::string> keys{"rows", "columns", "id"};
                refuse(reason::request, "unknown key ", quoted(key), "; ", suggest(key, keys));
            }
        });
        json.finish();
        if (!has_values) refuse(reason::request, "the request has neither 'rows' nor 'columns'");
        check_columns(columns_, table);
        table.encode(model_, scratch.rows, options_.threads);
        const Rows rows = scratch.rows.view(model_.scorer);
        response.parse_ns = nanoseconds(Clock::now() - began);
        score(rows, scratch, response);
        response.body = predict_head_;
        if (!id.empty()) (response.body += R"(,"id":)") += id;
        append_numbers<float>(response.body += R"(,"probabilities":)", scratch.probabilities);
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
                append_numbers<float>(out += R"(],"data":)", numbers);
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

void Endpoint::run(const Rows& rows, float* logits) const {
    try {
        if (options_.score) options_.score(rows, logits);
        else model_.scorer.score(kernels(), rows, logits, options_.threads);
    } catch (const std::out_of_range& error) {  // only ids in a request can be
        refuse(reason::value, error.what());
    }
}

void Endpoint::score(const Rows& rows, Scratch& scratch, Response& response) const {
    const Clock::time_point began = Clock::now();
    scratch.logits.resize(rows.count);
    scratch.probabilities.resize(rows.count);
    run(rows, scratch.logits.data());
    const Calibration& calibration = model_.scorer.calibration();
    for (std::size_t r = 0; r < rows.count; ++r) {
        scratch.probabilities[r] = calibration.probability(scratch.logits[r], calibration.shift(rows.row(r)));
        check_finite(scratch.logits[r], r);
    }
    scratch.counts.assign(2 * rows.fields, 0);
    count(rows, {}, scratch);
    add_counts(scratch);
    response.rows = rows.count;
    sum_probabilities(scratch.probabilities, response);
    response.score_ns = nanoseconds(Clock::now() - began);
}

void Endpoint::sum_probabilities(std::span<const float> probabilities, Response& response) {
    response.predictions = probabilities.size();
    for (const float probability : probabilities) response.probability_sum += probability;
}

// JSON has no other numbers.
void Endpoint::check_finite(float logit, std::size_t row) {
    if (std::isfinite(logit)) return;
    throw RequestError(model_failed, reason::model, "the model's logit of row " + std::to_string(row) + " is not a finite number");
}

void Endpoint::count(const Rows& rows, std::span<const std::uint8_t> selected, Scratch& scratch) const {
    std::uint64_t* const counts = scratch.counts.data();
    for (std::size_t f = 0; f < rows.fields; ++f) {
        if (!selected.empty() && !selected[f]) continue;
        if (rows.is_list(f)) {
            counts[2 * f] += rows.lists[f].ids.size();
            counts[2 * f + 1] += static_cast<std::uint64_t>(std::ranges::count(rows.lists[f].ids, 0));
            continue;
        }
        counts[2 * f] += rows.count;
        for (std::size_t r = 0; r < rows.count; ++r) counts[2 * f + 1] += rows.row(r)[f] == 0;
    }
}

void Endpoint::add_counts(const Scratch& scratch) const {
    for (std::size_t i = 0; i < scratch.counts.size(); ++i)
        if (scratch.counts[i]) std::atomic_ref(options_.counters[i]).fetch_add(scratch.counts[i], std::memory_order_relaxed);
}

}  // namespace fm2
