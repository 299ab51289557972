"""Arguments that are URLs: commands get local paths instead, and print the URLs."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from fm2.cli import shared
from fm2.cli.command import Command
from fm2.cli.workers import is_worker
from fm2.errors import Fm2Error, name_locations
from fm2.remote.urls import is_url


@contextlib.contextmanager
def local_arguments(command: Command, options: argparse.Namespace) -> Iterator[None]:
    """Replace URLs among the parsed arguments by the paths of local copies, and upload outputs at the end."""
    given = [(each, getattr(options, each.attribute)) for each in command.arguments() if each.location]
    locations = [(argument, value) for argument, value in given if any(map(is_url, _listed(value)))]
    if not locations:
        yield
        return

    from fm2.remote.outputs import output
    from fm2.remote.paths import local_path

    resume = bool(getattr(options, "resume", False))
    with contextlib.redirect_stdout(_NamingUrls(sys.stdout)), contextlib.ExitStack() as stack:
        for argument, value in locations:
            if argument.location == "read":
                paths = [str(local_path(each, report=shared.warn)) for each in _listed(value)]
                local: Any = paths if isinstance(value, list) else paths[0]
            else:
                if is_worker():
                    raise Fm2Error(
                        f"{command.name}: cannot write to {value}: workers write to one directory; use a path on a "
                        "file system that they share"
                    )
                update = argument.location == "update"
                local = str(stack.enter_context(output(value, resume=resume, update=update, report=shared.warn)))
            setattr(options, argument.attribute, local)
            for url, path in zip(_listed(value), _listed(local), strict=True):  # for workers that this process starts
                options.words = [path if word == url else word.replace(f"={url}", f"={path}") for word in options.words]
        yield


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


class _NamingUrls:
    """A text stream that names URLs instead of the paths of their local copies."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text with URLs."""
        self._stream.write(name_locations(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
