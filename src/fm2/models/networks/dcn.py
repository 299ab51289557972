"""Deep & Cross."""

from fm2.models.networks.declaration import Network
from fm2.models.networks.options import CROSS_LAYERS, MLP

NETWORK = Network(
    "DCN",
    "Deep & Cross: products with the embeddings, layer by layer, beside a multi-layer perceptron",
    source="Wang et al., 2017",
    options=(*MLP, CROSS_LAYERS),
)
