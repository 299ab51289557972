"""The whole pipeline on an S3 server that runs on loopback."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import polars as pl
import pytest
import zstandard
from moto.server import ThreadedMotoServer

import fm2
from fm2 import Fm2Error
from fm2.cli.main import main
from fm2.remote import streams
from fm2.remote.trees import list_tree
from fm2.schema import Schema


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """Start an S3 server and return a client of it, with the bucket ``logs``."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            patch.setenv(name, value)
        fs = fsspec.filesystem("s3")
        fs.mkdir("logs")
        yield fs
        fs.clear_instance_cache()
    server.stop()


@pytest.fixture(scope="module")
def log(s3, tmp_path_factory) -> Path:
    """Return a log that is also at s3://logs/log.tsv, whole and in other forms."""
    log = fm2.generate(tmp_path_factory.mktemp("log") / "log.tsv", 3000, features=400).path
    rows = log.read_bytes()
    lines = rows.splitlines(keepends=True)
    names = Schema.preset("criteo").columns
    columns = pl.read_csv(log, separator="\t", has_header=False, new_columns=list(names), infer_schema_length=None)
    columns.write_parquet(log.with_name("log.parquet"), row_group_size=700)
    s3.pipe(
        {
            "logs/log.tsv": rows,
            "logs/packed/log.tsv.gz": gzip.compress(rows),
            "logs/packed/log.tsv.zst": zstandard.compress(rows),
            "logs/packed/log.parquet": log.with_name("log.parquet").read_bytes(),
            "logs/parts/1.tsv": b"".join(lines[:1000]),
            "logs/parts/2.tsv.gz": gzip.compress(b"".join(lines[1000:])),
        }
    )
    return log


@pytest.mark.parametrize("name", ["log.tsv", "packed/log.tsv.gz", "packed/log.tsv.zst", "parts/*.tsv*"])
def test_a_streamed_log_gives_the_same_dataset(s3, log, tmp_path, cache, name):
    local = fm2.prepare(log, "criteo", tmp_path / "local")
    remote = fm2.prepare(f"s3://logs/{name}", "criteo", tmp_path / "remote")
    for file in local.manifest["files"]:
        assert (local.path / file).read_bytes() == (remote.path / file).read_bytes(), file
    assert {**local.manifest, "sources": None} == {**remote.manifest, "sources": None}
    assert remote.manifest["sources"][0]["name"].startswith("s3://logs/")
    assert not cache.exists()  # nothing was downloaded


def test_remote_parquet_is_read_in_batches_like_a_local_file(s3, log, tmp_path, monkeypatch, cache):
    requests: list[int] = []
    read = streams.RemoteStream.readinto

    def spy(self: Any, buffer: Any) -> int:
        count = read(self, buffer)
        requests.append(count)
        return count

    local = fm2.prepare(log.with_name("log.parquet"), "criteo", tmp_path / "local")
    monkeypatch.setattr(streams.RemoteStream, "readinto", spy)
    remote = fm2.prepare("s3://logs/packed/log.parquet", "criteo", tmp_path / "remote")
    assert {**local.manifest, "sources": None} == {**remote.manifest, "sources": None}
    assert sum(requests) and not cache.exists()
    inferred = [
        fm2.Schema.infer(name, "label") for name in (str(log.with_suffix(".parquet")), "s3://logs/packed/*.pa*")
    ]
    assert inferred[0] == inferred[1]


def test_requests_are_bounded(s3, monkeypatch):
    content = np.random.default_rng(0).bytes(3 << 20)
    s3.pipe_file("logs/large", content)
    monkeypatch.setattr(streams, "FIRST_BYTES", 1 << 16)
    monkeypatch.setattr(streams, "BLOCK_BYTES", 1 << 18)
    (file,) = streams.find_remote_files("s3://logs/large")
    raw = streams.RemoteStream(file)
    sizes = []
    while data := raw.read(1 << 30):
        sizes.append(len(data))
    assert sizes[0] == 1 << 16
    assert max(sizes) == 1 << 18
    assert sum(sizes) == len(content)
    raw.seek(-5, 2)
    assert raw.read(100) == content[-5:]
    assert file.described_again() == file == list_tree("s3://logs/large")[""]


def test_the_pipeline_from_s3_to_s3(s3, log, tmp_path, capsys):
    training = ["--epochs", "1", "--threads", "1"]
    for command in (
        ["prepare", "s3://logs/log.tsv", "--preset", "criteo", "--out", "s3://logs/data"],
        ["train", "fm", "s3://logs/data", "--out", "s3://logs/run", "--dim", "4", *training],
        ["calibrate", "s3://logs/run", "s3://logs/data"],
        ["compile", "s3://logs/run", "--out", "s3://logs/model.fm2", "--json"],
        ["predict", "s3://logs/model.fm2", "s3://logs/parts/*.tsv*", "--out", "s3://logs/p.csv", "--keep", "C1"],
        ["evaluate", "s3://logs/model.fm2", "s3://logs/data", "--threads", "1"],
        ["verify", "s3://logs/data"],
    ):
        assert main(command) == 0, command
    printed = capsys.readouterr()
    assert "fm in s3://logs/run, validation:" in printed.out
    assert '"path": "s3://logs/model.fm2"' in printed.out
    assert "wrote 3,000 probabilities to s3://logs/p.csv" in printed.out
    assert "uploaded" in printed.err

    data = fm2.prepare(log, "criteo", tmp_path / "data")
    run = fm2.train("fm", data, tmp_path / "run", dim=4, epochs=1, threads=1)
    fm2.calibrate(run, data)
    assert fm2.Run.open("s3://logs/run").metrics == run.metrics
    rows = data.test.encoded
    np.testing.assert_allclose(fm2.load("s3://logs/model.fm2").probabilities(rows), run.probabilities(rows), atol=1e-6)
    fm2.compile(tmp_path / "run", tmp_path / "model.fm2")
    fm2.predict_files(fm2.load(tmp_path / "model.fm2"), log, tmp_path / "p.csv", keep=["C1"])
    assert s3.cat_file("logs/p.csv") == (tmp_path / "p.csv").read_bytes()
    assert not [name for name in s3.find("logs") if "partial" in name or "upload" in name]


def test_what_is_not_there(s3, tmp_path):
    with pytest.raises(Fm2Error, match=r"cannot read s3://logs/lost\.tsv: not found"):
        fm2.prepare("s3://logs/lost.tsv", "criteo", tmp_path / "data")
    with pytest.raises(Fm2Error, match=r"no file matches the pattern 's3://logs/lost\*\.tsv'"):
        fm2.prepare("s3://logs/lost*.tsv", "criteo", tmp_path / "data")
    with pytest.raises(Fm2Error, match=r"s3://logs/parts is a directory; pass its files"):
        fm2.prepare("s3://logs/parts", "criteo", tmp_path / "data")
    with pytest.raises(Fm2Error, match=r"s3://lost-bucket/run: not found \(The specified bucket does not exist\)"):
        fm2.prepare("s3://logs/log.tsv", "criteo", "s3://lost-bucket/run")


def test_keys_that_would_leave_the_cache_are_refused(s3, cache):
    s3.pipe({"logs/evil/manifest.json": b"{}", "logs/evil/../../../evil": b"1"})
    with pytest.raises(Fm2Error, match=r"s3://logs/evil: unsafe file name '\.\./\.\./\.\./evil'"):
        fm2.Dataset.open("s3://logs/evil")
    assert not list(cache.parent.rglob("evil"))
