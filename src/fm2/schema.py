"""The schema of a log: its fields, and the column that says whether a row is a click."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from fm2.errors import Fm2Error, require, suggest

Kind = Literal["categorical", "numeric", "timestamp"]
Transform = Literal["log_square", "quantiles", "interpolate", "linear"]
Part = Literal["weekday", "hour"]
Pooling = Literal["mean", "sum", "sqrt"]
Keep = Literal["first", "last"]
Spacing = Literal["quantiles", "log"]

DEFAULT_MIN_COUNT = 4
DEFAULT_BUCKETS = 50
DEFAULT_KNOTS = 20
DEFAULT_SEPARATOR = "|"
DEFAULT_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
MAX_BUCKETS = 100_000
MAX_HASH_BITS = 30
MAX_VALUES = 1_000_000
MAX_PARTS = 3


@dataclass(frozen=True)
class Field:
    """A field: one column of the log, and how its values become features.

    - ``categorical``: every value is a feature.
    - ``numeric``: ``transform`` turns a number into a feature. ``log_square``, the paper's transform, maps x > 2 to
      ceil(ln(x)² + 1) and keeps smaller numbers. ``quantiles`` learns ``buckets`` of about equal size from the training
      rows. ``interpolate`` learns ``knots`` and combines the features of the two next to the number, so that the model
      is continuous in it; ``spacing`` places the knots at ``quantiles`` or evenly on a ``log`` scale. ``linear`` has
      one feature, which it multiplies by the standardized number.
    - ``timestamp``: ``part`` is the part of the time that becomes the feature, ``weekday`` (Monday is 0) or ``hour``.
      ``format`` consists of %Y %y %m %d %H %M %S and literal characters, or is "unix" or "unix_ms" for seconds or
      milliseconds since 1970.

    ``column`` is the name of the column; it defaults to the name of the field. Values that occur fewer than
    ``min_count`` times become unknown. With ``hash_bits``, the field has no vocabulary: the feature of a value is a
    hash of that many bits.

    With ``multivalued``, a cell has any number of values: text divided by the ``separator``, or a list. ``pooling``
    combines their embeddings. At most ``max_values`` are used, the ``first`` or ``last`` ones (``keep``). ``weighted``
    values have weights, as in ``news:0.5|sports:2``; with ``weight_column``, the weights are in that column. An empty
    list differs from a missing one, unless ``empty_is_missing``.

    With ``shares``, the field uses the vocabulary and the embeddings of another field.

    With ``cross``, the field has no column: its feature is the combination of the features of two or three other
    fields with one value each. A combination with an unknown part is unknown.

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
    knots: int = 0
    spacing: Spacing | None = None
    part: Part | None = None
    format: str | None = None
    multivalued: bool = False
    separator: str = ""
    pooling: Pooling | None = None
    max_values: int = 0
    keep: Keep | None = None
    weighted: bool = False
    weight_column: str = ""
    empty_is_missing: bool = False
    shares: str = ""
    cross: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._check_types()
        if not self.cross:
            self._set_default("column", self.name)
        if self.kind == "numeric":
            self._set_default("transform", "log_square")
        if self.transform == "quantiles":
            self._set_default("buckets", DEFAULT_BUCKETS)
        if self.transform == "interpolate":
            self._set_default("knots", DEFAULT_KNOTS)
            self._set_default("spacing", "quantiles")
        if self.multivalued:
            self._set_default("separator", DEFAULT_SEPARATOR)
            self._set_default("pooling", "mean")
            self._set_default("weighted", bool(self.weight_column))
        if self.max_values:
            self._set_default("keep", "first")
        if self.kind == "timestamp":
            self._set_default("format", DEFAULT_TIME_FORMAT)
        for problem in self._problems():
            raise Fm2Error(f"schema: field '{self.name}': {problem}")

    def _check_types(self) -> None:
        if not isinstance(self.cross, list | tuple) or not all(isinstance(part, str) for part in self.cross):
            example = "a list of fields, like ['user', 'item']"
            raise Fm2Error(f"schema: field '{self.name}': cross must be {example}, got {self.cross!r}")
        object.__setattr__(self, "cross", tuple(self.cross))
        for setting in dataclasses.fields(self):
            if setting.name == "cross":
                continue
            value = getattr(self, setting.name)
            expected = type(setting.default) if isinstance(setting.default, int) else str
            if value is not None and type(value) is not expected:
                noun = {int: "an integer", bool: "true or false", str: "a string"}[expected]
                raise Fm2Error(f"schema: field '{self.name}': {setting.name} must be {noun}, got {value!r}")
        if not self.name:
            raise Fm2Error("schema: a field has no name")

    def _set_default(self, setting: str, value: Any) -> None:
        if not getattr(self, setting):
            object.__setattr__(self, setting, value)

    def _problems(self) -> Iterator[str]:
        choices_of = {"kind": Kind, "transform": Transform, "part": Part}
        choices_of |= {"pooling": Pooling, "keep": Keep, "spacing": Spacing}
        for setting, choices in choices_of.items():
            value = getattr(self, setting)
            if value is not None and value not in get_args(choices):
                yield f"unknown {setting} '{value}'; choose one of {', '.join(get_args(choices))}"
        if self.transform and self.kind != "numeric":
            yield f"transform requires a numeric field, but the field is {self.kind}"
        for setting, transform in (("buckets", "quantiles"), ("knots", "interpolate"), ("spacing", "interpolate")):
            value = getattr(self, setting)
            if value and self.transform != transform:
                yield f"{setting} requires the transform '{transform}'"
            if value and setting != "spacing" and not 2 <= value <= MAX_BUCKETS:
                yield f"{setting} must be between 2 and {MAX_BUCKETS}, got {value}"
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
        yield from self._list_problems()
        yield from self._cross_problems()

    def _list_problems(self) -> Iterator[str]:
        if self.multivalued and self.kind != "categorical":
            yield f"multivalued requires a categorical field, but the field is {self.kind}"
        for setting in ("separator", "pooling", "max_values", "keep", "weighted", "weight_column", "empty_is_missing"):
            if getattr(self, setting) and not self.multivalued:
                yield f"{setting} requires multivalued = true"
        if self.multivalued and (len(self.separator.encode()) != 1 or self.separator in '":\r\n\0'):
            expected = "one ASCII character other than a colon, a quote or a line end"
            yield f"the separator must be {expected}, got {self.separator!r}"
        if not 0 <= self.max_values <= MAX_VALUES:
            yield f"max_values must be between 1 and {MAX_VALUES}, or 0 for no limit, got {self.max_values}"
        if self.keep and not self.max_values:
            yield "keep requires max_values"
        if self.shares and self.kind != "categorical":
            yield f"shares requires a categorical field, but the field is {self.kind}"
        if self.shares and self.hash_bits:
            yield "hash_bits cannot be combined with shares; the shared field determines it"
        if self.shares == self.name:
            yield "shares names the field itself"

    def _cross_problems(self) -> Iterator[str]:
        if not self.cross:
            return
        if not 2 <= len(self.cross) <= MAX_PARTS:
            yield f"cross must name 2 to {MAX_PARTS} fields, got {len(self.cross)}"
        if len(set(self.cross)) < len(self.cross):
            yield f"cross names a field twice: {', '.join(self.cross)}"
        if self.kind != "categorical":
            yield f"cross requires a categorical field, but the field is {self.kind}"
        for setting in ("column", "multivalued", "shares"):
            if getattr(self, setting):
                yield f"{setting} cannot be combined with cross"

    @property
    def is_list(self) -> bool:
        """Whether a row has a list of weighted features in this field instead of one feature."""
        return self.multivalued or self.transform in ("interpolate", "linear")

    @property
    def has_boundaries(self) -> bool:
        """Whether the transform learns boundaries, knots, or a mean and a standard deviation from training rows."""
        return self.transform in ("quantiles", "interpolate", "linear")

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        if self.cross:
            values["cross"] = list(self.cross)
        else:
            defaults["column"] = self.name
        return {key: value for key, value in values.items() if value != defaults[key]}


@dataclass(frozen=True)
class Schema:
    """The fields of a log and its label, the column that is 1 for a click and 0 otherwise.

    ``columns`` names the columns of files without a header. ``missing`` lists texts that mean a missing value, in
    addition to the empty cell. A timestamp field without a ``part`` is replaced by two fields, weekday and hour.

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
            duplicates = {name for name in names if names.count(name) > 1}
            if duplicates:
                raise Fm2Error(f"schema: two {kind} have the name '{min(duplicates)}'")
        self._check_targets()
        self._check_shares()
        self._check_crosses()
        for name in self.source_columns:
            if self.columns and name not in self.columns:
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
            if owner.kind != "categorical" or owner.cross:
                kind = "a cross" if owner.cross else owner.kind
                raise Fm2Error(f"schema: field '{field.name}' shares '{owner.name}', which is {kind}")

    def _check_crosses(self) -> None:
        fields = {field.name: field for field in self.fields}
        for field in self.fields:
            for name in field.cross:
                if name not in fields:
                    known = suggest(name, [other.name for other in self.fields if not other.cross])
                    raise Fm2Error(f"schema: field '{field.name}': cross names an unknown field '{name}'; {known}")
                part = fields[name]
                if part.cross or part.is_list:
                    several = "multi-valued" if part.multivalued else f"a number with the transform {part.transform}"
                    problem = f"'{name}', which is {'a cross itself' if part.cross else several}"
                    raise Fm2Error(f"schema: field '{field.name}' crosses {problem}; cross fields with one value")

    @property
    def owners(self) -> tuple[int, ...]:
        """For each field, the index of the field whose vocabulary and embeddings it uses: usually its own.

        >>> Schema([Field("item"), Field("history", multivalued=True, shares="item")], label="click").owners
        (0, 0)
        """
        return tuple(self.names.index(field.shares or field.name) for field in self.fields)

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """For each field, the indices of the fields that it crosses: usually none.

        >>> Schema([Field("user"), Field("item"), Field("pair", cross=["user", "item"])], label="click").parts
        ((), (), (0, 1))
        """
        return tuple(tuple(self.names.index(name) for name in field.cross) for field in self.fields)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(field.name for field in self.fields)

    @property
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

    def with_min_count(self, min_count: int) -> Schema:
        """Return a copy with this ``min_count`` in every field."""
        return self.replace(fields=[dataclasses.replace(field, min_count=min_count) for field in self.fields])

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
            fields = [field for entry in values.get("field", []) for field in _fields(entry)]
            settings = {key: values[key] for key in known if key in values and key != "field"}
            return cls(fields, **{"label": "", **settings})
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
    if field.kind != "timestamp" or field.part:
        return (field,)
    return tuple(dataclasses.replace(field, name=f"{field.name}_{part}", part=part) for part in get_args(Part))


def _strings(setting: str, values: Iterable[str]) -> tuple[str, ...]:
    strings = () if isinstance(values, str) else tuple(values)
    if isinstance(values, str) or not all(isinstance(string, str) for string in strings):
        raise Fm2Error(f"schema: {setting} must be a list of strings, like ['a', 'b'], got {values!r}")
    return strings


def _fields(settings: dict[str, Any]) -> Iterator[Field]:
    """Create the field of a TOML table, or one for each transform if it has several."""
    transforms = settings.get("transform")
    if not isinstance(transforms, list):
        yield _field(settings)
        return
    settings_of = {"quantiles": ("buckets",), "interpolate": ("knots", "spacing")}
    for transform in transforms:
        others = [setting for other, names in settings_of.items() if other != transform for setting in names]
        own = {key: value for key, value in settings.items() if key not in others}
        name = settings.get("name", "")
        yield _field({"column": name} | own | {"name": f"{name}_{transform}", "transform": transform})


def _field(settings: dict[str, Any]) -> Field:
    known = [setting.name for setting in dataclasses.fields(Field)]
    for key in settings.keys() - set(known):
        name = settings.get("name", "?")
        raise Fm2Error(f"schema: field '{name}': unknown setting '{key}'; {suggest(key, known)}")
    return Field(**{"name": "", **settings})
