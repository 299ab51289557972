"""Warnings about settings that a user chose, but that change nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from fm2.artifacts.settings import Settings
from fm2.data.dataset import Dataset
from fm2.errors import warn

_chosen: ContextVar[Collection[str] | None] = ContextVar("chosen", default=None)


@contextlib.contextmanager
def chosen_settings(names: Collection[str]) -> Iterator[None]:
    """Let trainings within a context warn about these settings only.

    Others come from an earlier run, or the caller warns about them once, for all of its trainings.
    """
    token = _chosen.set(names)
    try:
        yield
    finally:
        _chosen.reset(token)


def warn_without_effect(operation: str, dataset: Dataset, *trainings: tuple[Mapping[str, Any], Settings]) -> None:
    """Warn about settings that change nothing, once for all trainings.

    A training consists of the settings that were passed, and of all settings that follow from them. Call this when they
    are known to be valid.
    """
    chosen = _chosen.get()
    found = [each for changes, settings in trainings for each in _without_effect(dataset, changes, settings)]
    for name, reason in dict.fromkeys(found):
        if chosen is None or name in chosen:
            warn(f"{operation}: {name}= has no effect: {reason}")


def _without_effect(dataset: Dataset, changes: Mapping[str, Any], settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield each setting without effect, and the reason."""
    if changes.get("value_dropout") and not any(field.multivalued for field in dataset.schema.fields):
        yield "value_dropout", "the dataset has no multi-valued fields"
    scale = changes.get("linear_l2_scale", 1)
    if scale != 1 and settings.options.get("linear") == "fields":
        yield "linear_l2_scale", 'linear="fields" has no weights per feature'
