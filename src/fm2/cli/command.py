"""Declarations of commands: parsers, help pages and shell completion are all generated from these."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fm2.errors import suggest

NOTHING_WRITTEN = "no output was written"
Location = Literal["", "read", "write", "update"]


@dataclass(frozen=True)
class Argument:
    """An argument of a command: positional (``data``), or an option (``--min-count``).

    ``action`` is one of argparse's actions; without it the argument takes a value. An ``alternative`` excludes the
    command's other alternatives, and one of them is required. A positional argument may be ``optional``. ``group`` is
    the section of the help page. ``location`` says what the command does with the file or directory that the argument
    names, which may then be a URL; commands that read URLs themselves, such as those of logs, leave it empty.

    >>> Argument("--min-count", "replace rarer values by 'unknown'", int, default=4).usage
    '--min-count N'
    """

    name: str
    help: str
    type: Callable[[str], Any] = str
    metavar: str = ""
    default: Any = None
    choices: Sequence[str] = ()
    many: bool = False
    required: bool = False
    optional: bool = False
    alternative: bool = False
    action: Any = None
    dest: str = ""
    group: str = ""
    location: Location = ""

    @property
    def attribute(self) -> str:
        """The name of the parsed value."""
        return self.dest or self.name.lstrip("-").replace("-", "_")

    @property
    def is_option(self) -> bool:
        """Whether this is an option and not a positional argument."""
        return self.name.startswith("-")

    @property
    def takes_value(self) -> bool:
        """Whether a value follows the option's name."""
        return self.action in (None, "append")

    @property
    def placeholder(self) -> str:
        """The name of the value on the help page."""
        if not self.takes_value:
            return ""
        by_type = "N" if self.type is int else "X" if self.type is float else self.name.lstrip("-").upper()
        return self.metavar or "|".join(self.choices) or by_type

    @property
    def usage(self) -> str:
        """The argument as a user types it, with placeholders for its values."""
        value = f"{self.placeholder} ..." if self.many else self.placeholder
        if self.is_option:
            return f"{self.name} {value}".rstrip()
        return f"[{value}]" if self.optional else value

    @property
    def names(self) -> tuple[str, ...]:
        """The option's name and, for one that can be negated, its ``--no-`` form."""
        if self.action is argparse.BooleanOptionalAction:
            return self.name, self.name.replace("--", "--no-", 1)
        return (self.name,)

    def add_to(self, parser: Any) -> argparse.Action:
        """Add the argument to a parser, or to a group of one."""
        options: dict[str, Any] = {"help": self.help, "default": self.default}
        if self.takes_value:
            options |= {"metavar": self.placeholder, "type": self._convert, "choices": self.choices or None}
            options |= {"nargs": "+"} if self.many else {"nargs": "?"} if self.optional else {}
        if self.is_option:
            options |= {"required": self.required}
            options |= {"action": self.action} if self.action else {}
            options |= {"dest": self.dest} if self.dest else {}
        action: argparse.Action = parser.add_argument(self.name, **options)
        return action

    def _convert(self, text: str) -> Any:
        if self.choices and text not in self.choices:
            what = "value" if self.is_option else self.placeholder.lower()
            if not self.is_option and _is_path(text):
                names = ", ".join(self.choices)
                raise argparse.ArgumentTypeError(
                    f"expected the name of a {what} before the path '{text}'; choose from {names}"
                )
            raise argparse.ArgumentTypeError(f"unknown {what} '{text}'; {suggest(text, self.choices)}")
        try:
            return self.type(text)
        except ValueError:
            expected = "an integer" if self.type is int else "a number"
            raise argparse.ArgumentTypeError(f"expected {expected}, got '{text}'") from None


@dataclass(frozen=True)
class Command:
    """A command: what it is called, what it takes, and the function that runs it.

    ``arguments`` is a function where listing them requires the models, so that ``fm2 --help`` need not import these.
    ``interrupted`` says after Ctrl-C what was kept: a text, or a function of the parsed arguments.
    """

    name: str
    summary: str
    description: str
    example: str
    run: Callable[[argparse.Namespace], None]
    arguments: Callable[[], Sequence[Argument]]
    notes: str = ""
    interrupted: str | Callable[[argparse.Namespace], str] = NOTHING_WRITTEN


def command(
    name: str, summary: str, *, arguments: Sequence[Argument] | Callable[[], Sequence[Argument]], **declared: Any
) -> Callable[[Callable[[argparse.Namespace], None]], Command]:
    """Declare the decorated function as a command; ``declared`` are the other attributes of :class:`Command`."""
    listed = arguments if callable(arguments) else lambda: arguments
    return lambda run: Command(name, summary, run=run, arguments=listed, **declared)


def flag(name: str, help: str, group: str = "") -> Argument:
    """Declare an option without a value."""
    return Argument(name, help, action="store_true", default=False, group=group)


def input_path(name: str, help: str, metavar: str, **more: Any) -> Argument:
    """Declare a file or directory that the command reads; it may be a URL."""
    return Argument(name, help, metavar=metavar, location="read", **more)


def output_path(name: str, help: str, metavar: str) -> Argument:
    """Declare a file or directory that the command writes; it may be a URL."""
    return Argument(name, help, metavar=metavar, required=name.startswith("-"), location="write")


DEBUG = Argument("--debug", "show the traceback of an error", action="store_true", default=argparse.SUPPRESS)


def _is_path(text: str) -> bool:
    """Return whether a file or directory has this name; a text that is too long for a name has none."""
    try:
        return Path(text).exists()
    except OSError:
        return False
