"""The explanation: bars of fields and pairs that add up to the logit."""

from __future__ import annotations

import itertools

import pytest
from playwright.sync_api import expect
from tests.browser.actions import number, row_of

GEOMETRY = """table => [...table.querySelectorAll("tbody > tr:not(.nested)")].map(row => {
  const bar = row.querySelector(".bar-piece").getBoundingClientRect();
  const isNegative = row.querySelector(".bar-piece").classList.contains("negative");
  return isNegative ? [bar.right, bar.left] : [bar.left, bar.right];
})"""


@pytest.fixture
def table(page):
    return page.locator("#explanation > table")


def terms(table):
    names = table.locator("tbody > tr[data-term] > th").evaluate_all("cells => cells.map(c => c.title)")
    values = table.locator("tbody > tr[data-term]").evaluate_all("rows => rows.map(r => Number(r.dataset.term))")
    return dict(zip(names, values, strict=True))


def test_the_terms_are_those_of_the_model_and_add_up_to_the_logit(page, table, scorer):
    explanation = scorer.explain(row_of(page))
    page.get_by_role("button", name="Show all 45 terms").click()
    expected = dict(explanation.largest(45)) | {"bias": explanation.bias}
    assert terms(table) == pytest.approx(expected, abs=1e-5)
    assert sum(terms(table).values()) == pytest.approx(explanation.logit, abs=1e-5)
    assert number(page.locator("#logit").inner_text()) == pytest.approx(explanation.logit, abs=6e-4)


def test_small_terms_are_one_bar_until_asked_for(page, table, scorer):
    shown = terms(table)
    assert list(shown) == ["bias", *(name for name, _ in scorer.explain(row_of(page)).largest(12)), "33 smaller terms"]
    assert sum(shown.values()) == pytest.approx(scorer.explain(row_of(page)).logit, abs=1e-5)


def test_each_bar_starts_where_the_one_above_ends(table):
    *steps, total = table.evaluate(GEOMETRY)
    begin = steps[0][0]  # zero
    for (_, end), (start, _) in itertools.pairwise(steps):
        assert start == pytest.approx(end, abs=2.5)  # bars are at least 2 pixels wide
    assert sorted(total) == pytest.approx(sorted([begin, steps[-1][1]]), abs=2.5)


def test_the_probability_follows_from_the_logit(page, scorer):
    explanation = scorer.explain(row_of(page))
    said = page.locator(".conclusion").inner_text()
    assert f"probability {100 * explanation.probability:.3g}" in said
    assert f"calibrated {100 * scorer.predict_one(row_of(page)):.3g}" in said


def test_values_of_lists_are_shown_on_demand(page, table, scorer):
    page.get_by_role("button", name="Show all 45 terms").click()
    button = table.locator("tr", has_text="history").get_by_role("button", name="2 values").first
    expect(button).to_have_attribute("aria-expanded", "false")
    button.click()
    expect(button).to_have_attribute("aria-expanded", "true")
    expect(button).to_be_focused()
    values = table.get_by_role("table", name="Values of history")
    assert values.locator("tbody th").all_inner_texts() == ["ad0", "ad1"]
    linear = [number(cell) for cell in values.locator("tbody td:nth-child(3)").all_inner_texts()]
    expected = [value.linear for value in scorer.explain(row_of(page)).values["history"]]
    assert linear == pytest.approx(expected, abs=6e-4)
    button.click()
    expect(values).to_have_count(0)
