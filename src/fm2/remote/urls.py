"""URLs: recognize them, open their file system, and retry after transient errors."""

from __future__ import annotations

import errno
import itertools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from fm2.errors import Fm2Error, missing_package, name_locations, require, suggest, warn

SCHEMES = ("s3", "gs", "hdfs", "http", "https", "abfs", "ftp", "sftp", "memory", "file")
OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss")  # an upload appears when it is complete
READ_ONLY = ("http", "https")
URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
COLLAPSED = re.compile(rf"({'|'.join(SCHEMES)}):/[^/]")  # str(Path("s3://bucket"))

ATTEMPTS = 5
FIRST_WAIT, LONGEST_WAIT = 0.5, 8.0  # seconds
PERMANENT = (errno.EINVAL, errno.EPERM, errno.ENAMETOOLONG, errno.EMSGSIZE, errno.ENOTEMPTY, errno.EROFS, errno.ENOSPC)
# Exceptions of drivers that are not OSErrors; the classes cannot be imported without the drivers.
TRANSIENT = {"HTTPClientError", "ClientConnectionError", "ClientPayloadError", "RequestException", "FSTimeoutError"}
LOST = ("ClientPayloadError", "ServerDisconnectedError", "ConnectionResetError", "IncompleteRead")
TRANSIENT_STATUS = (408, 425, 429)
Result = TypeVar("Result")


def is_remote(location: object) -> TypeGuard[str]:
    """Return whether a location is a URL, other than of a local file (``file://``).

    >>> is_remote("s3://bucket/log.tsv"), is_remote("file:///log.tsv"), is_remote("log.tsv")
    (True, False, False)
    """
    return is_url(location) and scheme_of(location) != "file"


def is_url(location: object) -> TypeGuard[str]:
    """Return whether a location is a URL of any kind."""
    return isinstance(location, str) and URL.match(location) is not None


def scheme_of(url: str) -> str:
    """Return the scheme of a URL, in lower case."""
    return url.partition("://")[0].lower()


def as_path(location: str | Path) -> Path:
    """Return the path of a local file, which may be given as ``file://...``.

    >>> as_path("file:///tmp/log.tsv")
    PosixPath('/tmp/log.tsv')
    """
    if isinstance(location, str):
        return Path(location[len("file://") :] if location.lower().startswith("file://") else location)
    if COLLAPSED.match(str(location)) and not location.exists():
        raise Fm2Error(f"{location} was a URL before it became a Path; pass URLs as strings")
    return location


def filesystem(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the URL's path in it."""
    scheme = scheme_of(url)
    fsspec = require("fsspec", "remote", f"{scheme}:// access")
    if scheme not in fsspec.available_protocols():
        raise Fm2Error(f"{url}: unknown scheme '{scheme}'; {suggest(scheme, SCHEMES)}")
    try:
        opened: tuple[Any, str] = fsspec.core.url_to_fs(scheme + url[len(scheme) :])
    except ImportError as error:
        raise missing_package(error, "", f"{scheme}:// access") from error
    return opened


class Retries:
    """What happens after a failed access to a URL: a transient error is reported, and the next attempt waits longer.

    Other errors, and the last of several failures in a row, raise an error that begins with ``doing``.
    """

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._failures = 0

    def failed(self, error: Exception) -> None:
        """Report a failure and wait, or raise an error."""
        if isinstance(error, Fm2Error):
            raise error
        reason, transient = explain(error)
        self._failures += 1
        if not transient or self._failures >= ATTEMPTS:
            attempts = f" ({self._failures} attempts)" if transient else ""
            message = f"{self._doing}: {reason}{attempts}"
            # The cause may contain a URL with a password, which a traceback would show.
            raise Fm2Error(message) from (None if name_locations(str(error)) != str(error) else error)
        seconds = min(FIRST_WAIT * 2 ** (self._failures - 1), LONGEST_WAIT)
        warn(f"{self._doing}: {reason}; attempt {self._failures + 1} of {ATTEMPTS} in {seconds:g} s")
        time.sleep(seconds)

    def succeeded(self) -> None:
        """Forget earlier failures."""
        self._failures = 0


def retry(doing: str, action: Callable[[], Result]) -> Result:
    """Return the result of an action; repeat it after transient errors, see :class:`Retries`."""
    retries = Retries(doing)
    while True:
        try:
            return action()
        except Exception as error:
            retries.failed(error)


def explain(error: Exception) -> tuple[str, bool]:
    """Return the reason of an error in one line, and whether another attempt may succeed."""
    causes = list(_causes(error))  # fsspec's HTTP file system raises FileNotFoundError for every problem
    status = next((value for each in causes if (value := _status(each)) is not None), None)
    if status in (401, 403) or isinstance(error, PermissionError):
        return "permission denied; check the credentials", False
    if status == 404:
        return "not found", False
    if status is not None:
        return f"the server answered {status}", status >= 500 or status in TRANSIENT_STATUS
    if isinstance(error, FileNotFoundError):
        error = next((each for each in causes[1:] if isinstance(each, Exception) and _is_transient(each)), error)
    if isinstance(error, FileNotFoundError):
        text = _one_line(error)
        return f"not found ({text})" if " " in text else "not found", False  # a sentence, or the path again
    if type(error).__name__ == "NoCredentialsError":
        return "no credentials were found", False
    return "the connection was lost" if type(error).__name__ in LOST else _one_line(error), _is_transient(error)


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of an error of aiohttp or gcsfs."""
    status = getattr(error, "code" if type(error).__name__ == "HttpError" else "status", None)
    return status if isinstance(status, int) else None


def _is_transient(error: Exception) -> bool:
    if isinstance(error, OSError):
        return not isinstance(error, FileNotFoundError | PermissionError) and error.errno not in PERMANENT
    return isinstance(error, EOFError) or any(kind.__name__ in TRANSIENT for kind in type(error).__mro__)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it."""
    for _ in itertools.repeat(None, 10):  # causes may form a circle
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text[:200] or type(error).__name__
