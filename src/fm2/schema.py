"""What a table means: its fields, and which column tells whether there was a click."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from fm2.errors import Fm2Error, require

Kind = Literal["categorical", "numeric", "timestamp"]
Transform = Literal["log_square", "quantiles"]
Part = Literal["weekday", "hour"]

DEFAULT_MIN_COUNT = 4
DEFAULT_BUCKETS = 50
_NUMBERS = ("min_count", "hash_bits", "buckets")


@dataclass(frozen=True)
class Field:
    """One field of a model: a column of the table, and how its values become features.

    - ``categorical``: every value is a feature.
    - ``numeric``: by ``transform``, the paper's ``log_square`` (x > 2 becomes floor(ln(x)²), the rest stays), or
      ``quantiles``, as many ``buckets`` of equal size, learned from the training rows.
    - ``timestamp``: one ``part`` of the time, ``weekday`` (Monday is 0) or ``hour``. The ``format`` is made of %Y %y %m
      %d %H %M %S, or is "unix" or "unix_ms" for seconds or milliseconds since 1970.

    ``column`` is the table's column, by default the one of the field's name. A value seen fewer than ``min_count``
    times becomes unknown. With ``hash_bits`` no vocabulary is kept: a value's feature is a hash of so many bits.

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
        def refuse(what: str) -> None:
            raise Fm2Error(f"schema: field '{self.name}' {what}")

        def default(attribute: str, value: Any) -> None:
            if not getattr(self, attribute):
                object.__setattr__(self, attribute, value)

        def one_of(attribute: str, choices: Any) -> None:
            value = getattr(self, attribute)
            if value not in get_args(choices):
                refuse(f"has the {attribute} '{value}'; it is one of {', '.join(get_args(choices))}")

        for setting in dataclasses.fields(self):
            value, kind = getattr(self, setting.name), int if setting.name in _NUMBERS else str
            if value is not None and type(value) is not kind:
                refuse(f"has {setting.name} {value!r}, which is not {'a whole number' if kind is int else 'text'}")
        if not self.name:
            raise Fm2Error("schema: a field has no name")
        one_of("kind", Kind)
        default("column", self.name)
        if self.kind == "numeric":
            default("transform", "log_square")
            one_of("transform", Transform)
        elif self.transform:
            refuse(f"has a transform but is {self.kind}; only numeric fields have one")
        if self.transform == "quantiles":
            default("buckets", DEFAULT_BUCKETS)
            if not 2 <= self.buckets <= 100_000:
                refuse(f"has {self.buckets} buckets; 2 to 100000 are possible")
        elif self.buckets:
            refuse("has buckets, which belong to the transform 'quantiles'")
        if self.kind == "timestamp":
            default("format", "%Y-%m-%d %H:%M:%S")
            if "%" in re.sub("%[YymdHMS%]", "", self.format or ""):
                refuse(f"has the format '{self.format}'; it may have %Y %y %m %d %H %M %S and %%")
            if self.part is not None:
                one_of("part", Part)
        elif self.part or self.format:
            refuse(f"has a part or a format but is {self.kind}; only timestamp fields have them")
        if self.min_count < 1:
            refuse(f"has min_count {self.min_count}; 1 keeps every value")
        if not 0 <= self.hash_bits <= 30:
            refuse(f"has hash_bits {self.hash_bits}; 1 to 30 are possible, 0 keeps a vocabulary")
        if self.hash_bits and self.kind != "categorical":
            refuse("has hash_bits but is not categorical")

    def to_dict(self) -> dict[str, Any]:
        """Give the settings that differ from their defaults, as a TOML table holds them."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        defaults = {f.name: f.default for f in dataclasses.fields(self)} | {"column": self.name}
        return {key: value for key, value in values.items() if value != defaults[key]}


@dataclass(frozen=True)
class Schema:
    """The fields of a table and its label: the column that is 1 for a click and 0 for none.

    ``columns`` names the columns of files that have no header. ``missing`` lists words that mean a missing value,
    beside the empty cell. A timestamp field without a ``part`` stands for two fields, weekday and hour.

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
        for name, words in (("columns", columns), ("missing", missing)):
            if isinstance(words, str) or not all(isinstance(word, str) for word in words):
                raise Fm2Error(f"schema: {name} is {words!r}; it is a list of texts, like ['a', 'b']")
            object.__setattr__(self, name, tuple(words))
        self._check()

    def _check(self) -> None:
        if not self.fields:
            raise Fm2Error("schema: there are no fields")
        if not isinstance(self.label, str) or not self.label:
            raise Fm2Error("schema: there is no label; name the column that is 1 for a click")
        for what, names in {"fields": self.names, "columns": self.columns}.items():
            twice = {name for name in names if names.count(name) > 1}
            if twice:
                raise Fm2Error(f"schema: two {what} are called '{min(twice)}'")
        for name in self.source_columns if self.columns else ():
            if name not in self.columns:
                raise Fm2Error(f"schema: the column '{name}' is not among the columns listed")
        for field in self.fields:
            if field.column == self.label:
                raise Fm2Error(f"schema: the field '{field.name}' reads the label's column '{self.label}'")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(field.name for field in self.fields)

    @property
    def source_columns(self) -> tuple[str, ...]:
        """The columns that are read: the label's first, then those of the fields, each once."""
        return tuple(dict.fromkeys([self.label, *(field.column for field in self.fields)]))

    def replace(self, **changes: Any) -> Schema:
        """Give a schema with some of ``fields``, ``label``, ``columns``, ``missing`` changed."""
        return dataclasses.replace(self, **changes)

    def with_min_count(self, min_count: int) -> Schema:
        """Give a schema with this threshold in every field."""
        return self.replace(fields=[dataclasses.replace(field, min_count=min_count) for field in self.fields])

    def to_dict(self) -> dict[str, Any]:
        """Give the schema as plain values, as a TOML or JSON file holds it."""
        lists = {"columns": list(self.columns), "missing": list(self.missing)}
        return {
            "label": self.label,
            **{key: value for key, value in lists.items() if value},
            "field": [field.to_dict() for field in self.fields],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Schema:
        """Make a schema from plain values, refusing what is not understood."""
        known = {"label", "columns", "missing", "field"}
        for key in values.keys() - known:
            raise Fm2Error(f"schema: '{key}' is not a setting; there are {', '.join(sorted(known))}")
        settings = {f.name for f in dataclasses.fields(Field)}
        fields = []
        if isinstance(values.get("field"), dict):
            raise Fm2Error("schema: [field] is one table, but there may be many: write [[field]], twice the brackets")
        try:
            for entry in values.get("field", []):
                for key in entry.keys() - settings:
                    name = entry.get("name", "?")
                    raise Fm2Error(f"schema: field '{name}' has '{key}'; there are {', '.join(sorted(settings))}")
                fields.append(Field(**{"name": "", **entry}))
            return cls(fields, values.get("label", ""), values.get("columns", ()), values.get("missing", ()))
        except (TypeError, AttributeError) as wrong:
            raise Fm2Error(f"schema: a setting has the wrong type: {wrong}") from wrong

    def save(self, path: str | Path) -> None:
        """Write the schema to a TOML file."""
        tomli_w = require("tomli_w", "train", "writing a schema")
        Path(path).write_text(tomli_w.dumps(self.to_dict()), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema from a TOML file."""
        try:
            return cls.from_dict(tomllib.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as missing:
            raise Fm2Error(f"schema: {path}: {missing.strerror}") from missing
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as wrong:
            raise Fm2Error(f"schema: {path} is not TOML: {wrong}") from wrong
        except Fm2Error as wrong:
            raise Fm2Error(f"{path}: {wrong}") from wrong

    @classmethod
    def preset(cls, name: str) -> Schema:
        """Give the schema of a well-known data set: ``criteo`` or ``avazu``.

        >>> len(Schema.preset("criteo").fields), len(Schema.preset("avazu").fields)
        (39, 23)
        """
        from fm2.data.presets import PRESETS

        if name not in PRESETS:
            raise Fm2Error(f"schema: '{name}' is neither a file nor a preset; the presets are {', '.join(PRESETS)}")
        return PRESETS[name]()

    @classmethod
    def infer(cls, source: Any, label: str, min_count: int = DEFAULT_MIN_COUNT) -> Schema:
        """Look at the first rows of a table or file and suggest a schema; save it to read and change it."""
        from fm2.data.inference import infer_schema

        return infer_schema(source, label, min_count)


def _expand(field: Field) -> tuple[Field, ...]:
    if field.kind != "timestamp" or field.part:
        return (field,)
    return tuple(dataclasses.replace(field, name=f"{field.name}_{part}", part=part) for part in get_args(Part))
