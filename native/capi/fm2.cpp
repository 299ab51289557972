#include "fm2.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/expect.h"
#include "fm2/file_encoder.h"
#include "fm2/pool.h"
#include "fm2/ranker.h"
#include "kernels/kernels.h"

using ListFormats = std::vector<std::optional<fm2::ListFormat>>;

struct fm2_model : fm2::CompiledModel {
    explicit fm2_model(const std::shared_ptr<const fm2::ModelFile>& file) : CompiledModel(file) {
        if (scorer.onnx_network())
            throw fm2::BadModel(file->path() +
                                ": this network needs ONNX Runtime, which the C interface does not have; use fm2.load in Python");
        for (std::size_t f = 0; f < scorer.fields(); ++f) formats.push_back(encoder.encoder().field(f).list);
    }

    ListFormats formats;  // of the multi-valued fields
};

struct fm2_ranker {
    std::unique_ptr<fm2::Ranker> ranker;
    ListFormats formats;  // of the model's fields
};

namespace {

constexpr std::size_t max_threads = 1024;

// Not a std::string: reporting that memory ran out must not allocate.
thread_local char last_error[1024];

int fail(int status, const char* operation, const char* reason) noexcept {
    const std::string_view parts[]{"fm2_", operation, ": ", reason};
    std::size_t at = 0;
    for (const std::string_view part : parts) {
        const std::size_t size = std::min(part.size(), sizeof last_error - 1 - at);
        std::memcpy(last_error + at, part.data(), size);
        at += size;
    }
    last_error[at] = '\0';
    return status;
}

// Runs the body of an interface function and turns exceptions into a status and a message.
template <class Body>
int guarded(const char* operation, const Body& body) noexcept {
    try {
        body();
        return FM2_OK;
    } catch (const fm2::BadModel& bad) {
        return fail(FM2_BAD_MODEL, operation, bad.what());
    } catch (const std::logic_error& misused) {  // std::invalid_argument or std::out_of_range
        return fail(FM2_MISUSED, operation, misused.what());
    } catch (const std::bad_alloc&) {
        return fail(FM2_FAILED, operation, "out of memory");
    } catch (const std::exception& failed) {
        return fail(FM2_FAILED, operation, failed.what());
    } catch (...) {
        return fail(FM2_FAILED, operation, "unknown error");
    }
}

using fm2::expect;

template <class T>
T& required(T* pointer, const char* name) {
    if (!pointer) throw std::invalid_argument(std::string(name) + " is NULL");
    return *pointer;
}

// Checks the arguments of the functions that score rows of `width` values.
void check_rows(const void* values, std::size_t rows, std::size_t expected_width, std::size_t width, const char* name, unsigned flags,
                std::size_t threads, const float* scores) {
    constexpr std::size_t max_values = PTRDIFF_MAX / sizeof(void*);
    expect(width == expected_width, "expected ", expected_width, " ", name, " per row, got ", width);
    expect(!width || rows <= max_values / width, "too many rows: ", rows);
    expect(!rows || !width || values, name, " is NULL");
    expect(!rows || scores, "scores is NULL");
    expect(!(flags & ~unsigned{FM2_LOGITS}), "unknown flags ", flags, "; this library supports FM2_LOGITS (1)");
    expect(threads <= max_threads, "threads must be between 0 and ", max_threads, ", got ", threads);
}

// Converts logits to calibrated probabilities, unless the flags ask for logits. `shift` returns that of a row.
template <class Shift>
void convert(const fm2::Scorer& scorer, unsigned flags, std::size_t rows, const Shift& shift, float* scores) {
    if (flags & FM2_LOGITS) return;
    for (std::size_t r = 0; r < rows; ++r) scores[r] = scorer.calibration().probability(scores[r], shift(r));
}

void score(const fm2::Scorer& scorer, const fm2::Rows& rows, unsigned flags, std::size_t threads, float* scores) {
    scorer.score(fm2::kernels(), rows, scores, threads);
    convert(scorer, flags, rows.count, [&](std::size_t r) { return scorer.calibration().shift(rows.row(r)); }, scores);
}

void rank(const fm2::Ranker& ranker, const fm2::Rows& context, const fm2::Rows& candidates, unsigned flags, std::size_t threads,
          float* scores) {
    static thread_local std::vector<std::int32_t> completed;
    const fm2::Query query = ranker.query(fm2::kernels(), context);
    const fm2::Rows rows = ranker.complete(query, candidates, completed, threads);
    ranker.score(fm2::kernels(), query, rows, scores, threads);
    const fm2::Calibration& calibration = ranker.scorer().calibration();
    const float common = calibration.shift(ranker.context(), context.ids);
    const auto shift = [&](std::size_t r) { return common + calibration.shift(ranker.candidate(), rows.row(r)); };
    convert(ranker.scorer(), flags, rows.count, shift, scores);
}

// Rows of the interface as the library reads them: list r belongs to row r, and weights are pooled. Reading others keeps the memory.
class GivenRows {
public:
    // The rows have columns for these fields of a model with these formats.
    fm2::Rows read(const fm2_rows& rows, std::span<const std::size_t> fields, const ListFormats& formats) {
        expect(rows.list_fields <= fields.size(), "the rows have lists for ", rows.list_fields, " fields, but only ", fields.size(),
               " fields");
        expect(!rows.list_fields || rows.lists, "lists is NULL");
        lists_.assign(rows.list_fields ? fields.size() : 0, {});
        weights_.resize(std::max(weights_.size(), lists_.size()));
        if (lists_.empty()) return {rows.ids, rows.count, rows.fields, {}};
        ids_.assign(rows.ids, rows.ids + rows.count * rows.fields);
        for (const fm2_lists& lists : std::span(rows.lists, rows.list_fields)) {
            expect(lists.field < fields.size(), "there are lists for column ", lists.field, "; the rows have ", fields.size());
            expect(!lists_[lists.field], "there are two lists for column ", lists.field);
            read_lists(lists, rows.count, fields[lists.field], formats[fields[lists.field]]);
            for (std::size_t r = 0; r < rows.count; ++r) ids_[r * rows.fields + lists.field] = static_cast<std::int32_t>(r);
        }
        return {ids_.data(), rows.count, rows.fields, lists_};
    }

private:
    void read_lists(const fm2_lists& given, std::size_t rows, std::size_t field, const std::optional<fm2::ListFormat>& format) {
        expect(given.offsets, "the offsets of field ", field, " are NULL");
        expect(!given.values || given.ids, "the ids of field ", field, " are NULL");
        expect(given.values <= PTRDIFF_MAX / sizeof(float) && rows < INT32_MAX, "field ", field, " has too many values");
        fm2::Lists& lists = lists_[given.field] = {{given.offsets, rows + 1}, {given.ids, given.values}, given.weights};
        if (!format || (format->pooling == fm2::Pooling::sum && !given.weights)) return;
        std::vector<float>& weights = weights_[given.field];
        if (given.weights) weights.assign(given.weights, given.weights + given.values);
        else weights.assign(given.values, 1.0f);
        for (const float weight : weights)
            expect(weight >= 0 && std::isfinite(weight), "a weight of field ", field, " is ", weight, ", not a number of 0 or more");
        for (std::size_t r = 0; r < rows; ++r) {
            const fm2::List list = lists[static_cast<std::int32_t>(r)];
            fm2::pool_weights(format->pooling, std::span(weights).subspan(static_cast<std::size_t>(list.ids - given.ids), list.size));
        }
        lists.weights = weights.data();
    }

    std::vector<std::int32_t> ids_;
    std::vector<std::vector<float>> weights_;
    std::vector<fm2::Lists> lists_;
};

std::string_view cell(const char* value, const std::size_t* length) {
    if (!value) return {};
    if (!length) return value;
    expect(*length <= PTRDIFF_MAX, "a value is too long: ", *length, " bytes");
    return {value, *length};
}

// Encodes and scores rows of values on this thread. Allocates nothing after the first call of a thread.
void score_values(const fm2_model& model, const char* const* values, const std::size_t* lengths, std::size_t rows, unsigned flags,
                  float* scores) {
    static thread_local std::vector<std::string_view> cells;
    static thread_local fm2::RowBuffer encoded;
    const std::size_t columns = model.encoder.columns().size();
    cells.resize(columns);
    encoded.start(model.scorer, rows);
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < columns; ++c) cells[c] = cell(values[r * columns + c], lengths ? lengths + r * columns + c : nullptr);
        model.encoder.encoder().encode(cells, encoded.row(r), encoded.lists());
    }
    score(model.scorer, encoded.view(model.scorer), flags, 1, scores);
}

}  // namespace

extern "C" {

int fm2_interface_version(void) { return FM2_INTERFACE_VERSION; }

const char* fm2_last_error(void) { return last_error; }

int fm2_open(const char* path, int verify, fm2_model** model) {
    return guarded("open", [&] {
        required(model, "model") = nullptr;
        *model = std::make_unique<fm2_model>(std::make_shared<fm2::ModelFile>(&required(path, "path"), verify != 0, 0)).release();
    });
}

void fm2_close(fm2_model* model) { delete model; }

int fm2_field_count(const fm2_model* model, size_t* count) {
    return guarded("field_count", [&] { required(count, "count") = required(model, "model").scorer.fields(); });
}

int fm2_field_size(const fm2_model* model, size_t field, int32_t* size) {
    return guarded("field_size", [&] {
        const auto sizes = required(model, "model").scorer.sizes();
        expect(field < sizes.size(), "there is no field ", field, "; the model has ", sizes.size(), " fields");
        required(size, "size") = sizes[field];
    });
}

int fm2_field_is_list(const fm2_model* model, size_t field, int* is_list) {
    return guarded("field_is_list", [&] {
        const auto lists = required(model, "model").scorer.lists();
        expect(field < lists.size(), "there is no field ", field, "; the model has ", lists.size(), " fields");
        required(is_list, "is_list") = lists[field];
    });
}

int fm2_column_count(const fm2_model* model, size_t* count) {
    return guarded("column_count", [&] { required(count, "count") = required(model, "model").encoder.columns().size(); });
}

int fm2_column_name(const fm2_model* model, size_t column, const char** name) {
    return guarded("column_name", [&] {
        const auto& columns = required(model, "model").encoder.columns();
        expect(column < columns.size(), "there is no column ", column, "; the model has ", columns.size(), " columns");
        required(name, "name") = columns[column].c_str();
    });
}

int fm2_score_ids(const fm2_model* model, const int32_t* ids, size_t rows, size_t fields, unsigned flags, size_t threads, float* scores) {
    return guarded("score_ids", [&] {
        const fm2::Scorer& scorer = required(model, "model").scorer;
        check_rows(ids, rows, scorer.fields(), fields, "ids", flags, threads, scores);
        score(scorer, {ids, rows, fields, {}}, flags, threads, scores);
    });
}

int fm2_score_rows(const fm2_model* model, const fm2_rows* rows, unsigned flags, size_t threads, float* scores) {
    return guarded("score_rows", [&] {
        static thread_local GivenRows given;
        const fm2::Scorer& scorer = required(model, "model").scorer;
        const fm2_rows& checked = required(rows, "rows");
        check_rows(checked.ids, checked.count, scorer.fields(), checked.fields, "ids", flags, threads, scores);
        score(scorer, given.read(checked, scorer.format().fields(), model->formats), flags, threads, scores);
    });
}

int fm2_score_values(const fm2_model* model, const char* const* values, const size_t* lengths, size_t rows, size_t columns, unsigned flags,
                     size_t threads, float* scores) {
    return guarded("score_values", [&] {
        constexpr std::size_t rows_per_task = 64;
        check_rows(values, rows, required(model, "model").encoder.columns().size(), columns, "values", flags, threads, scores);
        fm2::parallel_ranges(rows, rows_per_task, threads, [&](std::size_t begin, std::size_t end) {
            const std::size_t* block_lengths = lengths ? lengths + begin * columns : nullptr;
            score_values(*model, values + begin * columns, block_lengths, end - begin, flags, scores + begin);
        });
    });
}

int fm2_ranker_open(const fm2_model* model, const size_t* context, size_t count, fm2_ranker** ranker) {
    return guarded("ranker_open", [&] {
        required(ranker, "ranker") = nullptr;
        const auto& scorer = required(model, "model").shared;
        expect(count <= scorer->fields(), "the context has ", count, " fields; the model has ", scorer->fields());
        std::vector<std::size_t> fields(count);
        if (count) std::copy_n(&required(context, "context"), count, fields.begin());
        *ranker = new fm2_ranker{fm2::Ranker::make(scorer, std::move(fields), model->encoder.encoder().crosses()), model->formats};
    });
}

void fm2_ranker_close(fm2_ranker* ranker) { delete ranker; }

int fm2_rank_ids(const fm2_ranker* ranker, const int32_t* context, size_t context_fields, const int32_t* candidates, size_t rows,
                 size_t candidate_fields, unsigned flags, size_t threads, float* scores) {
    return guarded("rank_ids", [&] {
        const fm2::Ranker& checked = *required(ranker, "ranker").ranker;
        const float unused = 0;  // the context has no scores
        check_rows(context, 1, checked.context().size(), context_fields, "context ids", flags, threads, &unused);
        check_rows(candidates, rows, checked.candidate().size(), candidate_fields, "candidate ids", flags, threads, scores);
        rank(checked, {context, 1, context_fields, {}}, {candidates, rows, candidate_fields, {}}, flags, threads, scores);
    });
}

int fm2_rank_rows(const fm2_ranker* ranker, const fm2_rows* context, const fm2_rows* candidates, unsigned flags, size_t threads,
                  float* scores) {
    return guarded("rank_rows", [&] {
        static thread_local GivenRows given_context, given_candidates;
        const fm2::Ranker& checked = *required(ranker, "ranker").ranker;
        const fm2_rows &row = required(context, "context"), &rows = required(candidates, "candidates");
        const float unused = 0;  // the context has no scores
        expect(row.count == 1, "expected one context, got ", row.count);
        check_rows(row.ids, 1, checked.context().size(), row.fields, "context ids", flags, threads, &unused);
        check_rows(rows.ids, rows.count, checked.candidate().size(), rows.fields, "candidate ids", flags, threads, scores);
        const fm2::Rows read_context = given_context.read(row, checked.context(), ranker->formats);
        rank(checked, read_context, given_candidates.read(rows, checked.candidate(), ranker->formats), flags, threads, scores);
    });
}

}  // extern "C"
