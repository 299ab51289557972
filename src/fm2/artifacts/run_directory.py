"""The directory of a run: what its files are called, and whether one may be written. It needs no torch."""

from __future__ import annotations

from pathlib import Path

from fm2.errors import Fm2Error

CHECKPOINT, HISTORY, SETTINGS = "checkpoint.safetensors", "history.jsonl", "settings.toml"


def check_directory(path: Path, resume: bool, overwrite: bool, operation: str = "train") -> None:
    """Refuse to write where something else is, or a run that is to be neither gone on with nor replaced."""
    if resume and overwrite:
        raise Fm2Error(f"{operation}: --resume goes on with a run and --overwrite replaces it; choose one of them")
    if resume or not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (path / SETTINGS).is_file():
        raise Fm2Error(
            f"{operation}: {path} is no run (it has no {SETTINGS}), so nothing is written there; give another --out"
        )
    if not overwrite:
        raise Fm2Error(f"{operation}: {path} is there already; --resume goes on with it, --overwrite replaces it")


def check_resumed(path: Path) -> None:
    """Refuse to go on with a run that is not there."""
    if not (path / SETTINGS).is_file():
        raise Fm2Error(f"train: there is no run to resume in {path}")


def check_second(operation: str, run: Path, out: Path, resume: bool, overwrite: bool) -> None:
    """Refuse to write what is made of a run over that run, or over another unasked."""
    if out.resolve() == run.resolve():
        raise Fm2Error(f"{operation}: {out} is the run to begin with; give another --out")
    check_directory(out, resume, overwrite, operation)
