"""What is a URL, what messages show of it, and what happens without a driver."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.helpers.processes import run_python

import fm2
from fm2 import Fm2Error
from fm2.errors import name_locations
from fm2.remote.urls import is_remote, retry


def test_paths_and_urls():
    assert all(map(is_remote, ["s3://bucket/a", "gs://b/a", "hdfs://host:8020/a", "HTTPS://host/a", "memory://a"]))
    assert not any(map(is_remote, ["a/b", "/a://b", "file:///a", "C:/a", Path("a"), '{"url": "s3://b"}', None, 3]))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/logs/*.tsv", "s3://bucket/logs/*.tsv"),
        ("s3://bucket/log?.tsv", "s3://bucket/log?.tsv"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("s3://KEY:SECRET@bucket/a", "s3://***@bucket/a"),
        ("https://token@host/a", "https://***@host/a"),
        ("https://host/a?X-Amz-Signature=SECRET&b=1", "https://host/a?***"),
    ],
)
def test_messages_show_no_secrets(url, shown):
    assert name_locations(f"cannot read '{url}': not found") == f"cannot read '{shown}': not found"
    assert str(Fm2Error(f"{url}: not found")) == f"{shown}: not found"


def test_an_unknown_scheme_gets_a_suggestion():
    with pytest.raises(Fm2Error, match=r"htp://host/a: unknown scheme 'htp'; did you mean 'http'\?"):
        fm2.load("htp://host/a")


def test_a_missing_driver_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(Fm2Error, match=r"gs:// access requires the package 'gcsfs'; .* pip install gcsfs"):
        fm2.Dataset.open("gs://bucket/data")
    with pytest.raises(Fm2Error, match="requires the package 'gcsfs'"):
        fm2.prepare("gs://bucket/log.tsv", "criteo", "data")
    with pytest.raises(Fm2Error, match="requires the package 'gcsfs'"):  # before any work
        fm2.train("lr", "missing", "gs://bucket/run")


def test_a_missing_fsspec_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(Fm2Error, match=r"requires the package 'fsspec'; install it in a clone .* '\.\[remote\]'"):
        fm2.load("s3://bucket/model.fm2")


def test_paths_import_nothing_of_it(tmp_path):
    done = run_python(
        "import sys, fm2\n"
        "from fm2.cli.main import main\n"
        f"fm2.generate({str(tmp_path / 'log.tsv')!r}, 500, features=200)\n"
        f"assert main(['prepare', {str(tmp_path / 'log.tsv')!r}, '--preset', 'criteo', '--out', "
        f"{str(tmp_path / 'data')!r}]) == 0\n"
        "assert not {'fsspec', 's3fs', 'aiohttp', 'fm2.remote.cache', 'fm2.remote.outputs'} & set(sys.modules)"
    )
    assert done.returncode == 0, done.stderr


def test_a_url_that_became_a_path_is_explained():
    with pytest.raises(Fm2Error, match="pass URLs as strings"):
        fm2.Dataset.open(Path("s3://bucket/data"))


def test_local_urls_are_paths(tmp_path):
    fm2.generate(f"file://{tmp_path}/log.tsv", 500, features=200)
    data = fm2.prepare(f"file://{tmp_path}/log.tsv", "criteo", f"file://{tmp_path}/data")
    assert data.path == tmp_path / "data"
    assert len(fm2.Dataset.open(f"file://{tmp_path}/data").test)


def test_retries_are_bounded_and_reported():
    attempts = []

    def fail() -> None:
        attempts.append(1)
        raise ConnectionResetError

    with (
        pytest.warns(fm2.Fm2Warning, match=r"cannot read x: the connection was lost; attempt \d of 5 in"),
        pytest.raises(Fm2Error, match=r"cannot read x: the connection was lost \(5 attempts\)"),
    ):
        retry("cannot read x", fail)
    assert len(attempts) == 5


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError("Access Denied"), "permission denied; check the credentials"),
        (FileNotFoundError("bucket/key"), "not found"),
        (ValueError("invalid bucket name"), "invalid bucket name"),
    ],
)
def test_other_errors_are_not_repeated(error, reason):
    attempts = []

    def fail() -> None:
        attempts.append(1)
        raise error

    with pytest.raises(Fm2Error, match=f"cannot read x: {reason}"):
        retry("cannot read x", fail)
    assert len(attempts) == 1


def test_a_password_may_contain_an_at_sign():
    assert str(Fm2Error("cannot read https://me:pa@ss@host/a@b.tsv: not found")) == (
        "cannot read https://***@host/a@b.tsv: not found"
    )
