"""Nothing from a model becomes markup, nothing is loaded from elsewhere, and keys stay in the tab."""

from __future__ import annotations

import re
import urllib.request

import numpy as np
import polars as pl
import pytest
from playwright.sync_api import expect
from tests.browser.actions import is_shown, row_of, score_after, shown_percent
from tests.browser.conftest import opened
from tests.browser.server import Server
from tests.browser.shop import SCRIPT
from tests.helpers.documentation import ROOT

import fm2
from fm2 import Field, Schema

PAGE = ROOT / "src" / "fm2" / "serving" / "page"
KEY = "a-secret-of-the-tests"


def test_markup_in_values_is_text(page, scorer):
    tags = page.locator("#row").get_by_label(re.compile("^tags"))
    tags.fill(SCRIPT)
    score_after(page, lambda: tags.press("Enter"))
    assert SCRIPT in row_of(page)["tags"]
    page.get_by_role("button", name="Show all 45 terms").click()
    page.locator("#explanation tr", has_text="tags").get_by_role("button", name="3 values").first.click()
    expect(page.get_by_role("table", name="Values of tags").locator("th", has_text=SCRIPT)).to_be_visible()
    page.locator("#split").get_by_label("tags").check()
    site = page.locator("#row").get_by_label("site")
    score_after(page, lambda: site.fill(SCRIPT))
    assert "owned" not in page.title()
    assert page.locator("main img, main script").count() == 0
    assert is_shown(shown_percent(page.locator("#probability")), scorer.predict_one(row_of(page)))


def test_columns_may_have_any_name(context, tmp_path):
    """Objects of JavaScript inherit properties with some of these names."""
    names = ["constructor", "__proto__", "toString", "a/b 'c' \"d\"", SCRIPT]
    random = np.random.default_rng(0)
    log = pl.DataFrame({name: random.choice(["x", "y", "z"], 2000) for name in names})
    log = log.with_columns(click=pl.Series(random.integers(0, 2, 2000)))
    schema = Schema([Field(name, min_count=1) for name in names], label="click")
    data = fm2.prepare(log, schema, tmp_path / "data")
    fm2.compile(fm2.train("fm", data, tmp_path / "run", epochs=1, dim=2, threads=1).path, tmp_path / "odd.fm2")
    scorer = fm2.load(tmp_path / "odd.fm2", threads=1)
    with Server(tmp_path / "odd.fm2") as server, opened(context, server) as page:
        assert list(row_of(page)) == names
        for index in range(len(names)):
            score_after(page, lambda index=index: page.locator(f"#row-{index}").select_option("z"))
        row = row_of(page)
        assert list(row.values()) == ["z"] * 5
        assert is_shown(shown_percent(page.locator("#probability")), scorer.predict_one(row))
        shown = page.locator("#explanation > table tr[data-term] > th").evaluate_all("cells => cells.map(c => c.title)")
        assert shown[1:] == [name for name, _ in scorer.explain(row).largest(12)] + ["3 smaller terms"]
        expect(page.locator("#unknown li")).to_have_count(5)
        assert "owned" not in page.title()


@pytest.mark.parametrize("path", ["", "page/app.js", "page/style.css"])
def test_the_page_may_only_load_from_its_own_server(server, path):
    with urllib.request.urlopen(server.url + path, timeout=10) as response:
        assert response.headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert "unsafe" not in response.headers["Content-Security-Policy"]


def test_the_page_asks_for_a_key_and_keeps_it_in_the_tab(context, workshop, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"predict page {KEY}\n")
    with Server(workshop / "shop.fm2", "--keys", str(keys)) as server:
        page = context.new_page()
        page.goto(server.url)
        dialog = page.get_by_role("dialog", name="API key")
        expect(dialog).to_be_visible()
        dialog.get_by_label("Key").fill("wrong")
        dialog.get_by_label("Key").press("Enter")
        expect(dialog.get_by_text(re.compile("key", re.IGNORECASE)).first).to_be_visible()
        expect(dialog.get_by_label("Key")).to_have_value("")
        dialog.get_by_label("Key").fill(KEY)
        dialog.get_by_role("button", name="Continue").click()
        page.locator("#logit").wait_for()
        page.reload()
        page.locator("#logit").wait_for()
        assert page.evaluate("JSON.stringify(localStorage)").count(KEY) == 0
        assert context.cookies() == []
        other = context.new_page()
        other.goto(server.url)
        expect(other.get_by_role("dialog", name="API key")).to_be_visible()
        other.keyboard.press("Escape")
        expect(other.locator("#notice")).to_contain_text("API key")
        other.close()
        page.close()
    problems = context.problems
    assert all("401" in problem for problem in problems)
    problems.clear()


def test_no_script_inserts_markup():
    scripts = list(PAGE.glob("*.js"))
    assert scripts
    for script in scripts:
        assert not re.search(r"(inner|outer|insertAdjacent)HTML|document\.write|\beval\b", script.read_text("utf-8"))
