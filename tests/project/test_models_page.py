"""The page "Models at a glance" has every model, and the figures of the results pages."""

from __future__ import annotations

import importlib.util
import re

import pytest
from tests.helpers.documentation import ROOT

from fm2.models import complexity
from fm2.models.registry import specs


@pytest.fixture(scope="module")
def hook():
    spec = importlib.util.spec_from_file_location("models_page", ROOT / "docs" / "hooks" / "models_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows(hook):
    table = [line for line in hook.models_page().splitlines() if line.startswith("| **")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {row[0].strip("*"): row[1:] for row in cells}


def test_every_model_has_a_row_and_an_equation(hook, rows):
    assert list(rows) == [spec.title for spec in specs()]
    page = hook.models_page()
    for spec in specs():
        assert spec.equation, f"{spec.name} has no equation"
        assert f"(`{spec.name}`, {spec.source}): {spec.summary}.\n\n```text\n{spec.equation}\n```" in page


def test_costs_are_those_of_default_models(rows):
    features, n = 39 * 531, 39
    assert rows["LR"][1:3] == [f"{features:,}", "78"]
    assert rows["FM"][2] == f"{complexity.fm(n, 8):,}"
    assert rows["FFM"][1] == f"{features * (1 + 38 * 4):,}"
    assert rows["FmFM"][1:4] == [f"{features * 9 + 741 * 64:,}", f"{complexity.fmfm([8] * n):,}", "12,675"]


def test_results_are_those_of_the_results_pages(hook, rows):
    networks, quality = ((ROOT / "docs" / "figures" / name).read_text() for name in ("networks.md", "quality.md"))
    losses = hook.criteo_losses(networks)
    assert set(losses) == {spec.title for spec in specs()}
    for title, loss in losses.items():
        short = "DCN" if title == "Deep & Cross" else title
        assert re.search(rf"\| {re.escape(short)} \| 0\.\d+ \| {rows[title][4]} \|", networks), title
        assert float(rows[title][4]) == loss
    aucs = hook.generated_aucs(networks)
    assert (aucs["NFmFM"], aucs["LR"], aucs["FGCNN"], aucs["AutoInt"], aucs["AutoInt+"]) == tuple(
        float(rows[title][5]) for title in ("NFmFM", "LR", "FGCNN", "AutoInt", "AutoInt+")
    )
    assert set(aucs) >= {spec.title for spec in specs() if spec.deep}
    gaps = hook.gaps_closed(quality)
    assert f"{max(gaps.values()):.0%}" == rows["FmFM"][6]
    assert "large logs" in rows["FmFM"][0]
    best = min(losses, key=losses.get)
    assert "small logs" in rows[best][0]
    assert "cheap scoring" in rows["LR"][0] and "cheap scoring" not in rows["FiBiNET"][0]
