// A compiled model behind HTTP: turns the body of a request into the body of a response.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "fm2/file_encoder.h"
#include "fm2/request_columns.h"

namespace fm2 {

struct Response {
    int status = 200;
    std::string body;               // complete; of a failure {"error": "..."}
    std::size_t header_length = 0;  // of the JSON before binary data; 0 if there is none
    std::size_t rows = 0;
    std::int64_t parse_ns = 0, score_ns = 0;
    double probability_sum = 0;
    const char* reason = "";  // why the request failed; see fm2/request_error.h
};

struct EndpointOptions {
    std::string name, version;
    RequestLimits limits;
    std::size_t threads = 0;             // of a request with many rows; 0: all processors
    std::span<std::uint64_t> counters;   // by field: values, unknown values; other processes may add to them as well
    // Writes the logits of rows, instead of the model's plan. May throw anything.
    std::function<void(const Rows&, float*)> score;
};

// Does not change after construction, apart from counters, so any number of threads may use it. The model must outlive it.
class Endpoint {
public:
    Endpoint(const CompiledModel& model, EndpointOptions options);

    // None of these throws; failures are responses.
    // {"rows": [{column: value, ...}, ...]} or {"columns": {column: [value, ...], ...}}, and optionally "id".
    void predict(std::string_view body, Response& response) const;
    // An inference request of the Open Inference Protocol; with its binary extension if header_length is not 0.
    void infer(std::string_view body, std::size_t header_length, Response& response) const;

private:
    struct Scratch;
    template <class Answer>
    void answer(Response& response, const Answer& answer) const;
    void score(const Rows& rows, Scratch& scratch, Response& response) const;
    void count(const Rows& rows, Scratch& scratch) const;

    const CompiledModel& model_;
    EndpointOptions options_;
    RequestColumns columns_;
    std::string predict_head_, infer_head_;  // the constant beginnings of responses
};

}  // namespace fm2
