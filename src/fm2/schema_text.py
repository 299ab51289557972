"""A schema as text: a summary, and a line per field."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fm2.errors import printable
from fm2.field import PARTS, Field

if TYPE_CHECKING:
    from fm2.schema import Schema

MOST_LINES, MOST_PARTS, WIDEST_NAME = 40, 3, 30


def schema_text(schema: Schema) -> str:
    """Return the label, the number of fields of each kind, and the first fields with their settings."""
    targets = ("label", "impressions", "weight")
    columns = [f"{name} '{getattr(schema, name)}'" for name in targets if getattr(schema, name)]
    kinds = Counter(map(_kind, schema.fields))
    counts = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    number = len(schema.fields)
    lines = [f"Schema: {', '.join(columns)}, {number} field{'s' if number > 1 else ''} ({counts})"]
    shown = schema.fields[:MOST_LINES]
    width = min(max(len(field.name) for field in shown), WIDEST_NAME)
    lines += [f"  {field.name:<{width}}  {_field_text(field)}" for field in shown]
    if number > len(shown):
        lines.append(f"  and {number - len(shown)} more; see .fields")
    return "\n".join(map(printable, lines))


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
    more = f" and {len(parts) - MOST_PARTS} more" if len(parts) > MOST_PARTS else ""
    texts = [f"{kind} of {', '.join(parts[:MOST_PARTS])}{more}" if parts else kind]
    for name, value in settings.items():
        if name not in ("name", "kind", "multivalued"):
            texts.append(name if value is True else f"{name} {value}")
    return ", ".join(texts)
