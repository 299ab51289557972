"""Models and versions: their facts, choosing one, and what happens when a model is swapped."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.browser.actions import is_shown, rank_after, row_of, score_after, shown_percent
from tests.browser.conftest import opened
from tests.browser.server import Server
from tests.browser.shop import compile_shop

import fm2


@pytest.fixture(scope="module")
def second(workshop: Path) -> Path:
    """Return another model of the shop, without calibration."""
    return compile_shop(workshop, workshop / "second.fm2", seed=1, calibrate=False)


def put(source: Path, target: Path) -> None:
    """Copy a model into a directory that is served: complete or not at all."""
    partial = target.parent.parent / "partial"
    shutil.copy(source, partial)
    partial.rename(target)


def test_key_facts_of_each_version_are_shown(page, scorer):
    card = page.locator("#versions label")
    expect(card).to_have_count(1)
    facts = dict(zip(card.locator("dt").all_inner_texts(), card.locator("dd").all_inner_texts(), strict=True))
    assert facts["model"] == "fmfm"
    assert facts["plan"] == "direct"
    assert facts["fields"] == "9"
    assert facts["AUC (validation)"] == f"{scorer.meta['metrics']['auc']:.4f}"
    assert facts["log loss"] == f"{scorer.meta['metrics']['log_loss']:.4f}"
    assert facts["calibrated"] == "yes"
    assert re.fullmatch(r"\w{3} \d+, \d\d:\d\d", facts["loaded"])
    expect(card.get_by_text("serving")).to_be_visible()


def test_a_canary_can_be_chosen_instead_of_the_serving_version(context, workshop, second, tmp_path):
    (tmp_path / "shop").mkdir()
    put(workshop / "shop.fm2", tmp_path / "shop" / "1.fm2")
    put(second, tmp_path / "shop" / "2.fm2")
    with (
        Server(tmp_path, "--label", "shop:stable=1", "--canary", "shop=2:0.1") as server,
        opened(context, server) as page,
    ):
        expect(page.locator("#versions").get_by_text("canary, 10.0% of the traffic")).to_be_visible()
        expect(page.get_by_role("radio", name=re.compile("^Version 1"))).to_be_checked()
        site = page.locator("#row").get_by_label("site")
        score_after(page, lambda: site.fill("site6"))
        page.get_by_role("radio", name=re.compile("^Version 2")).check()
        expect(page.locator("#probability-note")).to_have_text("shop, version 2")
        assert row_of(page)["site"] == "site6"
        assert is_shown(shown_percent(page.locator("#probability")), fm2.load(second).predict_one(row_of(page)))


def test_after_a_swap_the_page_uses_the_new_version_and_keeps_the_row(context, workshop, second, tmp_path):
    (tmp_path / "shop").mkdir()
    put(workshop / "shop.fm2", tmp_path / "shop" / "1.fm2")
    with Server(tmp_path) as server, opened(context, server) as page:
        score_after(page, lambda: page.locator("#row").get_by_label("site").fill("site6"))
        rank_after(page, lambda: page.get_by_label("ad of candidate C").fill("ad9"))
        put(second, tmp_path / "shop" / "2.fm2")
        expect(page.locator("#notice")).to_have_text("This page now uses version 2 of shop.")
        expect(page.locator("#probability-note")).to_have_text("shop, version 2")
        assert row_of(page)["site"] == "site6"
        assert page.get_by_label("ad of candidate C").input_value() == "ad9"
        assert is_shown(shown_percent(page.locator("#probability")), fm2.load(second).predict_one(row_of(page)))
        page.reload()
        expect(page.locator("#probability-note")).to_have_text("shop, version 2")


def test_another_model_can_be_chosen(context, workshop, second, tmp_path):
    put(workshop / "shop.fm2", tmp_path / "one.fm2")
    put(second, tmp_path / "two.fm2")
    with Server(tmp_path) as server, opened(context, server) as page:
        assert page.locator("#model option").all_inner_texts() == ["one", "two"]
        score_after(page, lambda: page.locator("#row").get_by_label("site").fill("site6"))
        page.get_by_label("Model", exact=True).select_option("two")
        expect(page.locator("#probability-note")).to_have_text("two, version 1")
        assert row_of(page)["site"] == "site0"


def test_a_network_says_that_it_cannot_be_explained(context, server):
    def without_explanations(route):
        answer = route.fetch().json()
        route.fulfill(json={**answer, "explainable": False})

    context.route(re.compile("/versions/1$"), without_explanations)
    page = context.new_page()
    page.goto(server.url)
    expect(page.locator("#explanation")).to_contain_text("no contributions of fields and pairs")
    assert 0 < shown_percent(page.locator("#probability")) < 1
