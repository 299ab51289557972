"""The schemas of the paper's two data sets (section 5.1)."""

from __future__ import annotations

from collections.abc import Callable

from fm2.schema import Field, Schema


def criteo() -> Schema:
    """Give Criteo's display advertising log: 13 numbers and 26 categories, without a header, threshold 8."""
    numbers = [Field(f"I{i}", "numeric", min_count=8) for i in range(1, 14)]
    categories = [Field(f"C{i}", min_count=8) for i in range(1, 27)]
    fields = numbers + categories
    return Schema(fields, label="label", columns=["label", *(field.name for field in fields)])


def avazu() -> Schema:
    """Give Avazu's mobile log: 21 categories, weekday and hour; the id is left out; threshold 5."""
    time = [
        Field("weekday", "timestamp", column="hour", part="weekday", format="%y%m%d%H", min_count=5),
        Field("hour", "timestamp", column="hour", part="hour", format="%y%m%d%H", min_count=5),
    ]
    categories = (
        "C1 banner_pos site_id site_domain site_category app_id app_domain app_category device_id device_ip "
        "device_model device_type device_conn_type C14 C15 C16 C17 C18 C19 C20 C21"
    )
    return Schema([*time, *(Field(name, min_count=5) for name in categories.split())], label="click")


PRESETS: dict[str, Callable[[], Schema]] = {"criteo": criteo, "avazu": avazu}
