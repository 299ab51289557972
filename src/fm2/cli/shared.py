"""What several commands share: arguments, messages and the parsing of lists."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fm2.cli.command import Argument, flag, input_path
from fm2.errors import Fm2Error, name_locations, printable

CONTINUE = "run the same command with --resume to continue"

DATA = input_path("data", "dataset directory (fm2 prepare)", "DATA")
MODEL_DATA = input_path("data", "the training dataset, or a newer one", "DATA")
RUN = input_path("run_path", "run directory (fm2 train)", "RUN")
SETTINGS = input_path("--settings", "TOML file with settings; options override it", "FILE")
JSON = flag("--json", "print the result as JSON")
OVERWRITE = flag("--overwrite", "replace existing output")
RESUME = flag("--resume", "continue an interrupted run")
ROW_WEIGHTS = input_path("--row-weights", ".npy file with one weight per row of the log", "FILE")
JOBS = Argument("--jobs", "number of runs to train at once, each in a process of its own (default: 1)", int)
ENGINE = Argument(
    "--engine", "train runs in local processes or on a Ray cluster", choices=("local", "ray"), default="local"
)
ADDRESS = Argument("--address", "Ray cluster to use, such as auto (default: a new one on this machine)")
THREADS = Argument("--threads", "number of threads (default: all cores)", int, default=0)


def numbers(kind: type, expected: str) -> Callable[[str], list[Any]]:
    """Return the type of an argument with numbers that are separated by commas."""

    def parse(text: str) -> list[Any]:
        try:
            return [kind(part) for part in text.split(",")]
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected {expected}, got '{text}'") from None

    return parse


def pick(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return some of the parsed options as keyword arguments."""
    return {name: getattr(options, name) for name in names}


def replaces(path: str) -> str:
    """Return what a command that replaces an earlier file adds to its result; call this before the file is written.

    Files that take only moments to make are replaced without ``--overwrite`` (see :func:`fm2.files.check_replaceable`),
    but not without a word.
    """
    return " (replaced the earlier file)" if Path(path).is_file() and Path(path).stat().st_size else ""


def report_step(step: str) -> None:
    """Print what a command does next."""
    warn(f"{step} ...")


def check_top(operation: str, top: int) -> None:
    """Raise an error unless ``--top`` is positive."""
    if top < 1:
        raise Fm2Error(f"{operation}: --top must be at least 1, got {top}")


def warn(message: str) -> None:
    """Print a message on standard error."""
    print(f"fm2: {printable(name_locations(message))}", file=sys.stderr, flush=True)
