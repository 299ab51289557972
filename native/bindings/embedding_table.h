// An embedding table as Python holds it.
#pragma once

#include "bindings.h"
#include "fm2/embedding.h"

// A table and its arrays.
struct EmbeddingTable {
    fm2::Layout layout;
    Floats weights;
    std::vector<Floats> state;
    OptionalFloats l2_scale;
    Maybe<float, 1> average;
    Maybe<std::int32_t, 1> touched;
    float decay;
    bool keep_zeros;

    void check() const {
        const auto floats = static_cast<std::size_t>(layout.floats), features = static_cast<std::size_t>(layout.features);
        expect_size("table", "weights", weights, floats);
        expect(state.size() <= 2, "table: state can have at most two arrays, got ", state.size());
        for (const auto& array : state) expect_size("table", "state", array, floats);
        expect_size("table", "l2_scale", l2_scale, features);
        expect_size("table", "average", average, floats);
        expect_size("table", "touched", touched, features);
        expect(average.has_value() == touched.has_value(), "table: average and touched must be used together");
        expect(decay >= 0 && decay < 1, "table: decay must be at least 0 and below 1, got ", decay);
    }

    fm2::Embeddings view() const {
        fm2::Embeddings view{&layout, weights.data(), {}, pointer(l2_scale), pointer(average), pointer(touched), decay, keep_zeros};
        for (std::size_t i = 0; i < state.size(); ++i) view.state[i] = state[i].data();
        return view;
    }

    fm2::Embeddings view(const char* operation, const fm2::Minibatch& batch) const {
        expect(batch.sizes() == layout.size, operation, ": the batch and the table have different field sizes");
        return view();
    }

    bool is_linear() const { return layout.equal_dims && layout.dim[0] == 1; }
    std::size_t width() const { return static_cast<std::size_t>(layout.width); }
    std::size_t dim() const { return static_cast<std::size_t>(layout.dim[0]); }
};
