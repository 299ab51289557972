"""Logs with thousands of columns: the work grows with their number, not with its square."""

from __future__ import annotations

import sys

import numpy as np
import polars as pl
import pytest

from fm2 import Field, Fm2Error, Schema, prepare
from fm2.data.text_files import CHUNK_BYTES
from fm2.training import construction
from fm2.training.run import Run
from fm2.training.train import train


def count_calls(function) -> int:
    """Return how many Python functions a call executes, which unlike its time does not depend on the machine."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def wide_log(columns: int) -> tuple[pl.DataFrame, Schema]:
    random = np.random.default_rng(0)
    values = {f"c{index}": random.integers(0, 3, 30).astype(str) for index in range(columns)}
    log = pl.DataFrame({"y": [0, 1] * 15, **values})
    return log, Schema([Field(name, min_count=1) for name in values], label="y")


def test_preparing_and_training_are_linear_in_the_columns(tmp_path):
    def work(columns):
        log, schema = wide_log(columns)
        log.write_csv(tmp_path / f"{columns}.csv")
        out = tmp_path / f"data{columns}"
        dataset = prepare(tmp_path / f"{columns}.csv", schema, out, fractions=(0.5, 0.25, 0.25), threads=1)
        run = train("lr", dataset, tmp_path / f"run{columns}", threads=1, epochs=1)
        Run.open(run.path).predict(log.head(2))

    work(2)  # imports modules
    narrow, wide = (count_calls(lambda columns=columns: work(columns)) for columns in (60, 240))
    assert wide < 5 * narrow


def test_a_model_of_pairs_refuses_many_fields(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(construction, "MOST_FIELDS", 3)
    message = (
        r"^train: fmfm takes at most 3 fields, because its cost grows with their square, got 4; lr, fm, .* take more$"
    )
    with pytest.raises(Fm2Error, match=message):
        train("fmfm", dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    train("fm", dataset, tmp_path / "run", threads=1, epochs=1)


def test_a_header_may_be_longer_than_the_sample(write):
    log = write("log.csv", f"y,{'x' * (1 << 20)}\n1,a\n0,b\n")
    assert [len(field.name) for field in Schema.infer(log, "y").fields] == [1 << 20]


def test_a_long_line_is_not_parsed_before_it_is_complete(tmp_path, monkeypatch):
    sizes = []
    from fm2.data import log_reader

    def record(source, operation, original=log_reader.read_chunks):
        for chunk in original(source, operation):
            sizes.append(len(chunk.text))
            yield chunk

    monkeypatch.setattr(log_reader, "read_chunks", record)
    monkeypatch.setattr("fm2.data.text_files.LONGEST_LINE", 2 * CHUNK_BYTES)
    log = tmp_path / "log.csv"
    log.write_bytes(b"y,a\n1,x\n0,y\n1," + b"z" * (3 * CHUNK_BYTES))
    with pytest.raises(Fm2Error, match=r"log.csv line 4 is longer than 8 MB; is this a text file\?$"):
        prepare(log, Schema([Field("a")], label="y"), tmp_path / "data")
    assert sizes == [CHUNK_BYTES]
