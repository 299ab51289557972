"""The HTML page of fm2 report: its content, and that it is well-formed, safe and self-contained."""

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
from fm2.compression.prune import pair_strengths
from fm2.compression.retraining import find_occurrences
from fm2.compression.shrink import compare as shrink_several
from fm2.evaluation.metrics import calibration_bins
from fm2.studies.comparison.results import COLUMNS, Comparison
from fm2.studies.reporting import mutual_information
from fm2.training.inputs import fingerprint_of
from fm2.training.run import Run

TRUTH = {"auc": 0.99, "log_loss": 0.1}


def _row(run: Run, /, **figures) -> dict:
    counted = {"parameters": run.model.n_parameters, "flops": run.model.flops()}
    row = {"model": run.model.name, "seed": 0, "run": run.path.name, **counted, "best_epoch": 2.0, "seconds": 1.5}
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


def test_the_page_loads_and_runs_nothing(page):
    assert set(re.findall(r"https?://[^\"' <>)]+", page.text)) == {"http://www.w3.org/2000/svg"}
    names = {element.tag.removeprefix(SVG) for element in page.root.iter()}
    assert not names & {"script", "img", "image", "link", "iframe", "object", "use", "foreignObject"}
    assert "url(" not in page.text and "@import" not in page.text
    policy = page.root.find(".//meta[@http-equiv='Content-Security-Policy']").get("content")
    assert policy.startswith("default-src 'none'")
    assert page.root.find(".//meta[@name='viewport']") is not None


def test_no_model_name_breaks_across_lines(page):
    style = page.root.findtext(".//style")
    rules = re.findall(r"([^{}]+){([^{}]*)}", style)
    unbroken = [body for selectors, body in rules if ".unbroken" in [each.strip() for each in selectors.split(",")]]
    assert any("white-space: nowrap" in body for body in unbroken)
    assert "overflow-wrap: anywhere" not in style  # it would let a narrow table column break a name
    cells = {element.text: element for element in page.section("Models").iter("td")}
    headings = {element.text: element for element in page.section("Settings").iter("th")}
    cards = {fact.findtext("dt"): fact.find("dd") for fact in page.root.find(".//dl")}
    for name in ("lr", "fm", "fmfm"):
        assert cells[name].get("class") == headings[name].get("class") == "unbroken"
    assert cards["best model"].get("class") == "unbroken"


def test_the_summary_shows_the_best_model(page, runs, dataset):
    metrics, facts = runs["fmfm"].evaluate(dataset), page.facts()
    assert page.root.findtext(".//h1") == "Comparison of 3 models"
    assert facts["best model"] == "fmfm"
    assert facts["AUC (test)"] == f"{metrics['auc']:.5f}"
    assert facts["log loss (test)"] == f"{metrics['log_loss']:.5f}"
    assert facts["FLOPs per prediction"] == f"{runs['fmfm'].model.flops():,}"
    assert facts["best possible AUC"] == "0.99000"
    assert facts["training rows"] == f"{len(dataset.train):,}"


def test_all_models_are_in_the_table_and_in_the_chart(page, runs, dataset):
    models = page.section("Models")
    auc = {model: run.evaluate(dataset)["auc"] for model, run in runs.items()}
    assert [(row[0], row[1]) for row in rows_of(models)] == [
        (model, f"{auc[model]:.5f}") for model in sorted(auc, key=lambda model: -auc[model])
    ]
    positions = {}
    for circle in models.iter(f"{SVG}circle"):
        positions[circle.findtext(f"{SVG}title").split(":")[0]] = float(circle.get("cx")), float(circle.get("cy"))
    dots = [positions[f"{model}, seed 0"] for model in ("lr", "fm", "fmfm")]
    assert [x for x, _ in dots] == sorted(x for x, _ in dots)  # FLOPs increase in this order
    by_quality = sorted(auc, key=lambda model: -auc[model])
    assert [positions[f"{model}, seed 0"][1] for model in by_quality] == sorted(y for _, y in dots)
    cached, full = positions["FmFM"], positions["fmfm, seed 0"]
    assert cached[0] < full[0] and cached[1] == full[1]
    assert rows_of(models)[0][5] == f"{runs['fmfm'].model.flops(cached=True):,}"
    assert {"FmFM shrunk to 90% of the variance", "FmFM shrunk to 50% of the variance"} <= set(positions)
    texts = [text.text for text in models.iter(f"{SVG}text")]
    assert {"lr", "fm", "fmfm", "AUC (test)", "best possible, 0.9900"} <= set(texts)
    assert "fmfm has the highest AUC" in models.findtext(".//figcaption")
    assert "Hollow circles" in models.findtext(".//figcaption")


def test_every_chart_has_a_title_a_caption_and_a_label_for_screen_readers(page):
    charts = list(page.root.iter(f"{SVG}svg"))
    assert len(charts) == 1 + 2 + 1 + 2 + 2 + 1
    for chart in charts:
        assert chart.get("role") == "img" and len(chart.get("aria-label")) > 10
        width, height = float(chart.get("width")), float(chart.get("height"))
        for text in chart.iter(f"{SVG}text"):
            assert 0 <= float(text.get("x")) <= width and 0 <= float(text.get("y")) <= height
        for element in chart.iter():
            assert not any("nan" in value or "inf" in value.split() for value in element.attrib.values())
    for figure in page.root.iter("figure"):
        assert figure.findtext("h3") and figure.findtext("figcaption").endswith(".")


def test_the_heat_maps_show_information_and_dimensions_of_each_pair(page, dataset):
    figure = page.figure("Mutual information")
    expected = mutual_information(dataset.train.ids, dataset.train.labels, dataset.field_sizes)
    titles = titles_of(figure)
    assert len(titles) == 2 * 16
    pattern = rf"c0 × c1: {expected[0, 1]:.5f} nats, \d\.\d+ of them expected by chance"
    assert any(re.fullmatch(pattern, title) for title in titles)
    assert any(title.startswith(f"c2: {expected[2, 2]:.5f} nats") for title in titles)
    information, cross = figure.iter(f"{SVG}svg")
    pairs = [(i, j) for i in range(4) for j in range(4)]
    opacities = [float(rect.get("fill-opacity")) for rect in information.find(f"{SVG}g").iter(f"{SVG}rect")]
    order = np.argsort([expected[pair] for pair in pairs])
    assert np.all(np.diff(np.array(opacities)[order]) >= 0)
    dims = [int(title.text.rsplit(" ", 2)[1]) for title in cross.iter(f"{SVG}title")]
    assert len(dims) == 16 and set(dims) <= {1, 2, 3}
    assert "rank correlation" in figure.findtext("figcaption") or len(set(dims)) == 1
    assert len(rows_of(figure)) == 6


def test_the_strengths_are_the_criterion_of_prune(page, runs, dataset):
    figure = page.figure("interaction strengths")
    expected = pair_strengths(runs["fmfm"].model, find_occurrences(runs["fmfm"], dataset))
    best = max(expected, key=expected.get)
    assert rows_of(figure)[0] == [f"c{best[0]} × c{best[1]}", f"{expected[best]:.4f}"]
    assert f"c{best[0]} × c{best[1]} is the strongest pair" in figure.findtext("figcaption")
    for (i, j), strength in expected.items():
        assert f"c{i} × c{j}: {strength:.5f} logits" in titles_of(figure)


def test_the_calibration_chart_shows_every_bin(page, runs, dataset):
    bins = calibration_bins(dataset.test.labels, runs["fmfm"].probabilities(dataset.test.ids))
    section = page.section("Calibration")
    expected = [[f"{b['rows']:,.0f}", f"{b['predicted']:.4f}", f"{b['observed']:.4f}"] for b in bins]
    assert rows_of(section) == expected
    for title, numbers in zip(titles_of(section), expected, strict=True):
        assert re.fullmatch(rf"{numbers[0]} rows: {numbers[1]} predicted, {numbers[2]} ± 0\.\d+ observed", title)
    assert f"fmfm on test in {len(bins)} bins" in section.findtext(".//figcaption")


def test_the_learning_curves_have_a_line_for_every_model(page, runs):
    for chart in page.section("Learning curves").iter(f"{SVG}svg"):
        texts = [text.text for text in chart.iter(f"{SVG}text")]
        assert {"lr", "fm", "fmfm", "epoch"} <= set(texts)
        assert [title.split(",")[0] for title in titles_of(chart)] == ["lr", "fm", "fmfm"]


def test_shrunk_models_are_shown_as_in_the_paper(page, shrunk):
    rows, table = rows_of(page.section("Quality by variance kept")), json.loads((shrunk / "table.json").read_text())
    assert [row[0] for row in rows] == ["full", "90%", "50%"]
    assert [row[3:] for row in rows] == [[f"{row['auc']:.5f}", f"{row['log_loss']:.5f}"] for row in table]
    assert rows[0][1:3] == ["3.00 (100.0%)", f"{table[0]['flops']} (100.0%)"]


def test_the_settings_have_one_column_per_model(page):
    settings = {row[0]: row[1:] for row in rows_of(page.section("Settings"))}
    assert settings["model"] == ["lr", "fm", "fmfm"]
    assert settings["dim"] == ["", "3", "3"]


def test_a_report_is_reproducible_byte_by_byte(compared, shrunk, page, tmp_path):
    again = fm2.report(compared, tmp_path / "again.html", shrink=shrunk, threads=2)
    assert again.read_text() == page.text


def test_a_report_of_a_single_run_with_and_without_its_dataset(runs, dataset, tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["report", str(runs["fmfm"].path), "--out", str(out), "--data", str(dataset.path)]) == 0
    assert "bytes to" in capsys.readouterr().out
    whole = Page(out)
    assert whole.headings == ["Learning curves", "Calibration", "Fields", "Settings"]
    assert whole.facts()["model"] == "fmfm"
    losses = next(whole.section("Learning curves").iter(f"{SVG}svg"))
    assert {"validation", "training"} <= {text.text for text in losses.iter(f"{SVG}text")}
    assert main(["report", str(runs["fmfm"].path), "--out", str(out)]) == 0
    alone = Page(out)
    assert alone.headings == ["Learning curves", "Fields", "Settings"]
    assert "This report was made without the dataset" in alone.said
    assert alone.facts()["AUC (validation)"] == f"{runs['fmfm'].metrics['auc']:.5f}"
    assert main(["report", str(runs["lr"].path), "--out", str(out), "--data", str(dataset.path)]) == 0
    plain = Page(out)
    assert plain.figure("Mutual information") is not None
    assert len(list(plain.section("Fields").iter(f"{SVG}svg"))) == 2  # no dimensions, no strengths


def test_the_table_of_shrunk_models_is_found_next_to_their_run(runs, shrunk, tmp_path):
    sibling = tmp_path / "by-variance"
    sibling.mkdir()
    shutil.copytree(runs["fmfm"].path, tmp_path / "run")
    table = json.loads((shrunk / "table.json").read_text())
    for original, expected in (
        (str(runs["lr"].path), False),
        ("other", False),
        ("run", True),
        (f"{tmp_path.name}/run", True),
    ):
        table[0]["run"] = original
        (sibling / "table.json").write_text(json.dumps(table))
        page = Page(fm2.report(tmp_path / "run", tmp_path / "report.html"))
        assert ("Quality by variance kept" in page.headings) == expected


def test_failures_and_several_seeds_are_reported(compared, runs, tmp_path):
    values = json.loads((compared / "compare.json").read_text())
    for row in values["rows"]:
        (tmp_path / row["run"]).symlink_to(runs[row["model"]].path)
    first = values["rows"][0]
    values["rows"].append({**first, "seed": 1, "auc": first["auc"] + 0.01})
    nothing = dict.fromkeys(COLUMNS)
    values["rows"].append({**nothing, "model": "ffm", "seed": 0, "run": "ffm-0", "error": "no <b>memory</b>"})
    values |= {"truth": None, "data": str(tmp_path / "gone")}
    (tmp_path / "compare.json").write_text(json.dumps(values))
    page = Page(fm2.report(tmp_path, tmp_path / "report.html"))
    assert "ffm, seed 0, failed: no <b>memory</b>" in page.said
    assert f"{first['auc'] + 0.005:.5f} ± 0.00707" in [row[1] for row in rows_of(page.section("Models"))]
    assert "Mean ± standard deviation of 2 seeds" in page.said and "best possible AUC" not in page.facts()
    assert "gone could not be opened" in page.said
    values["rows"] = values["rows"][-1:]
    (tmp_path / "compare.json").write_text(json.dumps(values))
    page = Page(fm2.report(tmp_path, tmp_path / "report.html"))
    assert page.section("Models").findtext("p") == "ffm, seed 0, failed: no <b>memory</b>"


def test_invalid_lines_of_a_history_are_skipped(runs, tmp_path):
    shutil.copytree(runs["lr"].path, tmp_path / "run")
    history = (tmp_path / "run" / "history.jsonl").read_text()
    invalid = ['{"epoch": 9, "auc": NaN, "log_loss": NaN}', "[]", '{"epoch": "x"}', "{"]
    invalid.insert(0, '{"epoch": 9, "auc": 0.5, "log_loss": 1, "training_loss": NaN}')
    for text, expected in ((history + "\n".join(invalid), True), ("", False)):
        (tmp_path / "run" / "history.jsonl").write_text(text)
        page = Page(fm2.report(tmp_path / "run", tmp_path / "report.html"))
        assert ("Learning curves" in page.headings) == expected


def test_a_report_of_rows_without_clicks(runs, tmp_path):
    data = prepare(planted(300).with_columns(click=0), SCHEMA, tmp_path / "data", fractions=[0.9, 0.1, 0])
    (tmp_path / runs["fmfm"].path.name).symlink_to(runs["fmfm"].path)
    write_comparison(tmp_path, data, {}, rows=[_row(runs["fmfm"])], split="validation")
    page = Page(fm2.report(tmp_path, tmp_path / "report.html"))
    assert "predicted clicks / observed clicks" not in page.section("Calibration").findtext(".//figcaption")
    assert "so their rank correlation is undefined" in page.figure("Mutual information").findtext("figcaption")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is damaged or not a comparison"),
        ('{"format": "fm2 compare", "version": 9}', "expected format ('fm2 compare', 1), got ('fm2 compare', 9)"),
        ('{"format": "fm2 compare", "version": 1, "rows": [{}]}', "is damaged or not a comparison"),
        ("[" * 100_000, "is damaged or not a comparison"),
    ],
)
def test_an_invalid_comparison_is_an_error(content, message, tmp_path, capsys):
    (tmp_path / "compare.json").write_text(content)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report.html")]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


def test_invalid_arguments_are_errors(runs, tmp_path):
    for source, options, message in (
        (tmp_path, {}, "has no trained model"),
        (runs["lr"].path, {"data": tmp_path}, "is not a prepared dataset"),
        (runs["lr"].path, {"shrink": tmp_path}, r"fm2 shrink --variance A,B,\.\.\. writes this table"),
        (runs["lr"].path, {"threads": -1}, "report: threads must be between 1 and 1024, or 0 for all, got -1"),
    ):
        with pytest.raises(Fm2Error, match=message):
            fm2.report(source, tmp_path / "report.html", **options)
    with pytest.raises(Fm2Error, match="report: cannot write to"):
        fm2.report(runs["lr"].path, tmp_path / "no" / "report.html")
    with pytest.raises(Fm2Error, match=r"is a directory; out= must be a file, such as report\.html"):
        fm2.report(runs["lr"].path, tmp_path)
    assert not list(tmp_path.iterdir())
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    with pytest.raises(Fm2Error, match="already exists and is not an earlier HTML page; choose another out="):
        fm2.report(runs["lr"].path, mine)
    assert mine.read_text() == "mine"


def test_a_dataset_other_than_that_of_the_comparison_is_noted(compared, dataset, tmp_path):
    other = prepare(planted(500, seed=3), SCHEMA, tmp_path / "data")
    page = Page(fm2.report(compared, tmp_path / "report.html", data=other))
    assert f"{other.path} is not the dataset of the comparison" in page.said
    assert (
        "is not the dataset of the comparison"
        not in Page(fm2.report(compared, tmp_path / "report.html", data=dataset)).said
    )
