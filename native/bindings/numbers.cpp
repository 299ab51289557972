// The weighted features of numbers.
#include "fm2/numbers.h"

#include <bit>

#include "bindings.h"
#include "fm2/pool.h"
#include "fm2/rows.h"

namespace {

using Expanded = std::tuple<Array<std::int64_t, 1>, Array<std::int32_t, 1>, Array<float, 1>>;

void expect_expands(const fm2::Field& field) {
    const std::size_t size = field.transform.boundaries.size();
    const bool linear = field.transform.kind == fm2::Transform::Kind::linear;
    expect(field.is_list() && !field.list, "expected a field with the transform interpolate or linear");
    expect(!linear || size == 0 || size == 2, "expected a mean and a standard deviation, got ", size, " numbers");
}

std::vector<Expanded> expand_numbers(const std::vector<fm2::Field>& fields, const ConstIds& codes, std::size_t threads) {
    expect(codes.shape(0) == fields.size(), "expand_numbers: expected codes of ", fields.size(), " fields, got ", codes.shape(0));
    for (const fm2::Field& field : fields) expect_expands(field);
    std::vector<fm2::ListBuffer> lists(fields.size());
    {
        nb::gil_scoped_release release;
        fm2::parallel_for(fields.size(), threads, [&](std::size_t field) {
            const std::int32_t* bits = codes.data() + field * codes.shape(1);
            for (std::size_t row = 0; row < codes.shape(1); ++row) {
                const auto features = fm2::expand_number(std::bit_cast<float>(bits[row]), fields[field].transform);
                for (std::size_t i = 0; i < features.size; ++i) lists[field].add(features.codes[i], features.weights[i]);
                lists[field].finish();
            }
        });
    }
    std::vector<Expanded> arrays;
    for (fm2::ListBuffer& list : lists)
        arrays.emplace_back(to_numpy(std::move(list.offsets)), to_numpy(std::move(list.ids)), to_numpy(std::move(list.weights)));
    return arrays;
}

}  // namespace

void init_numbers(nb::module_& module) {
    module.def("expand_numbers", &expand_numbers, "fields"_a, "codes"_a, "threads"_a,
               "Returns the lists of codes and weights of each field's numbers; codes are the bits of floats, fields × rows.");
    module.def(
        "number_texts",
        [](const fm2::Field& field) {
            expect_expands(field);
            return fm2::number_texts(field.transform);
        },
        "field"_a, "The texts of a field's features by code: the knots or the standardized number, then the missing value.");
}
