"""Exit codes, and the one-line message for each kind of error."""

from __future__ import annotations

import argparse

from fm2.cli.command import Command
from fm2.errors import (
    Fm2Error,
    Terminated,
    install_command,
    is_out_of_memory,
    is_panic,
    name_locations,
    printable,
)

SUCCESS, FAILED, MISUSED, INTERNAL_ERROR, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143
EXIT_CODES = {
    SUCCESS: "success",
    FAILED: "error; standard error has a one-line message",
    MISUSED: "invalid command line",
    INTERNAL_ERROR: "internal error; please report it (--debug shows the traceback)",
    INTERRUPTED: "interrupted with Ctrl-C",
    TERMINATED: "terminated with SIGTERM",
}
# Parts of the messages of RuntimeErrors that the system causes: no threads are left, or links form a circle.
ENVIRONMENT = ("can't start new thread", "Resource temporarily unavailable", "Symlink loop")


def explain(error: BaseException, command: Command, options: argparse.Namespace) -> tuple[str, int]:
    """Return the message and the exit code for an error."""
    if isinstance(error, KeyboardInterrupt):
        kept = command.interrupted(options) if callable(command.interrupted) else command.interrupted
        if isinstance(error, Terminated):
            return f"terminated; {kept}", TERMINATED
        return f"interrupted; {kept}", INTERRUPTED
    if isinstance(error, Fm2Error):
        return _one_line(str(error)), FAILED
    if isinstance(error, ModuleNotFoundError):
        return f"{command.name} requires the package '{error.name}'; install it {install_command('train')}", FAILED
    cause = _external_cause(error)
    if cause is not None:
        return f"{command.name}: {_one_line(cause)}", FAILED
    message = f"{type(error).__name__}: {_one_line(str(error))}"
    return f"{command.name}: {message}; {EXIT_CODES[INTERNAL_ERROR]}", INTERNAL_ERROR


def _external_cause(error: BaseException) -> str | None:
    """Return a message if the environment or a file caused the error, None if fm2 did."""
    if is_out_of_memory(error):
        detail = f" ({error})" if str(error) else ""
        return f"not enough memory{detail}; use fewer rows, features or dimensions"
    if isinstance(error, UnicodeDecodeError):
        return f"the input is not valid UTF-8 (byte {error.start}); convert it to UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return "a path is not valid UTF-8; rename it"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror or error}" if error.filename else error.strerror or str(error)
    if is_panic(error) or (isinstance(error, RuntimeError) and any(text in str(error) for text in ENVIRONMENT)):
        return str(error)
    return None


def _one_line(text: str) -> str:
    """Return a text without line breaks and without characters that a terminal would obey."""
    return printable(name_locations(" ".join(text.split())))
