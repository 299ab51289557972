"""How the words of a command line are understood, and what is said when they are not."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from fm2.errors import suggest

MISUSED = 2
WIDTH = 78
_FORMS: dict[Any, str] = {"+": "{} ...", "*": "[{} ...]", "?": "[{}]"}


class Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong, with the nearest word that there is.

    Options are not to be abbreviated: what is unique today would mean something else, or nothing, with the next option.

    >>> parser = Parser(prog="fm2 train")
    >>> _ = parser.add_argument("--epochs", type=int, help="passes over the rows")
    >>> parser.parse_args(["--epochs", "3"]).epochs
    3
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **options})
        self._positionals.title = "arguments"

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse an option that is none before its value is taken for something else, and words that are too many."""
        words = sys.argv[1:] if args is None else list(args)
        self._refuse_unknown_options(words)
        found, left = super().parse_known_args(words, namespace)
        if left:
            self.error(f"there is no use for '{left[0]}'")
        return found, left

    def _refuse_unknown_options(self, words: Sequence[str]) -> None:
        for word in words:
            if word == "--" or (self._subparsers and not word.startswith("-")):
                return  # what follows is no option, or the command's
            name = word.partition("=")[0]
            if re.fullmatch(r"--?[a-zA-Z][\w-]*", name) and name not in self._option_string_actions:
                self.error(f"there is no option '{name}'{self._meant(name)}")

    def _meant(self, option: str) -> str:
        suggestion = suggest(option, self._option_string_actions)
        return f"; {suggestion}" if suggestion.startswith("did you mean") else ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        meant = suggest(str(value), [str(choice) for choice in action.choices])
        said = f"{action.option_strings[0]} is" if action.option_strings else f"there is no {_word(action).lower()}"
        raise argparse.ArgumentError(None, f"{said} '{value}'; {meant}")

    def error(self, message: str) -> NoReturn:
        """Leave with one line; the usage of a command with eighty options would hide it."""
        help = "" if message.endswith("?") else f"; see {self.prog} --help"
        self.exit(MISUSED, f"{self.prog.replace(' ', ': ')}: {message}{help}\n")

    def format_help(self) -> str:
        """Give the help, whose usage names what has to be given, and no option that may be."""
        self.usage = self.usage or self._short_usage()
        return super().format_help()

    def _short_usage(self) -> str:
        alternatives = [group for group in self._mutually_exclusive_groups if group.required]
        words = [_FORMS.get(action.nargs, "{}").format(_word(action)) for action in self._get_positional_actions()]
        for group in alternatives:
            words += ("(" + " |\n".join(_written(action) for action in group._group_actions) + ")").split("\n")
        words += [_written(action) for action in self._get_optional_actions() if action.required]
        return _wrapped(self.prog, [*words, "[options]"])


def _word(action: argparse.Action) -> str:
    return action.metavar if isinstance(action.metavar, str) else action.dest


def _written(action: argparse.Action) -> str:
    """Give an option as it is written, with a word for its value."""
    value = action.metavar if isinstance(action.metavar, str) else "|".join(map(str, action.choices or ()))
    return f"{action.option_strings[-1]} {value}".rstrip()


def _wrapped(prog: str, words: Sequence[str]) -> str:
    """Set words behind the program's name, in as many lines as they take.

    >>> _wrapped("fm2 rank", ["MODEL", "[options]"])
    'fm2 rank MODEL [options]'
    """
    margin, lines = len("usage: "), [prog]
    for word in words:
        if margin + len(lines[-1]) + 1 + len(word) > WIDTH:
            lines.append(" " * len(prog))
        lines[-1] += f" {word}"
    return ("\n" + " " * margin).join(lines)
