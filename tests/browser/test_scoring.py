"""The form: generated from the schema, scores while the user types, reports errors where they occur."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from tests.browser.actions import is_shown, row_of, score_after, shown_percent

SLOW_FIRST_ANSWER = """() => {
  const fetch = window.fetch;
  let isFirst = true;
  window.fetch = async (path, { signal, ...options }) => {  // without the signal, the request is not canceled
    const isSlow = isFirst && path.endsWith("/predict");
    if (isSlow) isFirst = false;
    const answer = await fetch(path, options);
    if (isSlow) await new Promise(resolve => setTimeout(resolve, 1500));
    if (isSlow) document.body.dataset.slow = "arrived";
    return answer;
  };
}"""


def test_the_form_has_an_input_with_typical_values_for_each_column(page, scorer):
    row = row_of(page)
    assert list(row) == scorer.columns
    assert row["site"] == "site0"
    assert row["size"] == "300x250"
    assert 0 < float(row["price"]) < 200
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", row["time"])
    assert len(row["tags"]) == 2
    assert list(row["history"].values()) == [1.0, 1.0]
    assert row["device"] is None
    suggested = page.locator("#row").get_by_label("site").evaluate("input => [...input.list.options].map(o => o.value)")
    assert set(suggested) == {f"site{number}" for number in range(40)}
    assert is_shown(shown_percent(page.locator("#probability")), scorer.predict_one(row))


def test_typing_scores_the_row(page, scorer):
    before = shown_percent(page.locator("#probability"))
    after = score_after(page, lambda: page.locator("#row").get_by_label("site").fill("site7"))
    assert after != before
    row = row_of(page)
    assert row["site"] == "site7"
    assert is_shown(after, scorer.predict_one(row))


def test_values_and_weights_of_lists_can_be_changed(page, scorer):
    form = page.locator("#row")

    def add():
        form.get_by_label(re.compile("^tags")).fill("garden")
        form.get_by_label(re.compile("^tags")).press("Enter")

    score_after(page, add)
    assert row_of(page)["tags"][-1] == "garden"
    after = score_after(page, lambda: form.get_by_label("Weight of ad0").fill("2.5"))
    assert row_of(page)["history"]["ad0"] == 2.5
    assert is_shown(after, scorer.predict_one(row_of(page)))
    after = score_after(page, lambda: form.get_by_role("button", name="Remove ad0").click())
    assert "ad0" not in row_of(page)["history"]
    assert is_shown(after, scorer.predict_one(row_of(page)))


def test_a_cleared_form_is_a_row_of_missing_values(page, scorer):
    after = score_after(page, lambda: page.get_by_role("button", name="Clear all").click())
    assert is_shown(after, scorer.predict_one(dict.fromkeys(scorer.columns)))
    again = score_after(page, lambda: page.get_by_role("button", name="Typical values").click())
    assert is_shown(again, scorer.predict_one(row_of(page)))


def test_a_number_that_is_none_is_reported_at_its_input(page):
    price = page.locator("#row").get_by_label("price")
    score_after(page, lambda: price.fill("cheap"))
    assert price.evaluate("input => document.getElementById(input.getAttribute('aria-describedby')).innerText") == (
        "Not a number: the model treats it as unknown."
    )
    score_after(page, lambda: price.fill("12"))
    expect(page.get_by_text("Not a number")).to_have_count(0)


def test_only_the_answer_to_the_last_change_is_shown(page, scorer):
    """The first answer arrives after the second one."""
    page.evaluate(SLOW_FIRST_ANSWER)
    site = page.locator("#row").get_by_label("site")
    with page.expect_request(lambda request: "site30" in (request.post_data or "")):
        site.fill("site30")
    after = score_after(page, lambda: site.fill("site3"))
    assert is_shown(after, scorer.predict_one(row_of(page)))
    expect(page.locator("body")).to_have_attribute("data-slow", "arrived")
    page.wait_for_timeout(200)
    assert shown_percent(page.locator("#probability")) == after


@pytest.mark.parametrize(("named", "message"), [("site", "column 'site': too long"), (None, "too many rows")])
def test_errors_appear_next_to_the_field_that_they_concern(page, context, named, message):
    answer = {"status": 400, "json": {"error": message}}
    page.route(re.compile("/(predict|explain|rank)$"), lambda route: route.fulfill(**answer))
    site = page.locator("#row").get_by_label("site")
    site.fill("site30")
    alert = page.locator("#row .error", has_text=message)
    expect(alert).to_be_visible()
    expect(site).to_have_attribute("aria-invalid", str(named == "site").lower())
    expect(page.locator("#probability")).to_have_text("–")
    if named:
        assert alert.evaluate("error => error.id") == site.get_attribute("aria-describedby")
    page.unroute_all()
    score_after(page, lambda: site.fill("site1"))
    expect(alert).to_have_count(0)
    context.problems.clear()  # the browser logs every status 400
