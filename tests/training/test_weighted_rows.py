"""Training and metrics with row weights, click counts and sampled rows without a click."""

from __future__ import annotations

import itertools
import json

import numpy as np
import polars as pl
import pytest
import torch
from tests.helpers.counts import counted_log, expand
from tests.helpers.planted import QUICK, SCHEMA, planted
from tests.helpers.runs import compare_runs, load_arrays

import fm2
from fm2 import Field, Fm2Error, Run, Schema, compare, prepare, report, train
from fm2.artifacts.settings import Settings
from fm2.cli.main import main
from fm2.evaluation import metrics
from fm2.evaluation.evaluate import effective_rows
from fm2.models.registry import specs
from fm2.studies.reporting.fields import measure_information
from fm2.studies.reporting.mutual_information import information_and_chance
from fm2.training.construction import make_model

FIELDS = [Field("site", min_count=30), Field("user", min_count=1)]
WHOLE = {
    "epochs": 1,
    "batch_size": 100_000,
    "evaluations_per_epoch": 1,
    "field_dropout": 0,
    "unknown_dropout": 0,
    "ema_decay": 0,
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Return a dataset with counts, and the same one with a row per impression."""
    folder, log = tmp_path_factory.mktemp("counts"), counted_log(3000)
    datasets = []
    for name, convert in (("views", lambda part: part), ("", expand)):
        parts = [convert(log[a:b]) for a, b in itertools.pairwise((0, 2000, 2500, 3000))]
        schema = Schema(FIELDS, "clicks", impressions=name)
        options = {"fractions": (1, 0, 0), "validation": parts[1], "test": parts[2]}
        datasets.append(prepare(parts[0], schema, folder / (name or "rows"), **options))
    return datasets


def assert_same_metrics(one: dict, other: dict, rel: float = 1e-12) -> None:
    assert one == {name: pytest.approx(value, rel=rel, abs=rel) for name, value in other.items()}


@pytest.mark.parametrize("model", ["fm", "fmfm", "deepfm"])
@pytest.mark.parametrize("positive_weight", [1, 3])
def test_a_step_with_counts_equals_one_with_a_row_per_impression(pair, tmp_path, model, positive_weight):
    settings = {**WHOLE, "positive_weight": positive_weight, "optimizer": "adagrad", "initial_accumulator": 1.0}
    if model == "deepfm":
        settings |= {"batch_norm": False, "dropout": 0.0}
    runs = [train(model, data, tmp_path / str(number), **settings) for number, data in enumerate(pair)]
    for one, other in zip(runs[0].model.learned().values(), runs[1].model.learned().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-6)
    histories = [json.loads((run.path / "history.jsonl").read_text()) for run in runs]
    assert histories[0]["training_loss"] == pytest.approx(histories[1]["training_loss"], rel=1e-6)
    # The metrics of one model do not depend on how its impressions are stored.
    for split in ("train", "validation", "test"):
        assert_same_metrics(runs[0].evaluate(pair[0], split), runs[0].evaluate(pair[1], split))
    bins = [
        metrics.calibration_bins(data.test.labels, runs[0].predict(np.asarray(data.test.ids)), data.test.weights)
        for data in pair
    ]
    for one, other in zip(*bins, strict=True):
        assert_same_metrics(one, other)


@pytest.mark.parametrize("model", ["lr", "ffm", "poly2", "fmfm"])
def test_models_learn_equally_well_from_counts(pair, tmp_path, model):
    runs = [train(model, data, tmp_path / str(number), epochs=4) for number, data in enumerate(pair)]
    losses = [run.evaluate(pair[0])["log_loss"] for run in runs]
    rate = np.average(pair[0].test.labels, weights=pair[0].test.weights)
    constant = metrics.log_loss(pair[0].test.labels, np.full(len(pair[0].test), rate), pair[0].test.weights)
    assert losses[0] == pytest.approx(losses[1], abs=0.01)
    assert max(losses) < constant


def test_mutual_information_counts_impressions(pair):
    one, other = (measure_information(data) for data in pair)
    assert one.rows == one.total_rows == other.rows == pair[0].manifest["splits"]["train"]["impressions"]
    np.testing.assert_allclose(one.measured, other.measured, rtol=1e-12)
    np.testing.assert_allclose(one.chance, other.chance, rtol=1e-12)


def test_mutual_information_of_weighted_rows(tmp_path):
    """Rows of the weights 0 and 1 are the rows of the weight 1."""
    log = planted(4000).with_columns(w=pl.Series(np.arange(4000) % 2))
    data = prepare(log, SCHEMA.replace(weight="w"), tmp_path / "data")
    kept = np.asarray(data.train.weights) > 0
    information = measure_information(data)
    expected, chance = information_and_chance(data.train.ids[kept], data.train.labels[kept], data.field_sizes)
    assert information.rows == kept.sum()
    np.testing.assert_allclose(information.measured, expected, atol=1e-12)
    np.testing.assert_allclose(information.chance, chance, atol=1e-12)


def test_weights_of_the_schema_equal_row_weights_in_training(dataset, tmp_path):
    weights = np.random.default_rng(0).random(4000).astype(np.float32)
    log = planted(4000).with_columns(w=pl.Series(weights))
    weighted = prepare(log, SCHEMA.replace(weight="w"), tmp_path / "data")
    one_evaluation = {**QUICK, "epochs": 1, "evaluations_per_epoch": 1}
    by_schema = train("fmfm", weighted, tmp_path / "schema", **one_evaluation)
    by_row = train("fmfm", dataset, tmp_path / "row", row_weights=weights, **one_evaluation)
    rows = planted(100, seed=5)
    np.testing.assert_array_equal(by_schema.predict(rows), by_row.predict(rows))
    # Evaluation is weighted too.
    split = weighted.validation
    predicted = by_schema.predict(np.asarray(split.ids))
    assert_same_metrics(
        by_schema.evaluate(weighted, "validation"), metrics.evaluate(split.labels, predicted, split.weights)
    )
    assert by_schema.metrics["log_loss"] == pytest.approx(
        by_schema.evaluate(weighted, "validation")["log_loss"], rel=1e-6
    )
    assert by_schema.metrics["log_loss"] != pytest.approx(by_row.metrics["log_loss"], rel=1e-4)
    # Both kinds of weights are multiplied.
    squared = train("fmfm", dataset, tmp_path / "squared", row_weights=weights**2, **one_evaluation)
    both = train("fmfm", weighted, tmp_path / "both", row_weights=weights, **one_evaluation)
    np.testing.assert_allclose(both.predict(rows), squared.predict(rows), rtol=1e-5)


def test_studies_use_the_weights(tmp_path, pair):
    truth = np.full(3000, 0.3)
    table = compare(pair[0], tmp_path / "compare", ["lr"], truth=truth, epochs=1)
    run = Run.open(tmp_path / "compare" / "lr-0")
    assert table.rows[0]["log_loss"] == run.evaluate(pair[1])["log_loss"]
    split = pair[1].test
    assert table.truth["log_loss"] == pytest.approx(metrics.log_loss(split.labels, np.full(len(split), 0.3)), rel=1e-12)
    report(tmp_path / "compare", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "training impressions" in page
    bins = [metrics.calibration_bins(d.test.labels, run.predict(np.asarray(d.test.ids)), d.test.weights) for d in pair]
    assert f"{bins[1][0]['rows']:,.0f}" in page
    assert effective_rows(pair[0], "test") == len(split)


def test_splits_without_both_labels_or_without_weight(tmp_path):
    log = counted_log(300).with_columns(w=pl.lit(1))
    schema = Schema(FIELDS, "clicks", impressions="views", weight="w")
    for change, message in (
        ({"clicks": pl.lit(0)}, "all rows of .* for validation have the label 0"),
        ({"clicks": pl.col("views")}, "all rows of .* for validation have the label 1"),
        ({"w": pl.lit(0)}, "has only rows with the weight 0 in the split 'validation'"),
    ):
        data = prepare(log, schema, tmp_path / "data", validation=log.with_columns(**change), overwrite=True)
        with pytest.raises(Fm2Error, match=message):
            train("lr", data, tmp_path / "run")


# Sampling of rows without a click.


@pytest.fixture(scope="module")
def rare(tmp_path_factory):
    """Return a log with few clicks and known probabilities, prepared completely and with a tenth of the others."""
    folder = tmp_path_factory.mktemp("rare")
    random, effect = np.random.default_rng(3), np.random.default_rng(4).normal(size=(3, 8))
    columns = random.integers(0, 8, (100_000, 3))
    logits = sum(effect[i, columns[:, i]] for i in range(3)) - 4
    truth = 1 / (1 + np.exp(-logits))
    values = {f"c{i}": [f"v{value}" for value in columns[:, i]] for i in range(3)}
    log = pl.DataFrame({"click": (random.random(len(truth)) < truth).astype(np.int8), **values})
    schema = Schema([Field(f"c{i}") for i in range(3)], "click")
    fractions = (0.7, 0.1, 0.2)
    full = prepare(log, schema, folder / "full", fractions=fractions)
    sampled = prepare(log, schema, folder / "sampled", fractions=fractions, negative_rate=0.1)
    return log, truth, full, sampled


@pytest.mark.parametrize("model", ["lr", "fmfm", "ffm", "deepfm"])
def test_a_model_of_sampled_rows_predicts_the_rate_of_the_complete_log(rare, tmp_path, model):
    log, truth, full, sampled = rare
    run = train(model, sampled, tmp_path / "run", epochs=8, **({"learning_rate": 0.1} if model == "lr" else {}))
    measured = run.evaluate(sampled)
    assert measured["calibration"] == pytest.approx(1, abs=0.1)
    assert run.metrics["calibration"] == pytest.approx(1, abs=0.12)
    assert_same_metrics(run.evaluate(full), measured)
    rows = sampled.test.rows
    best = metrics.log_loss(sampled.test.labels, truth[rows])
    assert measured["log_loss"] < best + 0.01
    assert run.negative_rate == Run.open(run.path).negative_rate == 0.1
    assert "negative_rate" not in train("lr", full, tmp_path / "other", epochs=1).model.config
    # Metrics of the training rows are those of the complete log.
    assert run.evaluate(sampled, "train")["calibration"] == pytest.approx(1, abs=0.1)
    if model == "deepfm":
        return
    fm2.compile(tmp_path / "run", tmp_path / "model.fm2")
    scorer = fm2.load(tmp_path / "model.fm2")
    assert scorer.negative_rate == 0.1
    np.testing.assert_allclose(scorer.predict(log[:500]), run.predict(log[:500]), rtol=1e-4)


def test_the_shift_of_the_bias_is_ln_w(rare, tmp_path):
    *_, sampled = rare
    run = train("lr", sampled, tmp_path / "run", epochs=1, evaluations_per_epoch=1, ema_decay=0)
    trained = load_arrays(tmp_path / "run" / "checkpoint.safetensors")[0]
    saved = load_arrays(tmp_path / "run" / "model.safetensors")[0]
    raw = next(values for name, values in trained.items() if name.endswith("bias"))
    assert saved["model.bias"] == pytest.approx(raw.flat[0] + np.log(0.1), rel=1e-6)
    assert run.model.bias.item() == saved["model.bias"]


def test_resuming_and_warm_starts_keep_the_shift(rare, tmp_path):
    *_, full, sampled = rare
    settings = {"epochs": 2, "evaluations_per_epoch": 2, "patience": 100}
    straight = train("fmfm", sampled, tmp_path / "straight", **settings)

    def stop(progress):
        if progress.rows > progress.epoch_rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("fmfm", sampled, tmp_path / "resumed", callback=stop, **settings)
    train("fmfm", sampled, tmp_path / "resumed", resume=True)
    compare_runs(tmp_path / "straight", tmp_path / "resumed")
    for name, data in (("full", full), ("sampled", sampled)):
        copied = train("fmfm", data, tmp_path / name, start=straight, learn=False)
        assert copied.model.bias.item() == pytest.approx(straight.model.bias.item(), rel=1e-6)
        assert copied.metrics["log_loss"] == pytest.approx(straight.metrics["log_loss"], rel=1e-5)
        assert copied.negative_rate == data.negative_rate
        warm = train("fmfm", data, tmp_path / f"warm {name}", start=straight, epochs=1)
        assert warm.evaluate(full)["calibration"] == pytest.approx(1, abs=0.12)


def test_the_command_line_reports_the_rate(rare, tmp_path, capsys):
    *_, sampled = rare
    train("lr", sampled, tmp_path / "run", epochs=1)
    fm2.compile(tmp_path / "run", tmp_path / "model.fm2")
    for model in ("run", "model.fm2"):
        assert main(["evaluate", str(tmp_path / model), str(sampled.path)]) == 0
        assert "trained on 0.1 of the rows without a click" in capsys.readouterr().err
    report(tmp_path / "run", tmp_path / "report.html", data=sampled)
    assert "rows without a click in training" in (tmp_path / "report.html").read_text()


def test_weigh_clicks():
    random = np.random.default_rng(0)
    labels, weights, predicted = random.random((3, 50))
    clicks, others = 3 * weights * labels, weights * (1 - labels)
    expected = metrics.evaluate([1] * 50 + [0] * 50, np.r_[predicted, predicted], np.r_[clicks, others])
    new_labels, new_weights = metrics.weigh_clicks(labels, weights, 3)
    assert_same_metrics(metrics.evaluate(new_labels, predicted, new_weights), expected)


@pytest.mark.parametrize("name", [spec.name for spec in specs()])
def test_the_bias_shifts_the_logits_of_every_model(name):
    """The correction for sampled rows relies on it."""
    model = make_model(Settings.of(name), [5, 6, 7, 8], True, {}).eval()
    ids = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7]])
    with torch.no_grad():
        before = model(ids)
        model.bias.add_(0.5)
        torch.testing.assert_close(model(ids), before + 0.5)
