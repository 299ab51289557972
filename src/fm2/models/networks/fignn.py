"""Fi-GNN."""

from fm2.models.networks.declaration import Network
from fm2.models.networks.options import HEADS, Option

GRAPH_STEPS = Option("graph_steps", int, 3, "how often the fields' states go along the edges of their graph", 1, 64)
FIELD_WEIGHTS = Option(
    "field_weights", str, "all", "whose states tell how much a field counts: its own, or all", choices=("own", "all")
)
NETWORK = Network(
    "FiGNN",
    "Fi-GNN: fields are nodes of a graph and learn from each other along its edges",
    source="Li et al., 2019",
    equal_dims="one attention looks at the embeddings of all fields",
    options=(GRAPH_STEPS, *HEADS, FIELD_WEIGHTS),
    defaults={"attention_dim": 8},
)
