"""``flops()`` of every network, compared with torch's own counter.

Torch counts matrix products and convolutions, two operations per multiplication and addition. ``flops()`` equals that
count, plus the element-wise operations that torch does not count (sums of embeddings, products of elements, means,
residuals; activations, softmax and gates' sigmoids are free), minus what a matrix product computes without need (both
triangles of a symmetric matrix, zeros in a padding). ``UNCOUNTED`` states the difference for each network.
"""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from tests.helpers.network_formulas import FORMULAS
from tests.helpers.networks import OWN_DIMS, counted_flops, options, prune, small

from fm2.models import build, get_spec
from fm2.models.registry import model_names

ROWS = 8
MORE_LAYERS = {"hidden": [7, 9, 8], "second_hidden": [5, 6, 4], "mask_blocks": [3, 7, 5]}
VARIANTS = {
    "autoint": [{"attention_layers": 3, "attention_heads": 3, "attention_dim": 5}, {"wide": True}],
    "autointplus": [{"attention_layers": 1, "attention_heads": 3, "attention_dim": 5}],
    "dcn": [{"cross_layers": 6}],
    "dcnv2": [
        {"structure": structure, "cross_layers": 4, **rank}
        for structure in ("stacked", "parallel")
        for rank in ({}, {"cross_rank": 5, "experts": 3}, {"cross_rank": 5, "experts": 1})
    ],
    "deepfmfm": [{"linear": "fields"}, {"linear": "both"}],
    "fgcnn": [{"conv_maps": [2, 3], "conv_height": 3, "new_maps": 2}, {"pooling": 3}],
    "fibinet": [{"bilinear": kind, "reduction": 2} for kind in ("all", "each", "interaction")],
    "fignn": [{"field_weights": "own", "graph_steps": 3}, {"field_weights": "all", "attention_heads": 3}],
    "finalmlp": [{"first_gate": [2, 0], "second_gate": [1], "gate_hidden": [5]}, {"fusion_heads": 2}],
    "fmfm3": [{"triple_rank": 7}],
    "gdcn": [{"structure": "stacked", "cross_layers": 4}],
    "masknet": [{"arrangement": "serial", "mask_ratio": 0.5}, {"arrangement": "parallel", "mask_ratio": 2.0}],
    "opnn": [{"outer": "sum"}, {"outer": "pairs"}],
    "xdeepfm": [{"cin": [6]}, {"cin": [6, 4]}, {"cin": [6, 4, 8]}, {"cin": [6, 4, 8, 2], "cin_split": False}],
}
CASES = [
    (name, changes)
    for name in model_names(deep=True)
    for changes in (
        {},
        {"dims": 5, **options(name, **MORE_LAYERS)},
        *([] if get_spec(name).equal_dims else [{"dims": OWN_DIMS}]),
        *([{"batch_norm": True}] if "batch_norm" in get_spec(name).option_names else []),
        *VARIANTS.get(name, []),
    )
]


def fmfm(dims):
    """Per pair, v_i M and a dot product of the smaller dimension; torch multiplies by both triangles of S."""
    pairs = sum(2 * a * b + 2 * min(a, b) + 1 for a, b in combinations(dims, 2))
    return pairs + 2 * len(dims) - 2 * sum(dims) ** 2


def attention(model):
    config = model.config
    residuals = config["attention_layers"] * len(model.dims) * config["attention_heads"] * config["attention_dim"]
    return residuals + (2 * len(model.dims) if config.get("wide") else 0)


def dcnv2(model):
    config = model.config
    gated = config["experts"] * config["cross_rank"] if config["experts"] > 1 else 0
    return config["cross_layers"] * (2 * sum(model.dims) + gated)


def deeplight(model):
    """FwFM with a product, a sum and a weight per pair; torch multiplies by both triangles of R."""
    n, k = len(model.dims), model.dims[0]
    return n * (n - 1) // 2 * (2 * k + 2) + 2 * n - 2 * n**2 * k


def fgcnn(model):
    """Torch computes the products of all ordered pairs of features, and of each with itself."""
    n = features = len(model.dims)
    for _ in model.config["conv_maps"]:
        n = -(-n // model.config["pooling"])
        features += n * model.config["new_maps"]
    return -model.dims[0] * features * (features + 1)


def fibinet(model):
    """Two products per element of a field's embedding, and one per pair and element, twice; torch's means are dense."""
    dims = model.dims
    pairs = sum(second for _, second in combinations(dims, 2))
    return 2 * len(dims) + 2 * sum(dims) + 2 * pairs - 2 * sum(dims) * len(dims)


def finalmlp(model):
    """Torch also counts the gates without fields, which are computed once per batch."""
    config, width = model.config, sum(model.dims)
    shared = 0
    for fields in (config["first_gate"], config["second_gate"]):
        if not fields:
            shared += sum(2 * a * b for a, b in pairwise([model.dims[0], *config["gate_hidden"], width]))
    return 2 * width + 2 * config["hidden"][-1] + 3 * config["second_hidden"][-1] - shared / ROWS


def fmfm3(model):
    """Powers and sums of the projections; torch pads all fields to the largest dimension."""
    n, rank, padding = len(model.dims), model.config["triple_rank"], len(model.dims) * max(model.dims) - sum(model.dims)
    return fmfm(model.dims) + rank * (5 * n + 7 - 2 * padding)


def masknet(model):
    """Normalization, masks and layer norms; torch computes four dense products for the means of fields."""
    n, width, blocks = len(model.dims), sum(model.dims), model.config["mask_blocks"]
    inputs = [width, *blocks[:-1]] if model.config["arrangement"] == "serial" else [width] * len(blocks)
    return 2 * n + 2 * width + sum(inputs) + 2 * sum(blocks) - 8 * width * n


def opnn(model):
    n, k = len(model.dims), model.dims[0]
    return n * k + k**2 if model.config["outer"] == "sum" else n * (n - 1) * k


def xdeepfm(model):
    """Products and sums per coordinate; torch also counts the merging of weights, once per batch."""
    n, k, maps, split = len(model.dims), model.dims[0], model.config["cin"], model.config["cin_split"]
    passed = [(count // 2 if split else count) for count in maps[:-1]] + [0]
    pooled = [count - out if split else count for count, out in zip(maps, passed, strict=True)]
    inputs = [n * (n + 1) // 2, *(out * n for out in passed[:-1])]
    products = sum(inputs[: max(1, len(maps) - 1)])
    last = 2 * passed[-2] if len(maps) > 1 else 0
    merging = sum(2 * count * width for count, width in zip(pooled, inputs, strict=True))
    return 2 * n + k * (products + last + len(maps)) - merging / ROWS


UNCOUNTED = {
    "autoint": attention,
    "autointplus": attention,
    "dcn": lambda model: 3 * model.config["cross_layers"] + 2,
    "dcnv2": dcnv2,
    "deepfm": lambda model: 2 * len(model.dims) + model.dims[0] * (3 * len(model.dims) + 3),
    "deepfmfm": lambda model: fmfm(model.dims),
    "deeplight": deeplight,
    "fgcnn": fgcnn,
    "fibinet": fibinet,
    "fignn": lambda model: len(model.dims) * model.config["attention_heads"] * model.config["attention_dim"],
    "finalmlp": finalmlp,
    "fmfm3": fmfm3,
    "gdcn": lambda model: 3 * model.config["cross_layers"] * sum(model.dims),
    "ipnn": lambda model: -len(model.dims) * (len(model.dims) + 1) * model.dims[0],
    "masknet": masknet,
    "nfmfm": lambda model: fmfm(model.dims),
    "opnn": opnn,
    "widedeep": lambda model: 2 * len(model.dims),
    "xdeepfm": xdeepfm,
}


def test_every_network_is_covered():
    assert UNCOUNTED.keys() == set(model_names(deep=True))


@pytest.mark.parametrize(("name", "changes"), CASES)
def test_flops_are_what_torch_counts_and_the_stated_difference(name, changes):
    model = small(name, **{"dims": 3, **changes})
    normalized = 0
    if changes.get("batch_norm"):
        normalized = 2 * sum(sum(model.config.get(key, ())) for key in ("hidden", "second_hidden"))
    assert model.flops() == counted_flops(model, ROWS) + normalized + UNCOUNTED[name](model)


def test_pruned_weights_cost_nothing():
    pruned = {"pair_sparsity": 0.5, "network_sparsity": 0.75, "warm_up": 0, "hidden": [16, 8]}
    model = small("deeplight", dims=3, **pruned)
    dense = model.flops()
    prune(model, step=20 * 1000)
    assert model.flops() == dense - 3 * (2 * 3 + 2) - 2 * (0.75 * 12 * 16 + 0.75 * 16 * 8)


@pytest.mark.parametrize("name", ["fibinet", "deeplight"])
def test_flops_are_close_to_the_estimates_of_the_paper(name):
    """The paper counts n² pairs instead of n (n - 1) / 2 or n (n - 1), and one H × H matrix more."""
    config = {"model": name, "field_sizes": [2] * 39, "dims": 16, "hidden": [200] * 3}
    if name == "fibinet":
        assert build(config).flops() == pytest.approx(FORMULAS["fibinet"], rel=0.05)
        return
    model = build({**config, "network_sparsity": 0.8, "warm_up": 0})
    prune(model, step=20 * 1000)
    additional = 2 * 0.2 * 200**2 + (39**2 * 0.1 - 74) * 32
    assert model.flops() == pytest.approx(FORMULAS["deeplight"] - additional, rel=0.01)
