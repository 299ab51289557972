"""FiBiNET."""

from fm2.models.networks.declaration import Network
from fm2.models.networks.options import MLP, Option

BILINEAR = Option(
    "bilinear",
    str,
    "interaction",
    "whose matrix it is: of all pairs of fields, of each field, or of each pair",
    choices=("all", "each", "interaction"),
)
REDUCTION = Option("reduction", int, 3, "how many fields share a unit of the squeeze-and-excitation layer", 1)
NETWORK = Network(
    "FiBiNET",
    "FiBiNET: a multi-layer perceptron of bilinear products, with and without weights of the fields",
    source="Huang et al., 2019",
    options=(*MLP, BILINEAR, REDUCTION),
    defaults={"hidden": (128, 64)},
)
