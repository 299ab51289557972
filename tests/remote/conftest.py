"""Fixtures of remote storage: an empty cache, short waits, and fsspec's file system in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from fm2.remote import urls


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch) -> Path:
    """Use a new cache, and wait only briefly after errors."""
    monkeypatch.setenv("FM2_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(urls, "FIRST_WAIT", 0.001)
    return tmp_path / "cache"


@pytest.fixture
def memory() -> Iterator[Any]:
    """Return an empty file system, memory://."""
    fs = fsspec.filesystem("memory")
    _clear(fs)
    yield fs
    _clear(fs)


def _clear(fs: Any) -> None:
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
