"""Trackers: TensorBoard, MLflow and user-defined ones. None of them can make a training fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from tests.helpers.planted import QUICK

import fm2
from fm2 import Fm2Error, Tracker
from fm2.cli.main import main
from fm2.training.trackers import MLflow, TensorBoard, figures, tracker
from fm2.training.train import train


class Notes(Tracker):
    """Writes down what it hears."""

    def __init__(self):
        self.heard = []

    def begin(self, settings, path, history):
        self.heard.append(("begin", settings["model"], path.name, history))

    def evaluated(self, evaluation):
        self.heard.append(("evaluated", evaluation["step"], evaluation["auc"]))

    def end(self, metrics):
        self.heard.append(("end", metrics))


def history_of(run):
    return [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]


def stop_after(rows):
    def watch(report):
        if report.rows > rows:
            raise KeyboardInterrupt

    return watch


def test_a_tracker_is_notified_of_begin_evaluations_and_end(dataset, tmp_path):
    notes = Notes()
    run = train("lr", dataset, tmp_path / "run", trackers=[notes], **QUICK)
    evaluations = [("evaluated", entry["step"], entry["auc"]) for entry in history_of(run.path)]
    assert len(evaluations) == 4
    assert notes.heard == [("begin", "lr", "run", None), *evaluations, ("end", run.metrics)]


def test_the_callback_receives_every_evaluation(dataset, tmp_path):
    reports = []
    train("lr", dataset, tmp_path / "run", callback=reports.append, **QUICK)
    assert [report.evaluation for report in reports if report.evaluated] == history_of(tmp_path / "run")
    assert reports[-1].evaluated
    assert not reports[0].evaluated


@pytest.mark.parametrize("base", [Tracker, object])
def test_a_tracker_may_implement_a_single_method(dataset, tmp_path, capsys, base):
    class ToTheTerminal(base):
        def evaluated(self, evaluation):
            print(evaluation["step"], figures(evaluation)["validation/auc"])

    train("lr", dataset, tmp_path / "run", trackers=[ToTheTerminal()], **QUICK)
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_an_interrupted_training_ends_without_metrics_and_resumes(dataset, tmp_path):
    first, second = Notes(), Notes()
    with pytest.raises(KeyboardInterrupt):
        train("lr", dataset, tmp_path / "run", trackers=[first], callback=stop_after(4000), **QUICK)
    assert first.heard[-1] == ("end", None)
    train("lr", dataset, tmp_path / "run", trackers=[second], resume=True)
    before = second.heard[0][-1]
    assert len(before) == 2
    told = [*first.heard[1:-1], *second.heard[1:-1]]
    assert told == [("evaluated", entry["step"], entry["auc"]) for entry in history_of(tmp_path / "run")]


@pytest.mark.parametrize("when", ["begin", "evaluated", "end"])
def test_a_failing_tracker_is_reported_once_and_training_continues(dataset, tmp_path, capsys, when):
    class Broken(Notes):
        pass

    def fail(self, *what):
        raise OSError("no space left\nor so")

    setattr(Broken, when, fail)
    other = Notes()
    run = train("lr", dataset, tmp_path / "run", trackers=[Broken(), other], **QUICK)
    assert other.heard[-1] == ("end", run.metrics)
    said = capsys.readouterr().err
    assert said == "fm2: Broken failed and is no longer used: no space left\n"


def curves(directory):
    """Give the points of each curve that TensorBoard would draw, and all that it shows besides."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(directory)).Reload()
    tags = found.Tags()
    return {name: [(point.step, point.value) for point in found.Scalars(name)] for name in tags["scalars"]}, tags


def check_curves(directory, run, best):
    drawn, tags = curves(directory)
    assert "settings/text_summary" in tags["tensors"]
    for name in ("validation/auc", "training/log_loss", "epoch"):
        expected = [(entry["step"], pytest.approx(figures(entry)[name])) for entry in history_of(run)]
        assert drawn[name] == expected
    assert ("best/auc" in drawn) == best


def test_tensorboard_has_every_evaluation_once_after_resuming(dataset, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train("lr", dataset, run, trackers=[TensorBoard()], callback=stop_after(2000), **QUICK)
    check_curves(run / "tensorboard", run, best=False)
    (run / "checkpoint.safetensors").unlink()  # as if it had been killed before it wrote one: it begins anew
    with pytest.raises(KeyboardInterrupt):
        train("lr", dataset, run, resume=True, callback=stop_after(4000))  # not tracked, this time
    train("lr", dataset, run, trackers=[TensorBoard()], resume=True)
    check_curves(run / "tensorboard", run, best=True)
    assert len(list((run / "tensorboard").iterdir())) == 1


def test_tensorboard_separates_runs_with_the_same_name(dataset, tmp_path):
    for parent in ("a", "b"):
        track = [TensorBoard(tmp_path / "logs")]
        train("lr", dataset, tmp_path / parent / "run", trackers=track, **QUICK)
    assert len(list((tmp_path / "logs" / "run").iterdir())) == 2
    train("lr", dataset, tmp_path / "b" / "run", trackers=track, overwrite=True, **QUICK)
    assert len(list((tmp_path / "logs" / "run").iterdir())) == 2


def logged(database):
    """Give the runs that MLflow has in a database, the latest first, and the points of each curve."""
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{database}")
    runs = client.search_runs([client.get_experiment_by_name("fm2").experiment_id])
    names = ("epoch", "validation/auc", "best/auc")
    histories = [{name: client.get_metric_history(run.info.run_id, name) for name in names} for run in runs]
    points = [{name: [(m.step, m.value) for m in of] for name, of in history.items()} for history in histories]
    return list(zip(runs, points, strict=True))


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")
def test_mlflow_has_every_evaluation_once_after_resuming(dataset, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "it's a run"
    with pytest.raises(KeyboardInterrupt):
        train("lr", dataset, run, trackers=[MLflow()], callback=stop_after(2000), **QUICK)
    [(found, _)] = logged(tmp_path / "mlflow.db")
    assert found.info.status == "KILLED"
    (run / "checkpoint.safetensors").unlink()  # as if it had been killed: what was logged is made again
    with pytest.raises(KeyboardInterrupt):
        train("lr", dataset, run, resume=True, callback=stop_after(4000))
    for epochs in (2, 2, 3):
        train("lr", dataset, run, trackers=[MLflow()], resume=True, epochs=epochs)
    [(found, points)] = logged(tmp_path / "mlflow.db")
    assert found.info.status == "FINISHED"
    assert found.data.params["model"] == "lr"
    assert found.data.tags["resumed.epochs"] == "3"
    assert points["validation/auc"] == [(entry["step"], entry["auc"]) for entry in history_of(run)]
    assert found.data.metrics["best/auc"] == fm2.Run.open(run).metrics["auc"]
    assert len(points["best/auc"]) == 2  # of two epochs and of three
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["it's a run", "mlflow.db"]
    assert capfd.readouterr().err == ""

    train("lr", dataset, run, trackers=[MLflow("mlflow.db")], overwrite=True, **QUICK)
    assert len(logged(tmp_path / "mlflow.db")) == 2


def test_an_unreachable_server_does_not_stop_a_training(dataset, tmp_path, capsys):
    train("lr", dataset, tmp_path / "run", trackers=[MLflow("http://127.0.0.1:9")], **QUICK)
    said = capsys.readouterr().err
    assert said.startswith("fm2: MLflow failed and is no longer used: ")
    assert said.count("\n") == 1


def test_mlflow_uses_no_network(tmp_path):
    script = """
import pathlib, socket, threading
reached = []
def refuse(*address, **options):
    reached.append(address)
    raise OSError("refused")
socket.getaddrinfo = socket.socket.connect = refuse
from fm2.training.trackers import MLflow
tracker = MLflow()
tracker.begin({"model": "lr"}, pathlib.Path("run"), None)
tracker.end({"auc": 0.75})
print(threading.active_count(), reached)
"""
    # MLflow keeps quiet where tests run, so nothing may tell it that they do.
    alone = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=alone, capture_output=True, text=True, check=False
    )
    assert done.stdout == "1 []\n", done.stderr
    assert done.stderr == ""


def test_trackers_are_named_on_the_command_line(dataset, tmp_path, capsys):
    quick = ["--epochs", "1", "--evaluations-per-epoch", "1", "--json"]
    words = ["train", "lr", str(dataset.path), "--out", str(tmp_path / "run"), *quick]
    assert main([*words, "--track", "tensorboard", "--track", f"tensorboard:{tmp_path / 'logs'}"]) == 0
    for directory in (tmp_path / "run" / "tensorboard", tmp_path / "logs" / "run"):
        check_curves(directory, tmp_path / "run", best=True)
    capsys.readouterr()
    assert main([*words, "--overwrite", "--track", "tensorbord"]) == 1
    assert capsys.readouterr().err == "fm2: train: unknown tracker 'tensorbord'; did you mean 'tensorboard'?\n"


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_missing_tracker_package_is_reported_before_training(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(Fm2Error, match=rf"needs the package '{name}': pip install 'fm2\[{name}\]'"):
        tracker(name)
