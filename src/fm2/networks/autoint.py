"""AutoInt."""

from fm2.networks.declaration import Network
from fm2.networks.options import ATTENTION, WIDE

# Found by trials on 110,000 rows of Criteo, where without a weight per feature it stays below LR, whatever the rates.
NETWORK = Network(
    "AutoInt",
    "AutoInt: fields attend to each other",
    source="Song et al., 2019",
    equal_dims="the same matrices look at the embeddings of all fields; dcnv2 takes one per field",
    options=(*ATTENTION, WIDE),
    defaults={
        "wide": True,
        "embedding_scale": 0.1,
        "learning_rate": 0.001,
        "dense_rate": 0.001,
        "l2": 0.005,
        "field_dropout": 0.2,
    },
)
