"""OPNN."""

from fm2.models.networks.declaration import Network
from fm2.models.networks.options import MLP, Option

OUTER = Option(
    "outer", str, "sum", "outer products: of the sum of all embeddings, or by pairs of fields", choices=("sum", "pairs")
)
NETWORK = Network(
    "OPNN",
    "OPNN: a multi-layer perceptron of embeddings and their outer products",
    source="Qu et al., 2016, 2018",
    equal_dims="its outer products of any two fields have the same size; deepfmfm, with such kernels, takes them",
    options=(*MLP, OUTER),
)
