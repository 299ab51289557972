"""FmFM3."""

from fm2.models.networks.declaration import Network
from fm2.models.networks.options import MATRIX_SCALE, Option

TRIPLE_RANK = Option("triple_rank", int, 8, "rank of the tensor by which three fields interact", 1, 4096)
TRIPLE_SCALE = Option(
    "triple_std", float, 0.3, "deviation of the first vectors of that tensor", 0.0, 100.0, shapes=False
)
NETWORK = Network(
    "FmFM3",
    "FmFM3: an FmFM whose fields also interact in threes, by a tensor of low rank",
    source="the paper's section 6",
    options=(TRIPLE_RANK, TRIPLE_SCALE, MATRIX_SCALE),
    defaults={"dense_learning_rate": 0.004},
)
