"""FGCNN, with IPNN for its classifier."""

from fm2.models.networks.declaration import Network
from fm2.models.networks.options import MLP, Option

CONV_MAPS = Option("conv_maps", tuple, (6, 8), "feature maps of the convolutions, one after the other", 1)
CONV_HEIGHT = Option("conv_height", int, 7, "how many fields a convolution sees at once", 1)
POOLING = Option("pooling", int, 2, "of how many fields that follow each other pooling keeps the largest", 1)
NEW_MAPS = Option("new_maps", int, 1, "new features for every field that pooling leaves", 1)
NETWORK = Network(
    "FGCNN",
    "FGCNN: features that convolutions make of the embeddings, beside them in an IPNN",
    source="Liu et al., 2019",
    equal_dims="its convolutions go over the fields column by column of their embeddings",
    options=(*MLP, CONV_MAPS, CONV_HEIGHT, POOLING, NEW_MAPS),
)
