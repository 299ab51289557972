"""AutoInt+."""

from fm2.models.networks.autoint import NETWORK as AUTOINT
from fm2.models.networks.declaration import Network
from fm2.models.networks.options import ATTENTION, MLP

NETWORK = Network(
    "AutoIntPlus",
    "AutoInt+: fields attend to each other, beside a multi-layer perceptron",
    source="Song et al., 2019",
    equal_dims=AUTOINT.equal_dims,
    options=(*MLP, *ATTENTION),
)
