"""Errors and warnings for users: each names the operation, the place, the value and the way out."""

from __future__ import annotations

import difflib
import importlib
import re
import sys
import warnings
from collections.abc import Collection, Iterable
from types import ModuleType

_USER = re.compile(r"(?<=://)[^/\s'\"?#]+(?=@)")  # user:password in a URL; the password may contain @
_QUERY = re.compile(r"(://[^\s'\"?]*\?)[^\s'\"?]*=[^\s'\"]*[^\s'\",;:.)]")  # signatures; not the ? of a pattern
_COPIES: dict[str, str] = {}  # the paths of local copies, and the URLs that messages name instead


class Fm2Error(Exception):
    """An error that the user can correct; the command line prints it on one line, without a traceback.

    A message names parameters as Python does, for example ``overwrite=True``, ``split="time"`` or ``learning_rate=``.
    The command line prints its own options instead: ``--overwrite``, ``--split time``, ``--learning-rate``. Locations
    are named as by :func:`name_locations`.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(name_locations(message))


class Fm2Warning(UserWarning):
    """Something that is probably a mistake; the command line prints it like an error, and continues."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, which the command line treats like Ctrl-C: it removes temporary files, or writes a checkpoint."""


def warn(message: str) -> None:
    """Issue an :class:`Fm2Warning` at the line that called fm2."""
    level = 1
    while (frame := sys._getframe(level)).f_back and str(frame.f_globals.get("__name__")).split(".")[0] == "fm2":
        level += 1
    warnings.warn(name_locations(message), Fm2Warning, stacklevel=level + 1)


def name_locations(text: str) -> str:
    """Return a text with URLs instead of the paths of their local copies, and without the secrets in URLs.

    >>> name_locations("cannot read https://me:secret@host/log.gz?signature=secret: not found")
    'cannot read https://***@host/log.gz?***: not found'
    """
    for path, url in _COPIES.items():
        text = text.replace(path, url)
    return _QUERY.sub(r"\1***", _USER.sub("***", text)) if "://" in text else text


def name_copy(path: str, url: str) -> None:
    """Let messages name a URL instead of the path of its local copy."""
    _COPIES[path] = url


def not_found(what: str, path: object, way_out: str = "", kind: str = "file") -> Fm2Error:
    """Return the error for a missing file; ``what`` is the operation, the role of the file, or both.

    >>> not_found("train: settings", "fm.toml"), not_found("", "log.csv")
    (Fm2Error('train: settings: file not found: fm.toml'), Fm2Error('file not found: log.csv'))
    """
    return Fm2Error("".join([f"{what}: " if what else "", f"{kind} not found: {path}", way_out and f"; {way_out}"]))


def cannot_read(what: str, path: object, error: OSError, way_out: str = "") -> Fm2Error:
    """Return the error for a file that cannot be read: because it is missing, or for another reason.

    >>> cannot_read("schema", "s.toml", PermissionError(13, "Permission denied"))
    Fm2Error('schema: s.toml: Permission denied')
    """
    if isinstance(error, FileNotFoundError):
        return not_found(what, path, way_out)
    reason = f"{path}: {error.strerror or error}"
    return Fm2Error("".join([f"{what}: " if what else "", reason, way_out and f"; {way_out}"]))


def is_panic(error: BaseException) -> bool:
    """Return whether polars, or another library written in Rust, panicked; this is not an Exception."""
    return type(error).__name__ == "PanicException"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether Python or torch could not allocate memory; torch raises a RuntimeError."""
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)


def reason_of(error: Exception) -> str:
    """Return why something failed, in one line: the message, after the kind of an error that is not fm2's own.

    >>> reason_of(Fm2Error("train: no rows")), reason_of(KeyError("rows"))
    ('train: no rows', "KeyError: 'rows'")
    """
    return printable(str(error) if isinstance(error, Fm2Error) else f"{type(error).__name__}: {error}")


def printable(text: str) -> str:
    """Return a text with all characters escaped that would disturb a terminal or a file of lines.

    >>> printable("two\\nlines")
    'two\\\\nlines'
    """
    decoded = text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in decoded)


def suggest(name: str, names: Iterable[str], used: Collection[str] = ()) -> str:
    """Suggest the closest of the valid names, or list them. Names that are already ``used`` are not suggested.

    >>> suggest("epoch", ["epochs", "seed"])
    "did you mean 'epochs'?"
    >>> suggest("x", ["epochs", "seed"])
    'choose from epochs, seed'
    >>> suggest("site_di", ["site", "site_id"], used=["site_id"])
    "did you mean 'site'?"
    """
    valid = list(names)
    valid = [each for each in valid if each not in used] or valid
    meant = closest(name, valid)
    return f"choose from {', '.join(valid)}" if meant is None else f"did you mean '{meant}'?"


def closest(name: str, names: Iterable[str], least: float = 0.6) -> str | None:
    """Return the name that a misspelled one probably stands for, or None if none is similar. Case does not matter.

    Names with a difflib ratio of ``least`` are similar, and so are names with the same letters. Of these, the one with
    the fewest typing errors is the closest.

    Initials stand for the words that begin with them.

    >>> closest("stie", ["time", "site"]), closest("da", ["time", "ad"]), closest("USER", ["user"]), closest("x", ["y"])
    ('site', 'ad', 'user', None)
    >>> closest("--lr", ["--l2", "--learning-rate"])
    '--learning-rate'
    """
    word = name.casefold()
    spellings: dict[str, str] = {}
    for each in names:
        spellings.setdefault(each.casefold(), each)
    for each in spellings:
        if len(word) > 1 and _initials(each) == word.strip("-"):
            return spellings[each]
    similar = difflib.get_close_matches(word, spellings, n=5, cutoff=least)
    similar += [each for each in spellings if len(each) == len(word) and sorted(each) == sorted(word)]
    return spellings[min(similar, key=lambda each: _typing_errors(word, each))] if similar else None


def _initials(name: str) -> str:
    return "".join(part[0] for part in re.split(r"[-_ ]", name) if part)


def _typing_errors(word: str, other: str) -> int:
    """Count the letters to insert, delete, replace or swap with the next one (the optimal string alignment distance).

    >>> _typing_errors("stie", "site"), _typing_errors("stie", "time"), _typing_errors("usr", "user")
    (1, 2, 1)
    """
    before, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for i, letter in enumerate(word):
        earlier, before, row = before, row, [i + 1]
        for j, compared in enumerate(other):
            errors = min(before[j] + (letter != compared), before[j + 1] + 1, row[j] + 1)
            if i and j and (letter, word[i - 1]) == (other[j - 1], compared):
                errors = min(errors, earlier[j - 1] + 1)
            row.append(errors)
    return row[-1]


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import a module of an optional package, or raise an error that names the extra, or the package, to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing_package(error, extra, purpose) from error


def missing_package(error: ImportError, extra: str, purpose: str) -> Fm2Error:
    """Return an error that names the extra, or if that is empty, the package to install."""
    names: list[str | None] = []
    cause: BaseException | None = error
    while cause is not None and len(names) < 10:
        names.append(getattr(cause, "name", None))
        cause = cause.__cause__
    package = next((name for name in names if name), str(error)).partition(".")[0]
    install = install_command(extra) if extra else f"with: pip install {package}"
    return Fm2Error(f"{purpose} requires the package '{package}'; install it {install}")


def install_command(extra: str) -> str:
    """Return how to install the packages of an extra.

    >>> install_command("trees")
    "in a clone of fm2 with: pip install -c constraints.txt '.[trees]'"
    """
    return f"in a clone of fm2 with: pip install -c constraints.txt '.[{extra}]'"
