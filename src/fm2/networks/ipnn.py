"""IPNN."""

from fm2.networks.declaration import Network

NETWORK = Network("IPNN", "IPNN: a multi-layer perceptron of embeddings and their inner products")
