"""The networks: around a perceptron, with cross layers, with products of embeddings, with attention between fields."""

from __future__ import annotations

from typing import get_args

from fm2.models.choices import Arrangement
from fm2.models.defaults import LARGE_LOG, SMALL_LOG
from fm2.models.options import LINEAR, MATRIX_STD, MLP, NETWORK_DROPOUT, Option
from fm2.models.spec import ModelSpec

WIDE_DEEP = ModelSpec(
    "widedeep",
    "Wide & Deep",
    "a weight per feature and a multi-layer perceptron",
    source="Cheng et al., 2016",
    equation="b + Σᵢ wᵢ + MLP(v)",
    torch_class="fm2.models.deep.perceptrons:WideDeep",
    many_fields=True,
)

DEEP_FM = ModelSpec(
    "deepfm",
    "DeepFM",
    "an FM and a multi-layer perceptron that share their embeddings",
    source="Guo et al., 2017",
    equation="b + Σᵢ wᵢ + Σᵢ<ⱼ ⟨vᵢ, vⱼ⟩ + MLP(v)",
    torch_class="fm2.models.deep.perceptrons:DeepFM",
    auto_effort=2,
    dimensions="equal",
    equal_dims="the FM multiplies the embeddings of any two fields; "
    "widedeep and deepfmfm allow one dimension per field",
    many_fields=True,
)

DEEP_FMFM = ModelSpec(
    "deepfmfm",
    "DeepFmFM",
    "an FmFM and a multi-layer perceptron that share their embeddings",
    source="the paper's section 6",
    equation="b + linear part + Σᵢ<ⱼ vᵢ M[i,j] vⱼᵀ + MLP(v)",
    torch_class="fm2.models.deep.perceptrons:DeepFmFM",
    options=(*MLP, LINEAR, MATRIX_STD),
)

NFMFM = ModelSpec(
    "nfmfm",
    "NFmFM",
    "an FmFM whose pairwise products also feed a multi-layer perceptron",
    source="the paper's section 6",
    equation="b + Σᵢ wᵢ + ½ Σ p + MLP(p), with pᵢ = vᵢ ⊙ Σⱼ≠ᵢ M[i,j] vⱼᵀ",
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
    equation="b + Σᵢ wᵢ + Σᵢ<ⱼ r[i,j] ⟨vᵢ, vⱼ⟩ + MLP(v), with pruned weights",
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

GATE_HELP = "indices of the fields that the"
FINAL_MLP = ModelSpec(
    "finalmlp",
    "FinalMLP",
    "two multi-layer perceptrons with their own feature gates, fused by bilinear forms",
    source="Mao et al., 2023",
    equation="b + Σ over heads of w₁ᵀo₁ + w₂ᵀo₂ + o₁ᵀ W₃ o₂, with oₖ = MLPₖ(2 σ(MLP(xₖ)) ⊙ v)",
    torch_class="fm2.models.deep.finalmlp:FinalMLP",
    auto_effort=3,
    options=(
        *MLP,
        Option("second_hidden", tuple, (128, 128), "widths of the second stream's hidden layers", 1),
        Option("gate_hidden", tuple, (64,), "widths of the hidden layers of both gates", 1),
        Option("first_gate", tuple, (), f"{GATE_HELP} first stream's gate sees, from 0, or none", field_indices=True),
        Option("second_gate", tuple, (), f"{GATE_HELP} second stream's gate sees, or none", field_indices=True),
        Option("fusion_heads", int, 4, "number of heads of the bilinear fusion", 1),
    ),
    defaults={**SMALL_LOG, "hidden": (128, 64)},
)

MASK_NET = ModelSpec(
    "masknet",
    "MaskNet",
    "layers whose inputs are multiplied by a mask that depends on the row",
    source="Wang et al., 2021",
    equation="MLP(blocks), with block(x) = relu(LN(W (mask(v) ⊙ x))) and mask(v) = W₂ relu(W₁ v + b₁) + b₂",
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


CROSS_LAYERS = Option("cross_layers", int, 3, "number of cross layers", 1, 64)
STRUCTURE_HELP = "put the perceptron after the cross network or parallel to it"
STRUCTURE = Option("structure", str, "parallel", STRUCTURE_HELP, choices=("stacked", "parallel"))

DCN = ModelSpec(
    "dcn",
    "Deep & Cross",
    "cross layers, which multiply by the embeddings, and a multi-layer perceptron",
    source="Wang et al., 2017",
    equation="b + wᵀ[x_L, h], with xₗ₊₁ = v xₗᵀwₗ + bₗ + xₗ and x₀ = v; h is the last hidden layer of MLP(v)",
    torch_class="fm2.models.deep.crosses:DCN",
    options=(*MLP, CROSS_LAYERS),
    many_fields=True,
)

DCN_V2 = ModelSpec(
    "dcnv2",
    "DCN-V2",
    "cross layers with full matrices or low-rank mixtures, and a multi-layer perceptron",
    source="Wang et al., 2021",
    equation="b + wᵀ[x_L, h], with xₗ₊₁ = v ⊙ (Wₗ xₗ + bₗ) + xₗ and x₀ = v; h is the last hidden layer of MLP(v)",
    torch_class="fm2.models.deep.crosses:DCNV2",
    auto_effort=2,
    options=(
        *MLP,
        CROSS_LAYERS,
        Option("cross_rank", int, 0, "rank of a cross layer's matrices; 0 uses one full matrix", 0),
        Option("experts", int, 4, "number of low-rank matrices that a cross layer mixes", 1, 256),
        STRUCTURE,
    ),
)

GDCN = ModelSpec(
    "gdcn",
    "GDCN",
    "gated cross layers and a multi-layer perceptron",
    source="Wang et al., 2023",
    equation="b + wᵀ[x_L, h], with xₗ₊₁ = v ⊙ (Wₗ xₗ + bₗ) ⊙ σ(Gₗ xₗ) + xₗ and x₀ = v; h as in DCN-V2",
    torch_class="fm2.models.deep.crosses:GDCN",
    options=(*MLP, CROSS_LAYERS, STRUCTURE),
)

X_DEEP_FM = ModelSpec(
    "xdeepfm",
    "xDeepFM",
    "vector-wise products of any order, a multi-layer perceptron and a linear part",
    source="Lian et al., 2018",
    equation="b + Σᵢ wᵢ + CIN(v) + MLP(v), with maps Xᵏₕ = Σᵢⱼ Wᵏʰᵢⱼ (Xᵏ⁻¹ᵢ ⊙ vⱼ)",
    torch_class="fm2.models.deep.xdeepfm:XDeepFM",
    options=(
        *MLP,
        Option("cin", tuple, (100, 100), "feature maps per layer of the compressed interaction network", 2),
        Option("cin_split", bool, True, "pass half of a layer's feature maps to the next layer and pool the others"),
    ),
    dimensions="equal",
    equal_dims="it multiplies the embeddings of two fields element by element; dcnv2 allows one dimension per field",
)


IPNN = ModelSpec(
    "ipnn",
    "IPNN",
    "a multi-layer perceptron on embeddings and their inner products",
    source="Qu et al., 2016, 2018",
    equation="MLP([v, p]), with pᵢⱼ = ⟨vᵢ, vⱼ⟩ for i < j",
    torch_class="fm2.models.deep.products:IPNN",
    dimensions="equal",
    equal_dims="it multiplies the embeddings of any two fields; fibinet and deepfmfm allow one dimension per field",
)

OPNN = ModelSpec(
    "opnn",
    "OPNN",
    "a multi-layer perceptron on embeddings and their outer products",
    source="Qu et al., 2016, 2018",
    equation="MLP([v, p]), with p = s sᵀ and s = Σᵢ vᵢ",
    torch_class="fm2.models.deep.products:OPNN",
    options=(
        *MLP,
        Option("outer", str, "sum", "outer product of the embeddings' sum, or one per pair", choices=("sum", "pairs")),
    ),
    dimensions="equal",
    equal_dims="the outer products of any two fields have the same size; deepfmfm allows one dimension per field",
)

FGCNN = ModelSpec(
    "fgcnn",
    "FGCNN",
    "an IPNN on the embeddings and on features that convolutions generate from them",
    source="Liu et al., 2019",
    equation="IPNN of v and of new features R = tanh(W maxpool(tanh(conv(v'))) + b)",
    torch_class="fm2.models.deep.fgcnn:FGCNN",
    options=(
        *MLP,
        Option("conv_maps", tuple, (6, 8), "feature maps per convolution", 1),
        Option("conv_height", int, 7, "number of fields that a convolution spans", 1),
        Option("pooling", int, 2, "number of adjacent fields that max pooling combines", 1),
        Option("new_maps", int, 1, "generated features per field after pooling", 1),
    ),
    dimensions="equal",
    equal_dims="its convolutions run over the fields for each embedding element",
)

FIBINET = ModelSpec(
    "fibinet",
    "FiBiNET",
    "a multi-layer perceptron on bilinear products of the embeddings, with and without field weights",
    source="Huang et al., 2019",
    equation="b + Σᵢ wᵢ + MLP([p, q]), with pᵢⱼ = (vᵢ W[i,j]) ⊙ vⱼ and qᵢⱼ = (aᵢ vᵢ W'[i,j]) ⊙ (aⱼ vⱼ)",
    torch_class="fm2.models.deep.fibinet:FiBiNET",
    options=(
        *MLP,
        Option(
            "bilinear",
            str,
            "interaction",
            "one matrix for all pairs of fields, one per field, or one per pair",
            choices=("all", "each", "interaction"),
        ),
        Option("reduction", int, 3, "fields per unit of the squeeze-and-excitation layer", 1),
    ),
    defaults={**SMALL_LOG, "hidden": (128, 64)},
)

FMFM3 = ModelSpec(
    "fmfm3",
    "FmFM3",
    "an FmFM with an additional low-rank tensor for every three fields",
    source="the paper's section 6",
    equation="b + Σᵢ wᵢ + Σᵢ<ⱼ vᵢ M[i,j] vⱼᵀ + Σᵢ<ⱼ<ₖ T[i,j,k](vᵢ, vⱼ, vₖ), with tensors T of low rank",
    torch_class="fm2.models.deep.fmfm3:FmFM3",
    options=(
        Option("triple_rank", int, 8, "rank of the tensor through which three fields interact", 1, 4096),
        Option("triple_std", float, 0.3, "standard deviation of the tensor's initial values", 0.0, 100.0, shapes=False),
        MATRIX_STD,
    ),
    defaults={**SMALL_LOG, "dense_learning_rate": 0.004},
)


HEADS = (
    Option("attention_heads", int, 2, "number of attention heads", 1, 64),
    Option("attention_dim", int, 16, "dimension of an attention head", 1),
)
ATTENTION = (Option("attention_layers", int, 2, "number of attention layers", 1, 64), *HEADS)
SHARED_MATRICES = "all fields share the attention's matrices; dcnv2 allows one dimension per field"

AUTO_INT = ModelSpec(
    "autoint",
    "AutoInt",
    "self-attention between fields",
    source="Song et al., 2019",
    equation="b + wᵀ[e₁, …, eₙ], with layers eᵢ = relu(Σₖ αᵢₖ W_V vₖ + W_R vᵢ) and αᵢ = softmaxₖ((W_Q vᵢ)ᵀ(W_K vₖ))",
    torch_class="fm2.models.deep.autoint:AutoInt",
    options=(*ATTENTION, NETWORK_DROPOUT, Option("wide", bool, False, "add a weight per feature")),
    # Found by trials on 110,000 rows of Criteo. Dropout raised the AUC by .0005 on validation and on later rows.
    defaults={
        **SMALL_LOG,
        "embedding_std": 0.1,
        "learning_rate": 0.004,
        "dense_learning_rate": 0.002,
        "field_dropout": 0.05,
        "network_dropout": 0.5,
    },
    large_defaults={**LARGE_LOG, "learning_rate": 0.004, "dense_learning_rate": 0.004, "network_dropout": 0.0},
    dimensions="equal",
    equal_dims=SHARED_MATRICES,
)

AUTO_INT_PLUS = ModelSpec(
    "autointplus",
    "AutoInt+",
    "self-attention between fields and a multi-layer perceptron",
    source="Song et al., 2019",
    equation="AutoInt(v) + MLP(v)",
    torch_class="fm2.models.deep.autoint:AutoIntPlus",
    options=(*MLP, *ATTENTION),
    dimensions="equal",
    equal_dims=SHARED_MATRICES,
)

FI_GNN = ModelSpec(
    "fignn",
    "Fi-GNN",
    "a graph neural network whose nodes are the fields",
    source="Li et al., 2019",
    equation="Σᵢ αᵢ uᵀhᵢ, with hᵢ ← GRU(hᵢ, W_in[i] Σⱼ Aᵢⱼ W_out[j] hⱼ) + h¹ᵢ, in steps",
    torch_class="fm2.models.deep.fignn:FiGNN",
    options=(
        Option("graph_steps", int, 3, "number of message-passing steps between fields", 1, 64),
        *HEADS,
        Option(
            "field_weights",
            str,
            "all",
            "compute a field's weight from its own state or from all states",
            choices=("own", "all"),
        ),
    ),
    defaults={**SMALL_LOG, "attention_dim": 8},
    dimensions="equal",
    equal_dims="all fields share the attention's matrices",
)

SPECS = (
    *(WIDE_DEEP, DEEP_FM, DEEP_FMFM, NFMFM, DEEP_LIGHT, FINAL_MLP, MASK_NET),
    *(DCN, DCN_V2, GDCN, X_DEEP_FM),
    *(IPNN, OPNN, FGCNN, FIBINET, FMFM3),
    *(AUTO_INT, AUTO_INT_PLUS, FI_GNN),
)
