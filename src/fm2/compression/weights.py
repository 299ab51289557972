"""The weights of a trained model as numpy arrays, read from a run without torch."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.artifacts.calibration import Calibration, read_calibration
from fm2.artifacts.model_file import ModelFile, open_model
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error
from fm2.models.registry import get_spec
from fm2.models.spec import ModelSpec
from fm2.remote.paths import local_path
from fm2.schema import Schema

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Weights:
    """The weights of a model; those of features by field, in the order of their ids.

    ``blocks`` has the field matrix of each pair i < j: its diagonal for FwFM and FvFM, the full matrix for FmFM.
    """

    name: str
    config: dict[str, Any]
    schema: Schema
    vocabularies: Sequence[Vocabulary]
    metrics: dict[str, Any]
    bias: float
    linear: Sequence[Floats]  # [size]
    embeddings: Sequence[Floats]  # [size, dim]; FFM: [size, (n - 1) dim]
    blocks: dict[tuple[int, int], Floats]
    pairs: Floats | None = None  # Poly2 only
    negative_rate: float = 1.0
    calibration: Calibration | None = None
    costs: dict[str, int] | None = None  # of a network: the numbers of its parameters and operations

    @property
    def spec(self) -> ModelSpec:
        """The model's declaration."""
        return get_spec(self.name)

    @property
    def sizes(self) -> list[int]:
        """The number of features of each field, including the unknown one."""
        return list(self.config["field_sizes"])

    @property
    def dims(self) -> list[int]:
        """The dimension of each field."""
        return [table.shape[1] for table in self.embeddings]

    @property
    def signs(self) -> Floats:
        """The sign of each coordinate of an FM, 1 or -1."""
        return np.array(self.config.get("signs") or [1] * self.dims[0], np.float32)

    def counts(self, field: int) -> NDArray[np.int64]:
        """Return how often each feature of a field occurred in training.

        The count of the unknown feature is not stored; it is taken to be as frequent as the most frequent one.
        """
        known = self.vocabularies[field].counts
        return np.r_[known.max(initial=0), known] if len(known) else np.ones(self.sizes[field], np.int64)

    def block(self, i: int, j: int) -> Floats:
        """Return the field matrix of two different fields, D_i × D_j, or its diagonal."""
        return self.blocks[i, j] if i < j else self.blocks[j, i].T


def read_weights(path: str | Path) -> Weights:
    """Read the best model of a run."""
    path = local_path(path)
    with open_model(path) as file:
        spec = get_spec(file.config["model"])
        if spec.compile_plan is None:
            raise Fm2Error(f"{path}: {spec.name} cannot be compiled; use fm2 export to write it as ONNX")
        weights = _read_network(file, spec) if spec.is_network else _read(file, spec)
    calibration = read_calibration(path, weights.sizes, weights.schema.fields)
    return dataclasses.replace(weights, calibration=calibration)


def _read(file: ModelFile, spec: ModelSpec) -> Weights:
    config = file.config
    sizes, n = config["field_sizes"], len(config["field_sizes"])
    dims = [config["dim"] * (n - 1)] * n if spec.dimensions == "scalar" else spec.dims(config)
    _check_signs(config, dims)
    owners = None if spec.dimensions == "scalar" else _owners(config, dims)  # the vectors of an FFM are never shared
    embeddings = _by_field(file, "embedding.weight", sizes, dims, owners)
    ones = [1] * n
    linear = zip(
        _by_field(file, "linear.weight", sizes, ones),
        embeddings,
        _by_field(file, "field_linear", ones, dims),  # w_F
        strict=True,
    )
    return Weights(
        spec.name,
        config,
        file.schema,
        file.vocabularies,
        file.metrics,
        float(file.weights("bias", ())),
        # einsum, because BLAS may report spurious invalid values for tables without columns
        [weights.ravel() + np.einsum("ij,kj->i", table, vector) for weights, table, vector in linear],
        embeddings,
        _blocks(spec, file, dims),
        file.weights("pairs.weight").ravel() if "hash_bits" in config else None,
        file.negative_rate,
    )


def _read_network(file: ModelFile, spec: ModelSpec) -> Weights:
    """Read everything but the tables and layers of a network, which only its torch module understands."""
    bias = float(file.weights("bias", ()))
    parts = (file.config, file.schema, file.vocabularies, file.metrics, bias)
    return Weights(spec.name, *parts, linear=[], embeddings=[], blocks={}, negative_rate=file.negative_rate)


def _check_signs(config: dict[str, Any], dims: Sequence[int]) -> None:
    """Raise ValueError if the signs are invalid, as the torch module does; the file may be hostile."""
    signs = config.get("signs") or []
    applicable = get_spec(config["model"]).interaction == "constant" and len(signs) == dims[0]
    if signs and not (applicable and all(type(sign) is int and abs(sign) == 1 for sign in signs)):
        raise ValueError(f"signs must be one 1 or -1 for each dimension of an fm, got {signs}")


def _owners(config: dict[str, Any], dims: Sequence[int]) -> list[int]:
    """Return the index of the field whose embeddings each field uses. Raise ValueError if they cannot be shared."""
    sizes = config["field_sizes"]
    owners = config.get("owners", list(range(len(sizes))))
    if not isinstance(owners, list) or len(owners) != len(sizes) or not all(type(owner) is int for owner in owners):
        raise ValueError(f"owners must be one field per field, got {owners}")
    for field, owner in enumerate(owners):
        shared = 0 <= owner < len(owners) and owners[owner] == owner
        if not shared or (sizes[field], dims[field]) != (sizes[owner], dims[owner]):
            raise ValueError(f"field {field} cannot use the embeddings of field {owner}")
    return owners


def _by_field(
    file: ModelFile, name: str, sizes: Sequence[int], dims: Sequence[int], owners: Sequence[int] | None = None
) -> list[Floats]:
    """Split a flat table into one table per field; a missing table is zero.

    Fields with the same owner share one table, stored in the place of the first of them.
    """
    owners = range(len(sizes)) if owners is None else owners
    shapes = {owner: (sizes[owner], dims[owner]) for owner in owners}
    if f"model.{name}" not in file.arrays:
        tables = {owner: np.zeros(shape, np.float32) for owner, shape in shapes.items()}
        return [tables[owner] for owner in owners]
    flat = file.weights(name, mapped=True).reshape(-1)
    ends = list(itertools.accumulate(size * dim for size, dim in shapes.values()))
    if len(flat) != ends[-1]:
        raise ValueError(f"{name} has {len(flat)} values, expected {ends[-1]}")
    parts = zip(shapes.items(), np.split(flat, ends[:-1]), strict=True)
    tables = {owner: part.reshape(shape) for (owner, shape), part in parts}
    return [tables[owner] for owner in owners]


def _blocks(spec: ModelSpec, file: ModelFile, dims: Sequence[int]) -> dict[tuple[int, int], Floats]:
    pairs = list(itertools.combinations(range(len(dims)), 2))
    if spec.has_full_matrices:
        return dict(zip(pairs, _unpack_matrices(file.weights("interaction.weight"), dims), strict=True))
    if spec.learns_field_matrices:
        rows = file.weights("interaction.weight")
        return {pair: np.broadcast_to(row, dims[0]) for pair, row in zip(pairs, rows, strict=True)}
    return {}


def _unpack_matrices(packed: Floats, dims: Sequence[int]) -> Iterator[Floats]:
    """Unpack the field matrices: for each field, its matrices with all later fields side by side, row by row."""
    ends = np.cumsum(dims)
    begin = 0
    for i, dim in enumerate(dims[:-1]):
        width = int(ends[-1] - ends[i])
        rows = packed[begin : begin + dim * width].reshape(dim, width)
        begin += dim * width
        yield from np.split(rows, ends[i + 1 : -1] - ends[i], axis=1)
