"""What a prediction consists of: the contributions of fields, pairs of fields and values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from fm2.data.number_ranges import feature_text
from fm2.data.row_inputs import native_errors
from fm2.data.rows import EncodedRows
from fm2.data.vocabulary import Vocabulary
from fm2.evaluation.metrics import sigmoid
from fm2.schema import Schema

UNKNOWN_ID = 0


@dataclass(frozen=True)
class ValueContribution:
    """What one value of a multi-valued field contributes to a logit.

    ``weight`` is the value's weight after pooling, ``linear`` its part of the field's contribution, and ``pairs`` its
    part of the contributions of all pairs with this field. ``value`` is None for the missing value.
    """

    value: str | None
    weight: float
    linear: float
    pairs: float


@dataclass(frozen=True)
class Explanation:
    """The contributions of the bias, each field and each pair of fields to the model's logit, which is their sum.

    ``values`` divides the contributions of each multi-valued field among the values in its list. ``row`` has the value
    of each other field as the model knows it: ``<unknown>``, None if it is missing, or the range of a number. A missing
    value contributes like an unknown one if the training data have none in this field.

    >>> explanation = Explanation(-1.0, {"site": 0.25, "ad": 0.0}, {("site", "ad"): 0.75})
    >>> explanation.logit, explanation.probability
    (0.0, 0.5)
    >>> explanation.largest(1)
    [('site × ad', 0.75)]
    """

    bias: float
    fields: dict[str, float]
    pairs: dict[tuple[str, str], float]
    values: dict[str, list[ValueContribution]] = field(default_factory=dict)
    row: dict[str, str | None] = field(default_factory=dict)

    @property
    def logit(self) -> float:
        """The sum of all contributions."""
        return self.bias + math.fsum(self.fields.values()) + math.fsum(self.pairs.values())

    @property
    def probability(self) -> float:
        """The click probability that the model predicts, without calibration."""
        return float(sigmoid(np.array(self.logit)))

    def largest(self, count: int = 10) -> list[tuple[str, float]]:
        """Return the contributions of the largest absolute value, by name, without the bias."""
        pairs = {f"{first} × {second}": term for (first, second), term in self.pairs.items()}
        return sorted((self.fields | pairs).items(), key=lambda contribution: -abs(contribution[1]))[:count]


def missing_fields(schema: Schema, row: Mapping[str, Any]) -> set[str]:
    """Return the names of the fields whose value is missing in a row, and of the crosses of such fields."""
    texts = {"", *schema.missing}

    def is_missing(value: Any) -> bool:
        if isinstance(value, str):
            return value in texts
        return value is None or (isinstance(value, float) and math.isnan(value))

    missing = {field.name for field in schema.fields if not field.is_derived and is_missing(row.get(field.column))}
    return missing | {field.name for field in schema.fields if missing.intersection(field.cross)}


def make_explanation(
    native: Any, schema: Schema, vocabularies: Sequence[Vocabulary], encoded: EncodedRows, missing: set[str]
) -> Explanation:
    """Explain the only row of ``encoded``; the values of the fields ``missing`` are missing, with or without an id."""
    names = schema.names
    with native_errors("explain"):  # also if a value is not UTF-8
        bias, field_terms, pair_terms, value_terms = native.explain(encoded.ids[0], encoded.native_lists())
        terms = np.array(pair_terms).reshape(len(names), len(names))
        pairs = {(names[i], names[j]): float(terms[i, j]) for i, j in combinations(range(len(names)), 2)}
        values: dict[str, list[ValueContribution]] = {names[index]: [] for index in encoded.lists}
        for index, id, weight, linear, pair_sum in value_terms:
            is_missing = id == UNKNOWN_ID and names[index] in missing
            text = None if is_missing else vocabularies[index].value(id)
            values[names[index]].append(ValueContribution(text, weight, linear, pair_sum))
        ids = encoded.ids[0].tolist()
        row = {
            name: None
            if ids[index] == UNKNOWN_ID and name in missing
            else feature_text(setting, vocabulary, ids[index])
            for index, (name, setting, vocabulary) in enumerate(zip(names, schema.fields, vocabularies, strict=True))
            if index not in encoded.lists
        }
    return Explanation(bias, dict(zip(names, field_terms, strict=True)), pairs, values, row)
