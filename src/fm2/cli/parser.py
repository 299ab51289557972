"""Command-line parsing with one-line errors and suggestions."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from fm2.cli.command import DEBUG, Command
from fm2.cli.exit_codes import MISUSED
from fm2.cli.help import command_help
from fm2.errors import suggest


class Parser(argparse.ArgumentParser):
    """A parser for one command.

    argparse does the parsing: it ships with Python, so that a compiled model can be used with numpy alone, and imports
    three times faster than click. Help pages and suggestions come from the command's declaration. Options cannot be
    abbreviated: a prefix that is unique today may become ambiguous when an option is added.

    >>> from fm2.cli.data import describe
    >>> Parser(describe).parse_args(["data", "--json"]).json
    True
    """

    def __init__(self, command: Command) -> None:
        super().__init__(prog=f"fm2 {command.name}", allow_abbrev=False)
        self.command = command
        self.arguments = (*command.arguments(), DEBUG)
        alternatives = None
        for argument in self.arguments:
            if argument.alternative and alternatives is None:
                alternatives = self.add_mutually_exclusive_group(required=True)
            argument.add_to(alternatives if argument.alternative else self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments; exit with an error if there are unknown options or extra arguments."""
        words: Sequence[str] = sys.argv[1:] if args is None else list(args)
        options = {name for argument in self.arguments if argument.is_option for name in argument.names}
        for word in words[: words.index("--")] if "--" in words else words:
            check_option(self.prog, word, {"-h", "--help", *options})
        parsed, extra = super().parse_known_args(words, namespace)
        if extra:
            self.error(f"unexpected argument '{extra[0]}'")
        return parsed, extra

    def format_help(self) -> str:
        """Return the help page."""
        return command_help(self.command)

    def error(self, message: str) -> NoReturn:
        """Exit with a one-line error."""
        fail(self.prog, re.sub(r"^argument ([A-Z_]+: )?", "", message))


def check_option(program: str, word: str, options: Iterable[str]) -> None:
    """Exit with an error, and the closest option, if a word looks like an option but is unknown."""
    name = word.partition("=")[0]
    if re.fullmatch(r"--?[a-zA-Z][\w-]*", name) and name not in options:
        suggestion = suggest(name, sorted(options))
        meant = f"; {suggestion}" if suggestion.startswith("did you mean") else ""
        fail(program, f"unknown option '{name}'{meant}")


def fail(program: str, message: str) -> NoReturn:
    """Exit with a one-line error; the usage of a command with eighty options would hide it."""
    hint = "" if message.endswith("?") else f"; see {program} --help"
    print(f"{program.replace(' ', ': ')}: {message}{hint}", file=sys.stderr)
    sys.exit(MISUSED)
