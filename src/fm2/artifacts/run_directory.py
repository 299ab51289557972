"""The directory of a run: its files, whether it may be written, and its history, one JSON object per evaluation."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from fm2.errors import Fm2Error, name_locations
from fm2.files import check_output, output_directory, write_errors, write_text

CALIBRATION = "calibration.safetensors"
CHECKPOINT = "checkpoint.safetensors"
EVENTS = "tensorboard"  # the directory of its event files
HISTORY = "history.jsonl"
SHARDED_CHECKPOINT, SHARDS = "checkpoint.json", "shards"  # of several workers
LAUNCH = "launch.txt"  # which process started them
RACE = "race.json"
SETTINGS = "settings.toml"


def check_run_output(operation: str, out: Path, resume: bool, overwrite: bool, source: Path | None = None) -> None:
    """Raise an error unless a run may be written to ``out``; ``source`` is the run that it is derived from."""
    if source is not None and name_locations(str(out.resolve())) == name_locations(str(source.resolve())):
        raise Fm2Error(f"{operation}: {out} is the source run; choose another out=")
    check_output(operation, out, "run", SETTINGS, resume=resume, overwrite=overwrite)


def run_output(operation: str, path: Path, resume: bool, overwrite: bool) -> contextlib.AbstractContextManager[None]:
    """Lock the directory of a run for one training; see :func:`fm2.files.output_directory`."""
    return output_directory(operation, path, "run", SETTINGS, "another training", resume=resume, overwrite=overwrite)


def read_history(path: Path) -> list[dict[str, Any]]:
    """Return the evaluations of a run, in order, without a last line that is incomplete."""
    evaluations = read_history_lines(path)
    for number, evaluation in enumerate(evaluations, start=1):
        if not _is_evaluation(evaluation):
            raise Fm2Error(f"{path} is damaged: line {number} is not an evaluation")
    return evaluations


def read_history_lines(path: Path) -> list[Any]:
    """Return what the lines of a history contain, whatever it is, up to one that is incomplete."""
    if not path.is_file():
        return []
    values = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            values.append(json.loads(line))
        except (ValueError, RecursionError):
            break
    return values


def _is_evaluation(values: Any) -> bool:
    """Return whether a line of a history has the numbers that fm2 reads."""
    return (
        isinstance(values, dict)
        and all(value is None or isinstance(value, int | float) for value in values.values())
        and all(type(values.get(name)) in (int, float) for name in ("epoch", "auc", "log_loss", "rig"))
        and isinstance(values.get("best"), bool)
    )


def write_history(path: Path, evaluations: list[dict[str, Any]]) -> None:
    """Write all evaluations of a run."""
    write_text(path, "".join(json.dumps(evaluation) + "\n" for evaluation in evaluations))


def append_history(path: Path, evaluation: dict[str, Any]) -> None:
    """Append an evaluation to the history of a run."""
    with write_errors(path, "train"), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(evaluation) + "\n")
