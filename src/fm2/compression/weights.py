"""What a trained model has learned, as numpy arrays: read from a run's model file, without torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.model_file import ModelFile, open_model
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error
from fm2.models.registry import get_spec
from fm2.models.spec import ModelSpec
from fm2.schema import Schema

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Weights:
    """A model's numbers; those of features by field, in the order of their ids.

    ``blocks`` has what stands between fields i < j of FwFM, FvFM (a diagonal) and FmFM (a matrix).
    """

    name: str
    config: dict[str, Any]
    schema: Schema
    vocabularies: Sequence[Vocabulary]
    metrics: dict[str, Any]
    bias: float
    linear: Sequence[Floats]  # [size]
    embeddings: Sequence[Floats]  # [size, dim]; of FFM [size, (n - 1) dim]
    blocks: dict[tuple[int, int], Floats]
    pairs: Floats | None = None  # Poly2's

    @property
    def spec(self) -> ModelSpec:
        """The model's declaration."""
        return get_spec(self.name)

    @property
    def sizes(self) -> list[int]:
        """How many features each field has, the unknown one included."""
        return list(self.config["field_sizes"])

    @property
    def dims(self) -> list[int]:
        """Each field's dimension."""
        return [table.shape[1] for table in self.embeddings]

    @property
    def signs(self) -> Floats:
        """What the products of each of an FM's coordinates count: 1 or -1."""
        return np.array(self.config.get("signs") or [1] * self.dims[0], np.float32)

    def counts(self, field: int) -> NDArray[np.int64]:
        """Tell how often each feature of a field occurred in training; of the unknown one nothing is known."""
        counted = self.vocabularies[field].counts
        return np.r_[counted.max(initial=0), counted] if len(counted) else np.ones(self.sizes[field], np.int64)

    def block(self, i: int, j: int) -> Floats:
        """Give the field matrix of any two fields, D_i × D_j, or its diagonal."""
        return self.blocks[i, j] if i < j else self.blocks[j, i].T


def read_weights(path: str | Path) -> Weights:
    """Read the best model of a run."""
    with open_model(path) as file:
        spec = get_spec(file.config["model"])
        if spec.compile_plan is None:
            raise Fm2Error(f"{path}: {spec.name} cannot be compiled; fm2 export writes it as ONNX")
        return _read(file)


def _read(file: ModelFile) -> Weights:
    config, spec = file.config, get_spec(file.config["model"])
    sizes, n = config["field_sizes"], len(config["field_sizes"])
    dims = [config["dim"] * (n - 1)] * n if spec.dimensions == "scalar" else spec.dims(config)
    _check_signs(config, dims)
    embeddings = _by_field(file, "embedding.weight", sizes, dims)
    plain, vectors = _by_field(file, "linear.weight", sizes, [1] * n), _vectors(file, dims)
    return Weights(
        spec.name,
        config,
        file.schema,
        file.vocabularies,
        file.metrics,
        float(file.weights("bias", ())),
        [own.ravel() + table @ vector for own, table, vector in zip(plain, embeddings, vectors, strict=True)],
        embeddings,
        _blocks(spec, file, dims),
        file.weights("pairs.weight").ravel() if "hash_bits" in config else None,
    )


def _check_signs(config: dict[str, Any], dims: Sequence[int]) -> None:
    """Refuse what are no signs, as the torch module does; the file may be anyone's."""
    signs = config.get("signs") or []
    fitting = get_spec(config["model"]).interaction == "constant" and len(signs) == dims[0]
    if signs and not (fitting and all(type(sign) is int and abs(sign) == 1 for sign in signs)):
        raise ValueError(f"the signs are {signs}; they are fm's, one for each dimension, 1 or -1")


def _by_field(file: ModelFile, name: str, sizes: Sequence[int], dims: Sequence[int]) -> list[Floats]:
    """Cut a flat table into the tables of the fields; a table that is not there is zero."""
    ends = list(itertools.accumulate(size * dim for size, dim in zip(sizes, dims, strict=True)))
    if f"model.{name}" not in file.arrays:
        return [np.zeros((size, dim), np.float32) for size, dim in zip(sizes, dims, strict=True)]
    flat = file.weights(name).reshape(-1)
    if len(flat) != ends[-1]:
        raise ValueError(f"{name} has {len(flat)} numbers, not {ends[-1]}")
    return [flat[end - size * dim : end].reshape(size, dim) for end, size, dim in zip(ends, sizes, dims, strict=True)]


def _vectors(file: ModelFile, dims: Sequence[int]) -> list[Floats]:
    """Give the vector w_F of each field, zero where the model has none."""
    there = "model.field_linear" in file.arrays
    whole = file.weights("field_linear", (sum(dims),)) if there else np.zeros(sum(dims), np.float32)
    return np.split(whole, np.cumsum(dims)[:-1])


def _blocks(spec: ModelSpec, file: ModelFile, dims: Sequence[int]) -> dict[tuple[int, int], Floats]:
    pairs = list(itertools.combinations(range(len(dims)), 2))
    if spec.has_full_matrices:
        return dict(zip(pairs, _matrices(file.weights("interaction.weight"), dims), strict=True))
    if spec.learns_field_matrices:
        rows = file.weights("interaction.weight")
        return {pair: np.broadcast_to(row, dims[0]) for pair, row in zip(pairs, rows, strict=True)}
    return {}


def _matrices(packed: Floats, dims: Sequence[int]) -> Iterator[Floats]:
    """Unpack the field matrices: of each field, its matrices with the later fields side by side, row by row."""
    ends = np.cumsum(dims)
    at = 0
    for i, dim in enumerate(dims):
        beside = int(ends[-1] - ends[i])
        rows = packed[at : at + dim * beside].reshape(dim, beside)
        at += dim * beside
        yield from np.split(rows, ends[i + 1 : -1] - ends[i], axis=1) if i + 1 < len(dims) else ()
