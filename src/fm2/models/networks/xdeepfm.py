"""xDeepFM."""

from fm2.models.networks.declaration import Network
from fm2.models.networks.options import MLP, Option

CIN = Option("cin", tuple, (100, 100), "numbers of feature maps in the layers of the compressed interaction network", 2)
CIN_SPLIT = Option("cin_split", bool, True, "one half of a layer's feature maps goes on, the other is pooled")

NETWORK = Network(
    "XDeepFM",
    "xDeepFM: vector-wise products of any order, beside a perceptron and a linear part",
    source="Lian et al., 2018",
    equal_dims="its products take the embeddings of two fields coordinate by coordinate; dcnv2 takes one per field",
    options=(*MLP, CIN, CIN_SPLIT),
)
