"""Logs are read from a server that loses connections, lies or refuses."""

from __future__ import annotations

import gzip

import pytest
from tests.helpers.web_server import Site, serve

import fm2
from fm2 import Fm2Error
from fm2.data.sources import find_files
from fm2.remote.streams import RemoteFile

CONTENT = b"".join(b"%d,%d\n" % (number, number * number) for number in range(200_000))  # 3 MB


def find(url: str) -> RemoteFile:
    (file,) = find_files(url)
    assert isinstance(file, RemoteFile)
    return file


def read(url: str) -> bytes:
    with find(url).open() as stream:
        return stream.read()


@pytest.mark.parametrize("ranges", [True, False])
def test_a_lost_connection_continues_where_it_was_lost(ranges):
    with serve(Site({"log.csv": CONTENT}, drop_after=1_200_000, drops=2, ranges=ranges)) as site:
        with pytest.warns(fm2.Fm2Warning, match=r"log.csv: the connection was lost; attempt \d of 5"):
            assert read(f"{site.url}/log.csv") == CONTENT
        assert site.drops == 0
        assert any("bytes=" in request for request in site.requests)  # it asked for the rest only


def test_a_server_that_always_loses_the_connection_is_given_up():
    with serve(Site({"log.csv": CONTENT}, drop_after=1000, drops=1000)) as site:
        with pytest.warns(fm2.Fm2Warning), pytest.raises(Fm2Error, match=r"log.csv: .* \(5 attempts\)"):
            read(f"{site.url}/log.csv")
        assert len(site.requests) < 20


@pytest.mark.parametrize("announced", [len(CONTENT) + 10, len(CONTENT) - 10])
def test_a_server_that_lies_about_the_size(announced):
    with (
        serve(Site({"log.csv": CONTENT}, announced=announced)) as site,
        pytest.raises(Fm2Error, match=r"cannot read .*/log.csv: the server reports different sizes"),
    ):
        read(f"{site.url}/log.csv")


def test_a_file_that_changes_while_it_is_read():
    with (
        serve(Site({"log.csv": CONTENT}, drop_after=1_200_000, drops=1)) as site,
        pytest.warns(fm2.Fm2Warning),
        find(f"{site.url}/log.csv").open() as stream,
    ):
        stream.read(10)
        site.files["log.csv"] = CONTENT[::-1]
        with pytest.raises(Fm2Error, match="it was replaced while it was read"):
            stream.read()


@pytest.mark.parametrize(
    ("status", "reason"), [(403, "permission denied"), (404, "not found"), (400, "the server answered 400")]
)
def test_errors_that_stay(status, reason):
    with serve(Site({}, status=[status] * 20)) as site:
        with pytest.raises(Fm2Error, match=f"cannot read {site.url}/log.csv: {reason}"):
            fm2.prepare(f"{site.url}/log.csv", "criteo", "data")
        assert len(site.requests) <= 2


def test_a_busy_server_is_asked_again():
    with (
        serve(Site({"log.csv": b"a,b\n1,2\n"}, status=[503, 503, 429, 429])) as site,
        pytest.warns(fm2.Fm2Warning, match="the server answered (503|429)"),
    ):
        assert read(f"{site.url}/log.csv") == b"a,b\n1,2\n"


def test_secrets_are_neither_shown_nor_stored(tmp_path):
    fm2.generate(tmp_path / "log.tsv", 500, features=200)
    content = (tmp_path / "log.tsv").read_bytes()
    with serve(Site({"log.tsv": content})) as site:
        url = site.url.replace("http://", "http://me:SECRET@") + "/log.tsv?signature=SECRET"
        fm2.prepare(url, "criteo", tmp_path / "data")
        with pytest.raises(Fm2Error) as error:
            fm2.prepare(url.replace("log.tsv", "lost.tsv"), "criteo", tmp_path / "other")
    stored = (tmp_path / "data" / "manifest.json").read_text()
    assert "SECRET" not in stored + str(error.value) + str(error.value.__cause__)
    assert "/log.tsv?***" in stored


def test_a_compressed_log_survives_lost_connections(tmp_path):
    log = fm2.generate(tmp_path / "log.tsv", 3000, features=500)
    local = fm2.prepare(log.path, "criteo", tmp_path / "local")
    packed = gzip.compress(log.path.read_bytes())
    with (
        serve(Site({"log.tsv.gz": packed}, drop_after=len(packed) // 2, drops=3)) as site,
        pytest.warns(fm2.Fm2Warning, match="attempt"),
    ):
        remote = fm2.prepare(f"{site.url}/log.tsv.gz", "criteo", tmp_path / "remote")
    assert {**local.manifest, "sources": None} == {**remote.manifest, "sources": None}  # with all checksums
