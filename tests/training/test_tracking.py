"""Trackers: TensorBoard, MLflow and custom ones; no failure of a tracker stops a training."""

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
from fm2.training.trackers import MLflow, TensorBoard, scalars, tracker
from fm2.training.train import train


class Recorder(Tracker):
    """Records all events."""

    def __init__(self):
        self.events = []

    def begin(self, settings, path, history):
        self.events.append(("begin", settings["model"], path.name, history))

    def evaluated(self, evaluation):
        self.events.append(("evaluated", evaluation["step"], evaluation["auc"]))

    def end(self, metrics):
        self.events.append(("end", metrics))


def history_of(run):
    return [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]


def stop_after(rows):
    def watch(report):
        if report.rows > rows:
            raise KeyboardInterrupt

    return watch


def test_a_tracker_receives_the_start_every_evaluation_and_the_end(dataset, tmp_path):
    recorder = Recorder()
    run = train("lr", dataset, tmp_path / "run", trackers=[recorder], **QUICK)
    evaluations = [("evaluated", entry["step"], entry["auc"]) for entry in history_of(run.path)]
    assert len(evaluations) == 4
    assert recorder.events == [("begin", "lr", "run", None), *evaluations, ("end", run.metrics)]


def test_the_callback_receives_every_evaluation(dataset, tmp_path):
    reports = []
    train("lr", dataset, tmp_path / "run", callback=reports.append, **QUICK)
    assert [report.evaluation for report in reports if report.evaluated] == history_of(tmp_path / "run")
    assert reports[-1].evaluated
    assert not reports[0].evaluated


@pytest.mark.parametrize("base", [Tracker, object])
def test_a_tracker_implements_only_the_methods_it_needs(dataset, tmp_path, capsys, base):
    class Printer(base):
        def evaluated(self, evaluation):
            print(evaluation["step"], scalars(evaluation)["validation/auc"])

    train("lr", dataset, tmp_path / "run", trackers=[Printer()], **QUICK)
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_an_interrupted_training_ends_without_metrics_and_can_be_resumed(dataset, tmp_path):
    first, second = Recorder(), Recorder()
    with pytest.raises(KeyboardInterrupt):
        train("lr", dataset, tmp_path / "run", trackers=[first], callback=stop_after(4000), **QUICK)
    assert first.events[-1] == ("end", None)
    train("lr", dataset, tmp_path / "run", trackers=[second], resume=True)
    history = second.events[0][-1]
    assert len(history) == 2
    evaluations = [*first.events[1:-1], *second.events[1:-1]]
    assert evaluations == [("evaluated", entry["step"], entry["auc"]) for entry in history_of(tmp_path / "run")]


@pytest.mark.parametrize("when", ["begin", "evaluated", "end"])
def test_a_tracker_that_fails_is_named_once_and_the_training_continues(dataset, tmp_path, capsys, when):
    class Broken(Recorder):
        pass

    def fail(self, *arguments):
        raise OSError("no space left\nor so")

    setattr(Broken, when, fail)
    other = Recorder()
    run = train("lr", dataset, tmp_path / "run", trackers=[Broken(), other], **QUICK)
    assert other.events[-1] == ("end", run.metrics)
    message = capsys.readouterr().err
    assert message == "fm2: Broken failed: no space left; the training continues without it\n"


def curves(directory):
    """Return the points of each curve in TensorBoard, and all of its tags."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory)).Reload()
    tags = events.Tags()
    return {name: [(point.step, point.value) for point in events.Scalars(name)] for name in tags["scalars"]}, tags


def check_curves(directory, run, best):
    drawn, tags = curves(directory)
    assert "settings/text_summary" in tags["tensors"]
    for name in ("validation/auc", "training/log_loss", "epoch"):
        expected = [(entry["step"], pytest.approx(scalars(entry)[name])) for entry in history_of(run)]
        assert drawn[name] == expected
    assert ("best/auc" in drawn) == best


def test_tensorboard_has_every_evaluation_once_after_any_number_of_resumes(dataset, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train("lr", dataset, run, trackers=[TensorBoard()], callback=stop_after(2000), **QUICK)
    check_curves(run / "tensorboard", run, best=False)
    (run / "checkpoint.safetensors").unlink()  # like a kill before the first checkpoint: the training restarts
    with pytest.raises(KeyboardInterrupt):
        train("lr", dataset, run, resume=True, callback=stop_after(4000))  # without a tracker
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
    """Return the MLflow runs in a database, latest first, each with the points of its curves."""
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{database}")
    runs = client.search_runs([client.get_experiment_by_name("fm2").experiment_id])
    names = ("epoch", "validation/auc", "best/auc")
    histories = [{name: client.get_metric_history(run.info.run_id, name) for name in names} for run in runs]
    points = [{name: [(m.step, m.value) for m in of] for name, of in history.items()} for history in histories]
    return list(zip(runs, points, strict=True))


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")
def test_mlflow_has_every_evaluation_once_after_any_number_of_resumes(dataset, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "it's a run"
    with pytest.raises(KeyboardInterrupt):
        train("lr", dataset, run, trackers=[MLflow()], callback=stop_after(2000), **QUICK)
    [(found, _)] = logged(tmp_path / "mlflow.db")
    assert found.info.status == "KILLED"
    (run / "checkpoint.safetensors").unlink()  # like a kill: logged evaluations are repeated
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
    assert len(points["best/auc"]) == 2  # for two epochs, and for three
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["it's a run", "mlflow.db"]
    assert capfd.readouterr().err == ""

    train("lr", dataset, run, trackers=[MLflow("mlflow.db")], overwrite=True, **QUICK)
    assert len(logged(tmp_path / "mlflow.db")) == 2


def test_an_unreachable_server_does_not_stop_a_training(dataset, tmp_path, capsys):
    train("lr", dataset, tmp_path / "run", trackers=[MLflow("http://127.0.0.1:9")], **QUICK)
    message = capsys.readouterr().err
    assert message.startswith("fm2: MLflow failed: ")
    assert message.endswith("; the training continues without it\n")
    assert message.count("\n") == 1


def test_mlflow_opens_no_connection(tmp_path):
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
    # MLflow sends no telemetry during tests, so the environment must not reveal that this is one.
    alone = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=alone, capture_output=True, text=True, check=False
    )
    assert done.stdout == "1 []\n", done.stderr
    assert done.stderr == ""


def test_trackers_are_named_on_the_command_line(dataset, tmp_path, capsys):
    quick = ["--epochs", "1", "--evaluations-per-epoch", "1", "--json"]
    command = ["train", "lr", str(dataset.path), "--out", str(tmp_path / "run"), *quick]
    assert main([*command, "--track", "tensorboard", "--track", f"tensorboard:{tmp_path / 'logs'}"]) == 0
    for directory in (tmp_path / "run" / "tensorboard", tmp_path / "logs" / "run"):
        check_curves(directory, tmp_path / "run", best=True)
    capsys.readouterr()
    assert main([*command, "--overwrite", "--track", "tensorbord"]) == 1
    assert capsys.readouterr().err == "fm2: train: unknown tracker 'tensorbord'; did you mean 'tensorboard'?\n"


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_missing_package_is_named_before_the_training(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(Fm2Error, match=rf"requires the package '{name}'; install it in a clone .* '\.\[{name}\]'"):
        tracker(name)


def test_the_candidates_of_a_race_have_live_curves_of_their_own(dataset, tmp_path):
    run, shared = tmp_path / "run", tmp_path / "logs"
    seen = set()

    def look(report):
        seen.update(path.parent.name for path in run.rglob("candidate-*/events.out.*"))

    trackers = [TensorBoard(), TensorBoard(shared)]
    with pytest.raises(KeyboardInterrupt):
        train("lr", dataset, run, effort=2, trackers=trackers, callback=stop_after(3000), **QUICK)
    assert (run / "tensorboard" / "candidate-1").is_dir()
    train("lr", dataset, run, effort=2, trackers=trackers, callback=look, resume=True)
    names = {f"candidate-{number}" for number in range(1, 7)}
    assert seen == names  # while the race was running
    record = json.loads((run / "race.json").read_text())
    winner = f"candidate-{record['winner'] + 1}"
    for directory in (run / "tensorboard", shared / "run"):
        assert {path.name for path in directory.glob("candidate-*")} == names
        check_curves(directory / winner, run, best=True)
        drawn, _ = curves(directory)
        assert [step for step, _ in drawn["epoch"]] == [entry["step"] for entry in history_of(run)]
    train("lr", dataset, run, overwrite=True, **QUICK)
    assert not (run / "tensorboard").exists()


def test_the_candidates_of_a_race_are_mlflow_runs(dataset, tmp_path):
    database = tmp_path / "mlflow.db"
    train("lr", dataset, tmp_path / "run", effort=2, trackers=[MLflow(database)], **QUICK)
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{database}")
    runs = client.search_runs([client.get_experiment_by_name("fm2").experiment_id])
    assert sorted(run.info.run_name for run in runs) == ["run", *(f"run/candidate-{number}" for number in range(1, 7))]
    assert {run.info.status for run in runs} == {"FINISHED"}


def test_a_tracker_that_fails_for_a_candidate_still_follows_the_winner(dataset, tmp_path, capsys):
    class Broken(Recorder):
        def evaluated(self, evaluation):
            raise OSError("no space left")

    class Candidates(Recorder):
        def candidate(self, name, run):
            return Broken() if name == "candidate-2" else None

    recorder = Candidates()
    run = train("lr", dataset, tmp_path / "run", effort=2, trackers=[recorder], **QUICK)
    assert recorder.events[0][:3] == ("begin", "lr", "run")
    assert recorder.events[-1] == ("end", run.metrics)
    assert capsys.readouterr().err.count("Broken failed: no space left") == 1
