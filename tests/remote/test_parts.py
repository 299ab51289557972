"""Tasks of a parallel prepare open remote files themselves."""

from __future__ import annotations

import fsspec
from tests.data.test_parts import VARIANTS, log
from tests.helpers.parts import check_same_dataset, open_parts_engine

import fm2
from fm2.data import prepare as prepare_module


def test_the_files_of_a_remote_log_are_prepared_in_parts(tmp_path, memory, monkeypatch):
    frame = log(300)
    for file, begin in enumerate((0, 50, 200)):
        part = frame[begin : (50, 200, 300)[file]]
        with fsspec.open(f"memory://logs/{file}.csv", "wb") as remote:
            remote.write(part.write_csv().encode())
    one = fm2.prepare("memory://logs/*.csv", VARIANTS["sampled"][0], tmp_path / "one")
    monkeypatch.setattr(prepare_module, "open_engine", open_parts_engine)
    parts = fm2.prepare("memory://logs/*.csv", VARIANTS["sampled"][0], "memory://bucket/data")
    check_same_dataset(one, parts, 3)
    check_same_dataset(one, fm2.Dataset.open("memory://bucket/data"), 3)
