"""DCN-V2."""

from fm2.models.networks.declaration import Network
from fm2.models.networks.options import CROSS_LAYERS, MLP, STRUCTURE, Option

CROSS_RANK = Option("cross_rank", int, 0, "rank of a cross layer's matrices, mixed by a gate; 0 is one full matrix", 0)
EXPERTS = Option("experts", int, 4, "of how many matrices of low rank a cross layer is the mixture", 1, 256)

NETWORK = Network(
    "DCNV2",
    "DCN-V2: cross layers with whole matrices, or mixtures of low rank, and a multi-layer perceptron",
    source="Wang et al., 2021",
    options=(*MLP, CROSS_LAYERS, CROSS_RANK, EXPERTS, STRUCTURE),
)
