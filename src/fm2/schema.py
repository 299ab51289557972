"""The schema of a log: its fields, and the column that says whether a row is a click."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from fm2.errors import Fm2Error, require, suggest

Kind = Literal["categorical", "numeric", "timestamp"]
Transform = Literal["log_square", "quantiles"]
Part = Literal["weekday", "hour"]

DEFAULT_MIN_COUNT = 4
DEFAULT_BUCKETS = 50
DEFAULT_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
MAX_BUCKETS = 100_000
MAX_HASH_BITS = 30


@dataclass(frozen=True)
class Field:
    """A field: one column of the log, and how its values become features.

    - ``categorical``: every value is a feature.
    - ``numeric``: ``transform`` turns a number into a feature. ``log_square``, the paper's transform, maps x > 2 to
      floor(ln(x)²) and keeps smaller numbers. ``quantiles`` learns ``buckets`` of equal size from the training rows.
    - ``timestamp``: ``part`` is the part of the time that becomes the feature, ``weekday`` (Monday is 0) or ``hour``.
      ``format`` consists of %Y %y %m %d %H %M %S and literal characters, or is "unix" or "unix_ms" for seconds or
      milliseconds since 1970.

    ``column`` is the name of the column; it defaults to the name of the field. Values that occur fewer than
    ``min_count`` times become unknown. With ``hash_bits``, the field has no vocabulary: the feature of a value is a
    hash of that many bits.

    >>> Field("I1", "numeric", min_count=8).transform
    'log_square'
    """

    name: str
    kind: Kind = "categorical"
    column: str = ""
    min_count: int = DEFAULT_MIN_COUNT
    hash_bits: int = 0
    transform: Transform | None = None
    buckets: int = 0
    part: Part | None = None
    format: str | None = None

    def __post_init__(self) -> None:
        self._check_types()
        self._set_default("column", self.name)
        if self.kind == "numeric":
            self._set_default("transform", "log_square")
        if self.transform == "quantiles":
            self._set_default("buckets", DEFAULT_BUCKETS)
        if self.kind == "timestamp":
            self._set_default("format", DEFAULT_TIME_FORMAT)
        for problem in self._problems():
            raise Fm2Error(f"schema: field '{self.name}': {problem}")

    def _check_types(self) -> None:
        for setting in dataclasses.fields(self):
            value = getattr(self, setting.name)
            expected = int if isinstance(setting.default, int) else str
            if value is not None and type(value) is not expected:
                noun = "an integer" if expected is int else "a string"
                raise Fm2Error(f"schema: field '{self.name}': {setting.name} must be {noun}, got {value!r}")
        if not self.name:
            raise Fm2Error("schema: a field has no name")

    def _set_default(self, setting: str, value: Any) -> None:
        if not getattr(self, setting):
            object.__setattr__(self, setting, value)

    def _problems(self) -> Iterator[str]:
        for setting, choices in (("kind", Kind), ("transform", Transform), ("part", Part)):
            value = getattr(self, setting)
            if value is not None and value not in get_args(choices):
                yield f"unknown {setting} '{value}'; choose one of {', '.join(get_args(choices))}"
        if self.transform and self.kind != "numeric":
            yield f"transform requires a numeric field, but the field is {self.kind}"
        if self.buckets and self.transform != "quantiles":
            yield "buckets requires the transform 'quantiles'"
        if self.buckets and not 2 <= self.buckets <= MAX_BUCKETS:
            yield f"buckets must be between 2 and {MAX_BUCKETS}, got {self.buckets}"
        if (self.part or self.format) and self.kind != "timestamp":
            yield f"part and format require a timestamp field, but the field is {self.kind}"
        if "%" in re.sub("%[YymdHMS%]", "", self.format or ""):
            yield f"the format '{self.format}' may contain only %Y %y %m %d %H %M %S and %%"
        if self.min_count < 1:
            yield f"min_count must be at least 1, which keeps every value, got {self.min_count}"
        if not 0 <= self.hash_bits <= MAX_HASH_BITS:
            yield f"hash_bits must be between 1 and {MAX_HASH_BITS}, or 0 for a vocabulary, got {self.hash_bits}"
        if self.hash_bits and self.kind != "categorical":
            yield f"hash_bits requires a categorical field, but the field is {self.kind}"

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        defaults = {f.name: f.default for f in dataclasses.fields(self)} | {"column": self.name}
        return {key: value for key, value in values.items() if value != defaults[key]}


@dataclass(frozen=True)
class Schema:
    """The fields of a log and its label, the column that is 1 for a click and 0 otherwise.

    ``columns`` names the columns of files without a header. ``missing`` lists texts that mean a missing value, in
    addition to the empty cell. A timestamp field without a ``part`` is replaced by two fields, weekday and hour.

    >>> schema = Schema([Field("site"), Field("time", "timestamp")], label="click")
    >>> [field.name for field in schema.fields]
    ['site', 'time_weekday', 'time_hour']
    """

    fields: tuple[Field, ...]
    label: str
    columns: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def __init__(
        self, fields: Iterable[Field], label: str, columns: Iterable[str] = (), missing: Iterable[str] = ()
    ) -> None:
        object.__setattr__(self, "fields", tuple(part for field in fields for part in _expand(field)))
        object.__setattr__(self, "label", label)
        object.__setattr__(self, "columns", _strings("columns", columns))
        object.__setattr__(self, "missing", _strings("missing", missing))
        self._check()

    def _check(self) -> None:
        if not self.fields:
            raise Fm2Error("schema: there are no fields")
        if not isinstance(self.label, str) or not self.label:
            raise Fm2Error("schema: there is no label; name the column that is 1 for a click")
        for kind, names in (("fields", self.names), ("columns", self.columns)):
            duplicates = {name for name in names if names.count(name) > 1}
            if duplicates:
                raise Fm2Error(f"schema: two {kind} have the name '{min(duplicates)}'")
        for field in self.fields:
            if field.column == self.label:
                raise Fm2Error(f"schema: field '{field.name}' reads the column of the label, '{self.label}'")
        for name in self.source_columns:
            if self.columns and name not in self.columns:
                raise Fm2Error(f"schema: columns does not list the column '{name}'")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(field.name for field in self.fields)

    @property
    def source_columns(self) -> tuple[str, ...]:
        """The columns to read: first the label, then the columns of the fields, without duplicates."""
        return tuple(dict.fromkeys([self.label, *(field.column for field in self.fields)]))

    def replace(self, **changes: Any) -> Schema:
        """Return a copy with other ``fields``, ``label``, ``columns`` or ``missing``."""
        return dataclasses.replace(self, **changes)

    def with_min_count(self, min_count: int) -> Schema:
        """Return a copy with this ``min_count`` in every field."""
        return self.replace(fields=[dataclasses.replace(field, min_count=min_count) for field in self.fields])

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain values for a TOML or JSON file."""
        lists = {"columns": list(self.columns), "missing": list(self.missing)}
        return {
            "label": self.label,
            **{key: value for key, value in lists.items() if value},
            "field": [field.to_dict() for field in self.fields],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Schema:
        """Create a schema from the result of :meth:`to_dict`. Unknown settings are errors."""
        known = ("label", "columns", "missing", "field")
        for key in values.keys() - set(known):
            raise Fm2Error(f"schema: unknown setting '{key}'; {suggest(key, known)}")
        if isinstance(values.get("field"), dict):
            raise Fm2Error("schema: [field] must be written with double brackets, [[field]]")
        try:
            fields = [_field(entry) for entry in values.get("field", [])]
            return cls(fields, values.get("label", ""), values.get("columns", ()), values.get("missing", ()))
        except (TypeError, AttributeError) as error:
            raise Fm2Error(f"schema: a setting has the wrong type: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write the schema to a TOML file."""
        tomli_w = require("tomli_w", "train", "writing a schema")
        Path(path).write_text(tomli_w.dumps(self.to_dict()), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema from a TOML file."""
        try:
            return cls.from_dict(tomllib.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise Fm2Error(f"schema: {path}: {error.strerror}") from error
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
    def infer(cls, source: Any, label: str, min_count: int = DEFAULT_MIN_COUNT) -> Schema:
        """Suggest a schema from the first rows of a file or DataFrame.

        The result is a starting point: :meth:`save` it, review the file and edit it.
        """
        from fm2.data.schema_inference import infer_schema

        return infer_schema(source, label, min_count)


def _expand(field: Field) -> tuple[Field, ...]:
    if field.kind != "timestamp" or field.part:
        return (field,)
    return tuple(dataclasses.replace(field, name=f"{field.name}_{part}", part=part) for part in get_args(Part))


def _strings(setting: str, values: Iterable[str]) -> tuple[str, ...]:
    strings = () if isinstance(values, str) else tuple(values)
    if isinstance(values, str) or not all(isinstance(string, str) for string in strings):
        raise Fm2Error(f"schema: {setting} must be a list of strings, like ['a', 'b'], got {values!r}")
    return strings


def _field(settings: dict[str, Any]) -> Field:
    known = [setting.name for setting in dataclasses.fields(Field)]
    for key in settings.keys() - set(known):
        name = settings.get("name", "?")
        raise Fm2Error(f"schema: field '{name}': unknown setting '{key}'; {suggest(key, known)}")
    return Field(**{"name": "", **settings})
