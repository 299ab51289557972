// Ranking with compiled models.
#include "bindings.h"
#include "fm2/ranker.h"

namespace {

// A ranker that checks the shapes of ids.
struct Ranking {
    Ranking(const Compiled& model, const Positions& context) : ranker(fm2::Ranker::make(model.shared, context)) {}

    fm2::Query query(const fm2::Kernels& kernels, const Numbers& ids) const {
        expect(ids.size() == ranker->context().size(), "expected a context of ", ranker->context().size(), " fields, got ", ids.size());
        return ranker->query(kernels, ids.data());
    }
    void check(const ConstIds& ids) const {
        expect(ids.shape(1) == ranker->candidate().size(), "expected candidates of ", ranker->candidate().size(), " fields, got ",
               ids.shape(1));
    }

    std::unique_ptr<fm2::Ranker> ranker;
};

using Ranked = std::pair<Array<std::int64_t, 1>, Floats>;

// Returns indices and probabilities, best first; `base` is added to the scores.
Ranked to_python(const std::vector<fm2::TopRow>& rows, float base) {
    std::vector<std::int64_t> indices;
    std::vector<float> probabilities;
    for (const fm2::TopRow& top : rows) {
        indices.push_back(top.row);
        probabilities.push_back(fm2::probability(top.score + base));
    }
    return {to_numpy(std::move(indices)), to_numpy(std::move(probabilities))};
}

Ranked rank(const Ranking& ranking, const Numbers& context, const ConstIds& candidates, std::size_t k, std::size_t threads,
            const std::string& level) {
    ranking.check(candidates);
    std::vector<fm2::TopRow> best;
    {
        nb::gil_scoped_release release;
        std::vector<float> logits(candidates.shape(0));
        const fm2::Kernels& kernels = kernels_of(level);
        ranking.ranker->score(kernels, ranking.query(kernels, context), candidates.data(), logits.size(), logits.data(), threads);
        best = fm2::top_scores(logits.data(), logits.size(), std::min(k, logits.size()));
    }
    return to_python(best, 0);
}

void describe(const Ranking& ranking, const ConstIds& candidates, const Array<float, 2>& out, std::size_t threads,
              const std::string& level) {
    ranking.check(candidates);
    expect(out.shape(0) == candidates.shape(0) && out.shape(1) >= fm2::padded(ranking.ranker->width() + 1),
           "describe: `out` must have one row per candidate, of ", fm2::padded(ranking.ranker->width() + 1), " floats");
    nb::gil_scoped_release release;
    ranking.ranker->describe(kernels_of(level), candidates.data(), candidates.shape(0), out.data(), out.shape(1), threads);
}

Ranked top(const Ranking& ranking, const Numbers& context, const Array<const float, 2>& rows, std::size_t k, std::size_t threads,
           const std::string& level) {
    expect(rows.shape(1) > ranking.ranker->width(), "the catalog has rows of ", rows.shape(1), " floats; this ranker needs ",
           ranking.ranker->width() + 1);
    std::vector<fm2::TopRow> best;
    float base;
    {
        nb::gil_scoped_release release;
        const fm2::Kernels& kernels = kernels_of(level);
        fm2::Query query = ranking.query(kernels, context);
        query.vector.push_back(1);  // multiplies the candidates' own parts
        base = query.base;
        best = fm2::top_rows(kernels, rows.data(), rows.shape(1), rows.shape(0), query.vector.data(), query.vector.size(),
                             std::min(k, rows.shape(0)), threads);
    }
    return to_python(best, base);
}

}  // namespace

void init_ranking(nb::module_& module) {
    nb::class_<Ranking>(module, "Ranking", "A compiled model whose fields are divided into context and candidate.")
        .def(nb::init<const Compiled&, const Positions&>(), "model"_a, "context"_a, nb::keep_alive<1, 2>())
        .def_prop_ro("width", [](const Ranking& ranking) { return ranking.ranker->width(); })
        .def_prop_ro("candidate",
                     [](const Ranking& ranking) {
                         return std::vector<std::size_t>(ranking.ranker->candidate().begin(), ranking.ranker->candidate().end());
                     })
        .def("rank", &rank, "context"_a.noconvert(), "candidates"_a.noconvert(), "k"_a, "threads"_a = 0, "level"_a = "",
             "Return the indices and probabilities of the best candidates, best first.")
        .def("describe", &describe, "candidates"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 0, "level"_a = "",
             "Write the catalog rows of candidates.")
        .def("top", &top, "context"_a.noconvert(), "rows"_a.noconvert(), "k"_a, "threads"_a = 0, "level"_a = "",
             "Return the indices and probabilities of the best rows of a catalog.");
}
