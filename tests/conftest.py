"""Fixtures that several rooms share: real data, if available, and small logs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.planted import SCHEMA, planted

from fm2 import Dataset, prepare


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the directory of criteo.tsv.gz and avazu.csv.gz, or skip the test with a reason."""
    directory = os.environ.get("FM2_DATA")
    if not directory:
        pytest.skip("real data: set FM2_DATA to the directory of criteo.tsv.gz and avazu.csv.gz")
    return Path(directory)


@pytest.fixture(scope="session", autouse=True)
def _no_cache_at_home(tmp_path_factory) -> Iterator[None]:
    """Keep local copies of remote files out of the home directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FM2_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def write(tmp_path: Path):
    """Return a function that writes a file with this name and content, and returns its path."""

    def write_file(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


@pytest.fixture(scope="session")
def dataset(tmp_path_factory) -> Dataset:
    """Return a prepared dataset of planted rows, for tests that only read it."""
    return prepare(planted(4000), SCHEMA, tmp_path_factory.mktemp("planted") / "data")
