"""From a log with multi-valued fields through every stage: train, evaluate, predict, compress, export, report."""

from __future__ import annotations

import shutil

import numpy as np
import polars as pl
import pytest
from tests.helpers.list_log import EVERYTHING_SCHEMA, LIST_SCHEMA, as_python_rows, everything_log, list_log
from tests.helpers.planted import LEARNED, QUICK

import fm2
from fm2 import Dataset, Fm2Error, FmFMClassifier, LRClassifier, Run, prepare
from fm2.compression.retraining import find_occurrences
from fm2.compression.spectrum import exact_logits
from fm2.compression.weights import read_weights
from fm2.data.list_files import file_name
from fm2.data.rows import Lists
from fm2.estimators import Classifier
from fm2.evaluation.evaluate import mostly_unknown
from fm2.training.train import train

FIXED = {"epochs": 1, "learning_rate_scale": 0.0}  # a training that changes nothing


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Dataset:
    return prepare(list_log(3000), LIST_SCHEMA, tmp_path_factory.mktemp("lists") / "data")


@pytest.fixture(scope="module")
def run(data, tmp_path_factory) -> Run:
    return train("fmfm", data, tmp_path_factory.mktemp("run") / "run", **LEARNED, dim=4, linear="both")


def test_the_fields_matter(data, run, tmp_path):
    assert run.model.config["owners"] == [0, 1, 1, 3]
    without = LIST_SCHEMA.replace(fields=LIST_SCHEMA.fields[:2])
    plain = prepare(list_log(3000), without, tmp_path / "plain")
    assert (
        run.evaluate(data)["auc"]
        > train("fmfm", plain, tmp_path / "run", **LEARNED, dim=4).evaluate(plain)["auc"] + 0.1
    )


def test_the_weights_of_a_run_give_its_logits(data, run):
    rows = data.test.encoded
    np.testing.assert_allclose(exact_logits(read_weights(run.path), rows), run.logits(rows), atol=1e-4)


def test_values_of_another_dataset_are_matched_in_lists(run, tmp_path):
    log = list_log(1500, seed=7, items=14)
    later = prepare(log, LIST_SCHEMA, tmp_path / "later")
    id_map = run.id_map(later)
    assert id_map is not None
    expected = run.predict(log[np.asarray(later.test.rows)])
    np.testing.assert_allclose(run.probabilities(later.test.encoded, id_map), expected, atol=1e-6)
    assert mostly_unknown(run, later) == {}
    strange = prepare(log.with_columns(history=pl.lit("i1|x|y")), LIST_SCHEMA, tmp_path / "strange")
    assert mostly_unknown(run, strange) == {"history": pytest.approx(2 / 3)}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_are_predicted_like_rows(run, tmp_path, kind):
    log = list_log(300, seed=3)
    lists = log.with_columns(
        history=pl.col("history").str.split("|").list.eval(pl.element().filter(pl.element() != ""))
    )
    if kind == "csv":
        log.write_csv(tmp_path / "log.csv")
    else:
        lists.write_parquet(tmp_path / "log.parquet")
    predictions = fm2.predict_files(run, tmp_path / f"log.{kind}", tmp_path / "out.npy")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), run.predict(log if kind == "csv" else lists), atol=1e-6)
    assert predictions.rows == predictions.values["site"] == 300
    assert predictions.values["tags"] == sum(cell.count(":") for cell in log["tags"])
    assert not any(predictions.unknown.values())


def test_smaller_models_that_lose_nothing_predict_the_same(data, run, tmp_path):
    rows = data.test.encoded
    expected = run.logits(rows)
    shrunk = fm2.shrink(run, data, tmp_path / "shrunk", variance=1.0, warm=True, **FIXED)
    assert shrunk.model.config["owners"] == [0, 1, 1, 3]
    np.testing.assert_allclose(shrunk.logits(rows), expected, atol=1e-3)
    cut = fm2.cut(run, data, tmp_path / "cut", rank=16, training=False)
    assert "owners" not in cut.model.config
    np.testing.assert_allclose(cut.logits(rows), expected, atol=1e-3)
    whole = fm2.prune(run, data, tmp_path / "whole", keep=1.0, **FIXED)
    np.testing.assert_allclose(whole.logits(rows), expected, atol=1e-3)


def test_smaller_models_keep_their_quality(data, run, tmp_path):
    auc = run.evaluate(data)["auc"]
    small = fm2.shrink(run, data, tmp_path / "small", variance=0.95, warm=True)
    assert sum(small.model.embedding.dims) < 16 and small.model.embedding.dims[1] == small.model.embedding.dims[2]
    pruned = fm2.prune(run, data, tmp_path / "pruned", keep=0.5)
    kept = {(0, 3), (1, 2)} - set(pruned.model.pruned)
    assert kept == {(0, 3), (1, 2)}  # the pairs that the clicks depend on
    cut = fm2.cut(run, data, tmp_path / "cut", rank=6, epochs=1)
    for model in (small, pruned, cut):
        assert model.evaluate(data)["auc"] > auc - 0.03


def test_occurrences_are_counts_and_lists_of_training_rows(data, run):
    site, item, history, tags = find_occurrences(run, data)
    for field, counts in ((0, site), (1, item)):
        np.testing.assert_array_equal(counts, np.bincount(data.train.ids[:, field], minlength=len(counts)))
    assert isinstance(history, Lists) and isinstance(tags, Lists)
    assert len(history) == len(tags) == len(data.train)


def test_the_export_predicts_raw_rows(run, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(fm2.export_onnx(run, tmp_path / "model.onnx")))
    log = list_log(200, seed=5)
    inputs = fm2.onnx_inputs(run.encoder.encode_rows(log), LIST_SCHEMA.names)
    np.testing.assert_allclose(session.run(None, inputs)[0], run.predict(log), atol=1e-5)
    assert session.get_modelmeta().custom_metadata_map["list_fields"] == '["history", "tags"]'


def test_the_report_shows_list_fields(data, run, tmp_path):
    page = fm2.report(run.path, tmp_path / "report.html", data=data).read_text(encoding="utf-8")
    splits = (data.train, data.validation, data.test)
    histories = [history for split in splits for history in data.decode(split.encoded)["history"]]
    assert "multi-valued field" in page and "history" in page
    assert f"{np.mean([len(history or []) for history in histories]):.2f}" in page  # a missing list has no values


@pytest.mark.parametrize("weights", [None, np.r_[np.ones(800), np.full(200, 3.0)]])
def test_a_classifier_learns_from_list_columns(weights, tmp_path):
    log = list_log(1000)
    cells = [cell.split("|") if cell else [] for cell in log["history"]]
    x = (
        log.select("site", "item")
        .to_pandas()
        .assign(history=cells, tags=[dict(pair.split(":") for pair in cell.split("|")) for cell in log["tags"]])
    )
    x["tags"] = [{key: float(value) for key, value in cell.items()} for cell in x["tags"]]
    classifier = FmFMClassifier(dim=4, **QUICK, learning_rate=0.02).fit(x, log["click"].to_numpy(), weights)
    fields = classifier.run_.encoder.schema.fields
    assert [field.multivalued for field in fields] == [False, False, True, True]
    assert classifier.score(x, log["click"].to_numpy()) > 0.6
    classifier.save(tmp_path / "saved")
    loaded = Classifier.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.predict_proba(x[:50]), classifier.predict_proba(x[:50]))


def test_a_linear_classifier_learns_lists_further():
    log, more = list_log(600), list_log(600, seed=1)
    x = log.select("site", history=pl.col("history").str.split("|"))
    classifier = LRClassifier(**QUICK).fit(x, log["click"].to_numpy())
    new = more.select("site", history=pl.concat_list(pl.col("history").str.split("|"), pl.lit("new")))
    classifier.partial_fit(new, more["click"].to_numpy())
    assert b"new" in classifier.run_.encoder.vocabularies[1].values()


@pytest.mark.parametrize("field", [2, 3])
@pytest.mark.parametrize(("part", "wrong"), [("ids", 99), ("ids", -1), ("offsets", -5), ("offsets", 10**12)])
def test_damaged_lists_are_reported(data, run, tmp_path, field, part, wrong):
    shutil.copytree(data.path, tmp_path / "data")
    file = tmp_path / "data" / file_name(field, part)
    values = np.load(file)
    values[1:-1] = wrong
    np.save(file, values)
    for other in (None, prepare(list_log(200, seed=4, items=14), LIST_SCHEMA, tmp_path / "known")):
        model = run if other is None else train("lr", other, tmp_path / "lr", **QUICK)  # the second one translates ids
        with pytest.raises(Fm2Error, match=r"damaged|do not fit the model"):
            model.evaluate(Dataset.open(tmp_path / "data"))


@pytest.fixture(scope="module")
def everything(tmp_path_factory) -> Dataset:
    out = tmp_path_factory.mktemp("everything") / "data"
    return prepare(everything_log(1500), EVERYTHING_SCHEMA, out, negative_rate=0.7)


@pytest.mark.parametrize(
    ("model", "plans"),
    [
        ("fmfm", [{"plan": "direct"}, {"plan": "cached"}, {"plan": "spectral", "rank": 36}]),
        ("ffm", [{}]),
        ("lr", [{}]),
        ("deepfm", []),
    ],
)
def test_all_scorers_agree_on_a_log_with_everything(everything, tmp_path, model, plans):
    options = {"dim": 4} if model != "lr" else {}
    run = train(model, everything, tmp_path / "run", **QUICK, **options)
    log = everything_log(1500)[everything.test.rows.tolist()]
    rows = as_python_rows(log)
    expected = run.predict(log)

    def check(predicted, atol=1e-5):
        np.testing.assert_allclose(predicted, expected[: len(predicted)], atol=atol)

    assert np.isfinite(run.evaluate(everything)["auc"])
    check(run.probabilities(everything.test.encoded))
    check(run.predict(rows))
    log.write_parquet(tmp_path / "log.parquet")
    fm2.predict_files(run, tmp_path / "log.parquet", tmp_path / "out.npy")
    check(np.load(tmp_path / "out.npy"))
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(fm2.export_onnx(run, tmp_path / "model.onnx")))
    check(session.run(None, fm2.onnx_inputs(run.encoder.encode_rows(rows), EVERYTHING_SCHEMA.names))[0])
    later = prepare(log, everything, tmp_path / "later", fractions=(0, 0, 1))
    check(run.probabilities(later.test.encoded, run.id_map(later)))
    for plan in plans:
        fm2.compile(run.path, tmp_path / "model.fm2", **plan)
        scorer = fm2.load(tmp_path / "model.fm2")
        check(scorer.predict(log), 1e-4)
        check(scorer.predict(everything.test.encoded), 1e-4)
        check([scorer.predict_one(row) for row in rows], 1e-4)
        check([scorer.explain(row).probability for row in rows[:9]], 1e-4)
        candidate = ["item", "genres", "scores"]
        ranker = scorer.ranker(candidate=candidate)
        context = {name: value for name, value in rows[0].items() if name not in candidate}
        probabilities = scorer.predict([{**row, **context} for row in rows])
        for candidates in (rows, log):
            ranked = ranker.rank(context, candidates)
            np.testing.assert_allclose(ranked.probabilities, np.sort(probabilities)[::-1], atol=1e-5)
            np.testing.assert_allclose(ranked.probabilities, probabilities[ranked.indices], atol=1e-5)
        top = ranker.catalog(log).top(context, 5)
        np.testing.assert_allclose(top.probabilities, ranked.probabilities[:5], atol=1e-5)
    if model == "fmfm":
        shrunk = fm2.shrink(run, everything, tmp_path / "shrunk", variance=1.0, warm=True, **FIXED)
        check(shrunk.predict(rows), 1e-3)
        page = fm2.report(run.path, tmp_path / "report.html", data=everything).read_text(encoding="utf-8")
        assert "last_genre" in page
