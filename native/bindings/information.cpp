// Mutual information of pairs of fields and the label.
#include "fm2/information.h"

#include <cstdint>

#include "bindings.h"

namespace {

void mutual_information(const ConstIds& ids, const Bytes& labels, const Numbers& sizes, const Array<double, 2>& information,
                        const Array<double, 2>& chance, std::size_t threads) {
    constexpr const char* operation = "mutual_information";
    expect(ids.shape(1) == sizes.size(), operation, ": expected a size for each of the ", ids.shape(1), " fields, got ", sizes.size());
    expect(ids.shape(0) == labels.size(), operation, ": expected a label for each of the ", ids.shape(0), " rows, got ", labels.size());
    expect(ids.shape(0) < std::numeric_limits<std::uint32_t>::max(), operation, ": expected fewer than 2^32 rows, got ", ids.shape(0));
    expect_shape(operation, "information", information, sizes.size(), sizes.size());
    expect_shape(operation, "chance", chance, sizes.size(), sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i)
        expect(sizes.data()[i] >= 1 && sizes.data()[i] <= 1 << 30, operation, ": the size of field ", i,
               " must be between 1 and 2^30, got ", sizes.data()[i]);
    nb::gil_scoped_release release;
    fm2::mutual_information(ids.data(), labels.data(), labels.size(), as_vector(sizes), information.data(), chance.data(), threads);
}

}  // namespace

void init_information(nb::module_& module) {
    module.def("mutual_information", &mutual_information, "ids"_a.noconvert(), "labels"_a.noconvert(), "sizes"_a.noconvert(),
               "information"_a.noconvert(), "chance"_a.noconvert(), "threads"_a = 0,
               "Computes the mutual information of all pairs of fields and the label, in nats, and its mean over permuted labels.");
}
