"""A schema as text: a summary, and a line per field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fm2.errors import printable
from fm2.field import PARTS, Field

if TYPE_CHECKING:
    from fm2.schema import Schema

MOST_LINES, MOST_PARTS, WIDEST_NAME = 40, 3, 30


def schema_text(schema: Schema) -> str:
    """Return how files are read, the number of fields of each kind, and the first fields with their settings."""
    shown = schema.fields[:MOST_LINES]
    width = min(max(len(field.name) for field in shown), WIDEST_NAME)
    lines = [_summary(schema), *(f"  {field.name:<{width}}  {_field_text(field)}" for field in shown)]
    if len(schema.fields) > len(shown):
        lines.append(f"  and {len(schema.fields) - len(shown)} more; see .fields")
    return "\n".join(map(printable, lines))


def count_fields(schema: Schema) -> str:
    """Return the number of fields as text."""
    number = len(schema.fields)
    return f"{number} field" if number == 1 else f"{number} fields"


def _summary(schema: Schema) -> str:
    targets = ("label", "impressions", "weight")
    parts = [f"{name} '{getattr(schema, name)}'" for name in targets if getattr(schema, name)]
    kinds = Counter(map(_kind, schema.fields))
    parts.append(f"{count_fields(schema)} ({', '.join(f'{number} {kind}' for kind, number in kinds.items())})")
    if schema.missing:
        texts = [f"'{text}'" for text in schema.missing]
        parts.append(f"missing values {_first(texts)}")
    if schema.columns:
        parts.append(f"{len(schema.columns)} columns in files without a header")
    return f"Schema: {', '.join(parts)}"


def _first(texts: Sequence[str]) -> str:
    """Return the first texts and the number of the others."""
    more = f" and {len(texts) - MOST_PARTS} more" if len(texts) > MOST_PARTS else ""
    return ", ".join(texts[:MOST_PARTS]) + more


def _kind(field: Field) -> str:
    derived = next((name for name in PARTS if getattr(field, name)), "")
    return derived or ("multivalued" if field.multivalued else field.kind)


def _field_text(field: Field) -> str:
    """Return the kind of a field and the settings that differ from their defaults.

    >>> _field_text(Field("price", "numeric", min_count=8))
    'numeric, min_count 8, transform log_square'
    >>> _field_text(Field("all", trees=["a", "b", "c", "d"], buckets=32))
    'trees of a, b, c and 1 more, buckets 32'
    """
    kind = _kind(field)
    settings = field.to_dict()
    parts = settings.pop(kind, []) if kind in PARTS else []
    texts = [f"{kind} of {_first(parts)}" if parts else kind]
    for name, value in settings.items():
        if name not in ("name", "kind", "multivalued"):
            texts.append(name if value is True else f"{name} {value}")
    return ", ".join(texts)
