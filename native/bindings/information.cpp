// What pairs of fields tell of the label.
#include "fm2/information.h"

#include <cstdint>
#include <limits>

#include "arrays.h"
#include "topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

void mutual_information(const Array<const std::int32_t, 2>& ids, const Array<const std::uint8_t, 1>& labels,
                        const Array<const std::int32_t, 1>& sizes, const Array<double, 2>& information, const Array<double, 2>& chance,
                        std::size_t threads) {
    const std::string operation = "mutual information";
    expect(ids.shape(1) == sizes.size(), operation, ": there are ", sizes.size(), " field sizes, and ids have ", ids.shape(1), " columns");
    expect(ids.shape(0) == labels.size(), operation, ": there are ", labels.size(), " labels for ", ids.shape(0), " rows");
    expect(ids.shape(0) < std::numeric_limits<std::uint32_t>::max(), operation, ": there are too many rows");
    for (const Array<double, 2>* matrix : {&information, &chance})
        expect(matrix->shape(0) == sizes.size() && matrix->shape(1) == sizes.size(), operation, ": the matrices are fields × fields");
    for (std::size_t i = 0; i < sizes.size(); ++i)
        expect(sizes.data()[i] >= 1 && sizes.data()[i] <= 1 << 30, operation, ": the size of field ", i, " is ", sizes.data()[i]);
    nb::gil_scoped_release release;
    fm2::mutual_information(ids.data(), labels.data(), labels.size(), as_vector(sizes), information.data(), chance.data(), threads);
}

}  // namespace

void init_information(nb::module_& module) {
    module.def("mutual_information", &mutual_information, "ids"_a.noconvert(), "labels"_a.noconvert(), "sizes"_a.noconvert(),
               "information"_a.noconvert(), "chance"_a.noconvert(), "threads"_a = 0,
               "Fills both matrices with what all pairs of fields tell of the label, in nats, and what chance would make of it.");
}
