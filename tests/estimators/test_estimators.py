"""Classifiers: tables, classes, searches, partial_fit, saving."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from tests.helpers.planted import LEARNED, QUICK, SCHEMA, planted
from tests.helpers.processes import run_python

import fm2
from fm2 import FFMClassifier, Field, FmFMClassifier, LRClassifier, Poly2Classifier, Run, Schema
from fm2.artifacts.settings import Settings
from fm2.estimators import Classifier, classifiers
from fm2.estimators.classifier import DATA_PARAMETERS
from fm2.estimators.inputs import InputError
from fm2.evaluation import metrics

SETTINGS = {**LEARNED, "learning_rate": 0.02, "threads": 1}
LINEAR = {**QUICK, "learning_rate": 0.05, "threads": 1}


def rows(count: int, seed: int = 0) -> tuple[pl.DataFrame, np.ndarray]:
    table = planted(count, seed, values=6)
    return table.drop("click"), np.where(table["click"].to_numpy(), "yes", "no")


@pytest.fixture(scope="module")
def fitted() -> FmFMClassifier:
    return FmFMClassifier(**SETTINGS, dim=4).fit(*rows(2000))


@pytest.mark.parametrize("name", classifiers())
def test_a_classifier_has_the_settings_of_its_model(name):
    classifier = classifiers()[name]
    parameters = set(classifier().get_params()) - set(DATA_PARAMETERS)
    assert parameters == set(Settings.of(classifier.model).used()) - {"model", "seed"}
    assert getattr(fm2, name) is classifier


@pytest.mark.parametrize("name", classifiers())
def test_every_classifier_fits_pickles_and_saves(name, tmp_path):
    x, y = rows(300)
    classifier = classifiers()[name](epochs=2, threads=1).fit(x, y)
    probabilities = classifier.predict_proba(x)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert classifier.settings_["model"] == classifier.model
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(classifier)).predict_proba(x), probabilities)
    classifier.save(tmp_path / "saved")
    np.testing.assert_array_equal(Classifier.load(tmp_path / "saved").predict_proba(x), probabilities)


def test_a_classifier_equals_a_run(tmp_path):
    train, validation, new = planted(3000), planted(500, seed=1), planted(200, seed=2)
    dataset = fm2.prepare(train, SCHEMA, tmp_path / "data", validation=validation, fractions=(1, 0, 0))
    weights = np.random.default_rng(3).random(3000)
    every = np.concatenate([weights, np.ones(500)])
    run = fm2.train("fmfm", dataset, tmp_path / "run", seed=5, row_weights=every, **SETTINGS)
    classifier = FmFMClassifier(fields=SCHEMA, random_state=5, **SETTINGS)
    classifier.fit(train, train["click"], weights, eval_set=(validation, validation["click"]))
    np.testing.assert_array_equal(classifier.predict_proba(new)[:, 1].astype(np.float32), run.predict(new))
    assert classifier.run_.metrics == run.metrics
    assert len(classifier.history_) == 12


def test_tables_of_all_libraries_are_equivalent(fitted):
    x, y = rows(400, seed=1)
    expected = fitted.predict_proba(x)
    assert np.mean(fitted.predict(x) == y) == fitted.score(x, y) > 0.6
    for other in (x.lazy(), x.to_pandas(), x.to_pandas().astype("category"), x.to_arrow()):
        np.testing.assert_array_equal(fitted.predict_proba(other), expected)
    arrays = [x.to_numpy(), x.to_numpy().astype(str), x.rows(), [list(row) for row in x.rows()]]
    unnamed = FmFMClassifier(**SETTINGS, dim=4).fit(rows(2000)[0].rows(), rows(2000)[1].tolist())
    for other in arrays:
        np.testing.assert_array_equal(unnamed.predict_proba(other), expected)
    assert fitted.feature_names_in_.tolist() == ["c0", "c1", "c2", "c3"]
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(x.rename({"c1": "other"}))


@pytest.mark.parametrize("labels", [(0, 1), (-1, 1), (False, True), ("a", "b"), (1.0, 2.0)])
def test_any_two_labels_are_classes(labels):
    x, y = rows(200)
    classifier = LRClassifier(**LINEAR).fit(x, np.array(labels)[(y == "yes").astype(int)])
    assert classifier.classes_.tolist() == list(labels)
    assert set(classifier.predict(x)) == set(labels)


def test_column_types_determine_the_fields():
    table = pd.DataFrame(
        {
            "site": pd.Categorical(["a", "b"] * 50),
            "price": np.linspace(-1, 1, 100),
            "ad_id": range(100),
            "age": range(100),
            "weekend": [True, False] * 50,
            "few": [1, 2] * 50,
            "time": pd.date_range("2024-01-01", periods=100, freq="h"),
            "day": pd.date_range("2024-01-01", periods=100).date,
            "mixed": ["a", 1.5] * 50,
            "label": ["x", None] * 50,
        }
    )
    classifier = LRClassifier(epochs=1, fields={"age": Field("years", "numeric")}).fit(table, [0, 1] * 50)
    schema = classifier.run_.encoder.schema
    assert {field.name: field.transform or field.kind for field in schema.fields} == {
        "site": "categorical",
        "price": "quantiles",
        "ad_id": "categorical",
        "years": "log_square",
        "weekend": "categorical",
        "few": "categorical",
        "time_weekday": "timestamp",
        "time_hour": "timestamp",
        "day_weekday": "timestamp",
        "mixed": "categorical",
        "label": "categorical",
    }
    assert {field.min_count for field in schema.fields if field.name != "years"} == {1}
    assert classifier.predict(table).tolist() == [0, 1] * 50
    with pytest.raises(InputError, match=r"X has no column 'prise'; did you mean 'price'\?"):
        LRClassifier(fields={"prise": "numeric"}).fit(table, [0, 1] * 50)
    with pytest.raises(InputError, match="X has no column 'prise'; choose from"):
        LRClassifier(fields={"prise": "numeric", "price": "numeric"}).fit(table, [0, 1] * 50)


def test_fields_name_the_columns_of_arrays():
    x, y = rows(200)
    for fields in (SCHEMA, list(SCHEMA.fields), SCHEMA.replace(columns=["click", "c0", "c1", "c2", "c3"])):
        classifier = LRClassifier(epochs=1, fields=fields).fit(x.to_numpy(), y)
        assert classifier.run_.encoder.schema.names == SCHEMA.names
    with pytest.raises(InputError, match="X has 4 columns without names, but the fields read 1 columns"):
        LRClassifier(fields=[Field("c0")]).fit(x.to_numpy(), y)
    for setting in ("weight", "impressions"):
        with pytest.raises(InputError, match="the schema has a weight or impressions; pass sample_weight to fit"):
            LRClassifier(fields=SCHEMA.replace(**{setting: "w"})).fit(x.to_numpy(), y)


def test_missing_values_are_allowed_and_infinite_values_are_not():
    x = np.random.default_rng(0).normal(size=(400, 2))
    y = np.random.default_rng(1).random(400) < 0.5
    x[y, 0] = np.nan
    classifier = FmFMClassifier(**{**SETTINGS, "batch_size": 16}).fit(x, y)
    assert classifier.score(x, y) > 0.95
    assert classifier.score(pd.DataFrame(x).astype(object), y) > 0.95
    x[3, 1] = np.inf
    for bad in (x, pl.DataFrame(x), x.astype(object)):
        with pytest.raises(ValueError, match=r"infinity|an infinite value in column"):
            FmFMClassifier(**SETTINGS).fit(bad, y)


def test_ten_rows_are_enough():
    x, y = [["a"], ["b"]] * 5, ["no", "yes"] * 5
    classifier = FmFMClassifier().fit(x, y)
    assert classifier.predict([["b"], ["a"], ["new"]]).tolist()[:2] == ["yes", "no"]
    with pytest.raises(ValueError, match="only 1 class in the rows with a positive weight"):
        FmFMClassifier().fit(x, ["no"] * 10)
    with pytest.raises(ValueError, match=r"validation_fraction must be in \[0, 1\), got 1"):
        FmFMClassifier(validation_fraction=1).fit(x, y)
    with pytest.raises(ValueError, match="eval_set must be one pair"):
        FmFMClassifier().fit(x, y, eval_set=[(x, y), (x, y)])
    with pytest.raises(ValueError, match=r"eval_set: y has 'maybe', which is not one of the classes \['no', 'yes'\]"):
        FmFMClassifier().fit(x, y, eval_set=[(x, ["maybe", "yes"] * 5)])
    with pytest.raises(fm2.Fm2Error, match=r"epochs must be an integer between 1 and .*, got 0"):
        FmFMClassifier(epochs=0).fit(x, y)


def test_a_model_of_pairs_needs_two_columns():
    x, y = rows(100)
    with pytest.raises(ValueError, match=r"ffm: expected at least 2 fields, got 1 \(X has 1 feature\(s\)\)"):
        fm2.FFMClassifier().fit(x.select("c0"), y)


def test_rows_of_weight_zero_are_ignored():
    x, y = rows(600)
    weights = np.r_[np.ones(400), np.zeros(200)]
    weighted = LRClassifier(**LINEAR).fit(x, y, weights)
    np.testing.assert_array_equal(
        weighted.predict_proba(x), LRClassifier(**LINEAR).fit(x[:400], y[:400], np.ones(400)).predict_proba(x)
    )
    heavy = LRClassifier(**LINEAR).fit(x, y, np.where(y == "yes", 5, 1))
    assert heavy.predict_proba(x)[:, 1].mean() > weighted.predict_proba(x)[:, 1].mean() + 0.1


@pytest.mark.parametrize("jobs", [1, 2])
def test_searches_and_pipelines(jobs):
    x, y = rows(400)
    columns = FunctionTransformer(lambda table: table.drop("c3")) if jobs == 1 else FunctionTransformer(None)
    pipeline = make_pipeline(columns, FmFMClassifier(**SETTINGS, dim=2))
    grid = {"fmfmclassifier__dim": np.array([1, 3]), "fmfmclassifier__embedding_std": [0.2]}
    with parallel_config("threading"):  # a new process would take seconds to begin; copies are tested above
        search = GridSearchCV(pipeline, grid, cv=2, n_jobs=jobs, scoring="roc_auc").fit(x, y)
    assert search.best_params_["fmfmclassifier__dim"] in (1, 3)
    assert search.predict_proba(x).shape == (400, 2)
    assert len(search.best_estimator_[-1].feature_names_in_) == (3 if jobs == 1 else 4)


def test_clones_are_unfitted_and_cross_validation_works(fitted):
    copy = clone(fitted.set_params(dim=4))
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "run_")
    assert cross_val_score(copy, *rows(2000), cv=2, scoring="roc_auc").min() > 0.6


def test_a_saved_classifier_is_a_run(fitted, tmp_path):
    x, y = rows(300, seed=4)
    fitted.save(tmp_path / "saved")
    again = FmFMClassifier.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.predict(x), fitted.predict(x))
    assert again.get_params() == fitted.get_params()
    assert again.history_ == fitted.history_
    assert again.settings_ == fitted.settings_
    assert again.feature_names_in_.tolist() == fitted.feature_names_in_.tolist()
    np.testing.assert_array_equal(
        Run.open(tmp_path / "saved").predict(x), fitted.predict_proba(x)[:, 1].astype(np.float32)
    )
    with pytest.raises(fm2.Fm2Error, match="already exists; use overwrite=True to replace it"):
        fitted.save(tmp_path / "saved")
    again.partial_fit(x, y).save(tmp_path / "saved", overwrite=True)
    with pytest.raises(fm2.Fm2Error, match="has a FmFMClassifier, not a LRClassifier"):
        LRClassifier.load(tmp_path / "saved")
    (tmp_path / "saved" / "estimator.json").write_text('{"format": "fm2 estimator", "version": 1}')
    with pytest.raises(fm2.Fm2Error, match=r"estimator.json is damaged"):
        Classifier.load(tmp_path / "saved")
    with pytest.raises(fm2.Fm2Error, match="has no saved classifier"):
        Classifier.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "fields", [SCHEMA, list(SCHEMA.fields), {"c0": "categorical", "c1": Field("c1", hash_bits=5)}, None]
)
def test_parameters_are_saved(fields, tmp_path):
    random = np.random.RandomState(3)
    classifier = LRClassifier(fields=fields, epochs=np.int64(1), random_state=random).fit(*rows(100))
    classifier.save(tmp_path / "saved")
    again = LRClassifier.load(tmp_path / "saved")
    assert again.get_params() == {**classifier.get_params(), "random_state": None}
    assert again.settings_["seed"] == np.random.RandomState(3).randint(2**31 - 1)


def test_partial_fit_keeps_what_was_learned():
    x, y = rows(1500)
    first = FmFMClassifier(**SETTINGS, dim=3).partial_fit(x, y, classes=["yes", "no"])
    old = rows(400, seed=9)
    before = first.score(*old)
    known = len(first.run_.encoder.vocabularies[0])
    later, later_y = rows(1500, seed=5)
    later = later.with_columns(pl.col("c0").replace("v0", "new"))
    first.partial_fit(later, later_y)
    assert len(first.run_.encoder.vocabularies[0]) == known + 1
    assert first.score(*old) > before - 0.02
    assert first.history_[0]["step"] == 0
    with pytest.raises(InputError, match=r"classes must stay \['no', 'yes'\], got \['a', 'b'\]"):
        first.partial_fit(x, y, classes=["a", "b"])
    with pytest.raises(InputError, match="partial_fit: y has only 1 class"):
        first.partial_fit(x[:10], ["yes"] * 10)
    with pytest.raises(InputError, match="has dim 3, not 5"):
        first.set_params(dim=5).partial_fit(x, y)
    assert not hasattr(Poly2Classifier(), "partial_fit")


def test_a_classifier_compiles(fitted, tmp_path):
    x, _ = rows(300, seed=4)
    scorer = fitted.compile(tmp_path / "model.fm2", plan="direct")
    np.testing.assert_allclose(scorer.predict(x), fitted.predict_proba(x)[:, 1], atol=1e-6)


def test_a_network_compiles(tmp_path):
    x, y = rows(300, seed=4)
    fitted = fm2.WideDeepClassifier(epochs=1, dim=2, hidden=(4,), threads=1).fit(x, y)
    scorer = fitted.compile(tmp_path / "model.fm2")
    np.testing.assert_allclose(scorer.predict(x), fitted.predict_proba(x)[:, 1], atol=1e-5)


@pytest.mark.parametrize("value", [float("inf"), -float("inf")])
@pytest.mark.parametrize("kind", [pl.DataFrame, pd.DataFrame, pa.table])
def test_errors_name_the_column_of_an_infinite_value(kind, value):
    table = kind({"price": [1.5, 2.5, 3.5, value] * 5, "site": list("abcd") * 5})
    with pytest.raises(InputError, match="X has an infinite value in column 'price'"):
        LRClassifier(**LINEAR).fit(table, [0, 1] * 10)


def test_few_rows_are_not_overfitted():
    x, y = rows(60)
    test, labels = rows(2000, seed=1)
    for kind in (FmFMClassifier, FFMClassifier):
        classifier = kind(threads=1).fit(x, y)
        assert classifier.history_[-1]["epoch"] < classifier.settings_["epochs"]
        probabilities = classifier.predict_proba(test)[:, 1]
        assert metrics.log_loss(labels == "yes", probabilities) < 0.85  # without early stopping: above 1.1


def test_all_rows_validate_if_that_is_asked_for():
    x, y = rows(300)
    classifier = LRClassifier(**LINEAR, validation_fraction=0).fit(x, y)
    assert classifier.run_.metrics["log_loss"] == pytest.approx(
        metrics.log_loss(y == "yes", classifier.predict_proba(x)[:, 1]), abs=1e-4
    )


@pytest.mark.parametrize("eval_set", [3, [1], [], ("x", "y", "z"), [(1, 2), (3, 4)]])
def test_an_eval_set_must_be_a_pair(eval_set):
    x, y = rows(40)
    with pytest.raises(InputError, match=r"fit: eval_set must be one pair \(X, y\)"):
        LRClassifier(**LINEAR).fit(x, y, eval_set=eval_set)


def test_a_schema_may_skip_columns_or_read_them_twice():
    x, y = rows(200)
    schema = Schema([Field("one", column="c2"), Field("two", column="c2", hash_bits=4)], label="click")
    classifier = LRClassifier(**LINEAR, fields=schema).fit(x, y)
    changed = x.with_columns(c0=pl.lit("other"))
    np.testing.assert_array_equal(classifier.predict_proba(x), classifier.predict_proba(changed))
    assert classifier.n_features_in_ == 4


def test_arrow_tables():
    x, y = rows(200)
    table = pa.table({name: x[name].to_arrow() for name in x.columns})
    np.testing.assert_array_equal(
        LRClassifier(**LINEAR).fit(table, y).predict_proba(x), LRClassifier(**LINEAR).fit(x, y).predict_proba(x)
    )


def test_docstrings_list_options_with_defaults():
    assert "``network_dropout`` (0.5)" in str(fm2.AutoIntClassifier.__doc__)
    assert "``hidden`` ((32,))" in str(fm2.MaskNetClassifier.__doc__)


@pytest.mark.parametrize("form", ["list", "mapping"])
def test_fields_may_have_crosses(form):
    random = np.random.default_rng(0)
    x = pl.DataFrame({"a": random.choice(list("pq"), 2000), "b": random.choice(list("st"), 2000)})
    y = ((x["a"] == "p") == (x["b"] == "s")).to_numpy()  # which neither column predicts
    cross = Field("a_b", cross=["a", "b"])
    fields = [Field("a"), Field("b"), cross] if form == "list" else {"a_b": cross}
    plain = LRClassifier(epochs=10, learning_rate=0.05).fit(x, y).score(x, y)
    crossed = LRClassifier(fields=fields, epochs=10, learning_rate=0.05).fit(x, y).score(x, y)
    assert plain < 0.8
    assert crossed == 1


def test_pandas_texts_need_no_pyarrow():
    done = run_python(
        "import sys; sys.modules['pyarrow'] = None\n"  # as if it were not installed
        "import pandas\n"
        "from fm2.estimators import LRClassifier\n"
        "X = pandas.DataFrame({'site': ['a', 'b', None, 'a'] * 10})\n"
        "X['text'] = X['site'].astype('string')\n"
        "model = LRClassifier(epochs=1).fit(X, [0, 1, 1, 0] * 10)\n"
        "print([len(vocabulary) for vocabulary in model.run_.encoder.vocabularies])\n"
    )
    assert done.stdout == "[4, 4]\n", done.stderr  # unknown, a, b, missing
