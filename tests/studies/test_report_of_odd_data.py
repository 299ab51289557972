"""Reports of unusual data: hostile names, deep models, very few or many fields; and labels that stay readable."""

from __future__ import annotations

import itertools
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from tests.helpers.pages import SVG, Page, rows_of, titles_of
from tests.helpers.planted import QUICK, SCHEMA, planted

import fm2
from fm2 import Field, Schema, prepare
from fm2.data.description import describe
from fm2.models.registry import model_names
from fm2.studies.comparison.results import COLUMNS, Comparison
from fm2.studies.reporting.charts import draw_learning, draw_quality
from fm2.studies.reporting.field_sections import MOST_FIELDS, most_informative
from fm2.studies.reporting.fields import Information
from fm2.svg import text_width


def test_hostile_names_are_escaped(tmp_path):
    names = ["<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "a & b\x1b[31m", "x" * 300]
    rows = planted(600).rename({f"c{i}": name for i, name in enumerate(names)})
    schema = Schema([Field(name, min_count=1) for name in names], label=SCHEMA.label)
    data = prepare(rows, schema, tmp_path / "data")
    fm2.train("fmfm", data, tmp_path / "run", **QUICK, dim=2)
    page = Page(fm2.report(tmp_path / "run", tmp_path / "report.html", data=data))
    assert not {"script", "img", "b"} & {element.tag.removeprefix(SVG) for element in page.root.iter()}
    assert all(not name.startswith("on") for element in page.root.iter() for name in element.attrib)
    assert any(title.startswith(f"{names[0]} × {names[1]}: ") for title in titles_of(page.root))
    assert "a & b\\x1b[31m" in page.said
    assert max(len(text.text) for text in page.root.iter(f"{SVG}text")) < 60


def test_heat_maps_of_many_fields_show_the_most_informative():
    measured = np.zeros((100, 100))
    measured[5, 95] = measured[95, 5] = 1.0
    shown = most_informative(Information(measured, np.zeros((100, 100)), 10, 10), 100)
    assert len(shown) == MOST_FIELDS and {5, 95} <= set(shown) and shown == sorted(shown)


@pytest.mark.parametrize("fields", [1, 3, MOST_FIELDS + 20])
def test_a_report_of_deep_models_and_few_or_many_fields(fields, tmp_path):
    rows = np.random.default_rng(1).integers(0, 3, (300, fields)).astype(str)
    names = [f"a_long_name_{number}" for number in range(fields)]
    columns = {name: rows[:, number] for number, name in enumerate(names)}
    clicks = np.arange(len(rows)) % 3 == 0
    schema = Schema([Field(name, min_count=1) for name in names], label="click")
    data = prepare(pl.DataFrame({"click": clicks, **columns}), schema, tmp_path / "data")
    table = fm2.compare(data, tmp_path / "table", "fmfm,deepfm", seeds=2, epochs=1, dim=2, threads=1)
    assert not table.failed
    page = Page(fm2.report(table.path, tmp_path / "report.html"))
    assert len(rows_of(page.section("Models").find("div"))) == 2
    best = max(table.summary(), key=lambda row: row["auc"])
    assert page.facts()["AUC (test)"] == f"{best['auc']:.5f}"  # the mean of its seeds
    if fields > MOST_FIELDS:
        assert f"The map shows the {MOST_FIELDS} most informative of {fields} fields" in page.said
        labels = [text.text for text in page.figure("Mutual information").iter(f"{SVG}text")]
        assert len(set(labels)) > MOST_FIELDS / 2  # shortened names stay distinct
    alone = Page(fm2.report(table.path / "deepfm-0", tmp_path / "report.html", data=data))
    assert alone.facts()["model"] == "deepfm" and "strength" not in alone.said.split("Settings")[0]


def test_no_label_of_a_chart_is_clipped_or_overlaps_another(tmp_path):
    rows = [
        {**dict.fromkeys(COLUMNS), "model": model, "flops": 10 ** (2 + place % 5), "auc": 0.7 + 0.003 * place}
        for place, model in enumerate(model_names())
    ]
    for count in (2, len(model_names())):
        truth = {"auc": 0.8, "log_loss": 0.4}
        comparison = Comparison(tmp_path, "data", "", "test", model_names(), [0], rows=rows[:count], truth=truth)
        chart = ElementTree.fromstring(draw_quality(comparison))
        names = [text for text in chart.iter(f"{SVG}text") if text.text in model_names()]
        assert len(names) == count
        boxes = []
        for name in names:
            x, y = float(name.get("x")), float(name.get("y"))
            boxes.append((x, y, x + text_width(name.text, 11, bold=True)))
            assert x >= 0 and boxes[-1][2] <= float(chart.get("width"))
        for (a, y, b), (c, z, d) in itertools.combinations(boxes, 2):
            assert abs(y - z) >= 9 or b <= c or d <= a
    history = [{"epoch": 1.0, "auc": 0.775811, "log_loss": 0.5, "best": True}]
    for text in ElementTree.fromstring(draw_learning({"fmfm": history}, "auc", "AUC")).iter(f"{SVG}text"):
        if text.get("text-anchor") == "end":  # a tick label
            assert float(text.get("x")) >= text_width(text.text, 12)


def test_lists_are_counted_as_describe_counts_them(tmp_path):
    lists = [["a", "b", "c"], None, [], ["a"]] * 100
    rows = planted(400).with_columns(tags=pl.Series(lists, dtype=pl.List(pl.String)))
    schema = Schema([*SCHEMA.fields, Field("tags", multivalued=True, min_count=1)], label=SCHEMA.label)
    data = prepare(rows, schema, tmp_path / "data", fractions=(0.5, 0.25, 0.25))
    fm2.train("lr", data, tmp_path / "run", **QUICK)
    page = Page(fm2.report(tmp_path / "run", tmp_path / "report.html", data=data))
    described = describe(data)["fields"][-1]
    assert described["lists"] == {"values_per_row": 1.0, "empty": 0.25, "missing": 0.25, "single": False}
    (row,) = [cells for cells in rows_of(page.root) if cells and cells[0] == "tags" and len(cells) == 6]
    assert row == ["tags", str(described["features"]), "1.00", "3", "25.0%", "25.0%"]
