// Calibration of a model's logits: a strictly increasing, piecewise linear map, and optionally a shift per feature of one field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fm2/model_file.h"

namespace fm2 {

class Calibration {
public:
    Calibration() = default;  // changes nothing
    // `knots` has pairs of a logit and its calibrated value, both strictly increasing; the outer segments extend to infinity. `shifts`, if
    // any, has an entry per feature of `field` and must outlive the calibration. Throws std::invalid_argument if a number is not finite or
    // the map does not increase.
    explicit Calibration(std::span<const double> knots, std::size_t field = 0, std::span<const float> shifts = {});

    // Reads the calibration of a model with these field sizes, if it has one; lists[f] is 1 if field f has lists. Throws BadModel if it is
    // not valid.
    static Calibration read(const ModelFile& file, std::span<const std::int32_t> sizes, std::span<const std::uint8_t> lists);

    // Returns a calibrated logit. Does not decrease if the logit increases.
    double logit(float logit, float shift = 0) const;
    // Returns the calibrated probability of a row.
    float probability(float logit, float shift = 0) const;
    // Returns the shift of a row whose ids belong to `fields`; 0 if the calibrated field is not among them, or does not have the id.
    float shift(std::span<const std::size_t> fields, const std::int32_t* ids) const;
    // The same for the ids of all fields.
    float shift(const std::int32_t* ids) const { return shifts_.empty() ? 0 : shift_of(ids[field_]); }

private:
    struct Segment {
        double begin, value, slope;
    };

    float shift_of(std::int32_t id) const {
        const auto index = static_cast<std::size_t>(static_cast<std::uint32_t>(id));
        return index < shifts_.size() ? shifts_[index] : 0;
    }

    std::vector<Segment> segments_;
    std::size_t field_ = 0;
    std::span<const float> shifts_;
};

}  // namespace fm2
