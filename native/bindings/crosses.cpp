// Cross fields: counting, naming and ranking combinations.
#include "bindings.h"
#include "fm2/combination_counter.h"
#include "fm2/cross.h"
#include "fm2/cross_ranking.h"
#include "fm2/pool.h"
#include "fm2/trees.h"

using fm2::CombinationCounter;

namespace {

template <class Count>
void count_combinations(const std::vector<CombinationCounter*>& counters, const ConstIds& ids, const Array<const Count, 1>& counted,
                        std::size_t threads) {
    expect_size("count_combinations", "counted", counted, ids.shape(0));
    for (const CombinationCounter* counter : counters) {
        expect(counter, "count_combinations: a counter is missing");
        for (const std::size_t column : counter->columns()) expect_index("column", column, ids.shape(1));
    }
    nb::gil_scoped_release release;
    fm2::parallel_for(counters.size(), threads, [&](std::size_t i) {
        counters[i]->add<Count>(ids.data(), ids.shape(1), std::span<const Count>(counted.data(), counted.size()));
    });
}

void make_counter(CombinationCounter* self, Positions columns, std::size_t most) {
    expect(columns.size() >= 2 && columns.size() <= fm2::max_parts, "a cross must have two or three parts, got ", columns.size());
    new (self) CombinationCounter(std::move(columns), most);
}

// The ids of the parts, combination by combination, and the counts.
std::tuple<Array<std::int32_t, 1>, Array<std::int64_t, 1>> take(CombinationCounter& self) {
    std::vector<std::int32_t> ids;
    std::vector<std::int64_t> counts;
    for (const auto& [parts, count] : self.take()) {
        ids.insert(ids.end(), parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(self.columns().size()));
        counts.push_back(count);
    }
    return {to_numpy(std::move(ids)), to_numpy(std::move(counts))};
}

using Values = std::tuple<Bytes, Array<const std::uint64_t, 1>>;  // of a vocabulary; none if the part is hashed

std::tuple<nb::bytes, Array<std::uint64_t, 1>> combination_texts(const std::vector<std::optional<Values>>& parts, const ConstIds& ids) {
    expect(ids.shape(1) == parts.size(), "combination_texts: expected ids of ", parts.size(), " parts, got ", ids.shape(1));
    std::vector<fm2::StringIndexView> tables(parts.size());
    for (std::size_t part = 0; part < parts.size(); ++part) {
        if (!parts[part]) continue;
        const auto& [bytes, ends] = *parts[part];
        tables[part] = {{}, {ends.data(), ends.size()}, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
    }
    std::string text;
    std::vector<std::uint64_t> ends;
    for (std::size_t r = 0; r < ids.shape(0); ++r) {
        for (std::size_t part = 0; part < parts.size(); ++part) {
            const auto value = static_cast<std::size_t>(ids(r, part)) - 1;  // huge if the id is 0 or negative
            if (parts[part]) expect_index("value", value, tables[part].ends.size());
            fm2::append_part(parts[part] ? tables[part].text(value) : "#" + std::to_string(value), part == 0, text);
        }
        ends.push_back(text.size());
    }
    return {nb::bytes(text.data(), text.size()), to_numpy(std::move(ends))};
}

// Training and validation rows of a model, and how its log loss depends on their logits.
struct CrossRanking {
    CrossRanking(const ConstIds& training_ids, const ConstFloats& residuals, const ConstFloats& curvatures, const Bytes& halves,
                 const ConstFloats& counts, const ConstIds& validation_ids, const ConstFloats& logits, const ConstFloats& labels,
                 const ConstFloats& weights)
        : arrays(training_ids, residuals, curvatures, halves, counts, validation_ids, logits, labels, weights),
          fields(training_ids.shape(0)),
          training{training_ids.data(),
                   {residuals.data(), residuals.size()},
                   {curvatures.data(), curvatures.size()},
                   {halves.data(), halves.size()},
                   {counts.data(), counts.size()}},
          validation{
              validation_ids.data(), {logits.data(), logits.size()}, {labels.data(), labels.size()}, {weights.data(), weights.size()}} {
        const std::size_t rows = training_ids.shape(1), validation_rows = validation_ids.shape(1);
        expect(rows < std::numeric_limits<std::int32_t>::max(), "too many rows: ", rows);
        expect(validation_ids.shape(0) == fields, "expected validation ids of ", fields, " fields, got ", validation_ids.shape(0));
        expect_size("CrossRanking", "residuals", residuals, rows);
        expect_size("CrossRanking", "curvatures", curvatures, rows);
        expect_size("CrossRanking", "halves", halves, rows);
        expect_size("CrossRanking", "counts", counts, rows);
        expect_size("CrossRanking", "logits", logits, validation_rows);
        expect_size("CrossRanking", "labels", labels, validation_rows);
        expect_size("CrossRanking", "weights", weights, validation_rows);
        for (std::size_t r = 0; r < rows; ++r) expect(halves(r) < 2, "a half must be 0 or 1, got ", static_cast<int>(halves(r)));
    }

    void check(const Positions& parts) const {
        expect(parts.size() >= 2 && parts.size() <= fm2::max_parts, "a cross must have two or three parts, got ", parts.size());
        for (const std::size_t part : parts) expect_index("field", part, fields);
    }

    std::tuple<ConstIds, ConstFloats, ConstFloats, Bytes, ConstFloats, ConstIds, ConstFloats, ConstFloats, ConstFloats>
        arrays;  // kept alive
    std::size_t fields;
    fm2::ResidualRows training;
    fm2::ValidationRows validation;
};

using Gain = std::tuple<double, double, std::size_t, double, double>;  // as in fm2::CrossGain

std::vector<Gain> measure(const CrossRanking& self, const std::vector<Positions>& crosses, std::size_t min_count, std::size_t threads) {
    for (const Positions& parts : crosses) self.check(parts);
    std::vector<Gain> gains(crosses.size());
    nb::gil_scoped_release release;
    fm2::parallel_for(crosses.size(), threads, [&](std::size_t i) {
        const auto [gain, error, combinations, covered, ridge] = fm2::measure_cross(crosses[i], self.training, self.validation, min_count);
        gains[i] = {gain, error, combinations, covered, ridge};
    });
    return gains;
}

std::pair<Floats, Floats> shifts(const CrossRanking& self, const Positions& parts, std::size_t min_count) {
    self.check(parts);
    std::vector<float> training(self.training.rows()), validation(self.validation.rows());
    fm2::cross_shifts(parts, self.training, self.validation, min_count, training.data(), validation.data());
    return {to_numpy(std::move(training)), to_numpy(std::move(validation))};
}

}  // namespace

void init_crosses(nb::module_& module) {
    module.attr("MISSING_NUMBER") = fm2::Trees::missing;  // the input of trees if there is no number
    module.attr("MOST_TREE_INPUTS") = fm2::Trees::max_inputs;
    nb::class_<CombinationCounter>(module, "CombinationCounter", "Counts the combinations of ids in rows, in bounded memory.")
        .def("__init__", &make_counter, "columns"_a, "most"_a)
        .def("take", &take, "The ids of the parts of the combinations that this pass has counted, in order, and their counts.")
        .def("next", &CombinationCounter::next, "Starts the next pass over the rows; False if there is nothing left to count.");
    constexpr const char* count_help = "Adds counted[row] to the counts of the rows' combinations.";
    module.def("count_combinations", &count_combinations<std::uint8_t>, "counters"_a, "ids"_a.noconvert(), "counted"_a.noconvert(),
               "threads"_a, count_help);
    module.def("count_combinations", &count_combinations<std::uint32_t>, "counters"_a, "ids"_a.noconvert(), "counted"_a.noconvert(),
               "threads"_a, count_help);
    module.def("combination_texts", &combination_texts, "parts"_a, "ids"_a.noconvert(),
               "The concatenated texts of combinations, and where each one ends; a hashed part has no values.");
    module.def(
        "feature_hashes",
        [](const Bytes& bytes, const Array<const std::uint64_t, 1>& ends) {
            return to_numpy(fm2::feature_hashes(as_text(bytes), {ends.data(), ends.size()}));
        },
        "bytes"_a, "ends"_a, "The hashes of the features of a vocabulary by id, from which those of its combinations follow.");
    nb::class_<CrossRanking>(module, "CrossRanking", "Measures how much crosses add to a model's predictions.")
        .def(nb::init<const ConstIds&, const ConstFloats&, const ConstFloats&, const Bytes&, const ConstFloats&, const ConstIds&,
                      const ConstFloats&, const ConstFloats&, const ConstFloats&>(),
             "training_ids"_a.noconvert(), "residuals"_a.noconvert(), "curvatures"_a.noconvert(), "halves"_a.noconvert(),
             "counts"_a.noconvert(), "validation_ids"_a.noconvert(), "logits"_a.noconvert(), "labels"_a.noconvert(),
             "weights"_a.noconvert())
        .def("measure", &measure, "crosses"_a, "min_count"_a, "threads"_a,
             "The gain of each cross on the validation rows, its standard error, the number of combinations, the share of the rows that "
             "have one, and the ridge.")
        .def("shifts", &shifts, "parts"_a, "min_count"_a,
             "The weights of a cross by row: for training rows those of the other half, and for validation rows those of both.");
}
