"""Arguments in the wrong order: a dataset in place of a model, or the other way around."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from fm2.cli.command import Command
from fm2.errors import Fm2Error

# What the positional arguments of commands expect, by placeholder. Others, such as files of rows, are none of these.
RUN, COMPILED, DATASET = "run", "compiled model", "dataset"
EXPECTED: dict[str, tuple[str, ...]] = {"RUN": (RUN,), "MODEL": (RUN, COMPILED), "DATA": (DATASET,)}


def check_order(command: Command, options: argparse.Namespace) -> None:
    """Raise an error if the first argument is not what it should be, and another one is."""
    positional = [argument for argument in command.arguments() if not argument.is_option]
    expected = EXPECTED.get(positional[0].placeholder, ()) if len(positional) > 1 and positional[0].location else ()
    if not expected or _kind(getattr(options, positional[0].attribute)) in expected:
        return
    for argument in positional[1:]:
        given = getattr(options, argument.attribute)
        value = given[0] if isinstance(given, list) else given
        kind = _kind(value)
        if kind in expected and kind not in EXPECTED.get(argument.placeholder, ()):
            order = " ".join(each.usage for each in positional)
            raise Fm2Error(
                f"{command.name}: the arguments are in the wrong order: {value} is a {kind}, not "
                f"{argument.placeholder}; use fm2 {command.name} {order}"
            )


def _kind(value: Any) -> str | None:
    """Return what a path names: a run, a compiled model, a dataset, or None for anything else."""
    from fm2.artifacts.model_file import MODEL
    from fm2.artifacts.run_directory import SETTINGS
    from fm2.data.manifest import MANIFEST
    from fm2.engine.model_file import MODEL_START

    try:
        path = Path(value)
        if path.is_file():
            with path.open("rb") as file:
                return COMPILED if re.match(MODEL_START.encode(), file.read(128)) else None
        if (path / MANIFEST).is_file():
            return DATASET
        return RUN if (path / MODEL).is_file() or (path / SETTINGS).is_file() else None
    except (OSError, TypeError, ValueError):  # not a path, such as a JSON object
        return None
