"""DeepFM."""

from fm2.networks.declaration import Network

NETWORK = Network("DeepFM", "DeepFM: an FM and a multi-layer perceptron of the same embeddings")
