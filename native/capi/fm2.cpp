#include "fm2.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fm2/expect.h"
#include "fm2/file_encoder.h"
#include "fm2/model_file.h"
#include "fm2/pool.h"
#include "fm2/ranker.h"
#include "fm2/scorer.h"
#include "kernels/kernels.h"

struct fm2_model {
    explicit fm2_model(const std::shared_ptr<const fm2::ModelFile>& file)
        : shared(std::make_shared<fm2::Scorer>(file)), scorer(*shared), encoder(file, scorer.sizes()) {}

    std::shared_ptr<const fm2::Scorer> shared;
    const fm2::Scorer& scorer;
    fm2::FileEncoder encoder;
};

struct fm2_ranker {
    std::unique_ptr<fm2::Ranker> own;
};

namespace {

constexpr std::size_t most_threads = 1024;

// An array, for there may be no memory left to say so.
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

// Runs the body of a function of the interface; whatever it throws becomes a status and a message.
template <class Body>
int guarded(const char* operation, const Body& body) noexcept {
    try {
        body();
        return FM2_OK;
    } catch (const fm2::BadModel& bad) {
        return fail(FM2_BAD_MODEL, operation, bad.what());
    } catch (const std::logic_error& misused) {  // std::invalid_argument and std::out_of_range are such
        return fail(FM2_MISUSED, operation, misused.what());
    } catch (const std::bad_alloc&) {
        return fail(FM2_FAILED, operation, "there is not enough memory");
    } catch (const std::exception& failed) {
        return fail(FM2_FAILED, operation, failed.what());
    } catch (...) {
        return fail(FM2_FAILED, operation, "it failed for a reason that has no name");
    }
}

using fm2::expect;

template <class T>
T& there(T* pointer, const char* name) {
    if (!pointer) throw std::invalid_argument(std::string(name) + " is NULL");
    return *pointer;
}

// What both functions that score demand. `own` is how many values a row has, `given` how many the caller thinks it has.
void check_rows(const void* values, std::size_t rows, std::size_t own, std::size_t given, const char* what, unsigned flags, std::size_t threads,
                const float* scores) {
    constexpr std::size_t most = PTRDIFF_MAX / sizeof(void*);
    expect(own == given, "a row has ", given, " ", what, ", and the model's have ", own);
    expect(!own || rows <= most / own, "there cannot be ", rows, " rows");
    expect(!rows || !own || values, what, " is NULL");
    expect(!rows || scores, "scores is NULL");
    expect(!(flags & ~unsigned{FM2_LOGITS}), "the flags are ", flags, ", and this library knows FM2_LOGITS (1) alone");
    expect(threads <= most_threads, "there cannot be ", threads, " threads; 1 to 1024 can be, or 0 for all processors");
}

// Turns logits into what the flags ask for.
void finish(unsigned flags, std::size_t rows, float* scores) {
    if (!(flags & FM2_LOGITS)) std::transform(scores, scores + rows, scores, fm2::probability);
}

void score(const fm2::Scorer& scorer, const std::int32_t* ids, std::size_t rows, unsigned flags, std::size_t threads, float* scores) {
    scorer.score(fm2::kernels(), ids, rows, scores, threads);
    finish(flags, rows, scores);
}

std::string_view cell(const char* value, const std::size_t* length) {
    if (!value) return {};
    if (!length) return value;
    expect(*length <= PTRDIFF_MAX, "a value cannot have ", *length, " bytes");
    return {value, *length};
}

}  // namespace

extern "C" {

int fm2_interface_version(void) { return FM2_INTERFACE_VERSION; }

const char* fm2_last_error(void) { return last_error; }

int fm2_open(const char* path, int verify, fm2_model** model) {
    return guarded("open", [&] {
        there(model, "model") = nullptr;
        *model = std::make_unique<fm2_model>(std::make_shared<fm2::ModelFile>(&there(path, "path"), verify != 0, 0)).release();
    });
}

void fm2_close(fm2_model* model) { delete model; }

int fm2_field_count(const fm2_model* model, size_t* count) {
    return guarded("field_count", [&] { there(count, "count") = there(model, "model").scorer.fields(); });
}

int fm2_field_size(const fm2_model* model, size_t field, int32_t* size) {
    return guarded("field_size", [&] {
        const auto sizes = there(model, "model").scorer.sizes();
        expect(field < sizes.size(), "there is no field ", field, "; the model has ", sizes.size());
        there(size, "size") = sizes[field];
    });
}

int fm2_column_count(const fm2_model* model, size_t* count) {
    return guarded("column_count", [&] { there(count, "count") = there(model, "model").encoder.columns().size(); });
}

int fm2_column_name(const fm2_model* model, size_t column, const char** name) {
    return guarded("column_name", [&] {
        const auto& columns = there(model, "model").encoder.columns();
        expect(column < columns.size(), "there is no column ", column, "; the model has ", columns.size());
        there(name, "name") = columns[column].c_str();
    });
}

int fm2_score_ids(const fm2_model* model, const int32_t* ids, size_t rows, size_t fields, unsigned flags, size_t threads, float* scores) {
    return guarded("score_ids", [&] {
        const fm2::Scorer& scorer = there(model, "model").scorer;
        check_rows(ids, rows, scorer.fields(), fields, "ids", flags, threads, scores);
        score(scorer, ids, rows, flags, threads, scores);
    });
}

int fm2_score_values(const fm2_model* model, const char* const* values, const size_t* lengths, size_t rows, size_t columns, unsigned flags,
                     size_t threads, float* scores) {
    return guarded("score_values", [&] {
        // So many rows that threads are worth their while, and so few that their ids take little memory.
        constexpr std::size_t most_at_once = 4096, rows_a_task = 64;
        const fm2::FileEncoder& encoder = there(model, "model").encoder;
        check_rows(values, rows, encoder.columns().size(), columns, "values", flags, threads, scores);
        const std::size_t fields = model->scorer.fields();
        std::vector<std::int32_t> ids(std::min(rows, most_at_once) * fields);
        for (std::size_t begin = 0; begin < rows; begin += most_at_once) {
            const std::size_t some = std::min(most_at_once, rows - begin);
            fm2::parallel_for((some + rows_a_task - 1) / rows_a_task, threads, [&](std::size_t task) {
                std::vector<std::string_view> cells(columns);
                for (std::size_t r = task * rows_a_task; r < std::min(some, (task + 1) * rows_a_task); ++r) {
                    const std::size_t at = (begin + r) * columns;
                    for (std::size_t c = 0; c < columns; ++c) cells[c] = cell(values[at + c], lengths ? lengths + at + c : nullptr);
                    encoder.encoder().encode(cells, &ids[r * fields]);
                }
            });
            score(model->scorer, ids.data(), some, flags, threads, scores + begin);
        }
    });
}

int fm2_ranker_open(const fm2_model* model, const size_t* context, size_t count, fm2_ranker** ranker) {
    return guarded("ranker_open", [&] {
        there(ranker, "ranker") = nullptr;
        const fm2_model& own = there(model, "model");
        expect(count <= own.scorer.fields(), "the context cannot have ", count, " fields");
        std::vector<std::size_t> fields(count);
        if (count) std::copy_n(&there(context, "context"), count, fields.begin());
        *ranker = new fm2_ranker{fm2::Ranker::make(own.shared, std::move(fields))};
    });
}

void fm2_ranker_close(fm2_ranker* ranker) { delete ranker; }

int fm2_rank_ids(const fm2_ranker* ranker, const int32_t* context, size_t context_fields, const int32_t* candidates, size_t rows,
                 size_t candidate_fields, unsigned flags, size_t threads, float* scores) {
    return guarded("rank_ids", [&] {
        const fm2::Ranker& own = *there(ranker, "ranker").own;
        const float no_score = 0;  // a context has none
        check_rows(context, 1, own.context().size(), context_fields, "context ids", flags, threads, &no_score);
        check_rows(candidates, rows, own.candidate().size(), candidate_fields, "candidate ids", flags, threads, scores);
        own.score(fm2::kernels(), own.query(fm2::kernels(), context), candidates, rows, scores, threads);
        finish(flags, rows, scores);
    });
}

}  // extern "C"
