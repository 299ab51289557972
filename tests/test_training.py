"""Training, as its user sees it: models that learn, runs that resume bit for bit, errors that help."""

from __future__ import annotations

import itertools
import json
import os
import pkgutil
import resource
import signal
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import torch

from fm2 import Dataset, Field, Fm2Error, Schema, prepare
from fm2.cli import main
from fm2.training import loop as loop_module
from fm2.training import metrics
from fm2.training.checkpoints import load_arrays, save_arrays
from fm2.training.fitting import feature_counts, make_model, make_stepper, train
from fm2.training.native import NativeStepper
from fm2.training.plain import PlainStepper
from fm2.training.prediction import predict_files
from fm2.training.run import Run
from fm2.training.settings import Settings, read_dim
from fm2.training.work import AutogradWork

GATHERED = ("lr", "fm", "fwfm", "fvfm", "fmfm")
QUICK = {"epochs": 2, "batch_size": 64, "evaluations": 2, "patience": 100}


def planted(rows: int, seed: int = 0, values: int = 12) -> pl.DataFrame:
    """Make rows whose clicks depend on pairs of values, so that interactions pay."""
    random = np.random.default_rng(seed)
    columns = random.integers(0, values, (rows, 4))
    strength = np.random.default_rng(99).normal(size=(4, 4, values, values))
    logits = sum(strength[i, j, columns[:, i], columns[:, j]] for i, j in itertools.combinations(range(4), 2))
    clicks = random.random(rows) < 1 / (1 + np.exp(-logits))
    names = {f"c{i}": [f"v{value}" for value in columns[:, i]] for i in range(4)}
    return pl.DataFrame({"click": clicks, **names})


SCHEMA = Schema([Field(f"c{i}", min_count=1) for i in range(4)], label="click")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    return prepare(planted(4000), SCHEMA, tmp_path_factory.mktemp("planted") / "data")


def stepper_for(dataset, name, kind=None, **changes):
    family = {"dropout": 0, "field_dropout": 0, "dim": 3} if name in GATHERED and name != "lr" else {}
    settings = Settings.of(name, **{**family, "l2_power": 0.5, **changes})
    model = make_model(settings, dataset.field_sizes)
    stepper = make_stepper(model, settings, feature_counts(dataset, dataset.vocabularies))
    if kind is PlainStepper:
        counts = feature_counts(dataset, dataset.vocabularies)
        scale = np.maximum(counts, 1).astype(np.float32) ** np.float32(-settings.l2_power)
        model = make_model(settings, dataset.field_sizes)
        spread = {n: np.repeat(scale, np.repeat(t.dims, t.field_sizes)) for n, t in model.tables.items()}
        stepper = PlainStepper(model, settings, spread)
    return stepper


def take_steps(stepper, dataset, steps=20, batch=50):
    random = np.random.default_rng(5)
    labels = np.asarray(dataset.train.labels, np.float32)
    losses = []
    for _ in range(steps):
        order = random.integers(0, len(labels), batch)
        weights = (1 + labels[order]).astype(np.float32)
        losses.append(stepper.step(dataset.train.ids, order, labels[order], weights, 1.0))
    return losses


KINDS = [("lr", None)] + [(n, kind) for n in GATHERED[1:] for kind in ("features", "fields", "both")]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("optimiser", ["adagrad", "adam"])
@pytest.mark.parametrize(("name", "linear"), KINDS)
def test_native_steps_are_torchs_steps(dataset, name, linear, optimiser):
    changes = {"optimiser": optimiser, "learning_rate": 0.02, "l2": 0.01, "average": 0.9, "seed": 3}
    if optimiser == "adagrad":
        changes["learning_rate"] = 0.1
    if linear:
        changes["linear"] = linear
    native, plain = (stepper_for(dataset, name, kind, **changes) for kind in (NativeStepper, PlainStepper))
    assert isinstance(native, NativeStepper)
    np.testing.assert_allclose(take_steps(native, dataset), take_steps(plain, dataset), rtol=1e-4)
    ids = np.asarray(dataset.validation.ids)
    np.testing.assert_allclose(native.logits(ids), plain.logits(ids), rtol=1e-3, atol=1e-4)
    for key, values in plain.weights().items():
        np.testing.assert_allclose(native.weights()[key], values, rtol=2e-3, atol=2e-4, err_msg=key)


@pytest.mark.parametrize("linear", ["features", "fields", "both"])
def test_fmfm_is_dropped_alike_by_its_own_kernel_and_by_autograd(dataset, linear):
    ours, other = (stepper_for(dataset, "fmfm", linear=linear, dropout=0.3, field_dropout=0.2) for _ in range(2))
    other._work = AutogradWork(other.model, 0, other._dropout)
    np.testing.assert_allclose(take_steps(ours, dataset), take_steps(other, dataset), rtol=1e-5)
    ids = np.asarray(dataset.validation.ids)
    np.testing.assert_allclose(ours.logits(ids), other.logits(ids), atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("name", ["fm", "fmfm"])
def test_threads_and_seeds(dataset, name, threads):
    def final(**changes):
        stepper = stepper_for(dataset, name, **{"dropout": 0.3, "average": 0.9, **changes})
        take_steps(stepper, dataset)
        return np.concatenate([values.ravel() for values in stepper.weights().values()])

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        np.testing.assert_array_equal(final(threads=threads), final(threads=1))
        assert (final(seed=1) != final(seed=2)).any()
    finally:
        torch.set_num_threads(before)


def test_interactions_are_learned(dataset, tmp_path):
    found = {}
    settings = {"learning_rate": 0.02, "epochs": 20, "l2": 0, "dropout": 0, "field_dropout": 0, "batch_size": 64}
    for name in ("lr", "fmfm"):
        extra = {} if name == "lr" else {"dim": 8, "dense_rate": 0.02, **settings}
        run = train(name, dataset, tmp_path / name, **extra)
        found[name] = metrics.evaluate(dataset.test.labels, run.probabilities(dataset.test.ids))
    assert found["fmfm"]["auc"] > found["lr"]["auc"] + 0.05


def test_the_best_state_is_the_one_that_is_kept(dataset, tmp_path):
    settings = {**QUICK, "epochs": 30, "learning_rate": 0.3, "dropout": 0, "field_dropout": 0, "l2": 0, "patience": 3}
    run = train("fmfm", dataset, tmp_path / "run", **settings)
    history = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    losses = [entry["log_loss"] for entry in history]
    best = int(np.argmin(losses))
    assert best < len(losses) - 1  # it went past its best, and stopped by itself
    assert len(losses) == best + 1 + 3
    assert [entry["best"] for entry in history][best]
    again = metrics.evaluate(dataset.validation.labels, run.probabilities(dataset.validation.ids))
    assert again["log_loss"] == pytest.approx(losses[best], abs=1e-6)
    assert run.metrics["log_loss"] == losses[best]


def test_any_metric_can_decide(dataset, tmp_path):
    run = train("fmfm", dataset, tmp_path / "run", **QUICK, metric="auc")
    history = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert run.metrics["auc"] == max(entry["auc"] for entry in history)


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
        train(name, dataset, tmp_path / "parts", watch=interrupt, **settings)
    with pytest.raises(KeyboardInterrupt):
        train(name, dataset, tmp_path / "parts", watch=interrupt, resume=True, **settings)
    train(name, dataset, tmp_path / "parts", watch=interrupt, resume=True, **settings)
    compare_runs(tmp_path / "whole", tmp_path / "parts")
    with pytest.raises(Fm2Error, match=r"has seed 4, not 5"):
        train(name, dataset, tmp_path / "parts", resume=True, **{**settings, "seed": 5})


@pytest.mark.parametrize("place", ["fm2.training.stepper.DenseOptimiser.step", "fm2.training.loop.save_model"])
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
        train("fmfm", dataset, tmp_path / "run", watch=watch, **QUICK)


def test_only_the_same_run_is_resumed(dataset, tmp_path):
    def stop(report):
        raise KeyboardInterrupt

    weights = np.linspace(1, 2, 4000)
    with pytest.raises(KeyboardInterrupt):
        train("lr", dataset, tmp_path / "run", watch=stop, row_weights=weights, **QUICK)
    other = prepare(planted(4000, seed=1), SCHEMA, tmp_path / "other")
    with pytest.raises(Fm2Error, match="had another data set; resume with the same"):
        train("lr", other, tmp_path / "run", resume=True, row_weights=weights)
    with pytest.raises(Fm2Error, match="had other row weights; resume with the same"):
        train("lr", dataset, tmp_path / "run", resume=True)
    with pytest.raises(Fm2Error, match="had another model to go on from; resume with the same"):
        start = train("lr", dataset, tmp_path / "start", **QUICK)
        train("lr", dataset, tmp_path / "run", resume=True, row_weights=weights, start=start)
    with pytest.raises(Fm2Error, match=r"has model lr, not fmfm|is for fm"):
        train("fmfm", dataset, tmp_path / "run", resume=True)
    train("lr", dataset, tmp_path / "run", resume=True, row_weights=weights)
    with pytest.raises(Fm2Error, match="there is no run to resume"):
        train("lr", dataset, tmp_path / "none", resume=True)


def test_a_run_without_a_checkpoint_begins_anew(dataset, tmp_path):
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
        train("lr", dataset, tmp_path / "parts", watch=stop, **QUICK)
    with (tmp_path / "parts" / "history.jsonl").open("a") as file:
        file.write('{"epoch": 1.5, "st')
    train("lr", dataset, tmp_path / "parts", resume=True)
    compare_runs(tmp_path / "whole", tmp_path / "parts")


def test_a_run_is_for_one_training_at_a_time(dataset, tmp_path):
    def watch(report):
        with pytest.raises(Fm2Error, match="another training is at work in"):
            train("lr", dataset, tmp_path / "run", resume=True)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("lr", dataset, tmp_path / "run", watch=watch, **QUICK)


def test_nothing_is_lost_to_a_training_that_cannot_begin(dataset, tmp_path):
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
from fm2.training.fitting import train
loop.CHECKPOINT_SECONDS = 0
def watch(report):
    if report.rows > 5000:
        print("far enough", flush=True); time.sleep(60)
train("fmfm", sys.argv[1], sys.argv[2], watch=watch, **{settings!r})
"""
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(dataset.path), str(tmp_path / "parts")], stdout=subprocess.PIPE
    )
    try:
        assert child.stdout.readline() == b"far enough\n"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
    Run.open(tmp_path / "parts")  # the best so far is there
    train("fmfm", dataset, tmp_path / "parts", resume=True, **settings)
    compare_runs(tmp_path / "whole", tmp_path / "parts")


def compare_runs(one, other):
    for name in ("model.safetensors", "checkpoint.safetensors"):
        (ours, values), (theirs, others) = load_arrays(one / name), load_arrays(other / name)
        assert values == others
        assert ours.keys() == theirs.keys()
        for key in ours:
            np.testing.assert_array_equal(ours[key], theirs[key], err_msg=key)
    assert (one / "history.jsonl").read_text() == (other / "history.jsonl").read_text()


def test_a_model_goes_on_with_new_days(tmp_path):
    old = prepare(planted(3000), SCHEMA, tmp_path / "old")
    run = train("fmfm", old, tmp_path / "first", **QUICK)
    later = planted(3000, seed=7).with_columns(
        pl.when(pl.col("c0") == "v0").then(pl.lit("new")).otherwise(pl.col("c0")).alias("c0")
    )
    new = prepare(later, SCHEMA, tmp_path / "new")
    untrained = train(
        "fmfm", new, tmp_path / "second", start=run, **{**QUICK, "epochs": 1, "learning_rate": 1e-12, "dense_rate": 0}
    )
    rows = planted(50, seed=9)
    np.testing.assert_allclose(untrained.predict(rows), run.predict(rows), atol=1e-5)
    values = {untrained.encoder.vocabularies[0].value(id) for id in range(len(untrained.encoder.vocabularies[0]))}
    assert {"new", "v0", "v1"} <= values
    better = train("fmfm", new, tmp_path / "third", start=tmp_path / "first", **QUICK)
    assert better.metrics["log_loss"] < untrained.metrics["log_loss"]
    assert main(["evaluate", str(tmp_path / "third"), str(tmp_path / "new")]) == 0
    with pytest.raises(Fm2Error, match="has dim 8, not 7"):
        train("fmfm", new, tmp_path / "fourth", start=run, **QUICK, dim=7)
    small = train("fmfm", old, tmp_path / "small", **QUICK, dim=[2, 3, 2, 1], linear="both")
    grown = train("fmfm", new, tmp_path / "fifth", start=small, **QUICK)
    assert grown.model.config["dims"] == [2, 3, 2, 1]


@pytest.mark.parametrize(
    ("name", "changes"), [("ffm", {}), ("lr", {"optimiser": "ftrl", "learning_rate": 0.5, "l1": 0.01})]
)
def test_weights_survive_the_beginning_of_new_days(tmp_path, name, changes):
    """A rate of almost nothing leaves them; FTRL, which calculates weights anew, has to know where it was."""
    settings = {**QUICK, "l2_power": 0, "average": 0, **changes}
    run = train(name, prepare(planted(3000), SCHEMA, tmp_path / "old"), tmp_path / "first", **settings)
    new = prepare(planted(3000, seed=7, values=14), SCHEMA, tmp_path / "new")
    settings |= {"epochs": 1, "learning_rate": 1e-9}
    untrained = train(name, new, tmp_path / "second", start=run, **settings)
    rows = planted(50, seed=9)
    assert np.std(run.predict(rows)) > 0.01
    np.testing.assert_allclose(untrained.predict(rows), run.predict(rows), atol=1e-5)


def test_new_days_take_the_old_buckets(tmp_path, capsys):
    """Quantiles that were learned anew would mean other things to the old model."""
    fields = [Field("price", "numeric", transform="quantiles", buckets=5), Field("c0", min_count=1)]
    schema = Schema(fields, label="click")

    def day(number: int) -> str:
        random = np.random.default_rng(number)
        table = planted(800, seed=number).with_columns(price=pl.Series(random.gamma(2 + number, size=800)))
        table.write_csv(tmp_path / f"day{number}.csv")
        return str(tmp_path / f"day{number}.csv")

    old = prepare(day(0), schema, tmp_path / "old")
    run = train("lr", old, tmp_path / "run", **QUICK)
    anew = prepare(day(1), schema, tmp_path / "anew")
    with pytest.raises(Fm2Error, match="the field 'price' is read, hashed or cut into buckets otherwise"):
        train("lr", anew, tmp_path / "none", start=run, **QUICK)
    with pytest.raises(Fm2Error, match=r"the field 'price' of .* is encoded otherwise"):
        run.check(anew)
    assert main(["prepare", day(1), "--like", str(tmp_path / "old"), "--out", str(tmp_path / "new")]) == 0
    new = Dataset.open(tmp_path / "new")
    np.testing.assert_array_equal(new.vocabularies[0].boundaries, old.vocabularies[0].boundaries)
    train("lr", new, tmp_path / "more", start=run, **QUICK)
    command = ["prepare", day(1), "--like", str(tmp_path / "old"), "--out", str(tmp_path / "x"), "--min-count", "2"]
    assert main(command) == 1
    assert "--min-count belongs to the schema" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["lr", "fmfm", "ffm"])
def test_batches_without_weight_are_passed_over(dataset, tmp_path, name):
    weights = np.zeros(4000)
    weights[::40] = 1
    run = train(name, dataset, tmp_path / "run", row_weights=weights, **{**QUICK, "batch_size": 8})
    assert np.isfinite(run.metrics["log_loss"])


def test_poly2_cannot_go_on_with_new_ids(dataset, tmp_path):
    run = train("poly2", dataset, tmp_path / "run", **QUICK)
    with pytest.raises(Fm2Error, match="finds its pairs by their ids"):
        train("poly2", dataset, tmp_path / "more", start=run, **QUICK)


def test_what_nobody_has_seen_gets_the_click_rate(tmp_path):
    rows = planted(6000)
    rare = rows.filter(~pl.col("click") | (pl.int_range(len(rows)) % 20 == 0))  # few clicks
    dataset = prepare(rare, SCHEMA, tmp_path / "data")
    rate = np.mean(dataset.train.labels)
    unseen = {f"c{i}": ["new"] for i in range(4)}
    for name in ("lr", "fmfm", "ffm", "poly2"):
        run = train(name, dataset, tmp_path / name, **{**QUICK, "epochs": 1})
        assert run.predict(unseen)[0] == pytest.approx(rate, rel=0.35), name


def test_resuming_and_overwriting_exclude_each_other(dataset, tmp_path):
    with pytest.raises(Fm2Error, match="choose one of them"):
        train("lr", dataset, tmp_path / "run", resume=True, overwrite=True)


def test_rows_count_as_much_as_their_weights(dataset, tmp_path):
    clicks = planted(4000)["click"].to_numpy()
    by_class = train("fmfm", dataset, tmp_path / "class", **QUICK, positive_weight=3)
    np.save(tmp_path / "weights.npy", np.where(clicks, 3, 1))
    by_row = train("fmfm", dataset, tmp_path / "row", **QUICK, row_weights=tmp_path / "weights.npy")
    plain = train("fmfm", dataset, tmp_path / "plain", **QUICK)
    rows = planted(50, seed=9)
    np.testing.assert_array_equal(by_class.predict(rows), by_row.predict(rows))
    assert by_row.predict(rows).mean() > plain.predict(rows).mean() + 0.02
    for wrong, message in (
        (np.ones(10), r"have the shape \[10\]; the log has 4,000 rows"),
        (np.ones(40000), r"have the shape \[40000\]; the log has 4,000 rows"),
        (-np.ones(4000), "negative or not a number"),
        (np.zeros(4000), "or all are zero"),
        (tmp_path / "none.npy", "No such file"),
    ):
        with pytest.raises(Fm2Error, match=message):
            train("fmfm", dataset, tmp_path / "wrong", row_weights=wrong)
    assert not (tmp_path / "wrong").exists()


def test_predictions_need_no_label_and_survive_the_file(dataset, tmp_path):
    run = train("fmfm", dataset, tmp_path / "run", **QUICK)
    rows = planted(300, seed=3)
    expected = run.predict(rows.drop("click"))
    np.testing.assert_array_equal(Run.open(tmp_path / "run").predict(rows), expected)
    for name, table in (("with.csv", rows), ("without.csv", rows.drop("click"))):
        table.write_csv(tmp_path / name)
        assert main(["predict", str(tmp_path / "run"), str(tmp_path / name), "--out", str(tmp_path / "p.npy")]) == 0
        np.testing.assert_allclose(np.load(tmp_path / "p.npy"), expected, atol=1e-6)
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "with.csv"), "--out", str(tmp_path / "p.txt")]) == 0
    np.testing.assert_allclose(np.loadtxt(tmp_path / "p.txt"), expected, atol=1e-6)
    with pytest.raises(Fm2Error, match=r"with.csv is one of the files to score"):
        predict_files(run, [tmp_path / "with.csv"], tmp_path / "with.csv")
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "with.csv"), "--out", str(tmp_path / "pipe")]) == 0
    assert os.read(pipe, 10**6) == (tmp_path / "p.txt").read_bytes()
    os.close(pipe)
    (tmp_path / "bad.csv").write_text("c0,c1,c2,c3\na,b,c,d\na,b\n")
    with pytest.raises(Fm2Error, match=r"predict: .*bad.csv line 3: 2 columns, not 4"):
        main(["predict", str(tmp_path / "run"), str(tmp_path / "bad.csv"), "--out", str(tmp_path / "q"), "--debug"])
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize("name", ["lr", "poly2", "fm", "ffm", "fwfm", "fvfm", "fmfm"])
def test_a_run_scores_as_its_module_does(dataset, tmp_path, name):
    run = train(name, dataset, tmp_path / "run", **QUICK)
    ids = np.array(dataset.test.ids)
    with torch.no_grad():
        expected = torch.sigmoid(run.model(torch.from_numpy(ids))).numpy()
    np.testing.assert_allclose(run.probabilities(ids), expected, rtol=1e-5)
    np.testing.assert_array_equal(run.probabilities(ids.astype(np.int64)), run.probabilities(ids))
    ids[3, 1] = 1000
    with pytest.raises(Fm2Error, match=r"do not fit the model .* the id 1000 in field 1"):
        run.probabilities(ids)


def test_the_command_line(dataset, tmp_path, capsys):
    (tmp_path / "settings.toml").write_text("epochs = 1\nbatch_size = 64\n")
    out, data = str(tmp_path / "run"), str(dataset.path)
    command = ["train", "fmfm", data, "--out", out, "--settings", str(tmp_path / "settings.toml"), "--dim", "2,3,2,1"]
    assert main([*command, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) >= {"auc", "log_loss"}
    assert Run.open(out).model.config["dims"] == [2, 3, 2, 1]
    assert main(["evaluate", out, data, "--split", "validation", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["log_loss"] == pytest.approx(Run.open(out).metrics["log_loss"], abs=1e-6)
    assert main(command) == 1
    assert "is there already; --resume goes on with it, --overwrite replaces it" in capsys.readouterr().err


def test_wrong_data_is_refused(dataset, tmp_path, capsys):
    run = train("lr", dataset, tmp_path / "run", **QUICK)
    other = prepare(planted(500, seed=1, values=5), SCHEMA, tmp_path / "other")
    with pytest.raises(Fm2Error, match="is encoded otherwise than for the model"):
        run.check(other)
    clicks = prepare(planted(300).filter(pl.col("click")), SCHEMA, tmp_path / "clicks")
    with pytest.raises(Fm2Error, match="for training have the label 1"):
        train("lr", clicks, tmp_path / "none")
    empty = prepare(planted(100), SCHEMA, tmp_path / "empty", fractions=(1, 0, 0))
    with pytest.raises(Fm2Error, match="has no rows for validation"):
        train("lr", empty, tmp_path / "none")
    with pytest.raises(Fm2Error, match="has no rows in the split 'test'"):
        run = train(
            "lr", prepare(planted(400), SCHEMA, tmp_path / "two", fractions=(0.5, 0.5, 0)), tmp_path / "r2", **QUICK
        )
        main(["evaluate", str(tmp_path / "r2"), str(tmp_path / "two"), "--debug"])
    with pytest.raises(Fm2Error, match="has no trained model"):
        Run.open(tmp_path)


def test_a_loss_that_runs_away_is_an_error_and_keeps_the_best(dataset, tmp_path):
    settings = {"dropout": 0, "field_dropout": 0, "average": 0, "l2": 0, "batch_size": 64, "evaluations": 50}
    with pytest.raises(Fm2Error, match=r"the loss is \S+ at step \d+; lower --learning-rate"):
        train(
            "fmfm", dataset, tmp_path / "run", learning_rate=1e5, dense_rate=1e5, epochs=50, patience=10**6, **settings
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": 1}, "'colour' is not a setting"),
        ({"optimiser": "sgd"}, "optimiser is 'sgd'; it is one of adagrad, adam, ftrl"),
        ({"dropout": 1.5}, "dropout is 1.5; it is a number from 0.0 to 0.99"),
        ({"seed": -1}, "seed is -1; it is a whole number from 0 to"),
        ({"batch_size": 64.5}, "batch_size is 64.5; it is a whole number"),
        ({"epochs": 0}, "epochs is 0; it is a whole number from 1"),
        ({"dim": 2000}, "a dimension is 2000; it is a whole number from 1 to 1024"),
        ({"dim": True}, "a dimension is True"),
        ({"linear": "some"}, "linear is 'some'; it is one of features, fields, both"),
        ({"hash_bits": 10}, "hash_bits is for poly2, not for fmfm"),
        ({"model": "lr", "dim": 16}, "dim is for fm, fwfm, fvfm, fmfm, ffm, not for lr"),
        ({"model": "lr", "optimiser": "ftrl", "schedule": "linear"}, "ftrl lets its rates fall by itself"),
        ({"batch_size": "many"}, "batch_size is 'many'"),
        ({"optimiser": "ftrl"}, "ftrl is for the linear models, lr and poly2, not for fmfm"),
        ({"l1": 0.1}, "l1 is ftrl's"),
        ({"initial_squares": 0.1}, "initial_squares are adagrad's"),
        ({"model": "lr", "field_dropout": 0.1}, "field_dropout is for fm, fwfm, fvfm, fmfm, not for lr"),
        ({"model": "lr", "linear": "both"}, "linear is for fm, fwfm, fvfm, fmfm, not for lr"),
        ({"model": "ffm", "dim": [1, 2]}, "ffm has one dimension for all fields"),
    ],
)
def test_wrong_settings_are_named(changes, message):
    with pytest.raises(Fm2Error, match=message):
        Settings.of(**{"model": "fmfm", **changes})


def test_dimensions_are_read_from_words_and_files(write):
    path = write("dims.json", '{"a": 3, "b": 5}')
    assert read_dim(str(path), ("b", "a")) == [5, 3]
    with pytest.raises(Fm2Error, match="no dimension for the field 'c'"):
        read_dim(str(path), ("a", "c"))
    with pytest.raises(Fm2Error, match="is no number, no list and no readable JSON file"):
        read_dim("large", ("a",))


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
        with pytest.raises(Fm2Error, match="could not be written: File too large; what was there is whole"):
            save_arrays(tmp_path / "run" / "model.safetensors", {"large": np.zeros(1000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == content
    assert len(list((tmp_path / "run").iterdir())) == 4
    (tmp_path / "run" / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(Fm2Error, match=r"model.safetensors is damaged"):
        Run.open(tmp_path / "run")


def test_a_model_file_of_a_stranger_is_refused_where_it_does_not_fit(dataset, tmp_path):
    train("fmfm", dataset, tmp_path / "run", **QUICK)
    path = tmp_path / "run" / "model.safetensors"
    arrays, values = load_arrays(path)
    weight, ends = arrays["model.embedding.weight"], arrays["vocabulary.0.ends"]
    for changed, other, message in (
        ({"model.embedding.weight": weight[:-1]}, {}, "embedding.weight is float32"),
        ({"model.embedding.weight": weight.astype(np.float64)}, {}, "embedding.weight is float64"),
        ({"model.embedding.weight": weight * np.float32(np.nan)}, {}, "entries that are no numbers"),
        ({"vocabulary.0.ends": ends[:-1]}, {}, "the values' ends do not fit the text"),
        ({"vocabulary.0.ends": ends[None]}, {}, "ends is of another type or shape"),
        ({"vocabulary.0.hashed": np.array(8)}, {}, "other sizes than the model's fields"),
        ({}, {"metrics": None}, "NoneType"),
        ({}, {"schema": None}, "NoneType"),
        ({}, {"model": []}, "list indices"),
        ({}, {"model": {**values["model"], "field_sizes": [10**13] * 4}}, "other sizes"),
        ({}, {"model": {**values["model"], "dims": [10**13] * 4}}, ""),
    ):
        save_arrays(path, {**arrays, **changed}, {**values, **other})
        with pytest.raises(Fm2Error, match=f"is damaged, or not a file of fm2's: .*{message}"):
            Run.open(tmp_path / "run")
    save_arrays(path, arrays, {**values, "version": 2})
    with pytest.raises(Fm2Error, match="has the format fm2 model 2"):
        Run.open(tmp_path / "run")
