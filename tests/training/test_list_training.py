"""Training with multi-valued fields and shared embeddings: backends that agree, threads, resume, value dropout."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import torch
from tests.helpers.lists import random_rows
from tests.helpers.networks import ONE_THREAD, SMALL, options
from tests.helpers.planted import QUICK

from fm2 import Field, Fm2Error, Schema, compile, load, prepare, train
from fm2.artifacts.run_directory import HISTORY, read_history
from fm2.artifacts.settings import Settings
from fm2.data.dataset import Split
from fm2.data.encoder import Encoder
from fm2.data.rows import EncodedRows, Lists
from fm2.data.vocabulary import Vocabulary
from fm2.models import build
from fm2.models.registry import get_spec, specs
from fm2.models.rows import to_tensors
from fm2.training import construction
from fm2.training import run as run_module
from fm2.training.construction import l2_scale, make_backend, make_model
from fm2.training.forward_backward import AutogradForwardBackward
from fm2.training.inputs import feature_counts
from fm2.training.loop import TrainingLoop
from fm2.training.native_backend import NativeBackend
from fm2.training.run import Run
from fm2.training.scorer import make_scorer
from fm2.training.torch_backend import TorchBackend
from fm2.training.unknown import UnknownFeatures
from fm2.training.warm_start import copy_weights

SIZES = [12, 9, 12, 7]
OWNERS = [0, 1, 0, 3]
ROWS = random_rows(SIZES, [1, 2], 400, longest=8)
LABELS = np.random.default_rng(1).integers(0, 2, 400).astype(np.float32)
COUNTS = np.random.default_rng(2).integers(0, 50, sum(SIZES))
GATHERED = [spec.name for spec in specs() if spec.forward_backward]
NETWORKS = [spec.name for spec in specs() if spec.deep]
everything = pytest.mark.parametrize("name", GATHERED)


def settings_for(name, **changes):
    quiet = {"l2": 0.01, "l2_power": 0.5, "field_dropout": 0, "ema_decay": 0.9, "dim": 4, "embedding_std": 0.3}
    used = {key: value for key, value in quiet.items() if key[:2] == "l2" or key == "ema_decay" or name != "lr"}
    rates = {"optimizer": "adam", "learning_rate": 0.01}
    return Settings.of(name, **{**used, **rates, **ONE_THREAD, **options(name, **SMALL), **changes})


def backend_for(name, owners=(), numbers=(), **changes):
    settings = settings_for(name, **changes)
    return make_backend(make_model(settings, SIZES, owners=owners), settings, COUNTS, numbers=numbers)


def torch_backend_for(name, owners=(), numbers=(), **changes):
    native = backend_for(name, owners, **changes)
    scale, unknown = {}, {}
    for key, table in native.model.tables.items():
        counts = np.maximum(table.per_feature(COUNTS), 1).astype(np.float32)
        scale[key] = table.per_weight(counts ** np.float32(-native.settings.l2_power))
        if not table.keep_zeros:
            unknown[key] = UnknownFeatures(table, COUNTS)
    return TorchBackend(make_model(native.settings, SIZES, owners=owners), native.settings, scale, numbers, unknown)


def learn(backend, steps=8, rows=ROWS, batch=50):
    random, losses = np.random.default_rng(3), []
    for _ in range(steps):
        order = random.integers(0, len(rows), batch)
        weights = (1 + LABELS[order]).astype(np.float32)
        losses.append(backend.step(rows, order, LABELS[order], weights, 1.0))
    return losses


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
@pytest.mark.parametrize("owners", [[], OWNERS], ids=["own", "shared"])
@pytest.mark.parametrize("name", ["lr", "fm", "fwfm", "fvfm", "fmfm", "deepfm", "fgcnn", "deeplight"])
def test_native_steps_match_torch(name, owners, optimizer):
    changes = {"optimizer": optimizer}
    changes |= {"linear": "features"} if name == "fm" else {"learning_rate": 0.1} if optimizer == "adagrad" else {}
    native, plain = backend_for(name, owners, **changes), torch_backend_for(name, owners, **changes)
    assert isinstance(native, NativeBackend)
    np.testing.assert_allclose(learn(native), learn(plain), rtol=1e-3)
    np.testing.assert_allclose(native.score(ROWS), plain.score(ROWS), rtol=1e-2, atol=1e-3)
    for key, values in plain.weights().items():
        np.testing.assert_allclose(native.weights()[key], values, rtol=2e-2, atol=2e-3, err_msg=key)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_trains_on_lists(name):
    backend = backend_for(name, OWNERS, value_dropout=0.2, field_dropout=0.1)
    losses = learn(backend, steps=40)
    assert np.isfinite(losses).all()
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    backend.model.eval()
    model = build(backend.model.config, seed=None)
    for key, value in model.learned().items():
        value.data = torch.from_numpy(np.array(backend.weights()[key])).view(value.shape)
    np.testing.assert_allclose(make_scorer(model, 1).score(ROWS), backend.score(ROWS), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("linear", ["features", "fields", "both"])
def test_fmfms_kernel_and_autograd_apply_the_same_dropout(linear):
    rates = {"dropout": 0.3, "field_dropout": 0.2, "value_dropout": 0.3}
    ours, other = (backend_for("fmfm", OWNERS, linear=linear, **rates) for _ in range(2))
    other._forward_backward = AutogradForwardBackward(other.model, 0, other._dropout)
    np.testing.assert_allclose(learn(ours), learn(other), rtol=1e-5)
    np.testing.assert_allclose(ours.score(ROWS), other.score(ROWS), atol=1e-5)


@pytest.mark.parametrize("name", ["lr", "fm", "fmfm", "deepfm"])
def test_resume_is_bit_identical_and_threads_do_not_matter(name):
    one, other, threaded = (backend_for(name, OWNERS, value_dropout=0.3, threads=threads) for threads in (1, 1, 3))
    losses = learn(one)
    assert learn(threaded) == losses
    other.load({key: np.array(values) for key, values in one.state().items()}, one.steps)
    assert learn(one) == learn(other) == learn(threaded)
    for key, values in one.weights().items():
        np.testing.assert_array_equal(other.weights()[key], values)
        np.testing.assert_array_equal(threaded.weights()[key], values)


@pytest.mark.parametrize("make", [backend_for, torch_backend_for], ids=["native", "torch"])
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_value_dropout_changes_training_but_not_scores_and_needs_lists(make):
    plain, dropped = make("fmfm"), make("fmfm", value_dropout=0.5)
    np.testing.assert_array_equal(plain.score(ROWS), dropped.score(ROWS))
    assert learn(plain) != learn(dropped)
    single = EncodedRows(random_rows(SIZES, [], 400).ids)
    assert learn(make("fmfm"), rows=single) == learn(make("fmfm", value_dropout=0.5), rows=single)


@pytest.mark.parametrize("make", [backend_for, torch_backend_for], ids=["native", "torch"])
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_value_dropout_keeps_the_features_of_numbers(make):
    plain, numbers, one = (
        make("fmfm", value_dropout=rate, numbers=n) for rate, n in ((0, ()), (0.5, (1, 2)), (0.5, (1,)))
    )
    losses = learn(plain)
    assert learn(numbers) == losses
    assert learn(one) != losses


def test_value_dropout_applies_to_all_models():
    for spec in specs():
        assert Settings.of(spec.name).value_dropout == 0
        assert Settings.of(spec.name, value_dropout=0.1).value_dropout == 0.1
    with pytest.raises(Fm2Error, match="value_dropout"):
        Settings.of("fmfm", value_dropout=1.0)


@everything
def test_models_without_embeddings_share_only_the_vocabulary(name):
    model = make_model(settings_for(name), SIZES, owners=OWNERS)
    assert model.config.get("owners") == (None if name == "lr" else OWNERS)
    count = get_spec(name).count_parameters
    assert count is None or count(model.config) == model.n_parameters


def test_l2_depends_on_all_occurrences_of_a_shared_feature():
    backend = backend_for("fmfm", OWNERS, linear="features")
    by_field = np.split(COUNTS, np.cumsum(SIZES)[:-1])
    own = np.concatenate([by_field[0] + by_field[2], by_field[1], by_field[3]])
    shared = backend.model.embedding.per_feature(COUNTS)
    np.testing.assert_array_equal(shared, own)
    np.testing.assert_array_equal(backend.model.linear.per_feature(COUNTS), COUNTS)
    assert len(backend.model.embedding.per_weight(shared)) == backend.model.embedding.weight.numel()


def test_the_counts_of_a_shared_vocabulary_are_split_by_field(tmp_path):
    log = {"y": [0, 1, 0, 1], "item": ["a", "b", "a", "c"], "history": [["a", "b", "b"], [], ["b", "z"], None]}
    fields = [Field("item", min_count=2), Field("history", multivalued=True, shares="item")]
    everything = {"fractions": (1, 0, 0)}
    dataset = prepare(pl.DataFrame(log), Schema(fields, label="y"), tmp_path / "data", **everything)
    assert dataset.vocabularies[1].values() == [b"a"]
    assert feature_counts(dataset, dataset.vocabularies).tolist() == [2, 2, 5, 1]
    counted = pl.DataFrame({**log, "views": [2, 1, 1, 5]})
    schema = Schema(fields, label="y", impressions="views")
    dataset = prepare(counted, schema, tmp_path / "counted", **everything)
    assert dataset.vocabularies[1].values() == [b"c", b"", b"a"]
    assert feature_counts(dataset, dataset.vocabularies).tolist() == [1, 5, 0, 3, 6, 0, 5, 2]


@pytest.mark.parametrize("hash_bits", [0, 4])
def test_shared_fields_count_their_own_values(hash_bits, tmp_path):
    schema = Schema(
        [Field("history", multivalued=True, shares="item"), Field("item", hash_bits=hash_bits)], label="click"
    )
    rows = [{"click": i % 2, "item": f"v{i % 5}", "history": ["v1", f"v{i % 7}"][: i % 3]} for i in range(60)]
    dataset = prepare(pl.DataFrame(rows), schema, tmp_path / "data", fractions=(1, 0, 0))
    counts = np.split(feature_counts(dataset, dataset.vocabularies), [dataset.field_sizes[0]])
    train, lists = dataset.train.ids, dataset.train.lists[0]
    np.testing.assert_array_equal(counts[0], np.bincount(lists.take(train[:, 0]).ids, minlength=len(counts[0])))
    np.testing.assert_array_equal(counts[1], np.bincount(train[:, 1], minlength=len(counts[1])))


def test_a_shared_field_uses_the_hashes_of_its_owner(tmp_path):
    schema = Schema([Field("history", multivalued=True, shares="item"), Field("item", hash_bits=4)], label="click")
    rows = [{"click": i % 3 == 0, "item": f"v{i % 50}", "history": [f"v{i % 7}", f"v{i % 40}"]} for i in range(300)]
    dataset = prepare(pl.DataFrame(rows), schema, tmp_path / "data")
    run = train("fmfm", dataset, tmp_path / "run", **{**QUICK, **ONE_THREAD})
    scorer = load(compile(run.path, tmp_path / "model.fm2").path)
    np.testing.assert_allclose(scorer.predict(rows), run.predict(rows), rtol=1e-5)
    assert run.model.config["owners"] == [1, 1]


@pytest.mark.parametrize("name", ["lr", "fmfm", "deepfm"])
def test_a_run_predicts_rows_with_lists(name, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "PREDICT_ROWS", 150)
    fields = [Field(f"f{field}", multivalued=field in (1, 2)) for field in range(4)]
    words = [Vocabulary.of([f"v{id}" for id in range(1, size)], [1] * (size - 1)) for size in SIZES]
    model = backend_for(name, OWNERS).model.eval()
    run = Run(tmp_path, model, Encoder(Schema(fields, label="click"), words), {}, threads=1)
    with torch.no_grad():
        expected = model(to_tensors(ROWS)).numpy()
    np.testing.assert_allclose(run.logits(ROWS), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run.predict(ROWS), 1 / (1 + np.exp(-expected)), rtol=1e-4, atol=1e-5)
    assert run.logits(ROWS[:0]).shape == (0,)
    with pytest.raises(Fm2Error, match="predict: field 'f1' has several features per row; pass raw values, or"):
        run.logits(ROWS.ids)
    with pytest.raises(Fm2Error, match="predict: field 'f0' has one feature per row, not lists"):
        run.logits(EncodedRows(ROWS.ids, {**ROWS.lists, 0: Lists.of([[1]])}))
    too_far = EncodedRows(np.where(np.arange(4) == 0, ROWS.ids, 10**6).astype(np.int32), ROWS.lists)
    with pytest.raises(Fm2Error, match=r"predict: rows from 0 do not fit the model .*there is no list 1000000"):
        run.logits(too_far)


def with_lists(dataset, field=1):
    """Return the splits of a dataset, in which lists of up to three values replace the values of a field."""
    random, size = np.random.default_rng(7), dataset.field_sizes[field]
    lists = Lists.of([random.integers(0, size, random.integers(0, 4)).tolist() for _ in range(500)])

    def split(name):
        whole = dataset.split(name)
        ids = np.array(whole.ids)
        ids[:, field] = random.integers(0, 500, len(ids))
        return Split(name, ids, whole.labels, whole.rows, {field: lists})

    splits = {name: split(name) for name in ("train", "validation")}
    parts = {"schema": dataset.schema, "path": dataset.path, "field_sizes": dataset.field_sizes}
    return SimpleNamespace(split=splits.get, negative_rate=1.0, **splits, **parts)


def run_loop(dataset, splits, path, stop_at=None, resume=False):
    settings = Settings.of("fmfm", **{**QUICK, "epochs": 2, "value_dropout": 0.2, "batch_size": 64, **ONE_THREAD})
    backend = make_backend(make_model(settings, splits.field_sizes), settings, np.ones(sum(splits.field_sizes), int))
    losses = []

    def watch(report):
        losses.append(report.loss)
        if len(losses) == stop_at:
            raise KeyboardInterrupt

    path.mkdir(exist_ok=True)
    loop = TrainingLoop(backend, splits, dataset.vocabularies, path, watch)
    if resume:
        loop.resume()
    loop.run()
    return backend, losses


def test_the_loop_trains_evaluates_and_resumes(dataset, tmp_path):
    splits = with_lists(dataset)
    whole, losses = run_loop(dataset, splits, tmp_path / "whole")
    assert losses[-1] < losses[0]
    with pytest.raises(KeyboardInterrupt):
        run_loop(dataset, splits, tmp_path / "parts", stop_at=23)
    parts, _ = run_loop(dataset, splits, tmp_path / "parts", resume=True)
    for key, values in whole.weights().items():
        np.testing.assert_array_equal(parts.weights()[key], values)
    history = [read_history(tmp_path / name / HISTORY) for name in ("whole", "parts")]
    assert history[0] == history[1] and len(history[0]) > 2


def test_a_warm_start_copies_shared_rows_once_vocabularies_have_grown():
    class Values(tuple):
        def ids_in(self, other):
            return np.array([other.index(value) if value in other else -1 for value in self])

    items, others = Values(["?", "a", "b", "c"]), Values(["?", "x"])
    grown = Values(["?", "c", "d", "a", "b"])
    config = {"model": "fmfm", "dims": 3, "linear": "both", "owners": [0, 1, 0]}
    old = build({**config, "field_sizes": [4, 2, 4]})
    run = SimpleNamespace(model=old, encoder=SimpleNamespace(vocabularies=[items, others, items]))
    new = build({**config, "field_sizes": [5, 2, 5]}, seed=None)
    copy_weights(run, new, [grown, others, grown])
    rows, mapped = np.array([[1, 1, 3], [2, 0, 1]]), np.array([[3, 1, 1], [4, 0, 3]])
    torch.testing.assert_close(new(torch.from_numpy(mapped)), old(torch.from_numpy(rows)))
    assert not new.embedding.rows(2)[2].any()


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_a_value_of_lists_has_the_penalty_of_a_value_outside_lists_over_an_epoch(power):
    rows, batch, random = 20_000, 100, np.random.default_rng(8)
    settings = Settings.of("lr", l2_power=power, batch_size=batch)
    chances = np.array([0.002, 0.01, 0.1, 0.9])  # that the value is in a row
    for weight in (1.0, 0.5, 0.1):
        occurs = random.random((rows, 4)) < chances
        counts = occurs.sum(axis=0)
        evidence = counts * weight**2
        touched = occurs.reshape(-1, batch, 4).any(axis=1).sum(axis=0)
        penalty = touched * l2_scale(settings, counts, evidence, rows)
        alike = rows / batch * (1 - (1 - evidence / rows) ** batch)  # batches with a value that occurs this often
        np.testing.assert_allclose(penalty, alike * evidence**-power, rtol=0.25)
        for optimizer in ("ftrl", "dense_adam"):  # whose penalty does not depend on batches
            scale = l2_scale(dataclasses.replace(settings, optimizer=optimizer), counts, evidence, rows)
            np.testing.assert_allclose(scale, evidence**-power, rtol=1e-5)


def test_training_regularizes_lists_by_the_rows_of_the_log(tmp_path, monkeypatch):
    random, rows = np.random.default_rng(9), []
    table = pl.DataFrame(
        {
            "click": random.integers(0, 2, 500),
            "site": [f"s{number}" for number in random.integers(0, 9, 500)],
            "seen": ["|".join(f"v{value}" for value in values) for values in random.integers(0, 30, (500, 12))],
        }
    )
    seen = Field("seen", multivalued=True, separator="|", min_count=1)
    data = prepare(table, Schema([Field("site", min_count=1), seen], label="click"), tmp_path / "data")

    def record(settings, occurrences, evidence, log_rows):
        rows.append(log_rows)
        return l2_scale(settings, occurrences, evidence, log_rows)

    monkeypatch.setattr(construction, "l2_scale", record)
    train("fm", data, tmp_path / "run", **{**QUICK, "epochs": 1})
    assert set(rows) == {len(data.train)}
