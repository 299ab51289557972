"""Outputs at URLs appear when they are complete, and follow the same rules as paths."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import fm2
from fm2 import Fm2Error
from fm2.cli.main import main
from fm2.remote.outputs import output
from fm2.remote.trees import UPLOADING


@pytest.fixture
def log(memory, tmp_path) -> str:
    """Return the URL of a log."""
    fm2.generate(tmp_path / "log.tsv", 2000, features=300)
    memory.put_file(str(tmp_path / "log.tsv"), "/b/log.tsv")
    return "memory://b/log.tsv"


def names(memory: Any, folder: str) -> list[str]:
    return sorted(name.removeprefix(f"{folder}/") for name in memory.find(folder))


def test_an_output_is_uploaded_only_if_there_is_no_error(memory):
    with pytest.raises(ZeroDivisionError), output("memory://b/x") as path:
        path.mkdir()
        (path / "a").write_text("1")
        raise ZeroDivisionError
    assert not memory.find("/b")


def test_files_that_an_operation_changed_are_uploaded_and_those_it_removed_are_deleted(memory):
    memory.pipe({"/b/x/kept": b"kept", "/b/x/old": b"old", "/b/x/sub/changed": b"before"})
    with output("memory://b/x") as path:
        assert (path / "kept").stat().st_size == 0  # only names are needed to decide what may be overwritten
        (path / "old").unlink()
        (path / "sub" / "changed").write_text("after")
        (path / "new").write_text("new")
    assert {name: memory.cat_file(f"/b/x/{name}") for name in names(memory, "/b/x")} == {
        "kept": b"kept",
        "new": b"new",
        "sub/changed": b"after",
    }


def test_the_manifest_comes_last_and_a_directory_is_marked_until_then(memory, monkeypatch):
    memory.pipe({"/b/x/manifest.json": b"old", "/b/x/a": b"old"})
    seen: list[tuple[str, list[str]]] = []
    put = type(memory).put_file

    def spy(self: Any, source: str, target: str, *more: Any, **options: Any) -> None:
        seen.append((target, names(memory, "/b/x")))
        put(self, source, target, *more, **options)

    monkeypatch.setattr(type(memory), "put_file", spy)
    with output("memory://b/x") as path:
        for name in ("manifest.json", "a", "b"):
            (path / name).write_text("new")
    assert "manifest.json" in seen[-1][0]
    assert all(UPLOADING in present and "manifest.json" not in present for _, present in seen)
    assert names(memory, "/b/x") == ["a", "b", "manifest.json"]


def test_an_interrupted_upload_leaves_nothing_that_can_be_read(memory, monkeypatch, log):
    put = type(memory).put_file

    def fail(self: Any, source: str, target: str, *more: Any, **options: Any) -> None:
        if "labels" in source:
            raise PermissionError("denied")
        put(self, source, target, *more, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "put_file", fail)
        with pytest.raises(Fm2Error, match=r"cannot write to memory://b/data: permission denied.*; the output is comp"):
            fm2.prepare(log, "criteo", "memory://b/data")
    with pytest.raises(Fm2Error, match="memory://b/data is incomplete"):
        fm2.Dataset.open("memory://b/data")
    fm2.prepare(log, "criteo", "memory://b/data").verify()  # an interrupted output may always be replaced
    assert UPLOADING not in names(memory, "/b/data")
    assert not [name for name in names(memory, "/b") if "partial" in name]


def test_the_rules_for_existing_outputs_are_those_of_paths(memory, log, dataset):
    memory.put(str(dataset.path), "/b/data", recursive=True)
    with pytest.raises(Fm2Error, match="prepare: memory://b/data already exists; use overwrite=True to replace it"):
        fm2.prepare(log, "criteo", "memory://b/data")
    fm2.prepare(log, "criteo", "memory://b/data", overwrite=True)
    assert len(fm2.Dataset.open("memory://b/data").schema.fields) == 39
    with pytest.raises(Fm2Error, match="train: memory://b/data is not a run"):
        fm2.train("lr", dataset, "memory://b/data", overwrite=True)
    with pytest.raises(Fm2Error, match="train: no run to resume in memory://b/run"):
        fm2.train("lr", dataset, "memory://b/run", resume=True)
    with pytest.raises(Fm2Error, match=r"memory://b/log\.tsv already exists and is not an earlier compiled model"):
        fm2.train("lr", dataset, "memory://b/run", epochs=1)
        fm2.compile("memory://b/run", log)
    with pytest.raises(Fm2Error, match="prune: memory://b/run is the source run"):
        fm2.train("fwfm", dataset, "memory://b/run", epochs=1, overwrite=True)
        fm2.prune("memory://b/run", dataset, "memory://b/run", overwrite=True)
    assert memory.cat_file("/b/log.tsv").count(b"\n") == 2000


def test_http_is_read_only(dataset):
    with pytest.raises(Fm2Error, match="cannot write to https://host/run: https is read-only"):
        fm2.train("lr", dataset, "https://host/run")


def test_an_interrupted_training_continues_on_this_machine(memory, dataset, tmp_path):
    settings: Any = {"epochs": 2, "evaluations_per_epoch": 2, "threads": 1, "patience": 10}
    whole = fm2.train("lr", dataset, tmp_path / "whole", **settings)

    def stop(progress: Any) -> None:
        if progress.evaluation:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fm2.train("lr", dataset, "memory://b/run", callback=stop, **settings)
    assert not memory.find("/b")
    with pytest.raises(Fm2Error, match="memory://b/run already exists; use resume=True"):
        fm2.train("lr", dataset, "memory://b/run", **settings)
    run = fm2.train("lr", dataset, "memory://b/run", resume=True)
    assert run.metrics == whole.metrics
    assert "model.safetensors" in names(memory, "/b/run")


def test_a_finished_run_is_continued_from_the_url(memory, dataset, cache):
    fm2.train("lr", dataset, "memory://b/run", epochs=1, threads=1)
    cache.rename(cache.with_name("another machine"))
    fm2.train("lr", dataset, "memory://b/run", resume=True, epochs=2)
    assert [json.loads(line)["epoch"] for line in memory.cat_file("/b/run/history.jsonl").splitlines()][-1] == 2


def test_a_calibration_is_stored_at_the_url_and_removed_with_its_model(memory, dataset):
    fm2.train("lr", dataset, "memory://b/run", epochs=1)
    fm2.calibrate("memory://b/run", dataset)
    assert "calibration.safetensors" in names(memory, "/b/run")
    run = fm2.Run.open("memory://b/run")
    assert run.calibration
    with pytest.raises(Fm2Error, match="calibrate: pass the URL memory://b/run, not the run"):
        fm2.calibrate(run, dataset)
    fm2.train("lr", dataset, "memory://b/run", epochs=1, overwrite=True)
    assert "calibration.safetensors" not in names(memory, "/b/run")


def test_a_new_output_needs_no_download(memory, log, monkeypatch):
    fm2.prepare(log, "criteo", "memory://b/data")
    monkeypatch.setattr("fm2.remote.cache.download", lambda *_: pytest.fail("downloaded"))
    assert fm2.Dataset.open("memory://b/data").verify() is None


def test_a_generated_log_comes_with_its_truth(memory):
    fm2.generate("memory://b/log.tsv.gz", 500, features=200)
    assert names(memory, "/b") == ["log.tsv.gz", "log.tsv.gz.truth.npy"]
    assert gzip.decompress(memory.cat_file("/b/log.tsv.gz")).count(b"\n") == 500
    assert main(["generate", "memory://b/log.tsv.gz", "--rows", "500", "--features", "200"]) == 1
    assert main(["generate", "memory://b/log.tsv.gz", "--rows", "600", "--features", "200", "--overwrite"]) == 0
    assert gzip.decompress(memory.cat_file("/b/log.tsv.gz")).count(b"\n") == 600


def test_predictions_replace_earlier_ones_but_no_log(memory, log, tmp_path):
    data = fm2.prepare(log, "criteo", tmp_path / "data")
    model = fm2.train("lr", data, tmp_path / "run", epochs=1)
    for name in ("p.parquet", "p.csv.gz", "p.npy", "p.txt"):
        for _ in range(2):
            assert fm2.predict_files(model, log, f"memory://b/{name}").rows == 2000
    with pytest.raises(Fm2Error, match=r"predict: memory://b/log\.tsv is one of the input files"):
        fm2.predict_files(model, log, log)
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "other.parquet")
    memory.put_file(str(tmp_path / "other.parquet"), "/b/p.parquet")
    with pytest.raises(Fm2Error, match=r"p\.parquet already exists and has no column 'probability'"):
        fm2.predict_files(model, log, "memory://b/p.parquet")


def test_two_processes_do_not_write_to_one_url(memory):
    with (
        output("memory://b/x") as path,
        pytest.raises(Fm2Error, match="memory://b/x: another process on this machine is writing to it"),
    ):
        path.write_text("1")
        with output("memory://b/x"):
            pass


def test_a_cache_that_cannot_be_written(memory, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FM2_CACHE", str(tmp_path / "file"))
    with pytest.raises(Fm2Error, match=r"cannot write to .*; FM2_CACHE selects another directory"):
        fm2.generate("memory://b/log.tsv", 500, features=200)
    memory.pipe_file("/b/model.fm2", b"1")
    with pytest.raises(Fm2Error, match="cannot write to "):
        fm2.load("memory://b/model.fm2")


def test_studies_are_written_to_urls(memory, dataset, tmp_path: Path, capsys):
    memory.put(str(dataset.path), "/b/data", recursive=True)
    common = ["--epochs", "1", "--threads", "1"]
    assert main(["compare", "memory://b/data", "--models", "lr,fm", "--out", "memory://b/cmp", *common]) == 0
    assert "saved as memory://b/cmp/compare.json" in capsys.readouterr().out
    stored = json.loads(memory.cat_file("/b/cmp/compare.json"))
    assert stored["data"] == "memory://b/data"
    assert main(["report", "memory://b/cmp", "--out", "memory://b/report.html"]) == 0
    assert memory.cat_file("/b/report.html").startswith(b"<!DOCTYPE html")
    assert b"calibration" in memory.cat_file("/b/report.html")
    assert main(["export", "memory://b/cmp/fm-0", "--out", "memory://b/model.onnx"]) == 0
    assert memory.size("/b/model.onnx") > 100
