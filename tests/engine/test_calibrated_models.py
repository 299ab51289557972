"""A calibration follows its run: predictions, compiled models, rankings, the C interface; never another model."""

from __future__ import annotations

import ctypes
import json
import pickle
import re
import shutil

import numpy as np
import pytest
from tests.helpers.hostile import with_section
from tests.helpers.planted import LEARNED, QUICK, SCHEMA, planted
from tests.helpers.runs import load_arrays

import fm2
from fm2.artifacts.arrays import save_arrays
from fm2.artifacts.calibration import Calibration
from fm2.artifacts.run_directory import CALIBRATION
from fm2.cli.main import main
from fm2.engine.inspect import inspect
from fm2.evaluation.metrics import auc, sigmoid

METHODS = {
    "isotonic": {},
    "platt": {"method": "platt"},
    "by value": {"by": "c2"},
    "platt by value": {"method": "platt", "by": "c0"},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return fm2.prepare(planted(12_000), SCHEMA, tmp_path_factory.mktemp("data") / "data", fractions=(0.4, 0.3, 0.3))


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Train a model whose probabilities are far too high."""
    settings = {**LEARNED, "dim": 4, "dense_learning_rate": 0.01, "positive_weight": 5}
    return fm2.train("fmfm", data, tmp_path_factory.mktemp("run") / "run", **settings)


@pytest.fixture(scope="module", params=METHODS)
def calibrated(request, trained, data, tmp_path_factory):
    """Return a calibrated run and its compiled model."""
    path = tmp_path_factory.mktemp("calibrated")
    shutil.copytree(trained.path, path / "run")
    run = fm2.calibrate(path / "run", data, **METHODS[request.param]).run
    return run, fm2.compile(run.path, path / "model.fm2").path


def expected(run, ids):
    """Apply the calibration of a run as its documentation says."""
    z = run.logits(ids).astype(np.float64)
    x, y = run.calibration.knots.T
    slopes = np.diff(y) / np.diff(x)
    segment = np.clip(np.searchsorted(x, z, side="right") - 1, 0, len(slopes) - 1)
    calibrated = y[segment] + slopes[segment] * (z - x[segment])
    if run.calibration.field is not None:
        calibrated += run.calibration.shifts[ids[:, run.calibration.field]]
    return sigmoid(calibrated)


def test_every_prediction_is_calibrated(calibrated, trained, data):
    run, model = calibrated
    ids, raw = np.asarray(data.test.ids), planted(300, seed=1)
    probabilities = expected(run, ids)
    np.testing.assert_allclose(run.predict(ids), probabilities, rtol=1e-6)
    np.testing.assert_array_equal(run.logits(ids), trained.logits(ids))
    assert probabilities.mean() == pytest.approx(data.test.labels.mean(), abs=0.03)
    assert trained.predict(ids).mean() > data.test.labels.mean() + 0.1
    scorer = fm2.load(model)
    np.testing.assert_allclose(scorer.predict(ids), probabilities, rtol=1e-4)
    np.testing.assert_allclose(scorer.logits(ids), run.logits(ids), atol=1e-4)
    assert scorer.explain(ids[0]).logit == pytest.approx(run.logits(ids[:1])[0], abs=1e-4)
    np.testing.assert_allclose([scorer.predict_one(row) for row in raw.to_dicts()], scorer.predict(raw), rtol=1e-6)


def test_the_error_falls_and_the_order_stays(calibrated, trained, data):
    run, _ = calibrated
    before, after = trained.evaluate(data), run.evaluate(data)
    assert after["calibration_error"] < 0.04 < 0.1 < before["calibration_error"]
    assert after["log_loss"] < before["log_loss"]
    if run.calibration.field is None:
        assert after["auc"] == pytest.approx(before["auc"], abs=1e-6)
        return
    ids, labels = np.asarray(data.test.ids), data.test.labels
    for feature in np.unique(ids[:, run.calibration.field]):
        same = ids[:, run.calibration.field] == feature
        first, second = trained.predict(ids[same]), run.predict(ids[same])
        assert auc(labels[same], second) == pytest.approx(auc(labels[same], first), abs=1e-6)


@pytest.mark.parametrize("context", [["c0", "c1"], ["c2", "c3"]])
def test_rankings_have_calibrated_probabilities_in_the_order_of_the_logits(calibrated, data, tmp_path, context):
    """The calibrated field is on either side."""
    _, model = calibrated
    scorer = fm2.load(model)
    ranker = scorer.ranker(context=context)
    rows = planted(60, seed=3).drop("click").to_dicts()
    shared = {name: rows[0][name] for name in context}
    complete = [{**row, **shared} for row in rows]
    order, probabilities = np.argsort(-scorer.logits(complete), kind="stable"), scorer.predict(complete)
    candidates = [{name: row[name] for name in row if name not in context} for row in rows]
    catalog = ranker.catalog(candidates)
    catalog.save(tmp_path / "catalog.fm2")
    for ranked in (
        ranker.rank(shared, candidates),
        catalog.top(shared, 60),
        ranker.load_catalog(tmp_path / "catalog.fm2").top(shared, 60),
    ):
        np.testing.assert_allclose(ranked.probabilities, probabilities[ranked.indices], rtol=1e-4)
        np.testing.assert_allclose(probabilities[order], probabilities[ranked.indices], rtol=1e-4)


def test_the_c_interface_is_calibrated(capi, calibrated, data):
    _, model = calibrated
    library, handle = ctypes.CDLL(str(capi / "libfm2.so")), ctypes.c_void_p()
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.fm2_score_ids.argtypes = [pointer, pointer, size, size, ctypes.c_uint, size, pointer]
    library.fm2_ranker_open.argtypes = [pointer, pointer, size, pointer]
    library.fm2_rank_ids.argtypes = [pointer, pointer, size, pointer, size, size, ctypes.c_uint, size, pointer]
    assert library.fm2_open(str(model).encode(), 1, ctypes.byref(handle)) == 0
    ids, scorer = np.array(data.test.ids[:500]), fm2.load(model)
    scores = np.empty(500, np.float32)
    for flags, want in ((0, scorer.predict(ids)), (1, scorer.logits(ids))):
        assert library.fm2_score_ids(handle, ids.ctypes.data, 500, 4, flags, 1, scores.ctypes.data) == 0
        np.testing.assert_allclose(scores, want, rtol=1e-6)
    ids[:, 2:] = ids[0, 2:]
    ranker, context = ctypes.c_void_p(), np.array([2, 3], np.uint64)
    assert library.fm2_ranker_open(handle, context.ctypes.data, 2, ctypes.byref(ranker)) == 0
    fixed, others = np.ascontiguousarray(ids[0, 2:]), np.ascontiguousarray(ids[:, :2])
    arguments = (fixed.ctypes.data, 2, others.ctypes.data, 500, 2, 0, 1, scores.ctypes.data)
    assert library.fm2_rank_ids(ranker, *arguments) == 0
    np.testing.assert_allclose(scores, scorer.predict(ids), rtol=1e-4)
    library.fm2_ranker_close(ranker)
    library.fm2_close(handle)


def test_inspect_shows_the_calibration(calibrated, trained, capsys):
    run, model = calibrated
    by = None if run.calibration.field is None else f"c{run.calibration.field}"
    for path in (run.path, model):
        assert inspect(path)["calibration"] == {"knots": len(run.calibration.knots), "by": by}
        assert main(["inspect", str(path)]) == 0
        assert f"calibrated: {len(run.calibration.knots)} knots" in capsys.readouterr().out
    assert "calibration" not in inspect(trained.path)


def test_onnx_files_are_calibrated(calibrated, data, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    run, _ = calibrated
    session = onnxruntime.InferenceSession(str(fm2.export_onnx(run, tmp_path / "model.onnx")))
    ids = np.asarray(data.test.ids)
    for rows in (0, 1, len(ids)):
        (probabilities,) = session.run(["probabilities"], {"ids": ids[:rows].astype(np.int64)})
        np.testing.assert_allclose(probabilities, run.predict(ids[:rows]), atol=1e-5)


def test_copies_of_a_run_are_calibrated(calibrated, data, tmp_path):
    run, _ = calibrated
    run.save(tmp_path)
    ids = np.asarray(data.test.ids[:50])
    for copy in (fm2.Run.open(tmp_path), pickle.loads(pickle.dumps(run))):
        np.testing.assert_array_equal(copy.predict(ids), run.predict(ids))


def test_rows_of_another_dataset_are_calibrated_by_their_values(calibrated, tmp_path):
    """Values have other ids there, and some are unknown."""
    run, _ = calibrated
    later = planted(800, seed=5, values=15)
    other = fm2.prepare(later, SCHEMA, tmp_path / "later", fractions=(0.5, 0, 0.5))
    ids = np.asarray(other.test.ids)
    values = later[np.asarray(other.test.rows)]
    np.testing.assert_allclose(run.probabilities(ids, run.id_map(other)), run.predict(values), rtol=1e-6)
    assert run.evaluate(other)["calibration"] == pytest.approx(
        run.predict(values).mean() / other.test.labels.mean(), rel=1e-5
    )


def test_training_again_removes_the_calibration(calibrated, data, tmp_path):
    run, _ = calibrated
    shutil.copytree(run.path, tmp_path / "run")
    again = fm2.train("fmfm", data, tmp_path / "run", dim=4, **LEARNED, overwrite=True)
    assert again.calibration is None
    assert not (tmp_path / "run" / CALIBRATION).exists()


def test_a_calibration_of_another_model_is_refused(calibrated, data, tmp_path):
    run, _ = calibrated
    other = fm2.train("lr", data, tmp_path / "other", **QUICK)
    shutil.copy(run.path / CALIBRATION, other.path)
    for use in (fm2.Run.open, lambda path: fm2.compile(path, tmp_path / "model.fm2")):
        with pytest.raises(fm2.Fm2Error, match=r"belongs to another model .*fm2 calibrate --remove removes it"):
            use(other.path)
    fm2.remove_calibration(other.path)
    assert fm2.Run.open(other.path).calibration is None
    fm2.calibrate(run, data)


@pytest.mark.parametrize(
    "change",
    [
        {"calibration.knots": np.array([[0.0, 1.0], [1.0, 1.0]])},
        {"calibration.knots": np.array([[0.0, 1.0], [1.0, np.nan]])},
        {"calibration.knots": np.array([0.0, 1.0])},
        {"calibration.knots": np.zeros((2, 2), np.float32)},
        {"calibration.field": np.array([4], np.int32)},
        {"calibration.field": np.array([-1], np.int32)},
        {"calibration.field": np.array([], np.int32)},
        {"calibration.shifts": np.zeros(3, np.float32)},
        {"calibration.shifts": np.zeros(13, np.float64)},
        {"calibration.shifts": np.full(13, np.inf, np.float32)},
        {"format": "another"},
        {"version": [2]},
        {"method": None, "model": None},
    ],
)
def test_invalid_calibrations_are_refused(trained, data, tmp_path, change):
    shutil.copytree(trained.path, tmp_path / "run")
    fm2.calibrate(tmp_path / "run", data, by="c2")
    path = tmp_path / "run" / CALIBRATION
    arrays, values = load_arrays(path)
    assert arrays["calibration.shifts"].shape == (13,)
    for name, value in change.items():
        (arrays if name in arrays else values)[name] = value
    save_arrays(path, arrays, values)
    with pytest.raises(fm2.Fm2Error, match=r"calibration\.safetensors"):
        fm2.Run.open(tmp_path / "run")
    path.write_bytes(b"no arrays")
    with pytest.raises(fm2.Fm2Error, match="is damaged or was not written by fm2"):
        fm2.Run.open(tmp_path / "run")


@pytest.mark.parametrize(
    "knots", [[0, 0], [0, 0, 1, 0], [1, 0, 0, 1], [0, 0, 1, np.nan], [0, 0, 1, 1, 1, 2], [0, 0, np.inf, 1], [0, 0, 1]]
)
def test_compiled_models_refuse_knots_that_do_not_increase(calibrated, write, knots):
    _, model = calibrated
    content = np.array(knots, np.float64).tobytes()
    path = write("model.fm2", with_section(model.read_bytes(), b"calibration.knots", content))
    with pytest.raises(fm2.Fm2Error, match=r"load: .*not a valid compiled model"):
        fm2.load(path)


def test_the_commands_show_the_error_before_and_after(trained, data, tmp_path, capsys):
    shutil.copytree(trained.path, tmp_path / "run")
    run, rows = str(tmp_path / "run"), str(data.path)
    assert main(["calibrate", run, rows, "--by", "c1", "--json"]) == 0
    fitted = json.loads(capsys.readouterr().out)
    assert fitted["rows"] == len(data.validation)
    assert fitted["after"]["error"] < 0.03 < 0.1 < fitted["before"]["low"]
    assert fitted["after"]["log_loss"] < fitted["before"]["log_loss"]
    assert main(["calibrate", run, rows, "--method", "platt"]) == 0
    shown = capsys.readouterr().out
    assert "on validation" in shown
    before = fitted["before"]
    assert f"  before  log loss {before['log_loss']:.5f}, calibration error {before['error']:.5f} [" in shown
    assert "\n  after   log loss " in shown
    assert main(["evaluate", run, rows, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["calibrated_error"] == pytest.approx(shown["calibration_error"])
    assert shown["calibrated_low"] <= shown["calibrated_error"] <= shown["calibrated_high"] < shown["uncalibrated_low"]
    assert main(["evaluate", run, rows, "--json", "--uncalibrated"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["calibration_error"] == pytest.approx(shown["uncalibrated_error"])
    assert plain["auc"] == pytest.approx(shown["auc"], abs=1e-6)
    assert main(["evaluate", run, rows]) == 0
    text = capsys.readouterr().out
    assert "\nexpected calibration error [95% bootstrap confidence interval]:\n  before calibration 0." in text
    perfect = r"\(perfectly calibrated predictions: about 0\.\d+\)"
    assert re.search(rf"\n  before .*\]: miscalibrated {perfect}\n  after calibration  0.*\]: .* {perfect}\n$", text)
    assert main(["evaluate", run, rows, "--uncalibrated"]) == 0
    text = capsys.readouterr().out
    assert re.search(rf"interval\]:\n  0\.\d+ \[.*\]: miscalibrated {perfect}\n$", text)
    assert text.count("calibration error") == text.count(f"{plain['calibration_error']:.5f}") == 1
    assert main(["report", run, "--data", rows, "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert f"{shown['calibrated_error']:.5f}" in page
    assert re.search(rf"\]: miscalibrated {perfect}; after calibration  0\.", page)
    assert f"[{shown['uncalibrated_low']:.5f}, {shown['uncalibrated_high']:.5f}]" in page


def test_a_calibration_can_be_removed(trained, data, tmp_path, capsys):
    shutil.copytree(trained.path, tmp_path / "run")
    run = fm2.Run.open(tmp_path / "run")
    uncalibrated = run.predict(data.test.encoded)
    scored = run.evaluate(data, split="validation")
    fitted = fm2.calibrate(run, data)
    assert fitted.log_loss_before == scored["log_loss"]
    assert fitted.log_loss_after == run.evaluate(data, split="validation")["log_loss"]
    assert not np.array_equal(run.predict(data.test.encoded), uncalibrated)
    fm2.remove_calibration(run)
    for reopened in (run, fm2.Run.open(run.path)):
        np.testing.assert_array_equal(reopened.predict(data.test.encoded), uncalibrated)
    with pytest.raises(fm2.Fm2Error, match=r"calibrate: the run in .*run has no calibration to remove"):
        fm2.remove_calibration(run.path)
    with pytest.raises(fm2.Fm2Error, match="run: directory not found"):
        fm2.remove_calibration(tmp_path / "nowhere")

    (run.path / CALIBRATION).write_bytes(b"damaged")  # can be removed as well
    assert main(["calibrate", str(run.path), "--remove"]) == 0
    assert capsys.readouterr().out == f"removed the calibration of {run.path}\n"
    assert not (run.path / CALIBRATION).exists()
    for words, message in (
        ([str(run.path), "--remove"], "has no calibration to remove"),
        ([str(run.path), str(data.path), "--remove"], "calibrate: --remove takes no DATA"),
        ([str(run.path)], "calibrate: DATA is required"),
    ):
        assert main(["calibrate", *words]) == 1
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by", "c9"], "calibrate: unknown field 'c9'; choose from c0, c1, c2, c3"),
        (["--split", "train", "--method", "plat"], "unknown value 'plat'; did you mean 'platt'?"),
    ],
)
def test_wrong_options_are_errors(trained, data, capsys, options, message):
    try:
        code = main(["calibrate", str(trained.path), str(data.path), *options])
    except SystemExit as error:
        code = error.code
    assert code in (1, 2)
    assert message in capsys.readouterr().err
    assert not (trained.path / CALIBRATION).exists()


def test_classifiers_use_the_calibration_of_their_directory(data, tmp_path):
    pytest.importorskip("sklearn")
    log = planted(6000)
    classifier = fm2.LRClassifier(**QUICK, positive_weight=5).fit(log.drop("click"), log["click"].to_numpy())
    classifier.save(tmp_path / "saved")
    rows = fm2.prepare(log.rename({"click": "label"}), classifier.run_.encoder.schema, tmp_path / "rows")
    fm2.calibrate(tmp_path / "saved", rows, split="train")
    loaded = type(classifier).load(tmp_path / "saved")
    new = planted(500, seed=9).drop("click")
    np.testing.assert_array_equal(loaded.decision_function(new), classifier.decision_function(new))
    np.testing.assert_allclose(loaded.predict_proba(new)[:, 1], loaded.run_.predict(new), rtol=1e-5)
    assert loaded.predict_proba(new)[:, 1].mean() < classifier.predict_proba(new)[:, 1].mean() - 0.1
    assert isinstance(loaded.run_.calibration, Calibration)
