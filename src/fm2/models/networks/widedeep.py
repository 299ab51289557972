"""Wide & Deep."""

from fm2.models.networks.declaration import Network

NETWORK = Network(
    "WideDeep",
    "Wide & Deep: a weight per feature beside a multi-layer perceptron",
    source="Cheng et al., 2016",
)
