"""DeepFmFM."""

from fm2.models.networks.declaration import Network
from fm2.models.networks.options import LINEAR, MATRIX_SCALE, MLP

NETWORK = Network(
    "DeepFmFM",
    "DeepFmFM: an FmFM and a multi-layer perceptron of the same embeddings",
    source="the paper's section 6",
    options=(*MLP, LINEAR, MATRIX_SCALE),
)
