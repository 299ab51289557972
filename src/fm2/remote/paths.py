"""Paths that may be URLs: what is read becomes a local path, and what is written is uploaded.

Without a URL, this module imports nothing else; importing fm2 stays fast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from fm2.remote.urls import as_path, is_remote

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Report = Callable[[str], None]


def local_path(location: str | Path, report: Report = lambda message: None) -> Path:
    """Return a path as it is, or download what a URL refers to, unless an up-to-date copy exists, and return its path.

    >>> local_path("data")
    PosixPath('data')
    """
    if not is_remote(location):
        return as_path(location)

    from fm2.remote.cache import download_copy

    return download_copy(location, report)


def writes(
    name: str, *, update: bool = False
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Let a function write the output that its parameter ``name`` refers to, a path, to a URL as well."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            if not any(isinstance(value, str) and "://" in value for value in (*args, *kwargs.values())):
                return function(*args, **kwargs)
            import inspect

            from fm2.remote.outputs import output

            bound = inspect.signature(function).bind(*args, **kwargs)
            location = bound.arguments.get(name)
            if not isinstance(location, str):
                return function(*args, **kwargs)
            with output(location, resume=bool(bound.arguments.get("resume")), update=update) as path:
                bound.arguments[name] = path
                return function(*bound.args, **bound.kwargs)

        return call

    return decorate
