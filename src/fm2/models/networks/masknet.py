"""MaskNet."""

from typing import get_args

from fm2.models.choices import Arrangement
from fm2.models.networks.declaration import Network
from fm2.models.networks.options import MLP, Option

ARRANGEMENT = Option(
    "arrangement", str, "parallel", "how the mask blocks stand to each other", choices=get_args(Arrangement)
)
MASK_BLOCKS = Option("mask_blocks", tuple, (32, 32, 32), "widths of the mask blocks", 1)
MASK_RATIO = Option("mask_ratio", float, 0.5, "units that make a mask, for each number of an embedding", 0.001, 100.0)
NORM_EPSILON = Option(
    "norm_epsilon", float, 0.1, "added to the variance by which embeddings are normalized", 1e-12, 100.0, shapes=False
)
NETWORK = Network(
    "MaskNet",
    "MaskNet: layers whose inputs are masked by what the row is",
    source="Wang et al., 2021",
    options=(*MLP, ARRANGEMENT, MASK_BLOCKS, MASK_RATIO, NORM_EPSILON),
    defaults={"hidden": (32,), "network_dropout": 0.2},
)
