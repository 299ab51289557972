"""Significance in fm2 compare: paired tests of all pairs, ties, and the variation over seeds."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from tests.helpers.pages import SVG, Page, rows_of, titles_of
from tests.helpers.planted import LEARNED, SCHEMA, planted

import fm2
from fm2.cli.main import main
from fm2.evaluation import metrics
from fm2.evaluation.significance import compare_auc, compare_log_loss
from fm2.studies.comparison import runs as comparing
from fm2.studies.comparison.printing import lines
from fm2.studies.comparison.results import Comparison
from fm2.studies.statistics import Statistics, measure_statistics
from fm2.training.run import Run

SETTINGS = {**LEARNED, "epochs": 4}


@pytest.fixture(scope="module")
def compared(dataset, tmp_path_factory):
    """Return a comparison of LR with two models that learn the pairs of values."""
    out = tmp_path_factory.mktemp("tied") / "table"
    return fm2.compare(dataset, out, "lr,fvfm,fmfm", seeds=2, threads=1, **SETTINGS)


def test_every_pair_has_the_difference_of_the_paired_tests(compared, dataset):
    metric = compared.statistics.metrics["auc"]
    assert len(metric.pairs) == 3
    runs = {run.name: Run.open(run).probabilities(dataset.test.ids) for run in compared.path.glob("*-[01]")}
    single = measure_statistics(dataset.test.labels, None, {"lr": ["lr-0"], "fvfm": ["fvfm-1"]}, runs.__getitem__)
    for name, compare in (("auc", compare_auc), ("log_loss", compare_log_loss)):
        pair, expected = single.metrics[name].pairs[0], compare(dataset.test.labels, runs["lr-0"], runs["fvfm-1"])
        assert pair.difference == pytest.approx(expected.value)
        assert (pair.low, pair.high) == pytest.approx(expected.interval())
        assert pair.p_value == pytest.approx(expected.p_value)
    means = {entry["model"]: entry["auc"] for entry in compared.summary()}
    for pair in metric.pairs:
        assert pair.difference == pytest.approx(means[pair.model] - means[pair.baseline])
        assert pair.low < pair.difference < pair.high
    assert metric.difference("fmfm", "lr").low == pytest.approx(-metric.difference("lr", "fmfm").high)


def test_a_tie_is_marked_instead_of_a_winner(compared, dataset):
    statistics = compared.statistics
    for name, best in (("auc", max), ("log_loss", min)):
        metric = statistics.metrics[name]
        assert metric.reference == best(compared.summary(), key=lambda entry: entry[name])["model"]
        assert "lr" not in metric.leaders
    printed = lines(compared)
    table = {line.split()[0]: line for line in printed[:4]}
    assert "*" not in table["lr"]
    leaders = statistics.metrics["auc"].leaders
    assert all("*" in table[model] for model in leaders)
    assert "* best, or no significant difference from the best" in printed
    behind = statistics.metrics["auc"].difference("lr", statistics.metrics["auc"].reference)
    assert any(str(behind) in line for line in printed)
    assert any(f"at once, from {len(dataset.test):,} test rows and 2 seeds" in line for line in printed)


def test_the_files_have_intervals_and_the_differences_of_all_pairs(compared):
    stored = json.loads((compared.path / "compare.json").read_text())["statistics"]
    assert Statistics.from_dict(stored) == compared.statistics == Comparison.open(compared.path).statistics
    assert stored["auc"]["tied"] == compared.statistics.metrics["auc"].tied
    with (compared.path / "compare.csv").open() as file:
        for row in csv.DictReader(file):
            assert float(row["auc_low"]) < float(row["auc"]) < float(row["auc_high"])
            assert float(row["log_loss_low"]) < float(row["log_loss"]) < float(row["log_loss_high"])
    with (compared.path / "differences.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["metric"], row["model"], row["baseline"]) for row in rows[:3]] == [
        ("auc", "lr", "fvfm"),
        ("auc", "lr", "fmfm"),
        ("auc", "fvfm", "fmfm"),
    ]
    assert [row["significant"] for row in rows] == [
        str(pair.significant) for metric in compared.statistics.metrics.values() for pair in metric.pairs
    ]


def test_the_report_shows_the_intervals_and_the_ties(compared, tmp_path):
    page = Page(fm2.report(compared.path, tmp_path / "report.html"))
    metric = compared.statistics.metrics["auc"]
    highlighted = [row[0].text for row in page.section("Models").findall(".//tr[@class='best']")]
    assert set(highlighted) == set(metric.leaders)
    figure = page.figure("Differences from the best model")
    others = [model for model in ("lr", "fvfm", "fmfm") if model != metric.reference]
    assert {f"{model}: {metric.difference(model, metric.reference)}" for model in others} <= set(titles_of(figure))
    hollow = [dot for dot in figure.iter(f"{SVG}circle") if dot.get("class") == "hollow"]
    assert len(hollow) == sum(len(each.tied) for each in compared.statistics.metrics.values())
    assert rows_of(figure)[0][0] == "lr"
    if metric.tied:
        assert f"best model, tied with {len(metric.tied)} more" in page.facts()
        assert f"but the difference from {', '.join(metric.tied)} is not significant" in page.said


def test_missing_predictions_are_scored_again(compared, dataset, tmp_path, monkeypatch):
    before = (compared.path / "compare.json").read_text()
    (compared.path / "predictions" / "lr-1.npy").unlink()
    (compared.path / "predictions" / "fvfm-0.npy").write_bytes(b"damaged")
    values = json.loads(before)
    del values["statistics"]  # as an earlier version wrote it
    (compared.path / "compare.json").write_text(json.dumps(values))
    monkeypatch.setattr(comparing, "train", None)
    again = fm2.compare(dataset, compared.path, resume=True)
    assert again.statistics == compared.statistics
    assert (compared.path / "compare.json").read_text() == before


@pytest.mark.parametrize("damage", [{"auc": {}}, {"rows": "many"}, {"log_loss": None}, {"auc": {"differences": [1]}}])
def test_damaged_statistics_are_errors(compared, tmp_path, damage):
    values = json.loads((compared.path / "compare.json").read_text())
    values["statistics"] |= damage
    (tmp_path / "compare.json").write_text(json.dumps(values))
    with pytest.raises(fm2.Fm2Error, match="is damaged or not a comparison"):
        Comparison.open(tmp_path)


def test_one_click_is_too_few_for_intervals(tmp_path, capsys):
    rows = planted(400)
    test = rows.with_columns(click=np.arange(400) == 0).head(50)
    data = fm2.prepare(rows, SCHEMA, tmp_path / "data", test=test)
    out = tmp_path / "table"
    assert main(["compare", str(data.path), "--models", "lr,fm", "--out", str(out), "--epochs", "1"]) == 0
    printed = capsys.readouterr()
    assert "no confidence intervals: significance: at least 2 rows with a click" in printed.err
    assert "*" not in printed.out
    assert not (out / "differences.csv").exists()


def test_all_pairs_of_26_models_are_compared():
    random, rows = np.random.default_rng(0), 20_000
    logits = random.normal(-1, 1, rows)
    labels = (random.random(rows) < metrics.sigmoid(logits)).astype(np.uint8)
    runs = {f"m{n}": metrics.sigmoid(logits + random.normal(0, 0.4, rows)).astype(np.float32) for n in range(26)}
    statistics = measure_statistics(labels, None, {name: [name] for name in runs}, runs.__getitem__)
    assert len(statistics.metrics["auc"].pairs) == 325
    assert len(statistics.metrics["auc"].tied) == 25
