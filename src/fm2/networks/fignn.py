"""Fi-GNN."""

from fm2.networks.declaration import Network
from fm2.networks.options import Option

GRAPH_STEPS = Option("graph_steps", int, 3, "how often the fields' states go along the edges of their graph", 1, 64)
ATTENTION_HEADS = Option("attention_heads", int, 2, "in how many ways at once fields attend to each other", 1, 64)
ATTENTION_DIM = Option("attention_dim", int, 8, "dimension of what a head looks at and passes on", 1)
FIELD_WEIGHTS = Option(
    "field_weights", str, "all", "whose states tell how much a field counts: its own, or all", choices=("own", "all")
)
NETWORK = Network(
    "FiGNN",
    "Fi-GNN: fields are nodes of a graph and learn from each other along its edges",
    options=(GRAPH_STEPS, ATTENTION_HEADS, ATTENTION_DIM, FIELD_WEIGHTS),
)
