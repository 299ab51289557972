"""Networks that feed products of embeddings into a multi-layer perceptron, and FmFM3."""

from __future__ import annotations

from fm2.models.defaults import SMALL_LOG
from fm2.models.options import MATRIX_STD, MLP, Option
from fm2.models.spec import ModelSpec

IPNN = ModelSpec(
    "ipnn",
    "IPNN",
    "a multi-layer perceptron on embeddings and their inner products",
    source="Qu et al., 2016, 2018",
    torch_class="fm2.models.deep.products:IPNN",
    dimensions="equal",
    equal_dims="it multiplies the embeddings of any two fields; fibinet and deepfmfm allow one dimension per field",
)

OPNN = ModelSpec(
    "opnn",
    "OPNN",
    "a multi-layer perceptron on embeddings and their outer products",
    source="Qu et al., 2016, 2018",
    torch_class="fm2.models.deep.products:OPNN",
    options=(
        *MLP,
        Option("outer", str, "sum", "outer product of the embeddings' sum, or one per pair", choices=("sum", "pairs")),
    ),
    dimensions="equal",
    equal_dims="the outer products of any two fields have the same size; deepfmfm allows one dimension per field",
)

FGCNN = ModelSpec(
    "fgcnn",
    "FGCNN",
    "an IPNN on the embeddings and on features that convolutions generate from them",
    source="Liu et al., 2019",
    torch_class="fm2.models.deep.fgcnn:FGCNN",
    options=(
        *MLP,
        Option("conv_maps", tuple, (6, 8), "feature maps per convolution", 1),
        Option("conv_height", int, 7, "number of fields that a convolution spans", 1),
        Option("pooling", int, 2, "number of adjacent fields that max pooling combines", 1),
        Option("new_maps", int, 1, "generated features per field after pooling", 1),
    ),
    dimensions="equal",
    equal_dims="its convolutions run over the fields for each embedding element",
)

FIBINET = ModelSpec(
    "fibinet",
    "FiBiNET",
    "a multi-layer perceptron on bilinear products of the embeddings, with and without field weights",
    source="Huang et al., 2019",
    torch_class="fm2.models.deep.fibinet:FiBiNET",
    options=(
        *MLP,
        Option(
            "bilinear",
            str,
            "interaction",
            "one matrix for all pairs of fields, one per field, or one per pair",
            choices=("all", "each", "interaction"),
        ),
        Option("reduction", int, 3, "fields per unit of the squeeze-and-excitation layer", 1),
    ),
    defaults={**SMALL_LOG, "hidden": (128, 64)},
)

FMFM3 = ModelSpec(
    "fmfm3",
    "FmFM3",
    "an FmFM with an additional low-rank tensor for every three fields",
    source="the paper's section 6",
    torch_class="fm2.models.deep.fmfm3:FmFM3",
    options=(
        Option("triple_rank", int, 8, "rank of the tensor through which three fields interact", 1, 4096),
        Option("triple_std", float, 0.3, "standard deviation of the tensor's initial values", 0.0, 100.0, shapes=False),
        MATRIX_STD,
    ),
    defaults={**SMALL_LOG, "dense_learning_rate": 0.004},
)

SPECS = (IPNN, OPNN, FGCNN, FIBINET, FMFM3)
