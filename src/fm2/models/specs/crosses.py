"""Networks that multiply features layer by layer."""

from __future__ import annotations

from fm2.models.options import CROSS_LAYERS, MLP, STRUCTURE, Option
from fm2.models.spec import ModelSpec

DCN = ModelSpec(
    "dcn",
    "Deep & Cross",
    "cross layers, which multiply by the embeddings, and a multi-layer perceptron",
    source="Wang et al., 2017",
    torch_class="fm2.models.deep.crosses:DCN",
    options=(*MLP, CROSS_LAYERS),
)

DCN_V2 = ModelSpec(
    "dcnv2",
    "DCN-V2",
    "cross layers with full matrices or low-rank mixtures, and a multi-layer perceptron",
    source="Wang et al., 2021",
    torch_class="fm2.models.deep.crosses:DCNV2",
    options=(
        *MLP,
        CROSS_LAYERS,
        Option("cross_rank", int, 0, "rank of a cross layer's matrices; 0 uses one full matrix", 0),
        Option("experts", int, 4, "number of low-rank matrices that a cross layer mixes", 1, 256),
        STRUCTURE,
    ),
)

GDCN = ModelSpec(
    "gdcn",
    "GDCN",
    "gated cross layers and a multi-layer perceptron",
    source="Wang et al., 2023",
    torch_class="fm2.models.deep.crosses:GDCN",
    options=(*MLP, CROSS_LAYERS, STRUCTURE),
)

X_DEEP_FM = ModelSpec(
    "xdeepfm",
    "xDeepFM",
    "vector-wise products of any order, a multi-layer perceptron and a linear part",
    source="Lian et al., 2018",
    torch_class="fm2.models.deep.xdeepfm:XDeepFM",
    options=(
        *MLP,
        Option("cin", tuple, (100, 100), "feature maps per layer of the compressed interaction network", 2),
        Option("cin_split", bool, True, "pass half of a layer's feature maps to the next layer and pool the others"),
    ),
    dimensions="equal",
    equal_dims="it multiplies the embeddings of two fields element by element; dcnv2 allows one dimension per field",
)

SPECS = (DCN, DCN_V2, GDCN, X_DEEP_FM)
