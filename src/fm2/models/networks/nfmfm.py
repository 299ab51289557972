"""NFmFM."""

from fm2.models.networks.declaration import Network
from fm2.models.networks.options import MATRIX_SCALE, MLP

NETWORK = Network(
    "NFmFM",
    "NFmFM: an FmFM whose products of fields also go through a multi-layer perceptron",
    source="the paper's section 6",
    options=(*MLP, MATRIX_SCALE),
)
