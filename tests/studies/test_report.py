"""The page that fm2 report writes: what a reader finds on it, and that it is whole, harmless and alone."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.pages import SVG, Page, rows_of, titles_of
from tests.helpers.planted import LEARNED, QUICK, SCHEMA, planted

import fm2
from fm2 import Dataset, Fm2Error, prepare
from fm2.cli.main import main
from fm2.compression.prune import strengths
from fm2.compression.retraining import counts_of
from fm2.compression.shrink import compare as shrink_several
from fm2.evaluation.metrics import calibration_bins
from fm2.studies.comparison.results import COLUMNS, Comparison
from fm2.studies.reporting import mutual_information
from fm2.training.inputs import fingerprint_of
from fm2.training.run import Run

TRUTH = {"auc": 0.99, "log_loss": 0.1}


def _row(run: Run, /, **figures) -> dict:
    counted = {"parameters": run.model.n_parameters, "flops": run.model.flops()}
    row = {"model": run.model.name, "seed": 0, "run": str(run.path), **counted, "best_epoch": 2.0, "seconds": 1.5}
    return {**dict.fromkeys(COLUMNS), **row, "auc": 0.5, "log_loss": 0.5, **figures}


def write_comparison(path: Path, dataset: Dataset, runs: dict[str, Run], **changes) -> Path:
    rows = []
    for model, run in runs.items():
        found = run.evaluate(dataset)
        cached = {"flops_cached": run.model.flops(cached=True)} if model == "fmfm" else {}
        rows.append(_row(run, run=f"{model}-0", auc=found["auc"], log_loss=found["log_loss"], **cached))
    values = {"data": str(dataset.path), "split": "test", "models": list(runs), "seeds": [0], "truth": TRUTH}
    values |= {"rows": rows, "fingerprint": fingerprint_of(dataset), **changes}
    Comparison(path, **values).save()
    return path


@pytest.fixture(scope="module")
def runs(dataset, tmp_path_factory) -> dict[str, Run]:
    place = tmp_path_factory.mktemp("compared")
    settings = {"lr": QUICK, "fm": {**QUICK, "dim": 3}, "fmfm": {**LEARNED, "dim": 3}}
    return {model: fm2.train(model, dataset, place / f"{model}-0", **settings[model]) for model in settings}


@pytest.fixture(scope="module")
def compared(dataset, runs) -> Path:
    return write_comparison(runs["lr"].path.parent, dataset, runs)


@pytest.fixture(scope="module")
def shrunk(dataset, runs, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("shrunk") / "by-variance"
    shrink_several(runs["fmfm"], dataset, out, [0.9, 0.5], warm=True, **{**QUICK, "epochs": 1})
    return out


@pytest.fixture(scope="module")
def page(compared, shrunk) -> Page:
    return Page(fm2.report(compared, compared / "report.html", shrink=shrunk))


def test_the_page_needs_and_runs_nothing_else(page):
    assert set(re.findall(r"https?://[^\"' <>)]+", page.text)) == {"http://www.w3.org/2000/svg"}
    names = {element.tag.removeprefix(SVG) for element in page.root.iter()}
    assert not names & {"script", "img", "image", "link", "iframe", "object", "use", "foreignObject"}
    assert "url(" not in page.text and "@import" not in page.text
    policy = page.root.find(".//meta[@http-equiv='Content-Security-Policy']").get("content")
    assert policy.startswith("default-src 'none'")
    assert page.root.find(".//meta[@name='viewport']") is not None


def test_the_summary_tells_the_best_model(page, runs, dataset):
    found, facts = runs["fmfm"].evaluate(dataset), page.facts()
    assert page.root.findtext(".//h1") == "3 models compared"
    assert facts["best model"] == "fmfm"
    assert facts["AUC, on test"] == f"{found['auc']:.5f}"
    assert facts["log loss, on test"] == f"{found['log_loss']:.5f}"
    assert facts["FLOPs for one prediction"] == f"{runs['fmfm'].model.flops():,}"
    assert facts["best possible AUC"] == "0.99000"
    assert facts["training rows"] == f"{len(dataset.train):,}"


def test_all_models_stand_in_the_table_and_in_the_picture(page, runs, dataset):
    models = page.section("Models")
    auc = {model: run.evaluate(dataset)["auc"] for model, run in runs.items()}
    assert [(row[0], row[3]) for row in rows_of(models)] == [
        (model, f"{auc[model]:.5f}") for model in sorted(auc, key=lambda model: -auc[model])
    ]
    places = {}
    for circle in models.iter(f"{SVG}circle"):
        places[circle.findtext(f"{SVG}title").split(":")[0]] = float(circle.get("cx")), float(circle.get("cy"))
    dots = [places[f"{model}, seed 0"] for model in ("lr", "fm", "fmfm")]
    assert [x for x, _ in dots] == sorted(x for x, _ in dots)  # they cost more and more
    by_quality = sorted(auc, key=lambda model: -auc[model])
    assert [places[f"{model}, seed 0"][1] for model in by_quality] == sorted(y for _, y in dots)
    assert places["FmFM"][0] < places["fmfm, seed 0"][0] and places["FmFM"][1] == places["fmfm, seed 0"][1]
    assert f"cached {runs['fmfm'].model.flops(cached=True):,}" in rows_of(models)[0][2]
    assert {"FmFM shrunk to 0.9 of the variance", "FmFM shrunk to 0.5 of the variance"} <= set(places)
    texts = [text.text for text in models.iter(f"{SVG}text")]
    assert {"lr", "fm", "fmfm", "AUC, on test", "the best possible, 0.9900"} <= set(texts)
    assert "fmfm is the best" in models.findtext(".//figcaption")


def test_every_picture_has_a_title_a_reading_and_words_for_those_who_do_not_see_it(page):
    pictures = list(page.root.iter(f"{SVG}svg"))
    assert len(pictures) == 1 + 2 + 1 + 2 + 2 + 1
    for picture in pictures:
        assert picture.get("role") == "img" and len(picture.get("aria-label")) > 10
        width, height = float(picture.get("width")), float(picture.get("height"))
        for text in picture.iter(f"{SVG}text"):
            assert 0 <= float(text.get("x")) <= width and 0 <= float(text.get("y")) <= height
        for element in picture.iter():
            assert not any("nan" in value or "inf" in value.split() for value in element.attrib.values())
    for figure in page.root.iter("figure"):
        assert figure.findtext("h3") and figure.findtext("figcaption").endswith(".")


def test_the_maps_say_what_each_pair_tells_and_costs(page, dataset):
    figure = page.figure("Mutual information")
    found = mutual_information(dataset.train.ids, dataset.train.labels, dataset.field_sizes)
    titles = titles_of(figure)
    assert len(titles) == 2 * 16
    assert any(title.startswith(f"c0 × c1: {found[0, 1]:.5f} nats, of which chance gives ") for title in titles)
    assert any(title.startswith(f"c2: {found[2, 2]:.5f} nats") for title in titles)
    information, cross = figure.iter(f"{SVG}svg")
    above = [(i, j) for i in range(4) for j in range(4)]
    shades = [float(rect.get("fill-opacity")) for rect in information.find(f"{SVG}g").iter(f"{SVG}rect")]
    order = np.argsort([found[pair] for pair in above])
    assert np.all(np.diff(np.array(shades)[order]) >= 0)  # darker is more
    dims = [int(title.text.rsplit(" ", 1)[1]) for title in cross.iter(f"{SVG}title")]
    assert len(dims) == 16 and set(dims) <= {1, 2, 3}
    assert "rank correlation" in figure.findtext("figcaption") or len(set(dims)) == 1
    assert len(rows_of(figure)) == 6


def test_the_strengths_are_those_that_prune_goes_by(page, runs, dataset):
    figure = page.figure("strengths of pairs")
    found = strengths(runs["fmfm"].model, counts_of(runs["fmfm"], dataset))
    best = max(found, key=found.get)
    assert rows_of(figure)[0] == [f"c{best[0]} × c{best[1]}", f"{found[best]:.4f}"]
    assert f"c{best[0]} × c{best[1]} has the most" in figure.findtext("figcaption")
    for (i, j), strength in found.items():
        assert f"c{i} × c{j}: {strength:.5f} logits" in titles_of(figure)


def test_the_calibration_curve_has_the_rows_of_its_bins(page, runs, dataset):
    bins = calibration_bins(dataset.test.labels, runs["fmfm"].probabilities(dataset.test.ids))
    section = page.section("Calibration")
    expected = [[f"{b['rows']:,.0f}", f"{b['predicted']:.4f}", f"{b['observed']:.4f}"] for b in bins]
    assert rows_of(section) == expected
    for title, numbers in zip(titles_of(section), expected, strict=True):
        assert title.startswith(f"{numbers[0]} rows: {numbers[1]} predicted, {numbers[2]} observed")
    assert "rows of test each" in section.findtext(".//figcaption")


def test_the_learning_curves_have_a_line_for_every_model(page, runs):
    for picture in page.section("Learning curves").iter(f"{SVG}svg"):
        names = [text.text for text in picture.iter(f"{SVG}text")]
        assert {"lr", "fm", "fmfm", "epochs"} <= set(names)
        kept = [title.text for title in picture.iter(f"{SVG}title")]
        assert [title.split(",")[0] for title in kept] == ["lr", "fm", "fmfm"]


def test_the_table_of_a_shrunk_model_is_the_papers(page, shrunk):
    rows, table = rows_of(page.section("Quality against variance")), json.loads((shrunk / "table.json").read_text())
    assert [row[0] for row in rows] == ["full", "0.9", "0.5"]
    assert [row[3:] for row in rows] == [[f"{row['auc']:.5f}", f"{row['log_loss']:.5f}"] for row in table]
    assert rows[0][1:3] == ["3.00 (100.0%)", f"{table[0]['flops']} (100.0%)"]


def test_the_settings_stand_side_by_side(page):
    settings = {row[0]: row[1:] for row in rows_of(page.section("Settings"))}
    assert settings["model"] == ["lr", "fm", "fmfm"]
    assert settings["dim"] == ["", "3", "3"]


def test_the_same_report_is_the_same_page(compared, shrunk, page, tmp_path):
    again = fm2.report(compared, tmp_path / "again.html", shrink=shrunk, threads=2)
    assert again.read_text() == page.text


def test_a_run_alone_has_a_report_with_and_without_its_data(runs, dataset, tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["report", str(runs["fmfm"].path), "--out", str(out), "--data", str(dataset.path)]) == 0
    assert "bytes in" in capsys.readouterr().out
    whole = Page(out)
    assert whole.headings == ["Learning curves", "Calibration", "Fields", "Settings"]
    assert whole.facts()["model"] == "fmfm"
    losses = next(whole.section("Learning curves").iter(f"{SVG}svg"))
    assert {"validation", "training"} <= {text.text for text in losses.iter(f"{SVG}text")}
    assert main(["report", str(runs["fmfm"].path), "--out", str(out)]) == 0
    alone = Page(out)
    assert alone.headings == ["Learning curves", "Fields", "Settings"]
    assert "The data set was not given" in alone.said
    assert alone.facts()["AUC, on validation"] == f"{runs['fmfm'].metrics['auc']:.5f}"
    assert main(["report", str(runs["lr"].path), "--out", str(out), "--data", str(dataset.path)]) == 0
    plain = Page(out)
    assert plain.figure("Mutual information") is not None
    assert len(list(plain.section("Fields").iter(f"{SVG}svg"))) == 2  # no dimensions, no strengths


def test_a_shrunk_model_is_found_beside_its_run(runs, dataset, shrunk, tmp_path):
    beside = tmp_path / "by-variance"
    beside.mkdir()
    shutil.copytree(runs["fmfm"].path, tmp_path / "run")
    table = json.loads((shrunk / "table.json").read_text())
    for first, found in (
        (str(runs["lr"].path), False),
        ("other", False),
        ("run", True),
        (f"{tmp_path.name}/run", True),
    ):
        table[0]["run"] = first
        (beside / "table.json").write_text(json.dumps(table))
        page = Page(fm2.report(tmp_path / "run", tmp_path / "report.html"))
        assert ("Quality against variance" in page.headings) == found


def test_what_failed_and_several_seeds_are_told(compared, dataset, runs, tmp_path):
    values = json.loads((compared / "compare.json").read_text())
    for row in values["rows"]:
        row["run"] = str(runs[row["model"]].path)
    first = values["rows"][0]
    values["rows"].append({**first, "seed": 1, "auc": first["auc"] + 0.01})
    nothing = dict.fromkeys(COLUMNS)
    values["rows"].append({**nothing, "model": "ffm", "seed": 0, "run": "ffm-0", "error": "no <b>memory</b>"})
    values |= {"truth": None, "data": str(tmp_path / "gone")}
    (tmp_path / "compare.json").write_text(json.dumps(values))
    page = Page(fm2.report(tmp_path, tmp_path / "report.html"))
    assert "ffm, seed 0, failed: no <b>memory</b>" in page.said
    assert f"{first['auc'] + 0.005:.5f} ± 0.00707" in [row[3] for row in rows_of(page.section("Models"))]
    assert "Means of 2 seeds" in page.said and "best possible AUC" not in page.facts()
    assert "gone, could not be opened" in page.said
    values["rows"] = values["rows"][-1:]
    (tmp_path / "compare.json").write_text(json.dumps(values))
    assert "failed" in Page(fm2.report(tmp_path, tmp_path / "report.html")).said


def test_a_history_that_went_wrong_is_shown_as_far_as_it_goes(runs, tmp_path):
    shutil.copytree(runs["lr"].path, tmp_path / "run")
    history = (tmp_path / "run" / "history.jsonl").read_text()
    wrong = ['{"epoch": 9, "auc": NaN, "log_loss": NaN}', "[]", '{"epoch": "x"}', "{"]
    wrong.insert(0, '{"epoch": 9, "auc": 0.5, "log_loss": 1, "training_loss": NaN}')
    for text, told in ((history + "\n".join(wrong), True), ("", False)):
        (tmp_path / "run" / "history.jsonl").write_text(text)
        page = Page(fm2.report(tmp_path / "run", tmp_path / "report.html"))
        assert ("Learning curves" in page.headings) == told


def test_rows_without_a_click_have_a_page(runs, tmp_path):
    data = prepare(planted(300).with_columns(click=0), SCHEMA, tmp_path / "data", fractions=[0.9, 0.1, 0])
    write_comparison(tmp_path, data, {}, rows=[_row(runs["fmfm"])], split="validation")
    page = Page(fm2.report(tmp_path, tmp_path / "report.html"))
    assert "bars are two standard errors." in page.section("Calibration").findtext(".//figcaption")
    assert "so there is no rank correlation" in page.figure("Mutual information").findtext("figcaption")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is damaged, or not a file of fm2's"),
        ('{"format": "fm2 compare", "version": 9}', "has the format ('fm2 compare', 9); this fm2 reads"),
        ('{"format": "fm2 compare", "version": 1, "rows": [{}]}', "is damaged, or not a file of fm2's"),
        ("[" * 100_000, "is damaged, or not a file of fm2's"),
    ],
)
def test_what_is_no_comparison_is_refused(content, message, tmp_path, capsys):
    (tmp_path / "compare.json").write_text(content)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report.html")]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


def test_what_cannot_be_reported_is_refused(runs, compared, tmp_path):
    for source, options, message in (
        (tmp_path, {}, "has no trained model"),
        (runs["lr"].path, {"data": tmp_path}, "is not a prepared data set"),
        (runs["lr"].path, {"shrink": tmp_path}, "fm2 shrink with several shares of variance makes one"),
        (runs["lr"].path, {"threads": -1}, "report: threads is -1"),
    ):
        with pytest.raises(Fm2Error, match=message):
            fm2.report(source, tmp_path / "report.html", **options)
    with pytest.raises(Fm2Error, match="report: cannot write to"):
        fm2.report(runs["lr"].path, tmp_path / "no" / "report.html")
    with pytest.raises(Fm2Error, match="is a directory; --out is the page's file"):
        fm2.report(runs["lr"].path, tmp_path)
    assert not list(tmp_path.iterdir())
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    with pytest.raises(
        Fm2Error, match="is there already and is no HTML page, so it is not replaced; give another --out"
    ):
        fm2.report(runs["lr"].path, mine)
    assert mine.read_text() == "mine"


def test_other_data_than_was_compared_on_is_told(compared, dataset, tmp_path):
    other = prepare(planted(500, seed=3), SCHEMA, tmp_path / "data")
    page = Page(fm2.report(compared, tmp_path / "report.html", data=other))
    assert f"{other.path} is not what the models were compared on" in page.said
    assert "is not what the models" not in Page(fm2.report(compared, tmp_path / "report.html", data=dataset)).said
