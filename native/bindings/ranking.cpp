// Ranking with compiled models.
#include "ranking.h"

namespace {

using Ranked = std::pair<Array<std::int64_t, 1>, Floats>;

// Returns indices and calibrated probabilities, best first; `base` is added to the scores, and `shift` returns the shift of a row.
template <class Shift>
Ranked to_python(const Ranking& ranking, const std::vector<fm2::TopRow>& rows, float base, const Shift& shift) {
    const fm2::Calibration& calibration = ranking.ranker->scorer().calibration();
    std::vector<std::int64_t> indices;
    std::vector<float> probabilities;
    for (const fm2::TopRow& top : rows) {
        indices.push_back(top.row);
        probabilities.push_back(calibration.probability(top.score + base, shift(static_cast<std::size_t>(top.row))));
    }
    return {to_numpy(std::move(indices)), to_numpy(std::move(probabilities))};
}

Ranked rank(const Ranking& ranking, const Numbers& context, const ConstIds& candidates, std::size_t k, std::size_t threads,
            const std::string& level, const RowLists& context_lists, const RowLists& candidate_lists) {
    const SideRows row = ranking.context(context, context_lists), given = ranking.candidates(candidates, candidate_lists);
    std::vector<std::int32_t> completed;
    fm2::Rows rows;
    std::vector<fm2::TopRow> best;
    {
        nb::gil_scoped_release release;
        std::vector<float> logits(candidates.shape(0));
        const fm2::Kernels& kernels = kernels_of(level);
        const fm2::Query query = ranking.ranker->query(kernels, row.rows);
        rows = ranking.ranker->complete(query, given.rows, completed, threads);
        ranking.ranker->score(kernels, query, rows, logits.data(), threads);
        best = fm2::top_scores(logits.data(), logits.size(), std::min(k, logits.size()));
    }
    return to_python(ranking, best, 0, [&](std::size_t row) {
        return ranking.shift(ranking.ranker->context(), context.data()) + ranking.shift(ranking.ranker->candidate(), rows.row(row));
    });
}

void describe(const Ranking& ranking, const ConstIds& candidates, const Array<float, 2>& out, std::size_t threads, const std::string& level,
              const RowLists& lists) {
    const SideRows rows = ranking.candidates(candidates, lists);
    expect(out.shape(0) == candidates.shape(0) && out.shape(1) >= fm2::padded(ranking.ranker->width() + 1),
           "describe: `out` must have one row per candidate, of ", fm2::padded(ranking.ranker->width() + 1), " floats");
    nb::gil_scoped_release release;
    ranking.ranker->describe(kernels_of(level), rows.rows, out.data(), out.shape(1), threads);
}

// `shifts` are those of the rows, if the model is calibrated by a field of the candidates.
Ranked top(const Ranking& ranking, const Numbers& context, const Array<const float, 2>& rows, std::size_t k, std::size_t threads,
           const std::string& level, const OptionalFloats& shifts, const RowLists& lists) {
    expect_size("top", "shifts", shifts, rows.shape(0));
    const SideRows row = ranking.context(context, lists);
    expect(rows.shape(1) > ranking.ranker->width(), "the catalog has rows of ", rows.shape(1), " floats; this ranker needs ",
           ranking.ranker->width() + 1);
    std::vector<fm2::TopRow> best;
    float base;
    {
        nb::gil_scoped_release release;
        const fm2::Kernels& kernels = kernels_of(level);
        fm2::Query query = ranking.ranker->query(kernels, row.rows);
        query.vector.push_back(1);  // multiplies the candidates' own parts
        base = query.base;
        best = fm2::top_rows(kernels, rows.data(), rows.shape(1), rows.shape(0), query.vector.data(), query.vector.size(),
                             std::min(k, rows.shape(0)), threads);
    }
    const float common = ranking.shift(ranking.ranker->context(), context.data());
    return to_python(ranking, best, base, [&](std::size_t row) { return common + (shifts ? shifts->data()[row] : 0); });
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
             "context_lists"_a = RowLists(), "candidate_lists"_a = RowLists(),
             "Return the indices and probabilities of the best candidates, best first.")
        .def("describe", &describe, "candidates"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 0, "level"_a = "",
             "lists"_a = RowLists(), "Write the catalog rows of candidates.")
        .def("top", &top, "context"_a.noconvert(), "rows"_a.noconvert(), "k"_a, "threads"_a = 0, "level"_a = "",
             "shifts"_a.noconvert().none() = nb::none(), "lists"_a = RowLists(),
             "Return the indices and probabilities of the best rows of a catalog.");
}
