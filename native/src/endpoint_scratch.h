// What the requests of an endpoint share.
#pragma once

#include <chrono>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fm2/endpoint.h"
#include "fm2/infer_request.h"

namespace fm2 {

using Clock = std::chrono::steady_clock;

inline std::int64_t nanoseconds(Clock::duration duration) { return std::chrono::nanoseconds(duration).count(); }

template <class Number>
void append_numbers(std::string& out, std::span<const Number> numbers) {
    out += '[';
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (i) out += ',';
        append_json(out, numbers[i]);
    }
    out += ']';
}

// What requests need on a thread. It keeps its memory, unless a request was large.
struct Endpoint::Scratch {
    CellTable table;
    InferRequest request;
    RowBuffer rows, context;
    std::vector<float> logits, probabilities;
    std::vector<std::uint64_t> counts, indices;
    std::vector<CellTable::Place> places;

    bool is_large() const {
        constexpr std::size_t many = 1 << 18;
        return table.cells.size() + table.items.size() > many || request.ids.size() > many || logits.size() > many;
    }
};

// Calls answer(scratch, start of the request) and turns everything that it throws into a response.
template <class Answer>
void Endpoint::answer(Response& response, const Answer& answer) const {
    static thread_local std::unique_ptr<Scratch> thread_scratch;
    response.body.clear();
    const Clock::time_point began = Clock::now();
    try {
        // The scratch is taken: the model may call code that makes another request.
        std::unique_ptr<Scratch> scratch = thread_scratch ? std::move(thread_scratch) : std::make_unique<Scratch>();
        answer(*scratch, began);
        if (!scratch->is_large()) thread_scratch = std::move(scratch);
    } catch (const RequestError& error) {
        write_error(error, response);
    } catch (const std::bad_alloc&) {
        write_error({too_large, reason::memory, "the request needs more memory than there is"}, response);
    } catch (const std::exception& error) {
        write_error({model_failed, reason::model, error.what()}, response);
    }
    if (response.status != 200) response.parse_ns = nanoseconds(Clock::now() - began);
}

}  // namespace fm2
