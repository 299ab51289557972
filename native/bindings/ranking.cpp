// Ranking with compiled models.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>

#include "arrays.h"
#include "compiled.h"
#include "fm2/pool.h"
#include "fm2/ranker.h"
#include "fm2/top.h"
#include "topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Ids = Array<const std::int32_t, 1>;
using Rows = Array<const std::int32_t, 2>;

// A ranker, and what is asked of it with ids.
struct Ranking {
    Ranking(const Compiled& model, const std::vector<std::size_t>& context) : ranker(fm2::Ranker::make(model.shared, context)) {}

    fm2::Query query(const Ids& ids) const {
        expect(ids.size() == ranker->context().size(), "rank: the context has ", ranker->context().size(), " fields");
        return ranker->query(fm2::kernels(), ids.data());
    }
    void check(const Rows& ids) const {
        expect(ids.shape(1) == ranker->candidate().size(), "rank: a candidate has ", ranker->candidate().size(), " fields");
    }

    std::unique_ptr<fm2::Ranker> ranker;
};

template <class T>
Array<T, 1> to_numpy(std::vector<T> values) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* vector) noexcept { delete static_cast<std::vector<T>*>(vector); });
    return {kept->data(), {kept->size()}, owner};
}

using Best = std::pair<Array<std::int64_t, 1>, Array<float, 1>>;

// Places and probabilities, best first, of scores that lack `base`.
Best to_python(const std::vector<fm2::Found>& found, float base) {
    std::vector<std::int64_t> places;
    std::vector<float> probabilities;
    for (const fm2::Found& one : found) {
        places.push_back(one.row);
        probabilities.push_back(fm2::probability(one.score + base));
    }
    return {to_numpy(std::move(places)), to_numpy(std::move(probabilities))};
}

Best rank(const Ranking& ranking, const Ids& context, const Rows& candidates, std::size_t k, std::size_t threads) {
    ranking.check(candidates);
    std::vector<fm2::Found> found;
    {
        nb::gil_scoped_release release;
        std::vector<float> logits(candidates.shape(0));
        ranking.ranker->score(fm2::kernels(), ranking.query(context), candidates.data(), logits.size(), logits.data(), threads);
        found = fm2::top_scores(logits.data(), logits.size(), std::min(k, logits.size()));
    }
    return to_python(found, 0);
}

// The query with a 1 behind it, for the column in which candidates keep what they have alone; returns the base.
float query(const Ranking& ranking, const Ids& context, const Array<float, 1>& out) {
    expect(out.size() == ranking.ranker->width() + 1, "rank: the query has ", ranking.ranker->width() + 1, " entries");
    nb::gil_scoped_release release;
    const fm2::Query found = ranking.query(context);
    std::copy(found.vector.begin(), found.vector.end(), out.data());
    out.data()[found.vector.size()] = 1;
    return found.base;
}

// Rows of a catalog: vectors, and in the column behind them what each candidate has alone.
void describe(const Ranking& ranking, const Rows& candidates, const Array<float, 2>& out, std::size_t threads) {
    ranking.check(candidates);
    const std::size_t rows = candidates.shape(0), width = ranking.ranker->width(), stride = out.shape(1);
    expect(out.shape(0) == rows && stride >= fm2::padded(width + 1), "rank: there is a wider row for every candidate");
    nb::gil_scoped_release release;
    constexpr std::size_t rows_a_task = 256;
    fm2::parallel_for((rows + rows_a_task - 1) / rows_a_task, threads, [&](std::size_t task) {
        const std::size_t begin = task * rows_a_task, some = std::min(rows_a_task, rows - begin);
        float own[rows_a_task];
        ranking.ranker->describe(fm2::kernels(), candidates.data() + begin * candidates.shape(1), some, out.data() + begin * stride, stride, own);
        for (std::size_t r = 0; r < some; ++r) out.data()[(begin + r) * stride + width] = own[r];
    });
}

Best top(const Ranking& ranking, const Ids& context, const Array<const float, 2>& rows, std::size_t k, std::size_t threads) {
    expect(rows.shape(1) > ranking.ranker->width(), "top: these are no rows of this ranker's catalogs");
    std::vector<fm2::Found> found;
    float base;
    {
        nb::gil_scoped_release release;
        fm2::Query query = ranking.query(context);
        query.vector.push_back(1);  // for what candidates have alone
        base = query.base;
        found = fm2::top_rows(fm2::kernels(), rows.data(), rows.shape(1), rows.shape(0), query.vector.data(), query.vector.size(),
                              std::min(k, rows.shape(0)), threads);
    }
    return to_python(found, base);
}

}  // namespace

void init_ranking(nb::module_& module) {
    nb::class_<Ranking>(module, "Ranking", "A compiled model whose fields are divided into context and candidate.")
        .def(nb::init<const Compiled&, const std::vector<std::size_t>&>(), "model"_a, "context"_a, nb::keep_alive<1, 2>())
        .def_prop_ro("width", [](const Ranking& ranking) { return ranking.ranker->width(); })
        .def_prop_ro("candidate", [](const Ranking& ranking) { return std::vector<std::size_t>(ranking.ranker->candidate().begin(), ranking.ranker->candidate().end()); })
        .def("rank", &rank, "context"_a.noconvert(), "candidates"_a.noconvert(), "k"_a, "threads"_a = 0, "The best candidates' places and probabilities, best first.")
        .def("query", &query, "context"_a.noconvert(), "out"_a.noconvert(), "Writes the query of a context; gives what it has alone.")
        .def("describe", &describe, "candidates"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 0, "Writes rows of a catalog.")
        .def("top", &top, "context"_a.noconvert(), "rows"_a.noconvert(), "k"_a, "threads"_a = 0, "The best rows of a catalog: places and probabilities.");
}
