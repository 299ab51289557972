"""The history of a run: one JSON object per evaluation, one per line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fm2.files import write_errors, write_text


def read_history(path: Path) -> list[dict[str, Any]]:
    """Return the evaluations of a run, in order, without a last line that is incomplete.

    >>> read_history(Path("/nowhere/history.jsonl"))
    []
    """
    if not path.is_file():
        return []
    evaluations = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            evaluations.append(json.loads(line))
        except ValueError:
            break
    return evaluations


def write_history(path: Path, evaluations: list[dict[str, Any]]) -> None:
    """Write all evaluations of a run."""
    write_text(path, "".join(json.dumps(evaluation) + "\n" for evaluation in evaluations))


def append_history(path: Path, evaluation: dict[str, Any]) -> None:
    """Append an evaluation to the history of a run."""
    with write_errors(path, "train"), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(evaluation) + "\n")
