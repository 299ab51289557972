"""scikit-learn's door: a classifier for each model, the paper's here and the networks by their declarations."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fm2.estimators.classifier import Classifier
from fm2.models.choices import Linear
from fm2.models.networks import NETWORKS, Network


@dataclass(kw_only=True, eq=False, repr=False)
class LRClassifier(Classifier):
    """Logistic regression: a weight for every feature."""

    model = "lr"
    dense_learning_rate: float | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class Poly2Classifier(Classifier):
    """A polynomial of degree two: a weight for every feature and, hashed, for every pair of features."""

    model = "poly2"
    hash_bits: int | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class FFMClassifier(Classifier):
    """The field-aware factorization machine: an embedding of every feature for every other field."""

    model = "ffm"
    dim: int | None = None
    embedding_std: float | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class EmbeddingClassifier(Classifier):
    """What embeddings and dense parameters beside them have in common."""

    dim: int | Sequence[int] | None = None
    embedding_std: float | None = None
    dense_learning_rate: float | None = None
    learning_rate_scale: float | None = None
    dropout: float | None = None
    field_dropout: float | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class FamilyClassifier(EmbeddingClassifier):
    """What the models of the paper's united framework have in common."""

    linear: Linear | None = None
    matrix_std: float | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class FMClassifier(FamilyClassifier):
    """The factorization machine: the product of two embeddings, for every pair of fields."""

    model = "fm"


@dataclass(kw_only=True, eq=False, repr=False)
class FwFMClassifier(FamilyClassifier):
    """The field-weighted factorization machine: a weight for every pair of fields."""

    model = "fwfm"


@dataclass(kw_only=True, eq=False, repr=False)
class FvFMClassifier(FamilyClassifier):
    """The field-vectored factorization machine: a vector for every pair of fields."""

    model = "fvfm"


@dataclass(kw_only=True, eq=False, repr=False)
class FmFMClassifier(FamilyClassifier):
    """The field-matrixed factorization machine: a matrix for every pair of fields.

    >>> import polars
    >>> X = polars.DataFrame({"site": ["a", "b", "a", "b"] * 25, "ad": ["x", "x", "y", "y"] * 25})
    >>> y = ["click", "none"] * 50
    >>> classifier = FmFMClassifier(dim=2, epochs=5, learning_rate=0.05).fit(X, y)
    >>> classifier.predict(polars.DataFrame({"site": ["a", "b"], "ad": ["x", "new"]})).tolist()
    ['click', 'none']
    """

    model = "fmfm"


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkClassifier(EmbeddingClassifier):
    """What the networks have in common."""

    weight_decay: float | None = None


def _of_network(name: str, network: Network) -> type[Classifier]:
    """Make the classifier of a network, with its options as parameters."""
    named = {field.name for field in dataclasses.fields(NetworkClassifier)}
    options: list[tuple[str, Any, Any]] = [
        (option.name, Any, dataclasses.field(default=None)) for option in network.options if option.name not in named
    ]
    usual = network.settings()
    parameters = "".join(
        f"\n    - ``{option.name}`` ({usual[option.name]}): {option.help}" for option in network.options
    )
    text = f"{network.summary}.\n\n    Its own parameters, with their defaults:\n{parameters}\n    "
    attributes = {"model": name, "__doc__": text, "__module__": __name__}
    return dataclasses.make_dataclass(
        f"{network.title}Classifier",
        options,
        bases=(NetworkClassifier,),
        namespace=attributes,
        kw_only=True,
        eq=False,
        repr=False,
    )


CLASSIFIERS: dict[str, type[Classifier]] = {
    **{
        kind.__name__: kind
        for kind in (
            LRClassifier,
            Poly2Classifier,
            FMClassifier,
            FFMClassifier,
            FwFMClassifier,
            FvFMClassifier,
            FmFMClassifier,
        )
    },
    **{kind.__name__: kind for kind in (_of_network(name, network) for name, network in NETWORKS.items())},
}
globals().update(CLASSIFIERS)

__all__ = ["CLASSIFIERS", "Classifier", *CLASSIFIERS]
