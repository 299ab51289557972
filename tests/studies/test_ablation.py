"""fm2 ablate: without each field, with parts replaced, and what the report shows of it."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from tests.helpers import crosses, list_log
from tests.helpers.pages import SVG, Page, rows_of, titles_of
from tests.helpers.planted import LEARNED

import fm2
from fm2 import Field, Fm2Error, Schema
from fm2.artifacts.settings import read_settings
from fm2.cli.main import main
from fm2.data.reduced import without_fields
from fm2.evaluation import metrics
from fm2.evaluation.significance import compare_auc
from fm2.studies.ablation import ablate as ablating
from fm2.studies.ablation.embeddings import count_clicks, project
from fm2.studies.ablation.frequency import EDGES, Part, bins_of_features, measure_gaps
from fm2.studies.ablation.results import Ablation
from fm2.studies.ablation.variants import plan_variants
from fm2.training.run import Run

SETTINGS = {**LEARNED, "epochs": 1, "dim": 3, "threads": 1}
FAST = ["--epochs", "1", "--threads", "1"]


@pytest.fixture(scope="module")
def run(dataset, tmp_path_factory):
    return fm2.train("fmfm", dataset, tmp_path_factory.mktemp("ablated") / "run", **SETTINGS)


@pytest.fixture(scope="module")
def ablation(run, dataset):
    return fm2.ablate(run, dataset, run.path.parent / "ablation")


def test_every_field_and_part_is_left_out_or_replaced(ablation, run, dataset):
    names = [row["variant"] for row in ablation.rows]
    assert names == [
        "complete",
        "an embedding per feature and other field (FFM)",
        "a vector per field pair (FvFM)",
        "a scalar per field pair (FwFM)",
        "the same for all pairs (FM)",
        "no interactions (LR)",
        "linear part: a vector per field",
        "linear part: weights and vectors",
        *(f"without c{field}" for field in range(4)),
    ]
    complete, *others = ablation.rows
    assert complete["auc"] == run.evaluate(dataset)["auc"]  # trained like the run itself
    sizes = {row["variant"]: Run.open(ablation.path / row["run"]) for row in others}
    assert sizes["without c1"].encoder.schema.names == ("c0", "c2", "c3")
    assert sizes["a scalar per field pair (FwFM)"].model.config["dims"] == [3] * 4
    assert sizes["linear part: a vector per field"].model.config["linear"] == "fields"
    for row in others:
        settings = read_settings(ablation.path / row["run"] / "settings.toml")
        assert (settings["epochs"], settings["batch_size"]) == (1, 64)
    assert not list(ablation.path.glob(".*"))


def test_differences_from_the_complete_model_are_paired_tests(ablation, run, dataset):
    reduced = Run.open(ablation.path / "field-2-0")
    ids = dataset.test.ids
    expected = compare_auc(dataset.test.labels, reduced.probabilities(ids[:, [0, 1, 3]]), run.probabilities(ids))
    metric = ablation.statistics.metrics["auc"]
    pair = metric.difference("without c2", "complete")
    assert (pair.difference, pair.p_value) == pytest.approx((expected.value, expected.p_value))
    assert pair.low < expected.interval()[0]  # all differences are tested at once
    assert len(metric.pairs) == 11
    assert {pair.baseline for pair in metric.pairs} == {"complete"}
    lines = {line[:14]: line for line in ablation.lines()}
    assert f"{metric.difference('without c0', 'complete')}" in lines["without c0    "]
    for each in metric.pairs:
        assert (f"{each}*" in lines[each.model.ljust(14)[:14]]) == each.significant
    with (ablation.path / "ablate.csv").open() as file:
        rows = {row["variant"]: row for row in csv.DictReader(file)}
    assert float(rows["without c2"]["auc_low"]) == pair.low
    assert rows["complete"]["auc_low"] == ""


def test_an_ablation_is_stored_and_opened(ablation):
    assert Ablation.open(ablation.path).statistics == ablation.statistics
    stored = json.loads((ablation.path / "ablate.json").read_text())
    assert (stored["format"], stored["version"], stored["model"]) == ("fm2 ablation", 1, "fmfm")
    assert len(stored["embeddings"]) == 4


def test_an_interrupted_ablation_is_resumed(run, dataset, tmp_path, capsys, monkeypatch):
    out, train, calls = tmp_path / "ablation", ablating.train, []

    def interrupted(model, *arguments, **options):
        calls.append(model)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return train(model, *arguments, **options)

    monkeypatch.setattr(ablating, "train", interrupted)
    command = ["ablate", str(run.path), str(dataset.path), "--out", str(out)]
    assert main([*command, "--fields", "c1,c3", "--no-parts", *FAST]) == 130
    assert "run the same command with --resume" in capsys.readouterr().err
    assert [row["variant"] for row in Ablation.open(out).rows] == ["complete", "without c1"]
    assert not (out / ".reduced").exists()
    assert main([*command, "--resume", "--json"]) == 0
    resumed = json.loads(capsys.readouterr().out)
    assert [row["variant"] for row in resumed["rows"]] == ["complete", "without c1", "without c3"]
    assert (len(calls), resumed["settings"]["epochs"]) == (4, 1)
    assert main([*command, "--resume", "--seeds", "2"]) == 0
    printed = capsys.readouterr()
    assert len(calls) == 7
    assert "and 2 seeds" in printed.out
    assert "without c1, training 4 of 6" in printed.err
    with pytest.raises(Fm2Error, match=r"ablate: .*complete-0 has batch_size 64, not 32; use overwrite=True"):
        fm2.ablate(run, dataset, out, resume=True, batch_size=32)
    (out / "ablate.json").write_text("{")
    (out / "mine-0").mkdir()
    replaced = fm2.ablate(run, dataset, out, fields=["c0"], parts=False, overwrite=True, epochs=1)
    assert [row["run"] for row in replaced.rows] == ["complete-0", "field-0-0"]
    assert not (out / "field-1-0").exists()
    assert (out / "mine-0").exists()


def test_a_failed_variant_does_not_stop_the_others(run, dataset, tmp_path, capsys, monkeypatch):
    train = ablating.train

    def failing(model, data, *arguments, **options):
        if len(data.schema.fields) == 3:
            raise RuntimeError("no memory")
        return train(model, data, *arguments, **options)

    monkeypatch.setattr(ablating, "train", failing)
    out = tmp_path / "ablation"
    command = ["ablate", str(run.path), str(dataset.path), "--out", str(out), "--fields", "c1", "--no-parts", *FAST]
    assert main(command) == 1
    printed = capsys.readouterr()
    assert "field-1-0 failed: RuntimeError: no memory" in printed.out
    assert "ablate: 1 of 2 trainings failed: without c1" in printed.err
    assert Ablation.open(out).statistics is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields": ["c9"]}, "ablate: unknown field 'c9'; choose from c0, c1"),
        ({"embeddings": ["x"]}, "ablate: unknown field 'x'"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"epochs": 0}, "ablate: .*epochs must be"),
        ({"resume": True}, "no ablation to resume"),
    ],
)
def test_invalid_arguments_are_errors_before_any_work(run, dataset, tmp_path, options, message):
    with pytest.raises(Fm2Error, match=message):
        fm2.ablate(run, dataset, tmp_path / "none", **options)
    assert not (tmp_path / "none").exists()


def test_other_datasets_and_models_are_errors(run, dataset, tmp_path):
    other = without_fields(dataset, ["c0"], tmp_path / "other")
    with pytest.raises(Fm2Error, match="was trained on another dataset than"):
        fm2.ablate(run, other, tmp_path / "none")
    pruned = fm2.prune(run, dataset, tmp_path / "pruned", keep=0.5, epochs=1)
    with pytest.raises(Fm2Error, match="is pruned or cut; use the run that it was made from"):
        fm2.ablate(pruned, dataset, tmp_path / "none")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "ablate.json").write_text('{"format": "fm2 ablation", "version": 1}')
    with pytest.raises(Fm2Error, match="is damaged or not an ablation"):
        fm2.ablate(run, dataset, tmp_path / "damaged", resume=True)


def test_variants_of_other_models_are_their_own_parts(dataset):
    def names(model, **settings):
        return [variant.name for variant in plan_variants(model, settings, dataset, [], True)][1:]

    assert names("lr") == names("ffm") == []
    assert names("widedeep") == ["without hidden layers"]
    assert names("autoint") == ["with a weight per feature"]
    assert names("deepfmfm", linear="both")[:2] == [
        "linear part: a weight per feature",
        "linear part: a vector per field",
    ]
    assert names("fm", linear="both", dim=2)[1] == "a matrix per field pair (FmFM)"
    gated = plan_variants("finalmlp", {"first_gate": [0, 2, 3], "dim": [1, 2, 3, 4]}, dataset, ["c2"], False)[1]
    assert gated.settings == {"first_gate": [0, 2], "dim": [1, 2, 4]}
    unequal = plan_variants("fmfm", {"dim": [1, 2, 3, 4], "linear": "fields"}, dataset, [], True)
    assert {variant.model: variant.settings.get("dim") for variant in unequal[2:5]} == {"fvfm": 2, "fwfm": 2, "fm": 2}


def test_a_dataset_without_a_field_is_the_log_without_its_column(tmp_path):
    log = crosses.log_of(400)
    whole = fm2.prepare(log, crosses.SCHEMA, tmp_path / "whole")
    without = without_fields(whole, ["user"], tmp_path / "without")
    fields = [field for field in crosses.SCHEMA.fields if field.name != "user" and "user" not in field.cross]
    expected = fm2.prepare(log, crosses.SCHEMA.replace(fields=fields), tmp_path / "expected")
    without.verify()
    assert without.schema == expected.schema
    for split in ("train", "validation", "test"):
        assert without.decode(without.split(split).encoded) == expected.decode(expected.split(split).encoded)
        assert np.array_equal(without.split(split).labels, expected.split(split).labels)
    assert without.manifest["fields"] == expected.manifest["fields"]
    with pytest.raises(Fm2Error, match="there are no fields without"):
        without_fields(whole, whole.schema.names, tmp_path / "none")


def test_lists_and_shared_embeddings_can_be_left_out(tmp_path):
    schema = list_log.EVERYTHING_SCHEMA
    schema = schema.replace(fields=[*schema.fields, Field("site_item", cross=["site", "item"], min_count=1)])
    data = fm2.prepare(list_log.everything_log(500), schema, tmp_path / "data")
    run = fm2.train("fmfm", data, tmp_path / "run", dim=2, threads=1, epochs=1, batch_size=64)
    ablation = fm2.ablate(
        run, data, tmp_path / "ablation", fields=["item", "tags", "site_hash", "site_item"], parts=False
    )
    assert not ablation.failed
    assert [row["variant"] for row in ablation.rows[1:]] == [
        "without item and site_item",
        "without tags",
        "without site_hash",
        "without site_item",
    ]
    shared = Run.open(ablation.path / "field-1-0").encoder.schema
    assert (shared.fields[1].name, shared.fields[1].shares) == ("history", "")
    hashed = Run.open(ablation.path / f"field-{schema.names.index('site_hash')}-0").encoder
    assert (hashed.schema.fields[-2].hash_bits, len(hashed.vocabularies[-2])) == (4, 17)
    assert {each["field"] for each in ablation.embeddings} <= {"item", "tags", "site_hash", "site_item"}
    page = Page(fm2.report(run.path, tmp_path / "report.html", data=data))
    assert "Ablation" in page.headings


def test_gaps_by_frequency_follow_their_definition(dataset):
    bins = bins_of_features(dataset)
    counts = np.concatenate([np.r_[0, vocabulary.counts] for vocabulary in dataset.vocabularies])
    expected = [0 if not count else sum(edge <= count for edge in EDGES) for count in counts]
    assert np.concatenate(bins).tolist() == expected
    random = np.random.default_rng(0)
    parts, predictions = [], []
    for split in (dataset.train, dataset.test):
        parts.append(Part.of(split.encoded, split.labels, None, bins))
        predictions.append([random.uniform(0.2, 0.8, len(split)) for _ in range(2)])
    gaps = measure_gaps(*parts, {"a": [tuple(p[0] for p in predictions)], "b": [tuple(p[1] for p in predictions)]})
    assert sum(gaps["shares"]) == pytest.approx(1)
    number = next(n for n in range(len(EDGES) + 1) if parts[1].shares[:, n].sum() >= 30)
    losses = {}
    for model in (0, 1):
        means = []
        for split, p in zip((dataset.train, dataset.test), predictions, strict=True):
            loss = metrics.row_losses(split.labels, p[model])
            occurs = np.array([[bins[f][split.ids[r, f]] == number for f in range(4)] for r in range(len(split))])
            means.append(np.repeat(loss[:, None], 4, 1)[occurs].mean())
        losses[model] = means[1] - means[0]
    first, second = gaps["models"]["a"][0], gaps["models"]["b"][0]
    assert (first["gap"], second["gap"]) == pytest.approx((losses[0], losses[1]))
    assert second["difference"] == pytest.approx(losses[1] - losses[0])
    assert second["difference_low"] < second["difference"] < second["difference_high"]
    assert "difference" not in first


def test_the_values_of_a_list_count_one_together(tmp_path):
    data = fm2.prepare(list_log.list_log(300), list_log.LIST_SCHEMA, tmp_path / "data")
    part = Part.of(data.test.encoded, data.test.labels, None, bins_of_features(data))
    filled = sum((data.lists[field].take(data.test.ids[:, field]).sizes > 0).astype(int) for field in (2, 3))
    assert part.shares.sum(axis=1) == pytest.approx(2 + filled)


def test_embedding_maps_show_clicks_and_the_largest_variance(ablation, dataset):
    counts, rates = count_clicks(dataset, 1)
    for id in (0, 1, 5):
        rows = dataset.train.ids[:, 1] == id
        assert counts[id] == rows.sum()
        assert rates[id] == pytest.approx(dataset.train.labels[rows].mean() if rows.any() else 0)
    vectors = np.random.default_rng(0).normal(size=(50, 5)) * [9, 1, 4, 2, 1]
    coordinates, share = project(vectors, np.ones(50))
    variances = np.sort(np.linalg.eigvalsh(np.cov(vectors.T)))
    assert share == pytest.approx(variances[-2:].sum() / variances.sum())
    assert coordinates.var(axis=0, ddof=1) == pytest.approx(variances[:-3:-1])
    shown = next(each for each in ablation.embeddings if each["field"] == "c1")
    assert len(shown["features"]) == 12
    assert [each["rows"] for each in shown["features"]] == sorted(counts[counts > 0], reverse=True)


def test_the_report_shows_an_ablation(ablation, run, dataset, tmp_path, capsys):
    page = Page(fm2.report(ablation.path, tmp_path / "report.html"))
    assert page.facts()["model"] == "fmfm"
    section = page.section("Ablation")
    metric = ablation.statistics.metrics["log_loss"]
    fields = page.figure("Without each field")
    assert f"without c0: {metric.difference('without c0', 'complete')}" in titles_of(fields)
    assert len(list(fields.iter(f"{SVG}circle"))) == 2 * 4
    replaced = page.figure("With other parts")
    assert len(list(replaced.iter(f"{SVG}circle"))) == 2 * 7
    assert {row[0] for row in rows_of(replaced)} >= {"no interactions (LR)"}
    gaps = page.figure("Test loss minus training loss by frequency")
    assert [row[0] for row in rows_of(gaps)] == ablation.gaps["bins"]
    embeddings = page.figure("Embeddings in two dimensions")
    assert len(list(embeddings.iter(f"{SVG}svg"))) == 4
    assert any(title.startswith("v3: ") for title in titles_of(embeddings))
    assert section is not None and "all differences of a metric at once" in page.said
    beside = Page(fm2.report(run.path, tmp_path / "run.html", data=dataset))
    assert "Ablation" in beside.headings  # found next to the run
    with pytest.raises(Fm2Error, match=r"report: .* is not an ablation"):
        fm2.report(run.path, tmp_path / "report.html", ablation=tmp_path)


def test_a_dataset_of_one_field_has_no_field_to_leave_out(tmp_path):
    log = crosses.log_of(200)
    data = fm2.prepare(log, Schema([Field("item", min_count=1)], label="click"), tmp_path / "data")
    variants = plan_variants("lr", {}, data, None, True)
    assert [variant.key for variant in variants] == ["complete"]


@pytest.mark.parametrize(
    "change", [{"variants": [1]}, {"embeddings": [{}]}, {"gaps": 5}, {"gaps": {}}, {"seeds": 3}, {"seeds": ["0"]}]
)
def test_a_damaged_ablation_is_an_error_of_one_line(ablation, tmp_path, change):
    values = json.loads((ablation.path / "ablate.json").read_text()) | change
    (tmp_path / "ablate.json").write_text(json.dumps(values))
    with pytest.raises(Fm2Error, match=r"ablate: .*ablate.json is damaged or not an ablation"):
        Ablation.open(tmp_path)
