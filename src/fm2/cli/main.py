"""The command line, ``fm2 COMMAND ...``: finds the command, parses its arguments, runs it and reports errors."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from fm2 import __version__
from fm2.cli import compression, data, engine, studies, training
from fm2.cli.command import Command
from fm2.cli.completion import completion
from fm2.cli.exit_codes import FAILED, MISUSED, SUCCESS, explain
from fm2.cli.help import main_help
from fm2.cli.parser import Parser, check_option, fail
from fm2.errors import suggest

# All commands, in the order and under the titles of ``fm2 --help``.
GROUPS: dict[str, tuple[Command, ...]] = {
    "Data": data.COMMANDS,
    "Training": training.COMMANDS,
    "Compression": compression.COMMANDS,
    "Serving": engine.COMMANDS,
    "Studies": studies.COMMANDS,
    "Shell": (completion,),
}
COMMANDS: dict[str, Command] = {command.name: command for group in GROUPS.values() for command in group}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; ``fm2 --help`` lists the codes."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words:
        print(main_help(GROUPS), file=sys.stderr, end="")
        return MISUSED
    position = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
    general = words[:position]
    for word in general:
        check_option("fm2", word, ("-h", "--help", "--version", "--debug"))
    if "--version" in general:
        print(f"fm2 {__version__}")
        return SUCCESS
    if "-h" in general or "--help" in general:
        print(main_help(GROUPS), end="")
        return SUCCESS
    if position == len(words):
        fail("fm2", "a command is required")
    return _run(words[position], words[position + 1 :], debug="--debug" in general)


def _run(name: str, words: Sequence[str], debug: bool) -> int:
    if name not in COMMANDS:
        fail("fm2", f"unknown command '{name}'; {suggest(name, COMMANDS)}")
    command = COMMANDS[name]
    options = Parser(command).parse_args(words)
    options.debug = debug or getattr(options, "debug", False)
    _escape_unprintable_characters()
    try:
        command.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output exited, as in `fm2 describe DATA | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (Exception, KeyboardInterrupt) as error:
        if options.debug and isinstance(error, Exception):
            raise
        message, code = explain(error, command, options)
        print(f"fm2: {message}", file=sys.stderr)
        return code
    return SUCCESS


def _escape_unprintable_characters() -> None:
    """Print an escape sequence for a character that the terminal's encoding lacks instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, io.UnsupportedOperation):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
