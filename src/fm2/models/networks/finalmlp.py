"""FinalMLP."""

from fm2.models.networks.declaration import Network
from fm2.models.networks.options import MLP, Option

SECOND_HIDDEN = Option("second_hidden", tuple, (128, 128), "widths of the second stream's hidden layers", 1)
GATE_HIDDEN = Option("gate_hidden", tuple, (64,), "widths of the hidden layers of both gates", 1)
FIRST_GATE = Option("first_gate", tuple, (), "numbers of the fields that the first stream's gate sees, from 0, or none")
SECOND_GATE = Option("second_gate", tuple, (), "numbers of the fields that the second stream's gate sees, or none")
FUSION_HEADS = Option("fusion_heads", int, 4, "into how many parts the streams are cut where they meet", 1)
NETWORK = Network(
    "FinalMLP",
    "FinalMLP: two multi-layer perceptrons with gates of their own, joined by bilinear forms",
    source="Mao et al., 2023",
    options=(*MLP, SECOND_HIDDEN, GATE_HIDDEN, FIRST_GATE, SECOND_GATE, FUSION_HEADS),
    defaults={"hidden": (128, 64)},
)
