"""An FmFM with diagonal or scalar matrices is stored, compiled, exported and compressed like any other one."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.planted import QUICK
from tests.helpers.runs import load_arrays

import fm2
from fm2 import Fm2Error, Run
from fm2.artifacts.arrays import save_arrays
from fm2.artifacts.model_file import MODEL
from fm2.training.train import train


@pytest.fixture(params=["diagonal", "scalar"])
def run(request, dataset, tmp_path):
    """A trained FmFM with simpler matrices."""
    return train("fmfm", dataset, tmp_path / "run", matrices=request.param, dim=[3, 4, 5, 4], matrix_std=0.3, **QUICK)


def check_form(run):
    matrix = run.model.field_matrix(1, 2).clone()
    diagonal = matrix.diagonal().clone()
    matrix.diagonal().zero_()
    assert not matrix.any()
    assert diagonal.all()
    if run.model.config["matrices"] == "scalar":
        np.testing.assert_allclose(diagonal, diagonal[0], rtol=1e-5)


def test_native_training_keeps_the_form(run):
    check_form(run)
    check_form(Run.open(run.path))


@pytest.mark.parametrize("plan", ["auto", "cached", "spectral"])
def test_compiled_models_predict_the_same(run, dataset, tmp_path, plan):
    scorer = fm2.load(fm2.compile(run.path, tmp_path / "model.fm2", plan=plan).path)
    rows = dataset.test.encoded
    np.testing.assert_allclose(scorer.predict(rows), run.probabilities(rows), atol=1e-5)


def test_exported_models_predict_the_same(run, dataset, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    fm2.export_onnx(run.path, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(None, {"ids": np.asarray(dataset.test.encoded.ids, np.int64)})
    np.testing.assert_allclose(np.ravel(probabilities), run.probabilities(dataset.test.encoded), atol=1e-5)


def test_pruning_keeps_the_form_and_shrinking_makes_the_matrices_full(run, dataset, tmp_path):
    pruned = fm2.prune(run, dataset, tmp_path / "pruned", keep=0.5)
    assert pruned.model.config["matrices"] == run.model.config["matrices"]
    assert (1, 2) in pruned.model.pruned or check_form(pruned) is None
    for warm in (True, False):
        small = fm2.shrink(run, dataset, tmp_path / f"small-{warm}", variance=0.9, warm=warm)
        assert small.model.config["matrices"] == "full"


def test_a_file_with_other_matrices_is_damaged(run):
    arrays, values = load_arrays(run.path / MODEL)
    weights = arrays["model.interaction.weight"].copy()
    weights[weights == 0] = 1.0
    save_arrays(run.path / MODEL, {**arrays, "model.interaction.weight": weights}, values)
    with pytest.raises(Fm2Error, match=r"is damaged .* has other elements than its form or pruning allows"):
        Run.open(run.path)
