"""Training as the user sees it: steps that match torch, models that learn, helpful errors."""

from __future__ import annotations

import json
import re

import numpy as np
import polars as pl
import pytest
import torch
from tests.helpers.planted import QUICK, SCHEMA, planted

from fm2 import Fm2Error, Schema, prepare
from fm2.artifacts.settings import Settings, read_changes, read_dim
from fm2.cli.main import main
from fm2.data.rows import EncodedRows
from fm2.evaluation import metrics
from fm2.training.construction import count_torch_threads, make_backend, make_model
from fm2.training.forward_backward import AutogradForwardBackward
from fm2.training.inputs import feature_counts
from fm2.training.native_backend import NativeBackend
from fm2.training.run import Run
from fm2.training.torch_backend import TorchBackend
from fm2.training.train import train
from fm2.training.unknown import UnknownFeatures

GATHERED = ("lr", "fm", "fwfm", "fvfm", "fmfm")


def backend_for(dataset, name, kind=None, **changes):
    family = {"dropout": 0, "field_dropout": 0, "dim": 3} if name in GATHERED and name != "lr" else {}
    settings = Settings.of(name, **{**family, "l2_power": 0.5, **changes})
    model = make_model(settings, dataset.field_sizes)
    backend = make_backend(model, settings, feature_counts(dataset, dataset.vocabularies))
    if kind is TorchBackend:
        counts = feature_counts(dataset, dataset.vocabularies)
        scale = np.maximum(counts, 1).astype(np.float32) ** np.float32(-settings.l2_power)
        model = make_model(settings, dataset.field_sizes)
        spread = {n: np.repeat(scale, np.repeat(t.dims, t.field_sizes)) for n, t in model.tables.items()}
        unknown = {n: UnknownFeatures(table, counts) for n, table in model.tables.items()}
        backend = TorchBackend(model, settings, spread, unknown=unknown)
    return backend


def take_steps(backend, dataset, steps=20, batch=50):
    random = np.random.default_rng(5)
    labels = np.asarray(dataset.train.labels, np.float32)
    losses = []
    for _ in range(steps):
        order = random.integers(0, len(labels), batch)
        weights = (1 + labels[order]).astype(np.float32)
        losses.append(backend.step(dataset.train.encoded, order, labels[order], weights, 1.0))
    return losses


KINDS = [("lr", None)] + [(n, kind) for n in GATHERED[1:] for kind in ("features", "fields", "both")]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("kind", [NativeBackend, TorchBackend])
@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
@pytest.mark.parametrize("name", GATHERED[1:])
def test_without_embeddings_a_machine_is_lr_with_the_scaled_penalty(dataset, name, optimizer, kind):
    same = {"optimizer": optimizer, "learning_rate": 0.05, "dense_learning_rate": 0.01, "ema_decay": 0.9}
    lr = backend_for(dataset, "lr", kind, **same, l2=0.1)
    machine = backend_for(dataset, name, kind, **same, l2=0.5, linear_l2_scale=0.2, embedding_std=0, linear="features")
    np.testing.assert_allclose(take_steps(machine, dataset), take_steps(lr, dataset), rtol=1e-5)
    weights = machine.weights()
    np.testing.assert_allclose(weights["linear.weight"], lr.weights()["linear.weight"], rtol=1e-4, atol=1e-6)
    assert np.abs(weights["linear.weight"]).max() > 0.05
    assert not weights["embedding.weight"].any()


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
@pytest.mark.parametrize(("name", "linear"), KINDS)
def test_native_steps_match_torch(dataset, name, linear, optimizer):
    changes = {"optimizer": optimizer, "learning_rate": 0.02, "l2": 0.01, "ema_decay": 0.9, "seed": 3}
    if optimizer == "adagrad":
        changes["learning_rate"] = 0.1
    if linear:
        changes["linear"] = linear
    native, plain = (backend_for(dataset, name, kind, **changes) for kind in (NativeBackend, TorchBackend))
    assert isinstance(native, NativeBackend)
    np.testing.assert_allclose(take_steps(native, dataset), take_steps(plain, dataset), rtol=1e-4)
    ids = np.asarray(dataset.validation.ids)
    np.testing.assert_allclose(native.score(EncodedRows(ids)), plain.score(EncodedRows(ids)), rtol=1e-3, atol=1e-4)
    for key, values in plain.weights().items():
        np.testing.assert_allclose(native.weights()[key], values, rtol=2e-3, atol=2e-4, err_msg=key)


@pytest.mark.parametrize("linear", ["features", "fields", "both"])
def test_fmfms_kernel_and_autograd_apply_the_same_dropout(dataset, linear):
    ours, other = (backend_for(dataset, "fmfm", linear=linear, dropout=0.3, field_dropout=0.2) for _ in range(2))
    other._forward_backward = AutogradForwardBackward(other.model, 0, other._dropout)
    np.testing.assert_allclose(take_steps(ours, dataset), take_steps(other, dataset), rtol=1e-5)
    ids = np.asarray(dataset.validation.ids)
    np.testing.assert_allclose(ours.score(EncodedRows(ids)), other.score(EncodedRows(ids)), atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("name", ["fm", "fmfm"])
def test_threads_and_seeds(dataset, name, threads):
    def final(**changes):
        backend = backend_for(dataset, name, **{"dropout": 0.3, "ema_decay": 0.9, **changes})
        take_steps(backend, dataset)
        return np.concatenate([values.ravel() for values in backend.weights().values()])

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
        extra = {} if name == "lr" else {"dim": 8, "dense_learning_rate": 0.02, **settings}
        run = train(name, dataset, tmp_path / name, **extra)
        found[name] = metrics.evaluate(dataset.test.labels, run.probabilities(dataset.test.ids))
    assert found["fmfm"]["auc"] > found["lr"]["auc"] + 0.05


def test_the_best_state_is_kept(dataset, tmp_path):
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


def test_any_metric_can_select_the_best_state(dataset, tmp_path):
    run = train("fmfm", dataset, tmp_path / "run", **QUICK, metric="auc")
    history = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert run.metrics["auc"] == max(entry["auc"] for entry in history)


@pytest.mark.parametrize("name", ["lr", "fmfm", "ffm"])
def test_rows_of_weight_zero_have_no_influence(dataset, tmp_path, name):
    """Most batches of 8 rows have no weight at all. Inverting the clicks of rows without weight changes nothing."""
    weights = np.zeros(4000)
    weights[::40] = 1
    settings = {**QUICK, "batch_size": 8, "row_weights": weights}
    run = train(name, dataset, tmp_path / "run", **settings)

    def train_with_inverted_clicks(inverted, out):
        clicks = pl.Series(planted(4000)["click"].to_numpy() ^ inverted)
        inverted_dataset = prepare(planted(4000).with_columns(click=clicks), SCHEMA, tmp_path / f"{out} data")
        return train(name, inverted_dataset, tmp_path / out, **settings)

    in_training = np.isin(np.arange(4000), dataset.train.rows)
    ignored = train_with_inverted_clicks(in_training & (weights == 0), "ignored")
    counted = train_with_inverted_clicks(in_training & (weights == 1), "counted")
    probabilities = run.predict(planted(200, seed=9))
    np.testing.assert_array_equal(ignored.predict(planted(200, seed=9)), probabilities)
    assert np.abs(counted.predict(planted(200, seed=9)) - probabilities).max() > 0.01


def test_unknown_values_get_the_click_rate(tmp_path):
    rows = planted(6000)
    rare = rows.filter(~pl.col("click") | (pl.int_range(len(rows)) % 20 == 0))  # few clicks
    dataset = prepare(rare, SCHEMA, tmp_path / "data")
    rate = np.mean(dataset.train.labels)
    unseen = {f"c{i}": ["new"] for i in range(4)}
    for name in ("lr", "fmfm", "ffm", "poly2"):
        run = train(name, dataset, tmp_path / name, **{**QUICK, "epochs": 1})
        assert run.predict(unseen)[0] == pytest.approx(rate, rel=0.35), name


def test_row_weights(dataset, tmp_path):
    clicks = planted(4000)["click"].to_numpy()
    by_class = train("fmfm", dataset, tmp_path / "class", **QUICK, positive_weight=3)
    np.save(tmp_path / "weights.npy", np.where(clicks, 3, 1))
    by_row = train("fmfm", dataset, tmp_path / "row", **QUICK, row_weights=tmp_path / "weights.npy")
    plain = train("fmfm", dataset, tmp_path / "plain", **QUICK)
    rows = planted(50, seed=9)
    np.testing.assert_array_equal(by_class.predict(rows), by_row.predict(rows))
    assert by_row.predict(rows).mean() > plain.predict(rows).mean() + 0.02
    for wrong, message in (
        (np.ones(10), "row weights: expected 4,000 numbers, one per row of the log, got 10"),
        (np.ones(40000), "row weights: expected 4,000 numbers, one per row of the log, got 40,000"),
        (-np.ones(4000), "row 0 has weight -1.0; weights must be 0 or more"),
        (np.ones((4000, 2)), r"row weights: expected one number per row, got the shape \[4000, 2\]"),
        (np.zeros(4000), "all row weights are zero"),
        (tmp_path / "none.npy", r"train: row weights: file not found: .*none\.npy$"),
    ):
        with pytest.raises(Fm2Error, match=message):
            train("fmfm", dataset, tmp_path / "wrong", row_weights=wrong)
    assert not (tmp_path / "wrong").exists()


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
    assert "already exists; use --resume to continue it or --overwrite to replace it" in capsys.readouterr().err


def test_unusable_data_raises_errors(dataset, tmp_path, capsys):
    run = train("lr", dataset, tmp_path / "run", **QUICK)
    fewer = Schema(SCHEMA.fields[:-1], label="click")
    other = prepare(planted(500, seed=1, values=5), fewer, tmp_path / "other")
    with pytest.raises(Fm2Error, match="has other fields than the model"):
        run.evaluate(other)
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


def test_a_diverging_loss_is_an_error_and_keeps_the_best_model(dataset, tmp_path):
    settings = {
        "dropout": 0,
        "field_dropout": 0,
        "ema_decay": 0,
        "l2": 0,
        "batch_size": 64,
        "evaluations_per_epoch": 50,
    }
    with pytest.raises(Fm2Error, match=r"the loss is \S+ at step \d+; lower learning_rate="):
        train(
            "fmfm",
            dataset,
            tmp_path / "run",
            learning_rate=1e5,
            dense_learning_rate=1e5,
            epochs=50,
            patience=10**6,
            **settings,
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"color": 1}, "unknown setting 'color'; choose from model, dim"),
        ({"epoch": 1}, r"unknown setting 'epoch'; did you mean 'epochs'\?"),
        ({"optimizer": "sgd"}, "optimizer must be one of adagrad, adam, dense_adam, ftrl, got 'sgd'"),
        ({"dropout": 1.5}, "dropout must be a number between 0.0 and 0.99, got 1.5"),
        ({"seed": -1}, "seed must be an integer between 0 and .*, got -1"),
        ({"batch_size": 64.5}, "batch_size must be an integer .*, got 64.5"),
        ({"epochs": 0}, "epochs must be an integer between 1 and .*, got 0"),
        ({"dim": 2000}, "dim must be an integer between 1 and 1024, got 2000"),
        ({"dim": True}, "dim must be an integer between 1 and 1024, got True"),
        ({"linear": "some"}, "linear must be one of features, fields, both, got 'some'"),
        ({"hash_bits": 10}, "fmfm does not use hash_bits; it applies to poly2"),
        ({"model": "lr", "dim": 16}, "lr does not use dim; it applies to fm, ffm, fwfm, fvfm, fmfm, networks"),
        (
            {"model": "lr", "optimizer": "ftrl", "schedule": "linear"},
            "ftrl lowers its rates by itself",
        ),
        ({"batch_size": "many"}, "batch_size must be an integer .*, got 'many'"),
        ({"optimizer": "ftrl"}, "fmfm cannot be trained with ftrl; lr, poly2 can"),
        ({"l1": 0.1}, 'l1 needs optimizer="ftrl"'),
        ({"initial_accumulator": 0.1}, 'initial_accumulator needs optimizer="adagrad"'),
        (
            {"model": "lr", "field_dropout": 0.1},
            "lr does not use field_dropout; it applies to fm, .*, networks",
        ),
        ({"model": "lr", "linear": "both"}, "lr does not use linear; it applies to fm, fwfm, fvfm, fmfm, deepfmfm"),
        ({"model": "ffm", "dim": [1, 2]}, r"ffm uses one dimension for all fields, got \(1, 2\)"),
    ],
)
def test_invalid_settings_raise_errors(changes, message):
    with pytest.raises(Fm2Error, match=message):
        Settings.of(**{"model": "fmfm", **changes})


def test_dimensions_are_read_from_text_and_files(write):
    path = write("dims.json", '{"a": 3, "b": 5}')
    assert read_dim(str(path), ("b", "a")) == [5, 3]
    with pytest.raises(Fm2Error, match="has no dimension for field 'c'"):
        read_dim(str(path), ("a", "c"))
    with pytest.raises(Fm2Error, match="unknown field 'b'; choose from a"):
        read_dim(str(path), ("a",))
    with pytest.raises(Fm2Error, match="dim must be a number, a list or a readable JSON file, got 'large'"):
        read_dim("large", ("a",))


def test_errors_name_the_settings_file(write):
    with pytest.raises(Fm2Error, match=r"train: .*/s.toml: unknown setting 'rate'"):
        read_changes(write("s.toml", "rate = 1"), "fmfm")
    with pytest.raises(Fm2Error, match=r"s.toml has settings for lr, not for fmfm"):
        read_changes(write("s.toml", 'model = "lr"'), "fmfm")
    with pytest.raises(Fm2Error, match=r"s.toml: epochs must be an integer between 1 and .*, got 0"):
        read_changes(write("s.toml", "epochs = 0"), "fmfm")
    assert read_changes(write("s.toml", "epochs = 3"), "fmfm") == {"epochs": 3}


def test_a_settings_file_is_combined_with_options(dataset, write, tmp_path):
    settings = ["--settings", str(write("s.toml", "l1 = 0.001"))]
    command = ["train", "lr", str(dataset.path), "--epochs", "1", *settings, "--out", str(tmp_path / "run")]
    assert main([*command, "--optimizer", "ftrl"]) == 0
    assert main(command) == 1


def test_a_training_reports_how_it_ended(dataset, tmp_path, capsys, monkeypatch):
    command = ["train", "lr", str(dataset.path), "--out", str(tmp_path / "run"), "--epochs"]
    assert main([*command, "1"]) == 0
    assert "fm2: 1.00 epochs in 0 s (" in capsys.readouterr().err
    monkeypatch.setattr("fm2.progress.FIRST_LINE_SECONDS", 0)
    monkeypatch.setattr("fm2.training.progress.SPEED_SECONDS", 0)
    options = ["--overwrite", "--learning-rate", "5", "--patience", "1", "--ema-decay", "0"]
    assert main([*command, "50", *options]) == 0
    told = capsys.readouterr().err
    assert told.splitlines()[0] == f"fm2: training lr on {len(dataset.train):,} rows ..."
    assert re.match(r"fm2: training: \d+%, at most \d+:\d\d left; .* rows/s, loss ", told.splitlines()[1])
    assert "early stopping: no improvement in 1 evaluation\n" in told
    assert "worse than predicting the mean click rate" in told


@pytest.mark.parametrize("name", ["fm", "fwfm", "fmfm"])
def test_dense_adam_and_dense_l2_are_adam_with_l2_on_all_parameters(dataset, name):
    same = {"learning_rate": 0.01, "dense_learning_rate": 0.01, "l2": 0.1, "dense_l2": 0.1, "l2_power": 0.0}
    backend = backend_for(dataset, name, optimizer="dense_adam", linear="both", linear_std=1.0, **same)
    literal = make_model(backend.settings, dataset.field_sizes)
    optimizer = torch.optim.Adam(literal.parameters(), lr=0.01, weight_decay=0.1)
    random, labels = np.random.default_rng(5), np.asarray(dataset.train.labels, np.float32)
    for _ in range(12):
        order = random.integers(0, len(labels), 50)
        backend.step(dataset.train.encoded, order, labels[order], None, 1.0)
        optimizer.zero_grad()
        logits = literal(torch.from_numpy(dataset.train.ids[order]))
        torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(labels[order])).backward()
        optimizer.step()
    for key, weight in literal.named_parameters():
        np.testing.assert_allclose(backend.weights()[key], weight.detach().numpy(), atol=2e-5, err_msg=key)


def test_dense_adam_resumes_from_its_state(dataset):
    backend = backend_for(dataset, "fmfm", optimizer="dense_adam", l2=0.1)
    take_steps(backend, dataset, 3)
    resumed = backend_for(dataset, "fmfm", optimizer="dense_adam", l2=0.1)
    resumed.load(backend.state(), backend.steps)
    for each in (backend, resumed):
        take_steps(each, dataset, 3)
    for name, value in backend.weights().items():
        np.testing.assert_array_equal(resumed.weights()[name], value)


@pytest.mark.parametrize(
    ("model", "batch_size", "threads"),
    [("fwfm", 1024, 1), ("fvfm", 1024, 1), ("fwfm", 32_768, 2), ("fm", 32_768, 1), ("widedeep", 64, 1)],
)
def test_small_steps_do_not_wait_for_torch_threads(model, batch_size, threads):
    settings = Settings.of(model, dim=16, batch_size=batch_size, threads=2)
    assert count_torch_threads(make_model(settings, [3] * 39), settings) == threads
