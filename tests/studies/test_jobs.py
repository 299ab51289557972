"""Several runs at once, in local processes: the results are those of one run after the other."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection

import pytest
from tests.helpers.planted import QUICK
from tests.helpers.random_kills import command_of, descendants
from tests.studies.test_tuning import FIX, SPACE, outcomes

import fm2
from fm2 import Fm2Error
from fm2.cli.main import main
from fm2.studies.execution.processes import _Process

LONG = {**QUICK, "epochs": 60, "patience": 1000, "threads": 1}
UNREACHABLE = {"fm": {"learning_rate": 1e6}}


def results(out):
    """Return what compare.json says, without times."""
    values = json.loads((out / "compare.json").read_text())
    for row in values["rows"]:
        del row["seconds"]
    return {name: values[name] for name in ("rows", "models", "seeds", "split", "statistics")}


def processes_of(parent):
    return [each for each in descendants(parent) if "fm2.studies.execution.worker" in command_of(each)]


def has_ended(process):
    return not command_of(process)


@pytest.fixture(scope="module")
def sequential(dataset, tmp_path_factory):
    """A comparison, one run after the other, in which one run fails."""
    out = tmp_path_factory.mktemp("sequential") / "table"
    fm2.compare(dataset, out, "lr,fm,fmfm,deepfm", model_settings=UNREACHABLE, **QUICK, threads=1)
    return out


def test_a_comparison_with_several_jobs_has_the_same_results(dataset, sequential, tmp_path, capsys):
    reports, ended = [], []
    fm2.compare(
        dataset,
        tmp_path / "table",
        "lr,fm,fmfm,deepfm",
        model_settings=UNREACHABLE,
        jobs=2,
        threads=1,
        watch=reports.append,
        on_result=lambda row, error: ended.append((row["run"], type(error))),
        **QUICK,
    )
    assert results(tmp_path / "table") == results(sequential)
    failed = results(sequential)["rows"][1]
    assert "the loss is" in failed["error"]
    assert dict(ended)["fm-0"] is not type(None)
    assert {report.stage for report in reports} >= {"lr-0", "fmfm-0", "deepfm-0"}
    command = ["compare", str(dataset.path), "--out", str(tmp_path / "table"), "--resume", "--jobs", "2"]
    assert main(command) == 1  # the failed run fails again, and is reported as without --jobs
    printed = capsys.readouterr()
    assert "fm2: fm-0 ..." in printed.err
    assert "1 of 4 runs failed: fm-0" in printed.err
    assert not processes_of(os.getpid())


def test_a_search_with_several_jobs_has_the_same_trials(dataset, tmp_path):
    def search(name, trials=7, **options):
        return fm2.tune("lr", dataset, tmp_path / name, trials=trials, fix=FIX, space=SPACE, generation=3, **options)

    expected, printed = search("one"), []
    search("two", trials=3, jobs=2)  # ends within a generation
    tuning = search("two", jobs=3, resume=True, on_trial=lambda trials: printed.append(trials[-1].number))
    assert outcomes(tuning) == outcomes(expected)
    assert printed == [3, 4, 5, 6]
    assert fm2.Run.open(tmp_path / "two" / "best").metrics == expected.best.metrics
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == [
        *("best", "best.toml", "space.toml", "study.journal", "tune.json")
    ]
    with pytest.raises(Fm2Error, match="has generation 3, not 2"):
        fm2.tune("lr", dataset, tmp_path / "two", resume=True, generation=2)


def test_a_killed_process_fails_its_run_only_and_resuming_continues(dataset, tmp_path):
    expected = fm2.compare(dataset, tmp_path / "expected", "lr", seeds=3, **LONG)
    killed = []

    def kill(report):
        if not killed:
            killed.append(processes_of(os.getpid())[0])
            os.kill(killed[0], signal.SIGKILL)

    fm2.compare(dataset, tmp_path / "table", "lr", seeds=3, jobs=2, watch=kill, **LONG)
    errors = [row["error"] for row in results(tmp_path / "table")["rows"]]
    assert errors.count(None) == 2
    assert "its process was killed by signal 9; resume=True continues" in next(filter(None, errors))
    fm2.compare(dataset, tmp_path / "table", resume=True, jobs=2)
    assert results(tmp_path / "table") == results(expected.path)


def test_a_process_that_is_killed_while_it_sends_a_message_loses_its_run():
    process = _Process(threads=1)
    process.run = "lr-0"
    ours, theirs = socket.socketpair()
    process.connection.close()
    process.connection = Connection(ours.detach())
    with theirs:
        theirs.sendall(b"\0\0\0\x10half")  # of a message of 16 bytes
    kind, lost = process.receive()
    assert kind == "lost"
    assert "lr-0: its process ended with exit code 0" in str(lost)
    process.end()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_when_the_command_ends(dataset, tmp_path, how):
    words = ["compare", str(dataset.path), "--models", "lr,fm,fmfm", "--out", str(tmp_path / "table"), "--jobs", "2"]
    long = ["--epochs", "1000", "--patience", "1000", "--batch-size", "64", "--threads", "1"]
    command = [sys.executable, "-m", "fm2", *words, *long]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as job:
        deadline = time.monotonic() + 60
        while not all((tmp_path / "table" / run / "history.jsonl").exists() for run in ("lr-0", "fm-0")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        children = processes_of(job.pid)
        assert len(children) == 2
        job.send_signal(how)
        _, printed = job.communicate(timeout=60)
    while not all(map(has_ended, children)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    if how == signal.SIGKILL:
        return
    assert job.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[how]
    assert "Traceback" not in printed
    assert "run the same command with --resume to continue" in printed
    assert (tmp_path / "table" / "lr-0" / "checkpoint.safetensors").exists()
    assert set(json.loads((tmp_path / "table" / "compare.json").read_text())["spent"]) == {"lr-0", "fm-0"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 0}, "jobs must be between 1 and 1024, got 0"),
        ({"engine": "spark"}, "unknown engine 'spark'; choose from local, ray"),
        ({"address": "localhost:6379"}, 'address= is that of a Ray cluster; use it with engine="ray"'),
    ],
)
def test_invalid_options_are_errors_before_anything_is_written(dataset, tmp_path, options, message):
    for study in (
        lambda: fm2.compare(dataset, tmp_path / "x", **options),
        lambda: fm2.tune("lr", dataset, tmp_path / "x", **options),
    ):
        with pytest.raises(Fm2Error, match=message):
            study()
    assert not (tmp_path / "x").exists()


def test_more_jobs_than_a_generation_has_trials_are_reported(dataset, tmp_path):
    with pytest.warns(fm2.Fm2Warning, match="a generation has 2 trials; generation=3 trains 3 at once"):
        fm2.tune("lr", dataset, tmp_path / "tune", trials=1, jobs=3, generation=2, fix=FIX, space=SPACE)
