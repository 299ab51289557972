"""Networks built around a multi-layer perceptron."""

from __future__ import annotations

from typing import get_args

from fm2.models.choices import Arrangement
from fm2.models.defaults import LARGE_LOG, SMALL_LOG
from fm2.models.options import LINEAR, MATRIX_STD, MLP, Option
from fm2.models.spec import ModelSpec

WIDE_DEEP = ModelSpec(
    "widedeep",
    "Wide & Deep",
    "a weight per feature and a multi-layer perceptron",
    source="Cheng et al., 2016",
    torch_class="fm2.models.deep.perceptrons:WideDeep",
)

DEEP_FM = ModelSpec(
    "deepfm",
    "DeepFM",
    "an FM and a multi-layer perceptron that share their embeddings",
    source="Guo et al., 2017",
    torch_class="fm2.models.deep.perceptrons:DeepFM",
    dimensions="equal",
    equal_dims="the FM multiplies the embeddings of any two fields; "
    "widedeep and deepfmfm allow one dimension per field",
)

DEEP_FMFM = ModelSpec(
    "deepfmfm",
    "DeepFmFM",
    "an FmFM and a multi-layer perceptron that share their embeddings",
    source="the paper's section 6",
    torch_class="fm2.models.deep.perceptrons:DeepFmFM",
    options=(*MLP, LINEAR, MATRIX_STD),
)

NFMFM = ModelSpec(
    "nfmfm",
    "NFmFM",
    "an FmFM whose pairwise products also feed a multi-layer perceptron",
    source="the paper's section 6",
    torch_class="fm2.models.deep.perceptrons:NFmFM",
    options=(*MLP, MATRIX_STD),
)


def _share(name: str, default: float, of: str) -> Option:
    return Option(name, float, default, f"share of {of} that is pruned to zero", 0.0, 0.999, shapes=False)


DAMPING_HELP = "D in the pruned share S (1 - D^(k / damping_steps)) after k steps"
DEEP_LIGHT = ModelSpec(
    "deeplight",
    "DeepLight",
    "an FwFM and a multi-layer perceptron, most of whose weights are pruned in training",
    source="Deng et al., 2021",
    torch_class="fm2.models.deep.deeplight:DeepLight",
    options=(
        *MLP,
        MATRIX_STD,
        _share("network_sparsity", 0.9, "the hidden layers' weights"),
        _share("pair_sparsity", 0.9, "the field pairs"),
        _share("embedding_sparsity", 0.4, "the embedding elements"),
        Option("warm_up", int, 800, "steps before pruning begins", 0, 10**9, shapes=False),
        Option("prune_every", int, 20, "steps between two prunings", 1, 10**6, shapes=False),
        Option("damping", float, 0.99, DAMPING_HELP, 0.001, 0.999999, shapes=False),
        Option("damping_steps", float, 4.0, "larger values prune more slowly (see damping)", 1e-6, 1e9, shapes=False),
    ),
    defaults={**SMALL_LOG, "matrix_std": 0.3},
    large_defaults={**LARGE_LOG, "damping_steps": 2.0},
    dimensions="equal",
    equal_dims="the FwFM multiplies the embeddings of any two fields; "
    "widedeep and deepfmfm allow one dimension per field",
)

FINAL_MLP = ModelSpec(
    "finalmlp",
    "FinalMLP",
    "two multi-layer perceptrons with their own feature gates, fused by bilinear forms",
    source="Mao et al., 2023",
    torch_class="fm2.models.deep.finalmlp:FinalMLP",
    options=(
        *MLP,
        Option("second_hidden", tuple, (128, 128), "widths of the second stream's hidden layers", 1),
        Option("gate_hidden", tuple, (64,), "widths of the hidden layers of both gates", 1),
        Option("first_gate", tuple, (), "indices of the fields that the first stream's gate sees, from 0, or none"),
        Option("second_gate", tuple, (), "indices of the fields that the second stream's gate sees, or none"),
        Option("fusion_heads", int, 4, "number of heads of the bilinear fusion", 1),
    ),
    defaults={**SMALL_LOG, "hidden": (128, 64)},
)

MASK_NET = ModelSpec(
    "masknet",
    "MaskNet",
    "layers whose inputs are multiplied by a mask that depends on the row",
    source="Wang et al., 2021",
    torch_class="fm2.models.deep.masknet:MaskNet",
    options=(
        *MLP,
        Option("arrangement", str, "parallel", "arrangement of the mask blocks", choices=get_args(Arrangement)),
        Option("mask_blocks", tuple, (32, 32, 32), "widths of the mask blocks", 1),
        Option("mask_ratio", float, 0.5, "units of a mask's hidden layer per embedding element", 0.001, 100.0),
        Option("norm_epsilon", float, 0.1, "added to the variance of the embeddings", 1e-12, 100.0, shapes=False),
    ),
    defaults={**SMALL_LOG, "hidden": (32,), "network_dropout": 0.2},
)

SPECS = (WIDE_DEEP, DEEP_FM, DEEP_FMFM, NFMFM, DEEP_LIGHT, FINAL_MLP, MASK_NET)
