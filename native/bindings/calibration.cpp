// Calibrated logits.
#include "fm2/calibration.h"

#include "bindings.h"

namespace {

void calibrate(const Array<const double, 1>& knots, const ConstFloats& logits, const Maybe<const std::int32_t, 1>& ids,
               const OptionalFloats& shifts, const Array<double, 1>& calibrated) {
    expect(ids.has_value() == shifts.has_value(), "calibrate: ids and shifts belong together");
    expect_size("calibrate", "ids", ids, logits.size());
    expect_size("calibrate", "calibrated", calibrated, logits.size());
    nb::gil_scoped_release release;
    const std::span<const float> by_id = shifts ? std::span(shifts->data(), shifts->size()) : std::span<const float>();
    const fm2::Calibration calibration({knots.data(), knots.size()}, 0, by_id);
    for (std::size_t r = 0; r < logits.size(); ++r) {
        if (ids) expect_index("calibrate: id", static_cast<std::size_t>(ids->data()[r]), by_id.size());
        calibrated.data()[r] = calibration.logit(logits.data()[r], ids ? calibration.shift(ids->data() + r) : 0);
    }
}

}  // namespace

void init_calibration(nb::module_& module) {
    module.def("calibrate", calibrate, "knots"_a.noconvert(), "logits"_a.noconvert(), "ids"_a.noconvert().none(),
               "shifts"_a.noconvert().none(), "calibrated"_a.noconvert(), "Write calibrated logits; `ids` select the rows' shifts.");
}
