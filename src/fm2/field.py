"""Fields: what a column of the log means, and how its values become features."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fm2.errors import Fm2Error, printable, suggest

Kind = Literal["categorical", "numeric", "timestamp"]
Transform = Literal["log_square", "quantiles", "interpolate", "linear"]
Part = Literal["weekday", "hour"]
Pooling = Literal["mean", "sum", "sqrt"]
Keep = Literal["first", "last"]
Spacing = Literal["quantiles", "log"]

DEFAULT_MIN_COUNT = 0  # the number of training rows decides
CROSS_MIN_COUNT = 4  # of candidates for crosses
DEFAULT_KNOTS = 20
DEFAULT_TREE_BUCKETS = 200
DEFAULT_SEPARATOR = "|"
DEFAULT_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
DATE_FORMAT = "%Y-%m-%d"
MAX_BUCKETS = 100_000
MAX_HASH_BITS = 30
MAX_VALUES = 1_000_000
MAX_PARTS = 3
MAX_TREE_FIELDS = 300
MAX_TREE_HASH_BITS = 18  # of a field that trees read: they have tables of all its features
PARTS = ("cross", "trees")  # the settings that name the fields which a derived field follows from


@dataclass(frozen=True)
class Field:
    """A field: one column of the log, and how its values become features.

    - ``categorical``: every value is a feature.
    - ``numeric``: ``transform`` turns a number into a feature. ``log_square``, the paper's transform, maps x > 2 to
      ceil(ln(x)² + 1) and keeps smaller numbers. ``quantiles`` learns ``buckets`` of about equal size from the training
      rows; their default number grows with the rows. ``interpolate`` learns ``knots`` and combines the features of the
      two next to the number, so that the model is continuous in it; ``spacing`` places the knots at ``quantiles`` or
      evenly on a ``log`` scale. ``linear`` has one feature, which it multiplies by the standardized number.
    - ``timestamp``: ``part`` is the part of the time that becomes the feature, ``weekday`` (Monday is 0) or ``hour``.
      ``format`` consists of %Y %y %m %d %H %M %S %z and literal characters, or is "unix" or "unix_ms" for seconds or
      milliseconds since 1970. %S accepts a fraction, which is dropped. %z is Z or an offset (+02:00); such times are
      converted to UTC. A number between literal characters may have one digit: 1/5/2024.

    ``column`` is the name of the column; it defaults to the name of the field. Values that occur fewer than
    ``min_count`` times become unknown, and with ``missing_is_unknown`` so do missing values. By default, ``prepare``
    sets ``min_count`` to 2, 3 or 4, depending on the number of training rows. With ``hash_bits``, the field has no
    vocabulary: the feature of a value is a hash of that many bits.

    With ``multivalued``, a cell has any number of values: text divided by the ``separator``, or a list. ``pooling``
    combines their embeddings. At most ``max_values`` are used, the ``first`` or ``last`` ones (``keep``). ``weighted``
    values have weights, as in ``news:0.5|sports:2``; with ``weight_column``, the weights are in that column. An empty
    list differs from a missing one, unless ``empty_is_missing``.

    With ``shares``, the field uses the vocabulary and the embeddings of another field, and its ``min_count`` and
    ``hash_bits``.

    With ``cross``, the field has no column: its feature is the combination of the features of two or three other
    fields with one value each. A combination with an unknown part is unknown.

    With ``trees``, the field has no column either: ``prepare`` fits gradient-boosted trees to these other fields, and
    its features are ``buckets`` of their predictions; the value of a bucket is its mean logit. Of a multi-valued field,
    they read how many values a list has, and which of the most frequent ones.

    >>> Field("I1", "numeric", min_count=8).transform
    'log_square'
    """

    name: str
    kind: Kind = "categorical"
    column: str = ""
    min_count: int = DEFAULT_MIN_COUNT
    missing_is_unknown: bool = False
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
    trees: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._check_types()
        if not self.is_derived:
            self._set_default("column", self.name)
        if self.kind == "numeric":
            self._set_default("transform", "log_square")
        if self.trees:
            self._set_default("buckets", DEFAULT_TREE_BUCKETS)
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
            raise Fm2Error(f"schema: field '{printable(self.name)}': {problem}")

    def _check_types(self) -> None:
        for name in PARTS:
            parts = getattr(self, name)
            if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
                example = "a list of fields, like ['user', 'item']"
                raise Fm2Error(f"schema: field '{self.name}': {name} must be {example}, got {parts!r}")
            object.__setattr__(self, name, tuple(parts))
        for setting in dataclasses.fields(self):
            if setting.name in PARTS:
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
        for setting in ("name", "column", "weight_column", "format"):
            if "\0" in (getattr(self, setting) or ""):  # ends a text in a compiled model
                yield f"the {setting.replace('_', ' ')} contains NUL"
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
            if value and self.transform != transform and not (setting == "buckets" and self.trees):
                yield f"{setting} requires the transform '{transform}'"
            if value and setting != "spacing" and not 2 <= value <= MAX_BUCKETS:
                yield f"{setting} must be between 2 and {MAX_BUCKETS}, got {value}"
        if (self.part or self.format) and self.kind != "timestamp":
            yield f"part and format require a timestamp field, but the field is {self.kind}"
        if "%" in re.sub("%[YymdHMSz%]", "", self.format or ""):
            yield f"the format '{self.format}' may contain only %Y %y %m %d %H %M %S %z and %%"
        if self.min_count < 0:
            yield f"min_count must be at least 1, which keeps every value, or 0 for the default, got {self.min_count}"
        if not 0 <= self.hash_bits <= MAX_HASH_BITS:
            yield f"hash_bits must be between 1 and {MAX_HASH_BITS}, or 0 for a vocabulary, got {self.hash_bits}"
        if self.hash_bits and self.kind != "categorical":
            yield f"hash_bits requires a categorical field, but the field is {self.kind}"
        if self.missing_is_unknown and (self.is_list or self.hash_bits or self.shares or self.is_derived):
            yield "missing_is_unknown requires a vocabulary of the field's own and one value per row"
        yield from self._list_problems()
        yield from self._cross_problems()
        yield from self._derived_problems()

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
        for setting, default in (("hash_bits", 0), ("min_count", DEFAULT_MIN_COUNT)):
            if self.shares and getattr(self, setting) != default:
                yield f"{setting} cannot be combined with shares; set it in the shared field, '{self.shares}'"
        if self.shares == self.name:
            yield "shares names the field itself"

    def _cross_problems(self) -> Iterator[str]:
        if not self.cross:
            return
        if not 2 <= len(self.cross) <= MAX_PARTS:
            yield f"cross must name 2 to {MAX_PARTS} fields, got {len(self.cross)}"
        if self.trees:
            yield "cross cannot be combined with trees"

    def _derived_problems(self) -> Iterator[str]:
        for name in PARTS:
            parts = getattr(self, name)
            if not parts:
                continue
            if len(set(parts)) < len(parts):
                yield f"{name} names a field twice: {', '.join(parts)}"
            if self.kind != "categorical":
                yield f"{name} requires a categorical field, but the field is {self.kind}"
            for setting in ("column", "multivalued", "shares"):
                if getattr(self, setting):
                    yield f"{setting} cannot be combined with {name}"
        for setting, default in (("hash_bits", 0), ("min_count", DEFAULT_MIN_COUNT)):
            if self.trees and getattr(self, setting) != default:
                yield f"{setting} cannot be combined with trees"
        if len(self.trees) > MAX_TREE_FIELDS:
            problem = f"trees may name at most {MAX_TREE_FIELDS} fields, got {len(self.trees)}"
            yield f"{problem}; choose the most important ones"

    @property
    def is_derived(self) -> bool:
        """Whether the field has no column: its feature follows from those of other fields."""
        return bool(self.cross or self.trees)

    @property
    def is_list(self) -> bool:
        """Whether a row has a list of weighted features in this field instead of one feature."""
        return self.multivalued or self.transform in ("interpolate", "linear")

    @property
    def has_boundaries(self) -> bool:
        """Whether the transform learns boundaries, knots, or a mean and a standard deviation from training rows."""
        return self.transform in ("quantiles", "interpolate", "linear")

    @property
    def time_parts(self) -> tuple[Part, ...]:
        """The parts of the times of a timestamp field: a date has no hour.

        >>> Field("day", "timestamp", format="%Y-%m-%d").time_parts
        ('weekday',)
        """
        format = self.format or ""
        has_hour = format in ("unix", "unix_ms") or "%H" in format.replace("%%", "")
        return ("weekday", "hour") if has_hour else ("weekday",)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        values |= {name: list(values[name]) for name in PARTS if values[name]}
        if not self.is_derived:
            defaults["column"] = self.name
        if self.trees:
            defaults["buckets"] = DEFAULT_TREE_BUCKETS
        return {key: value for key, value in values.items() if value != defaults[key]}


def read_fields(settings: dict[str, Any]) -> Iterator[Field]:
    """Create the field of a TOML table, or one for each transform if it has several."""
    transforms = settings.get("transform")
    if not isinstance(transforms, list):
        yield _read_field(settings)
        return
    settings_of = {"quantiles": ("buckets",), "interpolate": ("knots", "spacing")}
    for transform in transforms:
        others = [setting for other, names in settings_of.items() if other != transform for setting in names]
        own = {key: value for key, value in settings.items() if key not in others}
        name = settings.get("name", "")
        yield _read_field({"column": name} | own | {"name": f"{name}_{transform}", "transform": transform})


def _read_field(settings: dict[str, Any]) -> Field:
    known = [setting.name for setting in dataclasses.fields(Field)]
    for key in settings.keys() - set(known):
        name = settings.get("name", "?")
        raise Fm2Error(f"schema: field '{name}': unknown setting '{key}'; {suggest(key, known)}")
    for key in PARTS:
        if settings.get(key) == []:
            raise Fm2Error(f"schema: field '{settings.get('name', '?')}': {key} must name fields, got an empty list")
    return Field(**{"name": "", **settings})
