"""The errors a user can meet. Each says what was being done, where, what was found and the way out."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType


class Fm2Error(Exception):
    """Something the user can put right; the command line prints it in one line."""


def printable(text: str) -> str:
    """Give a text in which everything that a terminal or a file of lines would trip over is written out.

    >>> printable("two\\nlines")
    'two\\\\nlines'
    """
    kept = text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in kept)


def suggest(word: str, words: Iterable[str]) -> str:
    """Suggest what was meant by a word that is none of those there are, or name these.

    >>> suggest("epoch", ["epochs", "seed"])
    "did you mean 'epochs'?"
    >>> suggest("x", ["epochs", "seed"])
    'there are epochs, seed'
    """
    every = list(words)
    close = difflib.get_close_matches(word, every, n=1)
    return f"did you mean '{close[0]}'?" if close else f"there are {', '.join(every)}"


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import a module that only some tasks need, or say which extra brings it.

    >>> require("json", "train", "this example").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        install = f"install it with: pip install 'fm2[{extra}]'"
        raise Fm2Error(f"{purpose} requires the package '{missing.name}'; {install}") from missing
