"""A log whose trees read multi-valued fields of every kind: shared, weighted, hashed, and shortened."""

from __future__ import annotations

from tests.helpers.list_log import EVERYTHING_SCHEMA, everything_log

SCHEMA = EVERYTHING_SCHEMA.with_trees()
TREES = SCHEMA.names.index("trees")
log_of = everything_log
