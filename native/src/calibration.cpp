#include "fm2/calibration.h"

#include <algorithm>
#include <cmath>

#include "fm2/expect.h"

namespace fm2 {

Calibration::Calibration(std::span<const double> knots, std::size_t field, std::span<const float> shifts) : field_(field), shifts_(shifts) {
    constexpr std::size_t max_knots = 1 << 16;
    expect(knots.size() % 2 == 0 && knots.size() >= 4 && knots.size() <= 2 * max_knots, "a calibration has 2 to ", max_knots,
           " pairs of logits, got ", knots.size(), " numbers");
    for (std::size_t k = 0; k + 2 < knots.size(); k += 2) {
        const double width = knots[k + 2] - knots[k], height = knots[k + 3] - knots[k + 1];
        const double slope = height / width;
        expect(std::isfinite(knots[k + 1]) && std::isfinite(knots[k + 3]) && width > 0 && height > 0 && slope > 0 && std::isfinite(slope),
               "the knots of the calibration do not increase");
        segments_.push_back({knots[k], knots[k + 1], slope});
    }
    expect(std::ranges::all_of(shifts, [](float shift) { return std::isfinite(shift); }), "a shift of the calibration is not finite");
}

Calibration Calibration::read(const ModelFile& file, std::span<const std::int32_t> sizes, std::span<const std::uint8_t> lists) {
    if (!file.has("calibration.knots")) return {};
    const std::span<const double> knots = file.numbers<double>("calibration.knots");
    std::size_t field = 0;
    std::span<const float> shifts;
    if (file.has("calibration.shifts")) {
        field = file.numbers<std::uint32_t>("calibration.field", 1)[0];
        if (field >= sizes.size()) file.reject("it is calibrated by a field that it does not have");
        if (lists[field]) file.reject("it is calibrated by a multi-valued field");
        shifts = file.numbers<float>("calibration.shifts", static_cast<std::size_t>(sizes[field]));
    }
    try {
        return Calibration(knots, field, shifts);
    } catch (const std::invalid_argument& invalid) {
        file.reject(invalid.what());
    }
}

double Calibration::logit(float logit, float shift) const {
    if (segments_.empty()) return logit;
    std::size_t at = 0;  // of the last segment that begins at or below the logit, or the first one
    for (std::size_t count = segments_.size(); count > 1;) {  // without branches that would be mispredicted
        const std::size_t half = count / 2;
        at += static_cast<std::size_t>(segments_[at + half].begin <= logit) * half;
        count -= half;
    }
    const Segment& segment = segments_[at];
    return segment.value + segment.slope * (logit - segment.begin) + shift;
}

float Calibration::probability(float logit, float shift) const {
    return static_cast<float>(1 / (1 + std::exp(-this->logit(logit, shift))));
}

float Calibration::shift(std::span<const std::size_t> fields, const std::int32_t* ids) const {
    if (shifts_.empty()) return 0;
    const auto found = std::ranges::find(fields, field_);
    return found == fields.end() ? 0 : shift_of(ids[found - fields.begin()]);
}

}  // namespace fm2
