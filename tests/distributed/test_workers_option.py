"""``fm2 train --workers``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from tests.helpers.planted import SCHEMA, planted
from tests.helpers.races import Interrupt

import fm2
from fm2.cli.main import main
from fm2.cli.workers import TORCHRUN
from fm2.distributed.launch import use_own_cores


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("planted") / "data"
    fm2.prepare(planted(1500), SCHEMA, path)
    return path


def run(*words):
    command = [sys.executable, "-m", "fm2", "train", *map(str, words), "--threads", "1", "--batch-size", "64"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_workers_are_started_on_this_machine(data, tmp_path):
    done = run("fmfm", data, "--out", tmp_path / "run", "--workers", "2", "--epochs", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert "1.00 epochs in" in done.stderr
    scores = json.loads(done.stdout)
    alone = fm2.train("fmfm", data, tmp_path / "alone", epochs=1, batch_size=64, threads=1)
    assert scores["auc"] == pytest.approx(alone.metrics["auc"], abs=1e-4)


def test_workers_do_not_resume_a_race(data, tmp_path):
    settings = {"epochs": 2, "batch_size": 64, "threads": 1}
    with pytest.raises(KeyboardInterrupt):
        fm2.train("fmfm", data, tmp_path / "run", effort=2, callback=Interrupt([5]), **settings)
    done = run("fmfm", data, "--out", tmp_path / "run", "--workers", "2", "--resume")
    assert done.returncode == 1
    assert "one process compares 6 candidates in" in done.stderr
    assert "resume it without workers, or use --overwrite" in done.stderr
    finished = fm2.train("fmfm", data, tmp_path / "run", resume=True)
    done = run("fmfm", data, "--out", finished.path, "--workers", "2", "--resume", "--json")
    assert json.loads(done.stdout)["auc"] == pytest.approx(finished.metrics["auc"], abs=1e-4)


def test_an_error_is_reported_once_and_not_retried(data, tmp_path):
    done = run("fm", data, "--out", tmp_path / "run", "--workers", "2", "--learning-rate", "1e6", "--epochs", "3")
    assert done.returncode == 1
    assert done.stderr.count("fm2: train: the loss is") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("cores", "workers", "threads", "expected"),
    [
        ({2, 3, 4, 5}, 2, 1, [[2, 3], [4, 5]]),
        ({0, 1, 2, 3, 4}, 2, 2, [[0, 1], [2, 3, 4]]),
        ({0, 1}, 2, 2, []),
        ({0, 1}, 3, 1, []),
    ],
)
def test_workers_have_cores_of_their_own_if_there_are_enough(monkeypatch, cores, workers, threads, expected):
    bound = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, own: bound.append(own))
    for worker in range(workers):
        use_own_cores(worker, workers, threads)
    assert bound == expected


def test_workers_of_this_machine_write_locally_to_what_is_uploaded(data, tmp_path, monkeypatch):
    monkeypatch.setenv("FM2_CACHE", str(tmp_path / "cache"))

    def run_workers(count, words):
        (out,) = (word.removeprefix("--out=") for word in words if word.startswith("--out="))
        assert (count, "://" in " ".join(words)) == (2, False)
        fm2.train("lr", data, out, epochs=1)

    monkeypatch.setattr("fm2.distributed.launch.run_local_workers", run_workers)
    assert main(["train", "lr", str(data), "--out=memory://runs/lr", "--workers", "2"]) == 0
    assert fm2.Run.open("memory://runs/lr").model.name == "lr"


def test_workers_of_torchrun_do_not_write_to_urls(data, monkeypatch, capsys):
    for name in TORCHRUN:
        monkeypatch.setenv(name, "1")
    assert main(["train", "lr", str(data), "--out", "memory://runs/lr"]) == 1
    assert "cannot write to memory://runs/lr: workers write to one directory; use a path" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ffm", "--workers", "2"], "ffm learns row by row"),
        (["fm", "--workers", "0"], "--workers must be between 1 and 1024, got 0"),
        (["auto", "--workers", "2"], "without --effort or auto"),
        (["fm", "--workers", "2", "--effort", "2"], "without --effort or auto"),
        (["fm", "--workers", "2", "--from", "run"], "cannot start from a trained model"),
    ],
)
def test_what_workers_cannot_do_is_refused_before_they_start(data, tmp_path, capsys, words, message):
    model, *options = words
    assert main(["train", model, str(data), "--out", str(tmp_path / "run"), *options]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
