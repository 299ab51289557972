"""DeepLight."""

from fm2.models.networks.declaration import Network
from fm2.models.networks.options import MATRIX_SCALE, MLP, Option


def _share(name: str, default: float, of: str) -> Option:
    return Option(name, float, default, f"share of {of} that ends at zero", 0.0, 0.999, shapes=False)


SPARSITY = (
    _share("network_sparsity", 0.9, "the hidden layers' weights"),
    _share("pair_sparsity", 0.9, "the pairs of fields"),
    _share("embedding_sparsity", 0.4, "the numbers in embeddings"),
    Option("warm_up", int, 800, "steps before weights are pruned", 0, 10**9, shapes=False),
    Option("prune_every", int, 20, "steps from one pruning to the next", 1, 10**6, shapes=False),
    Option(
        "damping",
        float,
        0.99,
        "D of the shares S (1 - D^(k / damping_steps)) after k steps",
        0.001,
        0.999999,
        shapes=False,
    ),
    Option("damping_steps", float, 4.0, "how many steps damp once; more prune more slowly", 1e-6, 1e9, shapes=False),
)
NETWORK = Network(
    "DeepLight",
    "DeepLight: an FwFM and a multi-layer perceptron, most of whose weights are pruned in training",
    source="Deng et al., 2021",
    equal_dims="its FwFM part multiplies the embeddings of any two fields; widedeep and deepfmfm take one per field",
    options=(*MLP, MATRIX_SCALE, *SPARSITY),
    defaults={"matrix_std": 0.3},
    large={"damping_steps": 2.0},
)
