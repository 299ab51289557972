"""LR and Poly2, which sum weights, and the factorization machines FM, FFM, FwFM, FvFM and FmFM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

from fm2.models import complexity
from fm2.models.choices import Interaction, MatrixForm
from fm2.models.options import LINEAR, LINEAR_STD, MATRICES, MATRIX_STD, Option
from fm2.models.spec import EMBEDDING_SETTINGS, FAMILY_SETTINGS, Config, ModelSpec, RowwiseTraining

# The power of c by which parameters have to be multiplied to multiply the logit by c.
SUMS = {"bias": 1.0, "linear.weight": 1.0}
PRODUCTS_OF_EMBEDDINGS = {**SUMS, "embedding.weight": 0.5, "field_linear": 0.5}
FIELD_MATRICES = {**SUMS, "interaction.weight": 1.0, "field_linear": 1.0}

LINEAR_KERNEL = RowwiseTraining("polynomial", ("adagrad", "ftrl"))

LR = ModelSpec(
    "lr",
    "LR",
    "logistic regression, a weight per feature",
    source="Richardson et al., 2007",
    equation="b + Σᵢ wᵢ",
    torch_class="fm2.models.poly2:LR",
    deep=False,
    options=(),
    settings=("dense_learning_rate",),
    arguments={},
    defaults={
        "optimizer": "adam",
        "learning_rate": 0.005,
        "batch_size": 256,
        "epochs": 100,
        "l2": 0.0025,
        "l2_power": 0.5,
        "ema_decay": 0.9995,
    },
    few_defaults={"ema_decay": 0.998},
    large_defaults={"learning_rate": 0.006, "batch_size": 1024, "l2": 0.000625, "ema_decay": 0.998},
    highest_rate=0.0125,
    l2_by_density=True,
    other_penalties=((1, 1), (1, 2), (0, 1)),
    untuned=("dense_learning_rate",),  # only the bias uses it
    auto_effort=1,
    many_fields=True,
    dimensions="none",
    logit_exponents=SUMS,
    count_parameters=lambda config: sum(config["field_sizes"]),
    count_flops=lambda config: {"sums": complexity.lr(len(config["field_sizes"]))},
    rowwise=LINEAR_KERNEL,
    forward_backward="fused",
    compile_plan="sums",
)

POLY2 = ModelSpec(
    "poly2",
    "Poly2",
    "a weight per feature and, hashed, per pair of features",
    source="Chang et al., 2010",
    equation="b + Σᵢ wᵢ + Σᵢ<ⱼ w[hash(xᵢ, xⱼ)]",
    torch_class="fm2.models.poly2:Poly2",
    deep=False,
    options=(Option("hash_bits", int, 22, "log2 of the size of the hash table of pairs", 1, 30),),
    settings=(),
    arguments={},
    defaults={
        "optimizer": "adagrad",
        "learning_rate": 0.001,
        "initial_accumulator": 0.1,
        "batch_size": 4096,
        "epochs": 200,
    },
    large_defaults={},
    highest_rate=0.05,
    untuned=("batch_size",),  # the kernel learns row by row
    dimensions="none",
    no_warm_start="it hashes the ids of pairs, and new data changes the ids; train a new model",
    count_parameters=lambda config: sum(config["field_sizes"]) + 2 ** int(config["hash_bits"]),
    count_flops=lambda config: {"sums": complexity.poly2(len(config["field_sizes"]))},
    rowwise=LINEAR_KERNEL,
    forward_backward=None,
    compile_plan="sums",
)


# Found by about 70 trials of FmFM on the validation rows of ten logs: eight of benchmarks/panel.py, a part of Criteo's,
# and a generated one of app usage. A penalty that falls with the 0.7th power of a feature's count instead of its square
# root, half the field dropout, twice the rate, averages over 2,000 instead of 500 steps changed FmFM's test log loss
# (mean of two seeds) from .3916 to .3838 on user_item, .4100 to .4081 on drift, .4319 to .4302 on few_fields, .5598 to
# .5576 on movies, .5574 to .5559 on movies_users, .4925 to .4910 on 41,000 rows of Criteo, and .4831 to .4828 on
# criteo_inferred; adult (.2749 and .2751) and avazu (.4086 and .4088) hardly changed.
#
# A weight in the linear part needs a smaller penalty than an element of an embedding; a fifth is about the penalty that
# LR has. It lowered FmFM's test log loss from .3972 to .3942 on drift, .4851 to .4840 on criteo, .4824 to .4820 on
# criteo_inferred, .4575 to .4563 on numbers, .3752 to .3734 on user_item, .02775 to .02749 on another draw of
# rare_clicks, and FwFM's and FvFM's by about as much. Factors of .1 and .5 were worse on most of these logs. Logs with
# few rows hardly depend on it, unless clicks are rare: 4,000 rows of rare_clicks have .0357 with 1 and .0371 with .2.
DEFAULTS: dict[str, Any] = {
    "dim": 8,
    "linear": "features",
    "embedding_std": 0.05,
    "linear_std": 0.3,
    "matrix_std": 0.3,
    "optimizer": "adam",
    "learning_rate": 0.004,
    "dense_learning_rate": 0.004,
    "batch_size": 256,
    "epochs": 100,
    "l2": 0.036,
    "l2_power": 0.7,
    "linear_l2_scale": 0.2,
    "field_dropout": 0.1,
    "ema_decay": 0.9995,
}
FEW_DEFAULTS: dict[str, Any] = {
    "learning_rate": 0.002,
    "l2": 0.03,
    "l2_power": 0.5,
    "linear_l2_scale": 1.0,
    "field_dropout": 0.2,
    "ema_decay": 0.998,
}
# The rates were found by about 25 manual trials of FmFM and FFM on the validation rows of generated logs with a million
# rows, the regularization and the averages by seven on 960,000 rows of users and items in ten fields: with the same
# l2_power and averages as on small logs and without field dropout, FmFM's test log loss fell from .3651 to .3575. Rates
# stay constant: lowering them when validation stops improving, from the best state on, gained FmFM less than .0004 on
# ten logs.
LARGE_DEFAULTS: dict[str, Any] = {
    "learning_rate": 0.004,
    "dense_learning_rate": 0.008,
    "batch_size": 1024,
    "l2": 0.009,
    "field_dropout": 0.0,
}


def _pruned(config: Config) -> set[tuple[int, int]]:
    return {(i, j) for i, j in config.get("pruned", [])}


def _matrix_parameters(a: int, b: int, form: MatrixForm) -> int:
    return {"full": a * b, "diagonal": min(a, b), "scalar": 1}[form]


def _count_parameters(per_pair: Callable[[int, int, MatrixForm], int] | None) -> Callable[[Config], int]:
    """Return a function that counts embeddings, linear part and what each pair of fields has, unless it is pruned."""

    def count(config: Config) -> int:
        sizes: list[int] = config["field_sizes"]
        dims: list[int] = config["dims"]
        pruned = _pruned(config)
        pairs = (pair for pair in combinations(range(len(sizes)), 2) if pair not in pruned)
        form: MatrixForm = config.get("matrices", "full")
        matrices = sum(per_pair(dims[i], dims[j], form) for i, j in pairs) if per_pair else 0
        owners: Sequence[int] = config.get("owners") or range(len(sizes))
        embeddings = sum(sizes[field] * dims[field] for field in set(owners))
        feature_weights = sum(sizes) if config["linear"] != "fields" else 0
        field_vectors = sum(dims) if config["linear"] != "features" else 0
        return embeddings + feature_weights + field_vectors + matrices

    return count


def _fm_flops(config: Config) -> dict[str, int]:
    """Count FM's operations; those of an FM with signs also as the cut spectrum that it is."""
    n, dim = len(config["field_sizes"]), config["dims"][0]
    spectral = {"spectral": complexity.spectral(n, dim)} if config.get("signs") else {}
    return {"sums": complexity.fm(n, dim), **spectral}


def _diagonal_flops(direct: Callable[[int, int, int], int]) -> Callable[[Config], dict[str, int]]:
    def count(config: Config) -> dict[str, int]:
        n, dim, pruned = len(config["field_sizes"]), config["dims"][0], len(_pruned(config))
        cached = complexity.ffm(n, dim) - pruned * (2 * dim + 1)  # an inner product for each remaining pair
        return {"direct": direct(n, dim, pruned), "cached": cached}

    return count


def _fmfm_flops(config: Config) -> dict[str, int]:
    dims, pruned = config["dims"], _pruned(config)
    return {"direct": complexity.fmfm(dims, pruned=pruned), "cached": complexity.fmfm(dims, True, pruned)}


def _machine(name: str, title: str, summary: str, source: str, interaction: Interaction, **parts: Any) -> ModelSpec:
    """Declare a model of the paper's united framework."""
    matrices = {"constant": (), "matrix": (MATRIX_STD, MATRICES)}.get(interaction, (MATRIX_STD,))
    return ModelSpec(
        name,
        title,
        summary,
        source,
        torch_class=f"fm2.models.family.machine:{title}",
        deep=False,
        options=(LINEAR, LINEAR_STD, *matrices),
        settings=FAMILY_SETTINGS,
        arguments={
            "dims": "dim",
            "embedding_std": "embedding_std",
            "linear": "linear",
            "linear_std": "linear_std",
            **({"interaction_std": "matrix_std"} if matrices else {}),
        },
        dimensions="per_field" if interaction == "matrix" else "equal",
        interaction=interaction,
        other_penalties=((1, 1), (0, 1)),
        **{
            "few_defaults": FEW_DEFAULTS,
            "large_defaults": LARGE_DEFAULTS,
            "highest_rate": 0.01,
            "compile_plan": "field_matrices",
            "logit_exponents": FIELD_MATRICES,
            **parts,
        },
    )


# FM, whose fields all interact in the same way, needs more regularization: with the rate and the penalty of the others,
# its test log loss on Criteo's log was .4900 (mean of five seeds) instead of .4873, above that of LR.
FM = _machine(
    "fm",
    "FM",
    "any two features interact through the product of their embeddings",
    "Rendle, 2010",
    "constant",
    defaults={
        **{name: value for name, value in DEFAULTS.items() if name != "matrix_std"},
        **FEW_DEFAULTS,
        "ema_decay": DEFAULTS["ema_decay"],
        "linear_l2_scale": DEFAULTS["linear_l2_scale"],
        "linear": "both",
        "linear_std": 0.03,
        "dense_learning_rate": 0.008,
        "embedding_std": 0.03,
    },
    few_defaults={name: FEW_DEFAULTS[name] for name in ("ema_decay", "linear_l2_scale")},
    large_defaults={**LARGE_DEFAULTS, "dense_learning_rate": 0.016, "l2": 0.0075, "field_dropout": 0.05},
    highest_rate=0.005,
    auto_effort=1,
    many_fields=True,
    logit_exponents=PRODUCTS_OF_EMBEDDINGS,
    count_parameters=_count_parameters(None),
    count_flops=_fm_flops,
    forward_backward="fused",
    compile_plan="embedding_sum",
    equation="b + linear part + Σᵢ<ⱼ ⟨vᵢ, vⱼ⟩",
)

FFM = ModelSpec(
    "ffm",
    "FFM",
    "every feature has an embedding for each other field",
    source="Juan et al., 2016",
    equation="b + Σᵢ wᵢ + Σᵢ<ⱼ ⟨vᵢ[field j], vⱼ[field i]⟩",
    torch_class="fm2.models.ffm:FFM",
    deep=False,
    options=(),
    settings=EMBEDDING_SETTINGS,
    arguments={"dim": "dim", "embedding_std": "embedding_std"},
    defaults={
        "dim": 4,
        "embedding_std": 0.03,
        "optimizer": "adagrad",
        "learning_rate": 0.02,
        "initial_accumulator": 0.1,
        "batch_size": 4096,
        "epochs": 100,
        "l2": 0.005,
    },
    large_defaults={"l2": 0.002},
    highest_rate=0.1,
    accumulator_by_rows=True,
    untuned=("batch_size",),  # the kernel learns row by row
    auto_effort=1,
    dimensions="scalar",
    logit_exponents=PRODUCTS_OF_EMBEDDINGS,
    count_parameters=lambda config: sum(config["field_sizes"]) * (1 + (len(config["field_sizes"]) - 1) * config["dim"]),
    count_flops=lambda config: {"pairs": complexity.ffm(len(config["field_sizes"]), config["dim"])},
    rowwise=RowwiseTraining("field_aware", ("adagrad",)),
    forward_backward=None,
    compile_plan="field_aware",
)

FWFM = _machine(
    "fwfm",
    "FwFM",
    "an FM with a weight for every pair of fields",
    "Pan et al., 2018",
    "scalar",
    defaults=DEFAULTS,
    auto_effort=1,
    count_parameters=_count_parameters(lambda a, b, form: 1),
    count_flops=_diagonal_flops(complexity.fwfm),
    equation="b + linear part + Σᵢ<ⱼ r[i,j] ⟨vᵢ, vⱼ⟩",
)

FVFM = _machine(
    "fvfm",
    "FvFM",
    "an FM with a vector for every pair of fields",
    "Sun et al., 2021",
    "vector",
    defaults={**DEFAULTS, "embedding_std": 0.03},
    auto_effort=3,
    count_parameters=_count_parameters(lambda a, b, form: a),
    count_flops=_diagonal_flops(complexity.fvfm),
    equation="b + linear part + Σᵢ<ⱼ ⟨vᵢ ⊙ d[i,j], vⱼ⟩",
)

FMFM = _machine(
    "fmfm",
    "FmFM",
    "an FM with a matrix for every pair of fields",
    "Sun et al., 2021",
    "matrix",
    defaults={**DEFAULTS, "linear_std": 0.03, "matrix_std": 0.03},
    highest_rate=0.016,
    scalar_form="fwfm",
    auto_effort=1,
    count_parameters=_count_parameters(_matrix_parameters),
    count_flops=_fmfm_flops,
    forward_backward="matrix",
    equation="b + linear part + Σᵢ<ⱼ vᵢ M[i,j] vⱼᵀ",
)

SPECS = (LR, POLY2, FM, FFM, FWFM, FVFM, FMFM)
