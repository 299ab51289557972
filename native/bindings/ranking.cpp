// Ranking with compiled models.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>

#include "arrays.h"
#include "compiled.h"
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

    fm2::Query query(const fm2::Kernels& kernels, const Ids& ids) const {
        expect(ids.size() == ranker->context().size(), "rank: the context has ", ranker->context().size(), " fields");
        return ranker->query(kernels, ids.data());
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

Best rank(const Ranking& ranking, const Ids& context, const Rows& candidates, std::size_t k, std::size_t threads, const std::string& level) {
    ranking.check(candidates);
    std::vector<fm2::Found> found;
    {
        nb::gil_scoped_release release;
        std::vector<float> logits(candidates.shape(0));
        const fm2::Kernels& kernels = kernels_of(level);
        ranking.ranker->score(kernels, ranking.query(kernels, context), candidates.data(), logits.size(), logits.data(), threads);
        found = fm2::top_scores(logits.data(), logits.size(), std::min(k, logits.size()));
    }
    return to_python(found, 0);
}

void describe(const Ranking& ranking, const Rows& candidates, const Array<float, 2>& out, std::size_t threads, const std::string& level) {
    ranking.check(candidates);
    expect(out.shape(0) == candidates.shape(0) && out.shape(1) >= fm2::padded(ranking.ranker->width() + 1), "rank: there is a wider row for every candidate");
    nb::gil_scoped_release release;
    ranking.ranker->describe(kernels_of(level), candidates.data(), candidates.shape(0), out.data(), out.shape(1), threads);
}

Best top(const Ranking& ranking, const Ids& context, const Array<const float, 2>& rows, std::size_t k, std::size_t threads, const std::string& level) {
    expect(rows.shape(1) > ranking.ranker->width(), "top: these are no rows of this ranker's catalogs");
    std::vector<fm2::Found> found;
    float base;
    {
        nb::gil_scoped_release release;
        const fm2::Kernels& kernels = kernels_of(level);
        fm2::Query query = ranking.query(kernels, context);
        query.vector.push_back(1);  // for what candidates have alone
        base = query.base;
        found = fm2::top_rows(kernels, rows.data(), rows.shape(1), rows.shape(0), query.vector.data(), query.vector.size(),
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
        .def("rank", &rank, "context"_a.noconvert(), "candidates"_a.noconvert(), "k"_a, "threads"_a = 0, "level"_a = "", "The best candidates' places and probabilities, best first.")
        .def("describe", &describe, "candidates"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 0, "level"_a = "", "Writes rows of a catalog.")
        .def("top", &top, "context"_a.noconvert(), "rows"_a.noconvert(), "k"_a, "threads"_a = 0, "level"_a = "", "The best rows of a catalog: places and probabilities.");
}
