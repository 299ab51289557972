"""The files of a run, and whether a run may be written to a directory."""

from __future__ import annotations

from pathlib import Path

from fm2.errors import Fm2Error
from fm2.files import check_output

CHECKPOINT = "checkpoint.safetensors"
HISTORY = "history.jsonl"
SETTINGS = "settings.toml"


def check_run_output(operation: str, out: Path, resume: bool, overwrite: bool, source: Path | None = None) -> None:
    """Raise an error unless a run may be written to ``out``; ``source`` is the run that it is derived from."""
    if source is not None and out.resolve() == source.resolve():
        raise Fm2Error(f"{operation}: {out} is the source run; choose another --out")
    check_output(operation, out, "run", SETTINGS, resume=resume, overwrite=overwrite)
