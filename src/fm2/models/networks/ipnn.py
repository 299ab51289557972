"""IPNN."""

from fm2.models.networks.declaration import Network

NETWORK = Network(
    "IPNN",
    "IPNN: a multi-layer perceptron of embeddings and their inner products",
    source="Qu et al., 2016, 2018",
    equal_dims="it multiplies the embeddings of any two fields; fibinet and deepfmfm take one per field",
)
