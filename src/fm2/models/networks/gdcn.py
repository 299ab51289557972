"""GDCN."""

from fm2.models.networks.declaration import Network
from fm2.models.networks.options import CROSS_LAYERS, MLP, STRUCTURE

NETWORK = Network(
    "GDCN",
    "GDCN: cross layers with gates for what they add, and a multi-layer perceptron",
    source="Wang et al., 2023",
    options=(*MLP, CROSS_LAYERS, STRUCTURE),
)
