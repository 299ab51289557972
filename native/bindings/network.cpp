// Networks whose layers run in another runtime, which Python calls.
#include "bindings.h"

namespace {

constexpr std::size_t max_rows = 4096, max_floats = 1 << 23;  // of a block

Array<float, 2> uninitialized(std::size_t rows, std::size_t columns) {
    auto* values = new float[rows * columns];
    nb::capsule owner(values, [](void* array) noexcept { delete[] static_cast<float*>(array); });
    return {values, {rows, columns}, owner};
}

}  // namespace

void score_in_blocks(const Compiled& model, std::size_t rows, float* logits, const Embed& embed) {
    const std::size_t width = model.scorer.onnx_network()->width, block = std::clamp<std::size_t>(max_floats / width, 1, max_rows);
    expect(model.dense.is_valid(), "the dense layers of this network are an ONNX graph, which needs ONNX Runtime");
    for (std::size_t begin = 0; begin < rows; begin += block) {
        const std::size_t end = std::min(rows, begin + block);
        const Array<float, 2> embeddings = uninitialized(end - begin, width);
        {
            nb::gil_scoped_release release;
            embed(begin, end, embeddings.data(), logits + begin);
        }
        const auto numbers = nb::cast<ConstFloats>(model.dense(embeddings));
        expect_size("network", "its result", numbers, end - begin);
        for (std::size_t r = begin; r < end; ++r) logits[r] += numbers.data()[r - begin];
    }
}

void init_network(nb::module_& module) {
    module.def(
        "set_dense", [](Compiled& model, nb::object dense) { model.dense = std::move(dense); }, "model"_a, "dense"_a,
        "Set the function that computes a network's numbers [rows] from embeddings [rows, width].");
    module.def(
        "network_width",
        [](const Compiled& model) -> std::optional<std::size_t> {
            const fm2::NetworkPlan* network = model.scorer.onnx_network();
            return network ? std::optional(network->width) : std::nullopt;
        },
        "model"_a, "Return the width of the embeddings of a network that needs a dense part; None for other models.");
}
