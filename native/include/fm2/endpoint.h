// A compiled model behind HTTP: turns the body of a request into the body of a response.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/file_encoder.h"
#include "fm2/ranker.h"
#include "fm2/request_columns.h"

namespace fm2 {

struct Response {
    int status = 200;
    std::string body;               // complete; of a failure {"error": "..."}
    std::size_t header_length = 0;  // of the JSON before binary data; 0 if there is none
    std::size_t rows = 0;         // scored, or ranked
    std::size_t predictions = 0;  // in the body
    std::int64_t parse_ns = 0, score_ns = 0;
    double probability_sum = 0;  // of these predictions
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

// Candidates whose part of the score is precomputed; see Ranker::describe.
struct Catalog {
    const Ranker* ranker;  // of the endpoint's model
    const float* rows;     // [count, stride]
    std::size_t count, stride;
    const float* shifts;                // [count]: of the calibration; null: all 0
    std::vector<std::string> items;     // what the response calls them; empty: nothing
    std::shared_ptr<const void> owner;  // of the memory
    // The endpoint sets these: 1 for the fields of the context, and for the columns of the candidates.
    std::vector<std::uint8_t> context_fields, candidate_columns;
};

// Does not change after construction, apart from counters and catalogs, so any number of threads may use it. The model must outlive it.
class Endpoint {
public:
    Endpoint(const CompiledModel& model, EndpointOptions options);

    // None of these throws; failures are responses.
    // {"rows": [{column: value, ...}, ...]} or {"columns": {column: [value, ...], ...}}, and optionally "id".
    void predict(std::string_view body, Response& response) const;
    // An inference request of the Open Inference Protocol; with its binary extension if header_length is not 0.
    void infer(std::string_view body, std::size_t header_length, Response& response) const;
    // {"context": {column: value, ...}, "candidates": rows or {"columns": ...}, or "catalog": name}, and optionally "top" and "id". The
    // columns in the context are those of the context; all others belong to the candidates.
    void rank(std::string_view body, Response& response) const;

    // Adds or replaces a catalog; requests that use the old one keep it. Throws std::invalid_argument if it belongs to another model.
    void set_catalog(const std::string& name, Catalog catalog);
    bool remove_catalog(std::string_view name);

private:
    struct Scratch;
    struct Sides;
    struct RankRequest;
    template <class Answer>
    void answer(Response& response, const Answer& answer) const;
    static void write_error(const RequestError& error, Response& response);
    static void sum_probabilities(std::span<const float> probabilities, Response& response);
    static void check_finite(float logit, std::size_t row);
    void run(const Rows& rows, float* logits) const;
    void score(const Rows& rows, Scratch& scratch, Response& response) const;
    // Adds the values of the selected fields, or of all, to scratch.counts.
    void count(const Rows& rows, std::span<const std::uint8_t> selected, Scratch& scratch) const;
    void add_counts(const Scratch& scratch) const;

    RankRequest read_rank(std::string_view body, Scratch& scratch) const;
    std::shared_ptr<const Sides> sides(const RankRequest& request, const CellTable& table) const;
    std::shared_ptr<const Sides> make_sides(std::vector<std::uint8_t> context_columns) const;
    std::shared_ptr<const Catalog> catalog(std::string_view name) const;
    void rank_candidates(const RankRequest& request, std::chrono::steady_clock::time_point began, Scratch& scratch,
                         Response& response) const;
    void rank_catalog(const RankRequest& request, std::chrono::steady_clock::time_point began, Scratch& scratch, Response& response) const;
    void encode_context(const RankRequest& request, Scratch& scratch) const;
    void join_sides(const RankRequest& request, const Sides& sides, CellTable& table) const;
    std::size_t top_of(const RankRequest& request, std::size_t count, std::size_t fallback) const;
    static void start_ranking(Scratch& scratch);
    void add_ranked(std::size_t row, float logit, float shift, Scratch& scratch) const;
    void write_ranking(const RankRequest& request, const Catalog* catalog, const Scratch& scratch, Response& response) const;

    const CompiledModel& model_;
    EndpointOptions options_;
    RequestColumns columns_;
    mutable std::mutex mutex_;  // of the following
    std::map<std::string, std::shared_ptr<const Catalog>, std::less<>> catalogs_;
    mutable std::map<std::string, std::shared_ptr<const Sides>> sides_;  // by columns of the context: 0 or 1 each
    std::string predict_head_, infer_head_;  // the constant beginnings of responses
};

}  // namespace fm2
