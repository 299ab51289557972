"""API keys: a file with a right, a name and a key (or its SHA-256) per line; compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fm2.errors import Fm2Error
from fm2.serving.refusals import Refused

RIGHTS = ("predict", "manage")  # managing includes predicting
SHORTEST = 16


class Key(NamedTuple):
    """A key: its right and its SHA-256. The key itself is not kept."""

    right: str
    name: str
    digest: bytes


def read_keys(path: Path) -> list[Key]:
    """Read lines of ``RIGHT NAME KEY``; RIGHT is predict or manage, and KEY may be ``sha256:`` and 64 hex digits."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Fm2Error(f"serve: cannot read the keys in {path}: {error}") from error
    keys = [
        _read_key(line.split(), f"serve: {path} line {number}") for number, line in enumerate(lines, 1) if _is_key(line)
    ]
    if not keys:
        raise Fm2Error(f"serve: {path} has no keys; a line has a right (predict or manage), a name and a key")
    return keys


def _is_key(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _read_key(words: Sequence[str], place: str) -> Key:
    if len(words) != 3 or words[0] not in RIGHTS:
        raise Fm2Error(f"{place}: expected a right (predict or manage), a name and a key, separated by spaces")
    right, name, key = words
    if key.startswith("sha256:"):
        if not re.fullmatch("sha256:[0-9a-f]{64}", key):
            raise Fm2Error(f"{place}: expected 64 lowercase hexadecimal digits after sha256:")
        return Key(right, name, bytes.fromhex(key[7:]))
    if len(key) < SHORTEST:
        raise Fm2Error(f"{place}: the key has fewer than {SHORTEST} characters; try: openssl rand -hex 32")
    return Key(right, name, hashlib.sha256(key.encode()).digest())


def find_right(keys: Sequence[Key], authorization: str | None) -> str | None:
    """Return the right of the key in an Authorization header, or None. All keys are compared, each in constant time."""
    if authorization is None or authorization[:7].lower() != "bearer ":
        return None
    digest = hashlib.sha256(authorization[7:].encode("utf-8", "replace")).digest()
    found = None
    for key in keys:
        if hmac.compare_digest(key.digest, digest):
            found = key.right
    return found


def authorize(keys: Sequence[Key], headers: Any, right: str) -> None:
    """Refuse a request without a key that has the right."""
    found = find_right(keys, headers.get("authorization"))
    if found is None:
        message = "a valid API key is required in the header Authorization: Bearer KEY"
        raise Refused(401, message, "unauthorized", [("www-authenticate", "Bearer")])
    if right == "manage" and found != "manage":
        raise Refused(403, "this API key may predict, but not manage models", "forbidden")
