"""Runs that are interrupted, killed, resumed or replaced end as if nothing had happened."""

from __future__ import annotations

import pkgutil
import resource
import signal

import numpy as np
import pytest
from tests.helpers.planted import QUICK, SCHEMA, planted
from tests.helpers.processes import run_and_kill
from tests.helpers.races import Interrupt
from tests.helpers.runs import compare_runs

from fm2 import Fm2Error, prepare
from fm2.artifacts.arrays import save_arrays
from fm2.artifacts.run_directory import SETTINGS
from fm2.artifacts.settings import read_run_settings, read_settings
from fm2.training import loop as loop_module
from fm2.training.run import Run
from fm2.training.train import train


@pytest.mark.parametrize("name", ["lr", "fm", "fmfm", "ffm", "poly2"])
def test_a_run_resumes_bit_for_bit(dataset, tmp_path, monkeypatch, name):
    settings = {**QUICK, "seed": 4, "schedule": "linear"}
    train(name, dataset, tmp_path / "whole", **settings)

    steps = 0

    def interrupt(report):
        nonlocal steps
        steps += 1
        if steps in (13, 40):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(name, dataset, tmp_path / "parts", callback=interrupt, **settings)
    with pytest.raises(KeyboardInterrupt):
        train(name, dataset, tmp_path / "parts", callback=interrupt, resume=True, **settings)
    train(name, dataset, tmp_path / "parts", callback=interrupt, resume=True, **settings)
    compare_runs(tmp_path / "whole", tmp_path / "parts")
    with pytest.raises(Fm2Error, match=r"has seed 4, not 5"):
        train(name, dataset, tmp_path / "parts", resume=True, **{**settings, "seed": 5})


@pytest.mark.parametrize("place", ["fm2.training.optimizers.DenseOptimizer.step", "fm2.training.loop.save_model"])
def test_an_interrupt_in_the_middle_waits_for_the_end_of_the_step(dataset, tmp_path, monkeypatch, place):
    settings = {**QUICK, "dim": 5}
    train("fmfm", dataset, tmp_path / "whole", **settings)
    calls, whole = 0, pkgutil.resolve_name(place)

    def interrupted(*arguments):
        nonlocal calls
        calls += 1
        if calls == 2:
            signal.raise_signal(signal.SIGINT)
        return whole(*arguments)

    monkeypatch.setattr(place, interrupted)
    with pytest.raises(KeyboardInterrupt):
        train("fmfm", dataset, tmp_path / "parts", **settings)
    monkeypatch.setattr(place, whole)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    train("fmfm", dataset, tmp_path / "parts", resume=True)  # with the settings that it had
    compare_runs(tmp_path / "whole", tmp_path / "parts")


def test_a_second_interrupt_does_not_wait(dataset, tmp_path):
    def watch(report):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train("fmfm", dataset, tmp_path / "run", callback=watch, **QUICK)


def test_only_the_same_run_is_resumed(dataset, tmp_path):
    def stop(report):
        raise KeyboardInterrupt

    weights = np.linspace(1, 2, 4000)
    with pytest.raises(KeyboardInterrupt):
        train("lr", dataset, tmp_path / "run", callback=stop, row_weights=weights, **QUICK)
    other = prepare(planted(4000, seed=1), SCHEMA, tmp_path / "other")
    with pytest.raises(Fm2Error, match="had another dataset; use the same"):
        train("lr", other, tmp_path / "run", resume=True, row_weights=weights)
    with pytest.raises(Fm2Error, match="had other row weights; use the same"):
        train("lr", dataset, tmp_path / "run", resume=True)
    with pytest.raises(Fm2Error, match=r"had another model to start from \(start=\); use the same"):
        start = train("lr", dataset, tmp_path / "start", **QUICK)
        train("lr", dataset, tmp_path / "run", resume=True, row_weights=weights, start=start)
    with pytest.raises(Fm2Error, match="trains lr, not fmfm"):
        train("fmfm", dataset, tmp_path / "run", resume=True)
    train("lr", dataset, tmp_path / "run", resume=True, row_weights=weights)
    with pytest.raises(Fm2Error, match="train: no run to resume in"):
        train("lr", dataset, tmp_path / "none", resume=True)


def test_a_run_without_a_checkpoint_starts_over(dataset, tmp_path):
    train("lr", dataset, tmp_path / "whole", **QUICK)
    train("lr", dataset, tmp_path / "parts", **QUICK)
    (tmp_path / "parts" / "checkpoint.safetensors").unlink()
    (tmp_path / "parts" / ".checkpoint.safetensors.partial-x").write_text("left by a kill")
    train("lr", dataset, tmp_path / "parts", resume=True)
    compare_runs(tmp_path / "whole", tmp_path / "parts")
    assert len(list((tmp_path / "parts").iterdir())) == 4


def test_a_half_written_line_of_history_is_written_again(dataset, tmp_path):
    def stop(report):
        if report.rows > 5000:
            raise KeyboardInterrupt

    train("lr", dataset, tmp_path / "whole", **QUICK)
    with pytest.raises(KeyboardInterrupt):
        train("lr", dataset, tmp_path / "parts", callback=stop, **QUICK)
    with (tmp_path / "parts" / "history.jsonl").open("a") as file:
        file.write('{"epoch": 1.5, "st')
    train("lr", dataset, tmp_path / "parts", resume=True)
    compare_runs(tmp_path / "whole", tmp_path / "parts")


def test_a_run_is_for_one_training_at_a_time(dataset, tmp_path):
    def watch(report):
        with pytest.raises(Fm2Error, match="another training is running in"):
            train("lr", dataset, tmp_path / "run", resume=True)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("lr", dataset, tmp_path / "run", callback=watch, **QUICK)


def test_a_training_that_fails_to_start_changes_no_files(dataset, tmp_path):
    train("fmfm", dataset, tmp_path / "run", **QUICK)
    before = {entry.name: entry.read_bytes() for entry in (tmp_path / "run").iterdir()}
    for wrong in ({"dim": [1, 2]}, {"linear": "some"}, {"row_weights": np.ones(3)}, {"start": tmp_path / "none"}):
        for out in ("run", "new"):
            with pytest.raises(Fm2Error):
                train("fmfm", dataset, tmp_path / out, overwrite=True, **wrong)
    assert {entry.name: entry.read_bytes() for entry in (tmp_path / "run").iterdir()} == before
    assert not (tmp_path / "new").exists()
    train("fmfm", dataset, tmp_path / "run", start=tmp_path / "run", overwrite=True, **QUICK)  # goes on in its place


def test_a_killed_run_resumes_bit_for_bit(dataset, tmp_path):
    settings = {**QUICK, "epochs": 3}
    train("fmfm", dataset, tmp_path / "whole", **settings)
    script = f"""
import sys, time, fm2.training.loop as loop
from fm2.training.train import train
loop.CHECKPOINT_SECONDS = 0
def watch(report):
    if report.rows > 5000:
        print("ready to be killed", flush=True); time.sleep(60)
train("fmfm", sys.argv[1], sys.argv[2], callback=watch, **{settings!r})
"""
    run_and_kill(script, dataset.path, tmp_path / "parts")
    Run.open(tmp_path / "parts")  # the best so far is there
    train("fmfm", dataset, tmp_path / "parts", resume=True, **settings)
    compare_runs(tmp_path / "whole", tmp_path / "parts")


def test_resuming_and_overwriting_exclude_each_other(dataset, tmp_path):
    with pytest.raises(Fm2Error, match="use only one of them"):
        train("lr", dataset, tmp_path / "run", resume=True, overwrite=True)


def test_checkpoints_that_take_long_are_rare(dataset, tmp_path, monkeypatch):
    written = []
    save = loop_module.save_arrays
    monkeypatch.setattr(loop_module, "save_arrays", lambda *arguments: (written.append(1), save(*arguments)))
    monkeypatch.setattr(loop_module, "CHECKPOINT_SECONDS", 1e-6)
    train("lr", dataset, tmp_path / "often", **QUICK)
    often = len(written)
    written.clear()
    monkeypatch.setattr(loop_module, "LONG_CHECKPOINT", 1e-12)
    train("lr", dataset, tmp_path / "rarely", **QUICK)
    assert often > 2
    assert len(written) == 2  # the first one, and the one at the end


def test_checkpoints_appear_whole_or_not_at_all(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(loop_module, "CHECKPOINT_SECONDS", 0)
    train("lr", dataset, tmp_path / "run", **QUICK)
    assert sorted(entry.name for entry in (tmp_path / "run").iterdir()) == [
        "checkpoint.safetensors",
        "history.jsonl",
        "model.safetensors",
        "settings.toml",
    ]
    content = (tmp_path / "run" / "model.safetensors").read_bytes()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))  # as a full disk would, writing stops halfway
    try:
        with pytest.raises(Fm2Error, match=r"model.safetensors: File too large; the previous file is intact"):
            save_arrays(tmp_path / "run" / "model.safetensors", {"large": np.zeros(1000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == content
    assert len(list((tmp_path / "run").iterdir())) == 4
    (tmp_path / "run" / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(Fm2Error, match=r"model.safetensors is damaged"):
        Run.open(tmp_path / "run")


def test_runs_without_newer_settings_resume_as_they_began(dataset, tmp_path):
    settings = {**QUICK, "unknown_dropout": 0.0, "epochs": 2}
    whole = train("fmfm", dataset, tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        train("fmfm", dataset, tmp_path / "run", callback=Interrupt([5]), **settings)
    file = tmp_path / "run" / SETTINGS
    newer = ("unknown_dropout", "matrices", "linear_l2_scale")
    file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith(newer)))
    assert not set(newer) & read_settings(file).keys()
    assert read_run_settings(file)["linear_l2_scale"] == 1.0
    again = train("fmfm", dataset, tmp_path / "run", resume=True)
    assert read_settings(file)["unknown_dropout"] == 0.0
    np.testing.assert_array_equal(whole.logits(dataset.test.encoded), again.logits(dataset.test.encoded))
