"""What the command line says of an error, and with which code it ends."""

from __future__ import annotations

import argparse

from fm2.cli.parser import MISUSED
from fm2.errors import Fm2Error

FINISHED, FAILED, FAULTY, INTERRUPTED = 0, 1, 3, 130
EXIT_CODES = {
    FINISHED: "done",
    FAILED: "refused, or failed: one line on standard error says why",
    MISUSED: "the command line was not understood",
    FAULTY: "a fault of fm2 itself; --debug shows where",
    INTERRUPTED: "interrupted by Ctrl-C",
}


def told(error: BaseException, settings: argparse.Namespace) -> tuple[str, int]:
    """Give the line and the exit code for an error; what is no fault of fm2's says the way out.

    >>> told(PermissionError(13, "Permission denied", "model.fm2"), argparse.Namespace(command="compile"))
    ('compile: model.fm2: Permission denied', 1)
    """
    if isinstance(error, KeyboardInterrupt):
        kept = settings.interrupted(settings) if callable(settings.interrupted) else settings.interrupted
        return f"interrupted; {kept}", INTERRUPTED
    if isinstance(error, Fm2Error):
        return _one_line(str(error)), FAILED
    if isinstance(error, ModuleNotFoundError):
        return f"this needs the package '{error.name}': pip install 'fm2[train]'", FAILED
    cause = _cause(error)
    if cause is not None:
        return f"{settings.command}: {_one_line(cause)}", FAILED
    what = f"{type(error).__name__}: {_one_line(str(error))}"
    return f"{settings.command}: {what}; this is a fault of fm2's, and --debug shows where", FAULTY


def _cause(error: BaseException) -> str | None:
    """Say what of the machine or of a file led to an error; None if it was neither."""
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # as torch says it
        return (
            f"there is not enough memory ({str(error) or 'none is left'}); fewer rows, features or dimensions need less"
        )
    if isinstance(error, UnicodeDecodeError):
        return f"what was read is no UTF-8 text, from byte {error.start} on; write it again as UTF-8"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())
