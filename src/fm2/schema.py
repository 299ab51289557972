"""The schema of a log: its fields, and the column that says whether a row is a click."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fm2.errors import Fm2Error, cannot_read, printable, require, suggest
from fm2.field import DEFAULT_MIN_COUNT, MAX_TREE_HASH_BITS, PARTS, Field, read_fields
from fm2.remote.paths import local_path, writes
from fm2.schema_text import count_fields, schema_text

__all__ = ["Field", "Schema"]


@dataclass(frozen=True)
class Schema:
    """The fields of a log and its label, the column that is 1 for a click and 0 otherwise.

    ``columns`` names the columns of files without a header. ``missing`` lists texts that mean a missing value, in
    addition to the empty cell. A timestamp field without a ``part`` is replaced by two fields, weekday and hour, or by
    the weekday alone if its format has no %H.

    With ``impressions``, a column of counts, a row stands for that many impressions, and the label is the number of
    clicks among them. ``weight`` is a column of row weights, 0 or more.

    >>> schema = Schema([Field("site"), Field("time", "timestamp")], label="click")
    >>> [field.name for field in schema.fields]
    ['site', 'time_weekday', 'time_hour']
    """

    fields: tuple[Field, ...]
    label: str
    columns: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    weight: str = ""
    impressions: str = ""

    def __init__(
        self,
        fields: Iterable[Field],
        label: str,
        columns: Iterable[str] = (),
        missing: Iterable[str] = (),
        weight: str = "",
        impressions: str = "",
    ) -> None:
        object.__setattr__(self, "fields", tuple(part for field in fields for part in _expand(field)))
        object.__setattr__(self, "label", label)
        object.__setattr__(self, "columns", _strings("columns", columns))
        object.__setattr__(self, "missing", _strings("missing", missing))
        object.__setattr__(self, "weight", weight)
        object.__setattr__(self, "impressions", impressions)
        self._check()

    def _check(self) -> None:
        if not self.fields:
            raise Fm2Error("schema: there are no fields")
        if not isinstance(self.label, str) or not self.label:
            raise Fm2Error("schema: there is no label; name the column that is 1 for a click")
        for kind, names in (("fields", self.names), ("columns", self.columns)):
            duplicates = [name for name, count in Counter(names).items() if count > 1]
            if duplicates:
                raise Fm2Error(f"schema: two {kind} have the name '{min(duplicates)}'")
        for text in (self.label, self.weight, self.impressions, *self.columns, *self.missing):
            if isinstance(text, str) and "\0" in text:  # ends a text in a compiled model
                raise Fm2Error(f"schema: '{printable(text)}' contains NUL, which names and missing values cannot")
        self._check_targets()
        self._check_shares()
        self._check_derived()
        listed = set(self.columns)
        for name in self.source_columns:
            if listed and name not in listed:
                raise Fm2Error(f"schema: columns does not list the column '{name}'")

    def _check_targets(self) -> None:
        """Raise an error if the label, the impressions, the weight and the fields do not read different columns."""
        targets = {"label": self.label, "impressions": self.impressions, "weight": self.weight}
        for setting, column in targets.items():
            if not isinstance(column, str):
                raise Fm2Error(f"schema: {setting} must be the name of a column, got {column!r}")
            for other, name in targets.items():
                if column and setting < other and column == name:
                    raise Fm2Error(f"schema: {setting} and {other} are the same column, '{column}'")
            for field in self.fields:
                if column and field.column == column:
                    raise Fm2Error(f"schema: field '{field.name}' reads the column of the {setting}, '{column}'")
                if column and field.weight_column == column:
                    raise Fm2Error(f"schema: field '{field.name}' reads its weights from the {setting}, '{column}'")

    def _check_shares(self) -> None:
        fields = {field.name: field for field in self.fields}
        for field in self.fields:
            if not field.shares:
                continue
            if field.shares not in fields:
                known = suggest(field.shares, list(fields))
                raise Fm2Error(f"schema: field '{field.name}': shares names an unknown field '{field.shares}'; {known}")
            owner = fields[field.shares]
            if owner.shares:
                chain = f"'{field.name}' shares '{owner.name}', which shares '{owner.shares}'"
                raise Fm2Error(f"schema: {chain}; share a field with its own embeddings")
            if owner.kind != "categorical" or owner.is_derived:
                kind = "a cross" if owner.cross else "a tree field" if owner.trees else owner.kind
                raise Fm2Error(f"schema: field '{field.name}' shares '{owner.name}', which is {kind}")

    def _check_derived(self) -> None:
        fields = {field.name: field for field in self.fields}
        for field, setting in ((field, setting) for field in self.fields for setting in PARTS):
            for name in getattr(field, setting):
                if name not in fields:
                    known = suggest(name, [other.name for other in self.fields if not other.is_derived])
                    raise Fm2Error(f"schema: field '{field.name}': {setting} names an unknown field '{name}'; {known}")
                part = fields[name]
                bits = fields[part.shares or name].hash_bits
                if field.trees and bits > MAX_TREE_HASH_BITS:
                    limit = f"trees read fields with at most {MAX_TREE_HASH_BITS} hash bits"
                    raise Fm2Error(f"schema: field '{field.name}': {limit}, but '{name}' has {bits}")
                if part.trees or (field.cross and (part.cross or part.is_list)):
                    several = "multi-valued" if part.multivalued else f"a number with the transform {part.transform}"
                    own = "a cross itself" if part.cross else "a tree field itself" if part.trees else several
                    crossed = f"crosses '{name}', which is {own}; cross fields with one value"
                    problem = crossed if field.cross else f"has trees on '{name}', which is {own}; use other fields"
                    raise Fm2Error(f"schema: field '{field.name}' {problem}")

    @functools.cached_property
    def owners(self) -> tuple[int, ...]:
        """For each field, the index of the field whose vocabulary and embeddings it uses: usually its own.

        >>> Schema([Field("item"), Field("history", multivalued=True, shares="item")], label="click").owners
        (0, 0)
        """
        return tuple(self._positions[field.shares or field.name] for field in self.fields)

    @functools.cached_property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """For each field, the indices of the fields that its cross or its trees combine: usually none.

        >>> Schema([Field("user"), Field("item"), Field("pair", cross=["user", "item"])], label="click").parts
        ((), (), (0, 1))
        """
        return tuple(tuple(self._positions[name] for name in (*field.cross, *field.trees)) for field in self.fields)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(field.name for field in self.fields)

    @functools.cached_property
    def _positions(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    @functools.cached_property
    def feature_columns(self) -> tuple[str, ...]:
        """The columns of the fields, without duplicates: all that a prediction needs."""
        columns = [name for field in self.fields for name in (field.column, field.weight_column) if name]
        return tuple(dict.fromkeys(columns))

    @property
    def target_columns(self) -> tuple[str, ...]:
        """The columns of the label and, if there are any, of the impressions and the weights."""
        return tuple(name for name in (self.label, self.impressions, self.weight) if name)

    @property
    def source_columns(self) -> tuple[str, ...]:
        """The columns to read: first the target columns, then the feature columns."""
        return (*self.target_columns, *self.feature_columns)

    def replace(self, **changes: Any) -> Schema:
        """Return a copy with other ``fields``, ``label``, ``columns``, ``missing``, ``weight`` or ``impressions``."""
        return dataclasses.replace(self, **changes)

    def with_min_count(self, min_count: int, *, where_default: bool = False) -> Schema:
        """Return a copy with this ``min_count`` in every field that has a vocabulary of its own.

        With ``where_default``, fields that have one keep it.
        """
        fields = [
            field
            if field.shares or field.trees or (where_default and field.min_count)
            else dataclasses.replace(field, min_count=min_count)
            for field in self.fields
        ]
        return self.replace(fields=fields)

    def with_trees(self) -> Schema:
        """Return a copy with another field: trees on all fields that trees can read.

        >>> Schema([Field("user"), Field("tags", multivalued=True)], label="click").with_trees().fields[-1].trees
        ('user', 'tags')
        """
        parts = [
            field.name
            for field, owner in zip(self.fields, self.owners, strict=True)
            if not field.trees and self.fields[owner].hash_bits <= MAX_TREE_HASH_BITS
        ]
        for field in self.fields:
            if field.trees:
                raise Fm2Error(f"schema: the field '{field.name}' already has trees; remove it, or do not add trees")
        if not parts:
            raise Fm2Error(f"schema: trees need a field without hashes of more than {MAX_TREE_HASH_BITS} bits")
        name = "trees"
        while name in self.names:
            name += "_"
        return self.replace(fields=[*self.fields, Field(name, trees=parts)])

    def __repr__(self) -> str:
        return f"Schema(label={self.label!r}, {count_fields(self)})"

    def __str__(self) -> str:
        return schema_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # of notebooks
        printer.text(str(self))

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain values for a TOML or JSON file."""
        optional: dict[str, Any] = {"impressions": self.impressions, "weight": self.weight}
        optional |= {"columns": list(self.columns), "missing": list(self.missing)}
        return {
            "label": self.label,
            **{key: value for key, value in optional.items() if value},
            "field": [field.to_dict() for field in self.fields],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Schema:
        """Create a schema from the result of :meth:`to_dict`. Unknown settings are errors."""
        known = ("label", "columns", "missing", "weight", "impressions", "field")
        for key in values.keys() - set(known):
            raise Fm2Error(f"schema: unknown setting '{key}'; {suggest(key, known)}")
        if isinstance(values.get("field"), dict):
            raise Fm2Error("schema: [field] must be written with double brackets, [[field]]")
        try:
            fields = [field for entry in values.get("field", []) for field in read_fields(entry)]
            settings = {key: values[key] for key in known if key in values and key != "field"}
            return cls(fields, **{"label": "", **settings})
        except (TypeError, AttributeError) as error:
            raise Fm2Error(f"schema: a setting has the wrong type: {error}") from error

    @writes("path")
    def save(self, path: str | Path) -> None:
        """Write the schema to a TOML file, with a ``[[field]]`` block per field, so that more can be appended."""
        tomli_w = require("tomli_w", "train", "writing a schema")
        values = self.to_dict()
        blocks = [f"[[field]]\n{tomli_w.dumps(field)}" for field in values.pop("field")]
        Path(path).write_text("\n".join([tomli_w.dumps(values), *blocks]), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema from a TOML file."""
        try:
            return cls.from_dict(tomllib.loads(local_path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise cannot_read("schema", path, error) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Fm2Error(f"schema: {path} is not a valid TOML file: {error}") from error
        except Fm2Error as error:
            raise Fm2Error(f"{path}: {error}") from error

    @classmethod
    def preset(cls, name: str) -> Schema:
        """Return the schema of a public dataset: ``criteo`` or ``avazu``.

        >>> len(Schema.preset("criteo").fields), len(Schema.preset("avazu").fields)
        (39, 23)
        """
        from fm2.data.presets import PRESETS

        if name not in PRESETS:
            raise Fm2Error(f"schema: '{name}' is neither a file nor a preset; the presets are {', '.join(PRESETS)}")
        return PRESETS[name]()

    @classmethod
    def infer(
        cls, source: Any, label: str, min_count: int = DEFAULT_MIN_COUNT, *, weight: str = "", impressions: str = ""
    ) -> Schema:
        """Suggest a schema from the first rows of a file or DataFrame.

        All columns become fields, except those of the label, the ``weight`` and the ``impressions``. The result is a
        starting point: :meth:`save` it, review the file and edit it.
        """
        from fm2.data.schema_inference import infer_schema

        return infer_schema(source, label, min_count, weight=weight, impressions=impressions)


def _expand(field: Field) -> tuple[Field, ...]:
    if not isinstance(field, Field):
        raise Fm2Error(f"schema: expected a Field, got {field!r}; write Field({field!r})")
    if field.kind != "timestamp" or field.part:
        return (field,)
    return tuple(dataclasses.replace(field, name=f"{field.name}_{part}", part=part) for part in field.time_parts)


def _strings(setting: str, values: Iterable[str]) -> tuple[str, ...]:
    strings = () if isinstance(values, str) else tuple(values)
    if isinstance(values, str) or not all(isinstance(string, str) for string in strings):
        raise Fm2Error(f"schema: {setting} must be a list of strings, like ['a', 'b'], got {values!r}")
    return strings
