"""AutoInt+."""

from fm2.networks.declaration import Network
from fm2.networks.options import ATTENTION, MLP

NETWORK = Network(
    "AutoIntPlus", "AutoInt+: fields attend to each other, beside a multi-layer perceptron", options=(*MLP, *ATTENTION)
)
