"""The figures of the paper's tables; those of table 3 are in ``models/paper.py`` and ``data/presets.py``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Samples:
    """A dataset in table 5. ``negatives`` is the approximate number of rows without a click per click."""

    train: int
    validation: int
    test: int
    fields: int
    features: int
    negatives: int

    @property
    def rows(self) -> int:
        """All rows."""
        return self.train + self.validation + self.test


@dataclass(frozen=True)
class Quality:
    """A model in table 6 or 7: AUC on up to three splits, and log loss on test."""

    model: str
    title: str
    train: float | None
    validation: float | None
    test: float
    log_loss: float

    @property
    def quoted(self) -> bool:
        """Whether the figures are quoted from another paper."""
        return self.train is None


@dataclass(frozen=True)
class Shrunk:
    """A row of table 8. ``variance`` is the share of the variance kept; None for the full model."""

    variance: float | None
    dimension: float
    flops: int
    auc: float
    log_loss: float


SAMPLES = {
    "criteo": Samples(36_672_493, 4_584_062, 4_584_062, 39, 1_327_180, 3),
    "avazu": Samples(32_343_173, 4_042_897, 4_042_897, 23, 1_544_257, 5),
}

# The models that the paper's authors trained with their own code. They quote the figures of the others.
TRAINED = ("lr", "fm", "ffm", "fwfm", "fvfm", "fmfm", "dcn")

QUALITY = {
    "criteo": (
        Quality("lr", "LR", 0.7930, 0.7918, 0.7917, 0.4582),
        Quality("fm", "FM", 0.8142, 0.8075, 0.8075, 0.4441),
        Quality("ffm", "FFM", 0.8230, 0.8103, 0.8103, 0.4414),
        Quality("fwfm", "FwFM", 0.8191, 0.8092, 0.8092, 0.4426),
        Quality("fvfm", "FvFM", 0.8192, 0.8102, 0.8101, 0.4417),
        Quality("fmfm", "FmFM", 0.8183, 0.8109, 0.8109, 0.4410),
        Quality("dcn", "Deep & Cross", 0.8244, 0.8118, 0.8118, 0.4413),
        Quality("widedeep", "Wide & Deep", None, None, 0.7981, 0.4677),
        Quality("deepfm", "DeepFM", None, None, 0.8007, 0.4508),
        Quality("xdeepfm", "xDeepFM", None, None, 0.8052, 0.4418),
        Quality("autoint", "AutoInt", None, None, 0.8061, 0.4454),
        Quality("fibinet", "FiBiNET", None, None, 0.8103, 0.4423),
        Quality("deeplight", "DeepLight", None, None, 0.8123, 0.4395),
    ),
    "avazu": (
        Quality("lr", "LR", 0.7526, 0.7521, 0.7517, 0.3953),
        Quality("fm", "FM", 0.7744, 0.7696, 0.7695, 0.3857),
        Quality("ffm", "FFM", 0.8012, 0.7761, 0.7761, 0.3826),
        Quality("fwfm", "FwFM", 0.7822, 0.7730, 0.7731, 0.3835),
        Quality("fvfm", "FvFM", 0.7836, 0.7732, 0.7733, 0.3834),
        Quality("fmfm", "FmFM", 0.7943, 0.7764, 0.7763, 0.3822),
        Quality("dcn", "Deep & Cross", 0.8109, 0.7825, 0.7826, 0.3791),
        Quality("autoint", "AutoInt", None, None, 0.7752, 0.3823),
        Quality("fignn", "Fi-GNN", None, None, 0.7762, 0.3825),
        Quality("fgcnn", "FGCNN+IPNN", None, None, 0.7883, 0.3746),
        Quality("deeplight", "DeepLight", None, None, 0.7897, 0.3748),
    ),
}

SHRUNK_MODEL = "fmfm"
SHRUNK = (
    Shrunk(None, 16, 24_531, 0.8109, 0.4410),
    Shrunk(0.99, 10.56, 12_884, 0.8109, 0.4410),
    Shrunk(0.97, 8.69, 10_280, 0.8107, 0.4411),
    Shrunk(0.95, 7.72, 8_960, 0.8108, 0.4411),
    Shrunk(0.90, 6.26, 7_202, 0.8103, 0.4415),
    Shrunk(0.85, 3.82, 4_716, 0.8084, 0.4432),
    Shrunk(0.80, 3.36, 4_392, 0.8080, 0.4436),
)

# Table 1: the degree of freedom of each model's field matrices.
FREEDOM = {"fm": ("Constant", 0), "fwfm": ("Scalar", 1), "fvfm": ("Vector", 2), "fmfm": ("Matrix", 3)}

# Table 2: parameters on Criteo, in millions, and their formulas.
PARAMETERS = {"lr": 1.33, "poly2": 45, "fm": 14.63, "fwfm": 14.63, "fmfm": 14.63, "ffm": 859.18}
PARAMETER_FORMULAS = {
    "lr": "m",
    "poly2": "m + H",
    "fm": "m + mK",
    "fwfm": "m + mK + n(n-1)/2",
    "fmfm": "m + mK + n(n-1)/2 K²",
    "ffm": "m + m(n-1)K",
}

# Table 4: FLOPs per prediction with n = 39 and K = 16; the paper calls those of networks approximate.
OPERATIONS = {
    "lr": 78,
    "poly2": 1_560,
    "fm": 1_920,
    "fwfm": 25_272,
    "ffm": 24_531,
    "fmfm": 403_923,
    "widedeep": 500_000,
    "dcn": 510_000,
    "deepfm": 246_000,
    "xdeepfm": 150_000_000,
    "autoint": 28_000_000,
    "fibinet": 10_000_000,
    "deeplight": 102_000,
}
CACHED, CACHED_SHRUNK = 24_531, 8_960
N, K = 39, 16
H, L, K2 = 200, 3, 32  # width and number of hidden layers, and AutoInt's dimension K'
PAIR_SPARSITY, NETWORK_SPARSITY = 0.9, 0.8  # of DeepLight

# The orders of growth in table 4 and, for networks, their values with the paper's settings.
OPERATION_FORMULAS: dict[str, tuple[str, float | None]] = {
    "lr": ("n", None),
    "poly2": ("n²", None),
    "fm": ("nK", None),
    "fwfm": ("n²K", None),
    "ffm": ("n²K", None),
    "fmfm": ("n²K²", None),
    "widedeep": ("n² + nKH + LH²", N**2 + N * K * H + L * H**2),
    "dcn": ("n²K² + nKH + LH²", N**2 * K**2 + N * K * H + L * H**2),
    "deepfm": ("nKH + LH² + n²", N * K * H + L * H**2 + N**2),
    "xdeepfm": ("nH²KL", N * H**2 * K * L),
    "autoint": ("nHK'(n + K)", N * H * K2 * (N + K)),
    "fibinet": ("n²K² + n²KH + LH²", N**2 * K**2 + N**2 * K * H + L * H**2),
    "deeplight": (
        "n²K(1-s) + (nKH + LH²)(1-s')",
        N**2 * K * (1 - PAIR_SPARSITY) + (N * K * H + L * H**2) * (1 - NETWORK_SPARSITY),
    ),
}

# The tables that a log can make: 3 and 8 are about Criteo, 6 and 7 have the quality of models on Criteo and Avazu.
TABLES = {"criteo": (1, 2, 3, 4, 5, 6, 8), "avazu": (1, 2, 4, 5, 7)}


def title_of(model: str) -> str:
    """Return the name of a model in the paper."""
    titles = {row.model: row.title for rows in QUALITY.values() for row in rows}
    return titles.get(model, "Poly2")


def models_of(log: str) -> list[str]:
    """Return the models of a dataset in the paper, in its order; tables 2 and 4 add Poly2, which was not trained.

    >>> models_of("avazu")[:4]
    ['lr', 'poly2', 'fm', 'ffm']
    """
    return ["lr", "poly2", *(row.model for row in QUALITY[log] if row.model != "lr")]
