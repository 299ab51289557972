"""Models with trees: the logit is a weighted mean of the model's and the trees', in weights of the model itself."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
import torch
from tests.helpers.trees import SCHEMA, TREES, log_of

import fm2
from fm2.artifacts.array_parts import read_part, with_parts
from fm2.artifacts.arrays import ChunkedArray
from fm2.data.rows import EncodedRows, Lists
from fm2.evaluation.metrics import log_loss, sigmoid
from fm2.models import build, get_spec
from fm2.models.registry import specs
from fm2.models.rows import to_tensors
from fm2.training.tree_fields import BlendedTrees, bucket_scores, fit_share, with_and_without_trees

LOG = log_of(3000)
BLENDED = [spec.name for spec in specs() if spec.logit_exponents]
FAST = {"epochs": 1, "threads": 1, "unknown_dropout": 0}  # which values are hidden depends on the number of fields


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return fm2.prepare(LOG, SCHEMA, tmp_path_factory.mktemp("trees") / "data")


@pytest.fixture(scope="module")
def runs(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {name: fm2.train(name, dataset, folder / name, **FAST) for name in BLENDED}


def scores_of(dataset: fm2.Dataset, rows: EncodedRows) -> np.ndarray:
    return bucket_scores(dataset.vocabularies[TREES])[rows.ids[:, TREES]]


def test_the_value_of_a_bucket_is_the_mean_logit_of_the_trees(dataset):
    scores = bucket_scores(dataset.vocabularies[TREES])[1:]
    assert (np.diff(scores) > 0).all() and len(scores) > 150
    rows = dataset.validation.encoded
    trees = log_loss(dataset.validation.labels, sigmoid(scores_of(dataset, rows)))
    constant = log_loss(dataset.validation.labels, np.full(len(rows), dataset.train.labels.mean()))
    assert trees < 0.95 * constant


@pytest.mark.parametrize("name", BLENDED)
def test_the_logit_is_the_weighted_mean_of_the_models_and_the_trees(runs, dataset, name):
    run, rows = runs[name], dataset.validation
    blended, own = with_and_without_trees(run, rows.encoded)
    share = run.metrics["tree_share"]
    assert 0.1 < share <= 0.99
    expected = (1 - share) * own + share * scores_of(dataset, rows.encoded)
    np.testing.assert_allclose(run.logits(rows.encoded), expected, atol=1e-5)
    assert run.metrics["log_loss"] == pytest.approx(log_loss(rows.labels, sigmoid(blended)), abs=1e-6)
    assert run.metrics["without_trees"] == pytest.approx(log_loss(rows.labels, sigmoid(own)), abs=1e-6)
    assert share == pytest.approx(fit_share(own, scores_of(dataset, rows.encoded), rows.labels, None), abs=1e-4)
    assert run.metrics["log_loss"] <= run.metrics["without_trees"]


@pytest.mark.parametrize("name", BLENDED)
def test_a_model_learns_as_if_the_log_had_no_trees(runs, dataset, tmp_path, name):
    """Only FmFM's dimensions and everything random depend on the number of fields, so the losses are close."""
    plain_schema = SCHEMA.replace(fields=[field for field in SCHEMA.fields if not field.trees])
    plain = fm2.prepare(LOG, plain_schema, tmp_path / "plain")
    run = fm2.train(name, plain, tmp_path / "run", **FAST)
    assert runs[name].metrics["without_trees"] == pytest.approx(run.metrics["log_loss"], abs=0.01)
    if name == "lr":  # which has nothing random
        left = 1 - runs[name].metrics["tree_share"]  # of the model in the blended logits, which are rounded
        own = with_and_without_trees(runs[name], dataset.test.encoded)[1]
        np.testing.assert_allclose(left * own, left * run.logits(plain.test.encoded), atol=1e-6)


@pytest.mark.parametrize("name", BLENDED)
def test_multiplying_parameters_by_powers_multiplies_the_logit(name):
    spec = get_spec(name)
    for linear in ("features", "both") if spec.interaction else ("",):
        config = spec.config({**spec.default_settings(), "dim": 3, "linear": linear}, [5, 4, 6])
        model = build(config, seed=1)
        generator = torch.Generator().manual_seed(2)
        rows = to_tensors(np.array([[1, 2, 3], [4, 0, 5]], np.int32))
        with torch.no_grad():
            for value in model.learned().values():
                value.copy_(torch.randn(value.shape, generator=generator))
            before = model(rows)
            for key, value in model.learned().items():
                value *= 0.3 ** spec.logit_exponents.get(key, 0.0)
            np.testing.assert_allclose(model(rows), 0.3 * before, rtol=1e-4, atol=1e-5)


def test_no_other_share_has_a_lower_loss():
    random = np.random.default_rng(0)
    truth = random.normal(size=5000)
    labels = (random.random(5000) < sigmoid(truth)).astype(np.uint8)
    noisy, noisier = truth + random.normal(size=5000), truth + 2 * random.normal(size=5000)
    for weights in (None, random.random(5000)):
        losses = [
            log_loss(labels, sigmoid((1 - share) * noisier + share * noisy), weights)
            for share in (fit_share(noisier, noisy, labels, weights), *np.linspace(0, 0.99, 100))
        ]
        assert losses[0] <= min(losses) + 1e-9


@pytest.mark.parametrize("scale", [3, 10, 30])
def test_the_share_is_fitted_to_confident_models_that_contradict_each_other(scale):
    random = np.random.default_rng(0)
    truth = random.normal(size=5000)
    labels = (random.random(5000) < sigmoid(truth)).astype(np.uint8)
    trees = scale * truth
    own = random.normal(size=5000) - trees
    losses = [
        log_loss(labels, sigmoid((1 - share) * own + share * trees))
        for share in (fit_share(own, trees, labels, None), *np.linspace(0, 0.99, 1000))
    ]
    assert losses[0] <= min(losses) + 1e-9


def test_the_share_is_between_0_and_99_percent():
    random = np.random.default_rng(0)
    truth = random.normal(size=500)
    labels = (random.random(500) < sigmoid(truth)).astype(np.uint8)
    assert fit_share(truth, -truth, labels, None) == 0
    assert fit_share(random.normal(size=500) - 3 * truth, truth, labels, None) > 0.9
    for rows in (1, 2, 5):  # too few to know
        assert 0 <= fit_share(truth[:rows], -truth[:rows], labels[:rows], None) <= 0.99


def test_trees_that_know_nothing_have_no_share():
    random = np.random.default_rng(0)
    own = random.normal(-1, 1.5, 20_000)
    labels = (random.random(20_000) < sigmoid(own)).astype(np.uint8)
    alone = log_loss(labels, sigmoid(own))
    for spread in (0.0, 1e-6, 1e-3, 0.1):
        trees = random.normal(-1, spread, 20_000)
        share = fit_share(own, trees, labels, None)
        assert share < 0.05
        assert log_loss(labels, sigmoid((1 - share) * own + share * trees)) <= alone


def test_the_share_does_not_depend_on_the_unit_of_weights():
    random = np.random.default_rng(0)
    truth = random.normal(-6, 1, 5000)
    labels = (random.random(5000) < sigmoid(truth)).astype(np.uint8)
    logits = truth + random.normal(size=5000), truth + random.normal(size=5000)
    weights = random.random(5000)
    share = fit_share(*logits, labels, weights)
    for unit in (1e-6, 1e4):
        assert fit_share(*logits, labels, unit * weights) == pytest.approx(share, abs=1e-6)


def test_networks_learn_coarse_buckets(dataset, tmp_path):
    run = fm2.train("deepfm", dataset, tmp_path / "run", **FAST)
    assert "tree_share" not in run.metrics
    for table in run.model.tables.values():
        rows = table.rows(TREES)[1:]
        assert len(torch.unique(rows, dim=0)) == 20
        assert (rows[:10] == rows[0]).all()
    validation = dataset.validation
    loss = log_loss(validation.labels, run.probabilities(validation.encoded))
    assert loss == pytest.approx(run.metrics["log_loss"], abs=1e-6)


def test_field_vectors_alone_cannot_be_blended(dataset, tmp_path):
    run = fm2.train("fmfm", dataset, tmp_path / "run", linear="fields", **FAST)
    assert "tree_share" not in run.metrics


def test_a_warm_start_continues_the_model_without_its_trees(runs, dataset, tmp_path):
    for name in ("fm", "fmfm", "ffm"):
        run = fm2.train(name, dataset, tmp_path / name, start=runs[name], learn=False)
        np.testing.assert_allclose(run.logits(dataset.test.encoded), runs[name].logits(dataset.test.encoded), atol=1e-5)
        assert run.metrics["tree_share"] == pytest.approx(runs[name].metrics["tree_share"], abs=1e-5)
        further = fm2.train(name, dataset, tmp_path / f"{name}-2", start=runs[name], **FAST)
        assert further.metrics["without_trees"] <= runs[name].metrics["without_trees"] + 1e-6


def test_a_resumed_training_ends_with_the_same_model(dataset, tmp_path):
    whole = fm2.train("fmfm", dataset, tmp_path / "whole", epochs=2, threads=1)
    fm2.train("fmfm", dataset, tmp_path / "parts", epochs=1, threads=1)
    parts = fm2.train("fmfm", dataset, tmp_path / "parts", epochs=2, threads=1, resume=True)
    assert (whole.path / "model.safetensors").read_bytes() == (parts.path / "model.safetensors").read_bytes()


def test_sampled_negatives_do_not_shift_predictions(tmp_path):
    log = log_of(12_000, seed=1)
    for fitted, later in ((0.3, 0.3), (0.3, 1.0), (1.0, 0.3)):
        data = fm2.prepare(log, SCHEMA, tmp_path / f"{fitted}-{later}", negative_rate=fitted)
        if later != fitted:
            data = fm2.prepare(log, data, tmp_path / f"like-{fitted}-{later}", negative_rate=later)
        run = fm2.train("lr", data, tmp_path / f"run-{fitted}-{later}", **FAST)
        for logits in with_and_without_trees(run, data.test.encoded):
            assert sigmoid(logits).mean() == pytest.approx(log["click"].mean(), abs=0.05)


def test_weights_of_clicks_shift_both_logits(dataset, tmp_path):
    rows = np.where(LOG["click"] == 1, np.float32(4), np.float32(1))
    plain, weighted, by_rows = (
        fm2.train("lr", dataset, tmp_path / name, epochs=3, threads=1, **settings)
        for name, settings in (("plain", {}), ("clicks", {"positive_weight": 4}), ("rows", {"row_weights": rows}))
    )
    expected = plain.logits(dataset.test.encoded).mean() + math.log(4)
    for run in (weighted, by_rows):
        assert run.logits(dataset.test.encoded).mean() == pytest.approx(expected, abs=0.3)
    again = fm2.train("lr", dataset, tmp_path / "again", start=weighted, learn=False)
    np.testing.assert_allclose(again.logits(dataset.test.encoded), weighted.logits(dataset.test.encoded), atol=1e-5)


def test_comparisons_of_data_with_trees_can_be_resumed(dataset, tmp_path):
    compared = fm2.compare(dataset, tmp_path / "comparison", models=["lr", "fmfm"], epochs=1, threads=1)
    again = fm2.compare(dataset, tmp_path / "comparison", models=["lr", "fmfm"], epochs=1, threads=1, resume=True)
    assert [row["log_loss"] for row in again.rows] == [row["log_loss"] for row in compared.rows]


def test_several_tree_fields_are_averaged(tmp_path):
    fields = [*SCHEMA.fields, fm2.Field("more_trees", trees=["item", "age"])]
    data = fm2.prepare(LOG, SCHEMA.replace(fields=fields), tmp_path / "data")
    run = fm2.train("lr", data, tmp_path / "run", **FAST)
    blended, own = with_and_without_trees(run, data.test.encoded)
    scores = [bucket_scores(data.vocabularies[index])[data.test.ids[:, index]] for index in (TREES, len(fields) - 1)]
    share = run.metrics["tree_share"]
    np.testing.assert_allclose(blended, (1 - share) * own + share * np.mean(scores, axis=0), atol=1e-5)


def test_trees_are_explained_as_one_contribution(runs, tmp_path):
    scorer = fm2.load(fm2.compile(runs["fmfm"].path, tmp_path / "model.fm2").path)
    explanation = scorer.explain(LOG.drop("click").to_dicts()[0])
    assert explanation.fields["trees"] != 0
    assert explanation.pairs["trees", "item"] == 0


def test_hidden_fields_have_no_values(dataset):
    model = build(get_spec("lr").config({}, dataset.field_sizes))
    trees = BlendedTrees(model, {TREES: bucket_scores(dataset.vocabularies[TREES])})
    seen = trees.seen(dataset.train.encoded)
    assert seen.ids is dataset.train.encoded.ids  # nothing is copied
    assert len(seen.lists[TREES].take(seen.ids[:, TREES]).ids) == 0


def test_parts_of_arrays_in_chunks():
    values = np.arange(10, dtype=np.float32)
    chunked = ChunkedArray(10, lambda: iter([values[:3], values[3:4], values[4:]]))
    parts = {2: np.array([-1, -2, -3], np.float32), 9: np.array([-4], np.float32)}
    expected = [0, 2, -1, -2, -3, 10, 12, 14, 16, -4]
    changed = with_parts(chunked, 2.0, parts)
    assert isinstance(changed, ChunkedArray)
    assert np.concatenate(list(changed.make())).tolist() == expected
    assert with_parts(values, 2.0, parts).tolist() == expected
    unused = ChunkedArray(10, lambda: (values[:8] if begin == 0 else pytest.fail("not needed") for begin in (0, 8)))
    for source in (values, chunked, unused):
        assert read_part(source, 2, 6).tolist() == [2, 3, 4, 5]
    assert values.tolist() == list(range(10)) and with_parts(values, 1.0, {}) is values


def test_lists_of_hidden_fields_do_not_replace_those_of_others(dataset):
    tags = SCHEMA.names.index("tags")
    model = build(get_spec("lr").config({}, dataset.field_sizes))
    seen = BlendedTrees(model, {TREES: np.zeros(dataset.field_sizes[TREES])}).seen(dataset.train.encoded)
    assert isinstance(seen.lists[tags], Lists) and seen.lists[tags] is dataset.train.encoded.lists[tags]


def test_new_rows_of_a_log_are_blended_the_same_way(runs, dataset):
    rows = log_of(200, seed=5).drop("click")
    encoded = dataset.encode(rows)
    np.testing.assert_allclose(runs["ffm"].predict(rows), runs["ffm"].probabilities(encoded), atol=1e-6)
    assert pl.Series(runs["ffm"].predict(rows)).n_unique() > 100
