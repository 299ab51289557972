"""fm2.cut: how accurate the FM with signs is, what training preserves, and the command."""

from __future__ import annotations

import itertools
import json
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from tests.helpers.planted import LEARNED, QUICK, SCHEMA, planted
from tests.helpers.runs import load_arrays

import fm2
from fm2 import Fm2Error, prepare
from fm2.artifacts.arrays import save_arrays
from fm2.artifacts.model_file import MODEL
from fm2.cli.main import main
from fm2.compression import spectrum
from fm2.compression.cut import build_fm, compare, draw_ranks
from fm2.compression.spectrum import cut, estimate_moments, measure_moments
from fm2.compression.weights import read_weights
from fm2.data.rows import EncodedRows
from fm2.engine.inspect import inspect
from fm2.evaluation.id_mapping import map_ids
from fm2.models import FM, FmFM, build, complexity
from fm2.training.run import Run
from fm2.training.train import train

CUTTABLE = ["fwfm", "fvfm", "fmfm"]


@pytest.fixture(scope="module", params=CUTTABLE)
def run(request, dataset, tmp_path_factory) -> Run:
    linear = {"fwfm": "fields", "fvfm": "both", "fmfm": "features"}[request.param]
    return train(
        request.param, dataset, tmp_path_factory.mktemp(request.param) / "run", **LEARNED, dim=3, linear=linear
    )


@pytest.fixture(scope="module")
def fmfm(dataset, tmp_path_factory) -> Run:
    return train("fmfm", dataset, tmp_path_factory.mktemp("cut") / "run", **LEARNED, dim=[3, 2, 4, 3])


def test_full_rank_is_exact_and_lower_ranks_are_close(run, dataset, tmp_path):
    expected, errors = run.logits(dataset.test.ids), []
    for rank in (2, 6, 12):
        small = fm2.cut(run, dataset, tmp_path / str(rank), rank=rank, training=False)
        assert (small.model.name, len(small.model.signs)) == ("fm", rank)
        errors.append(np.abs(small.logits(dataset.test.ids) - expected).max())
        auc = small.evaluate(dataset, "validation")["auc"]
        assert auc == pytest.approx(small.metrics["auc"], abs=5e-5)  # rounding may swap two of 46,000 pairs of rows
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.01 and errors[-1] < 1e-4


@pytest.mark.parametrize("moments", [estimate_moments, measure_moments])
def test_bias_and_linear_terms_keep_the_linear_part_of_the_loss(fmfm, dataset, moments):
    """Only a quadratic form in the deviations from the mean is lost, pair by pair."""
    weights, rows = read_weights(fmfm.path), np.array(dataset.test.ids[:50])
    measured = moments(weights, *([] if moments is estimate_moments else [dataset.train.encoded]))
    spectrum = cut(weights, 3, measured)
    with torch.no_grad():
        ids = torch.from_numpy(rows)
        lost = (fmfm.model(ids) - build_fm(weights, spectrum)(ids)).double().numpy()
    means = np.split(measured.mean, np.cumsum(weights.dims)[:-1])
    expected = np.zeros(len(rows))
    for i, j in itertools.combinations(range(4), 2):
        matrix = weights.blocks[i, j] - (spectrum.vectors[i] * spectrum.signs) @ spectrum.vectors[j].T
        for row, ids in enumerate(rows):
            one, other = (weights.embeddings[field][ids[field]] - means[field] for field in (i, j))
            expected[row] += one @ matrix @ other
    np.testing.assert_allclose(lost, expected, atol=2e-5)
    assert np.std(lost) > 0.01


def test_rows_are_weighted_by_the_effect_of_their_logit(fmfm, dataset):
    weights, ids = read_weights(fmfm.path), np.asarray(dataset.train.ids)
    p = fmfm.probabilities(ids).astype(np.float64)
    v = np.concatenate([weights.embeddings[field][ids[:, field]] for field in range(4)], axis=1)
    measured = measure_moments(weights, EncodedRows(ids))
    np.testing.assert_allclose(measured.mean, np.average(v, axis=0, weights=p * (1 - p)), atol=1e-6)
    np.testing.assert_allclose(measured.covariance, np.cov(v.T, aweights=p * (1 - p), ddof=0), atol=1e-6)


@pytest.mark.parametrize("dropped", [0.0, 0.2])  # autograd trains with dropout, the fused kernel without
def test_signs_survive_training_resuming_new_data_and_files(fmfm, dataset, tmp_path, dropped):
    options = {"rank": 5, "field_dropout": dropped}
    small = fm2.cut(fmfm, dataset, tmp_path / "small", epochs=1, **options)
    signs = small.model.signs
    assert set(signs) == {1, -1}
    again = fm2.cut(fmfm, dataset, tmp_path / "small", epochs=3, resume=True, **options)
    straight = fm2.cut(fmfm, dataset, tmp_path / "straight", epochs=3, **options)
    ids = np.asarray(dataset.test.ids)
    np.testing.assert_array_equal(again.probabilities(ids), straight.probabilities(ids))
    bare = fm2.cut(fmfm, dataset, tmp_path / "bare", training=False, **options)
    assert again.metrics["log_loss"] <= bare.metrics["log_loss"]
    new = prepare(planted(2000, seed=5, values=14), SCHEMA, tmp_path / "new")
    assert train("fm", new, tmp_path / "later", start=again, **QUICK).model.signs == signs
    whole, later = fm2.cut(fmfm, new, tmp_path / "whole", rank=12, training=False), np.asarray(new.test.ids)
    known = later[
        (map_ids(EncodedRows(later), fmfm.id_map(new)).ids > 0).all(axis=1)
    ]  # other values start from scratch
    np.testing.assert_allclose(whole.logits(known), fmfm.logits(known, fmfm.id_map(new)), atol=1e-4)
    fm2.compile(again.path, tmp_path / "model.fm2")
    scorer = fm2.load(tmp_path / "model.fm2")
    np.testing.assert_allclose(scorer.predict(ids), again.probabilities(ids), atol=1e-5)
    row = planted(3, seed=3).to_dicts()[1]
    assert scorer.explain(row).logit == pytest.approx(float(scorer.logits([row])[0]), abs=1e-5)
    fm2.compile(again.path, tmp_path / "full.fm2", plan="spectral", rank=20)
    np.testing.assert_allclose(fm2.load(tmp_path / "full.fm2").predict(ids), again.probabilities(ids), atol=1e-5)
    for path in (again.path, tmp_path / "model.fm2"):
        assert inspect(path)["flops"] == {"sums": complexity.fm(4, 5), "spectral": complexity.spectral(4, 5)}


def test_the_exported_graph_has_the_signs(fmfm, dataset, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    small = fm2.cut(fmfm, dataset, tmp_path / "small", rank=4, training=False)
    session = onnxruntime.InferenceSession(str(fm2.export_onnx(small, tmp_path / "model.onnx")))
    ids = np.asarray(dataset.test.ids)
    (found,) = session.run(["probabilities"], {"ids": ids.astype(np.int64)})
    np.testing.assert_allclose(found, small.probabilities(ids), atol=1e-5)


def test_an_fm_with_signs_has_them_in_its_field_matrices_and_its_config():
    model = FM([3, 4, 5], 3, signs=[1, -1, 1])
    assert torch.equal(model.field_matrix(0, 2), torch.diag(torch.tensor([1.0, -1.0, 1.0])))
    assert build(model.config).signs == [1, -1, 1]
    assert model.n_parameters == FM([3, 4, 5], 3).n_parameters
    assert model.flops() == FM([3, 4, 5], 3).flops()
    assert "signs" not in FM([3, 4, 5], 3).config


@pytest.mark.parametrize(
    "signs", [[1, -1], [1, 1, 1, 1], [1, 0, 1], [1, 2, -1], [1, 1.0, -1], [True, -1, 1], ["1", 1, 1]]
)
def test_invalid_signs_are_an_error(signs, dataset, tmp_path):
    with pytest.raises(Fm2Error, match="expected 3 numbers, each 1 or -1"):
        FM([3, 3], 3, signs=signs)
    run = train("fm", dataset, tmp_path / "fm", **QUICK, dim=3)
    arrays, values = load_arrays(run.path / MODEL)
    for strange in (signs, 7, [[1], 1, 1]):
        save_arrays(run.path / MODEL, arrays, {**values, "model": {**values["model"], "signs": strange}})
        for read in (Run.open, read_weights):
            with pytest.raises(Fm2Error):
                read(run.path)


def test_what_cannot_be_cut_is_an_error(fmfm, dataset, tmp_path):
    with pytest.raises(Fm2Error, match="unexpected signs; only fm takes them"):
        FmFM([3, 3], 2, signs=[1, -1])
    fm = train("fm", dataset, tmp_path / "fm", **QUICK)
    with pytest.raises(Fm2Error, match="cut: expected a run of fwfm, fvfm, fmfm, got fm in"):
        fm2.cut(fm, dataset, tmp_path / "none")
    with pytest.raises(Fm2Error, match="rank must be between 1 and the sum of the dimensions, 12, got 13"):
        fm2.cut(fmfm, dataset, tmp_path / "none", rank=13)
    with pytest.raises(Fm2Error, match="cut: the rank is the dimension; remove dim from the settings"):
        fm2.cut(fmfm, dataset, tmp_path / "none", dim=3)
    with pytest.raises(Fm2Error, match="is the source run; choose another out="):
        fm2.cut(fmfm, dataset, fmfm.path)
    with pytest.raises(Fm2Error, match="learn=False requires start= and cannot be combined with resume"):
        train("fm", dataset, tmp_path / "none", learn=False)
    assert not (tmp_path / "none").exists()


def test_the_command_cuts(fmfm, dataset, tmp_path, capsys):
    command = ["cut", str(fmfm.path), str(dataset.path), "--out", str(tmp_path / "small"), "--epochs", "1"]
    assert main([*command, "--rank", "4"]) == 0
    printed = capsys.readouterr().out
    assert "on test" in printed and "untrained: " in printed and "mean squared difference" in printed
    assert main([*command, "--rank", "4", "--no-training", "--overwrite", "--json"]) == 0
    first, small = json.loads(capsys.readouterr().out)
    assert first["rank"] is None and (small["rank"], small["flops"]) == (4, complexity.spectral(4, 4))
    assert small["cut"] == {
        key: pytest.approx(small[key], abs=1e-6) if key != "split" else "test" for key in small["cut"]
    }
    assert 0 < small["mean_square_error"] < small["worst_error"] ** 2
    assert main(["evaluate", str(tmp_path / "small"), str(dataset.path)]) == 0


def test_several_ranks_make_a_table_and_a_chart(fmfm, dataset, tmp_path, capsys):
    command = ["cut", str(fmfm.path), str(dataset.path), "--out", str(tmp_path / "by-rank"), "--epochs", "1", "--json"]
    assert main([*command, "--rank", "12,2,4"]) == 0
    printed = capsys.readouterr()
    rows = json.loads(printed.out)
    for rank in (2, 4, 12):
        assert f"fm2: rank {rank}: computing the spectrum ...\nfm2: rank {rank}: training ...\n" in printed.err
    assert rows == json.loads((tmp_path / "by-rank" / "table.json").read_text())
    assert [row["rank"] for row in rows] == [None, 2, 4, 12]
    assert Run.open(tmp_path / "by-rank" / "rank-4").model.config["dims"] == [4] * 4
    assert rows[3]["cut"]["worst_error"] < 1e-4 < rows[1]["cut"]["worst_error"]
    texts = [
        text.text for text in ElementTree.parse(tmp_path / "by-rank" / "table.svg").iter() if text.tag.endswith("text")
    ]
    assert {"rank", "AUC lost", "worst logit error", "as cut", "trained", "2", "4", "12"} <= set(texts)
    assert main([*command, "--rank", "2,4"]) == 1
    assert "already exists" in capsys.readouterr().err
    assert main([*command, "--rank", "2,4", "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)[1:] == rows[1:3]
    assert main([*command, "--rank", "2,99", "--overwrite"]) == 1
    assert main([*command[:4], str(fmfm.path / "in"), "--rank", "1,2"]) == 0
    assert main([*command[:4], str(fmfm.path), "--rank", "1,2"]) == 1
    assert "is itself a run" in capsys.readouterr().err


def test_a_chart_of_equal_figures_is_valid(tmp_path):
    row = {"auc": 0.7, "worst_error": 0.0}
    draw_ranks(tmp_path / "table.svg", [{"split": "a < b", **row}, {"rank": 4, **row, "cut": row}])
    assert "nan" not in (tmp_path / "table.svg").read_text()
    ElementTree.parse(tmp_path / "table.svg")


def texts_of(chart):
    return [text.text for text in ElementTree.parse(chart).iter() if text.tag.endswith("text")]


def test_a_chart_includes_zero_and_has_no_line_for_training_that_was_skipped(tmp_path):
    cut = {"auc": 0.72, "worst_error": 0.1}
    rows = [{"split": "test", "auc": 0.7}, *({"rank": rank, **cut, "cut": cut} for rank in (4, 8))]
    draw_ranks(tmp_path / "table.svg", rows, trained=False)
    texts = texts_of(tmp_path / "table.svg")
    assert texts.count("0") == 2
    assert "as cut" in texts and "trained" not in texts


def test_resuming_without_training_keeps_finished_cuts_and_makes_the_others(fmfm, dataset, tmp_path, capsys):
    out = tmp_path / "by-rank"
    command = ["cut", str(fmfm.path), str(dataset.path), "--out", str(out), "--no-training", "--json"]
    assert main([*command, "--rank", "2,4"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert "trained" not in texts_of(out / "table.svg")
    (out / "rank-4" / MODEL).unlink()  # as if interrupted here
    before = (out / "rank-2" / MODEL).stat().st_mtime_ns
    assert main([*command, "--rank", "2,4,6", "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)[:3] == rows
    assert (out / "rank-2" / MODEL).stat().st_mtime_ns == before
    assert Run.open(out / "rank-6").model.config["dims"] == [6] * 4
    one = [*command[:4], str(out / "rank-2"), *command[5:]]
    assert main([*one, "--rank", "2", "--resume"]) == 0
    capsys.readouterr()
    assert main([*one, "--rank", "3", "--resume"]) == 1
    assert "is not this cut without training; use --overwrite to replace it" in capsys.readouterr().err


def test_logits_and_moments_are_computed_once_for_all_cuts(fmfm, dataset, tmp_path, monkeypatch):
    asked, logits, measured = [], Run.logits, []
    where = spectrum.measure_moments
    monkeypatch.setattr(spectrum, "measure_moments", lambda *given: measured.append(1) or where(*given))

    def counted(run, ids, id_map=None):
        asked.append(run.path)
        return logits(run, ids, id_map)

    monkeypatch.setattr(Run, "logits", counted)
    fm2.cut(fmfm, dataset, tmp_path / "one", rank=2, training=False)
    assert not asked and measured == [1]
    compare(fmfm, dataset, tmp_path / "by-rank", [2, 4], training=False)
    assert measured == [1, 1]
    assert asked.count(fmfm.path) == 1
    assert len(asked) == 3
