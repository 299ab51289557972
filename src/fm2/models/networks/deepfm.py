"""DeepFM."""

from fm2.models.networks.declaration import Network

NETWORK = Network(
    "DeepFM",
    "DeepFM: an FM and a multi-layer perceptron of the same embeddings",
    source="Guo et al., 2017",
    equal_dims="its FM part multiplies the embeddings of any two fields; widedeep and deepfmfm take one per field",
)
