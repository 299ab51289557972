"""Layout, colors and keyboard: usable on a phone, in the dark and without a mouse."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from tests.browser.actions import is_shown, row_of, score_after, shown_percent

CONTRASTS = """() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const linear = c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const background = element => {
    const color = parse(getComputedStyle(element).backgroundColor);
    return color.length === 3 || color[3] > 0 ? color : background(element.parentElement);
  };
  const isText = element => element.matches("input, select") ||
    [...element.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const found = {};
  for (const element of document.querySelectorAll("body *")) {
    if (!isText(element) || !element.checkVisibility() || element.closest(":disabled, svg, option")) continue;
    const colors = [parse(getComputedStyle(element).color), background(element)];
    const [light, dark] = colors.map(luminance).sort((a, b) => b - a);
    const name = `${element.tagName}.${element.className} ${element.textContent.slice(0, 30)}`;
    found[name] = (light + 0.05) / (dark + 0.05);
  }
  return found;
}"""
UNNAMED = """() => [...document.querySelectorAll("main input, main select, main button")]
  .filter(element => !element.labels?.length && !element.getAttribute("aria-label") && !element.textContent.trim())
  .map(element => element.outerHTML)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("chosen_by", ["system", "button"])
def test_texts_have_enough_contrast(page, scheme, chosen_by):
    """WCAG 2 asks for 4.5."""
    other = {"light": "dark", "dark": "light"}[scheme]
    page.emulate_media(color_scheme=scheme if chosen_by == "system" else other)
    if chosen_by == "button":
        while page.locator("#theme").inner_text() != f"Theme: {scheme}":
            page.locator("#theme").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 19, 22)"
    assert dark == (scheme == "dark")
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 60
    assert {text: ratio for text, ratio in contrasts.items() if ratio < 4.5} == {}


def test_the_theme_is_remembered(page):
    page.locator("#theme").click()
    page.locator("#theme").click()
    page.reload()
    expect(page.locator("#theme")).to_have_text("Theme: dark")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


def test_a_phone_does_not_scroll_sideways(page, scorer):
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("button", name="Show all 45 terms").click()
    for box in page.locator("#split input").all()[:4]:
        box.check()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    device = page.locator("#row").get_by_label("device")
    device.scroll_into_view_if_needed()
    score = score_after(page, lambda: device.fill("device7"))
    assert is_shown(score, scorer.predict_one(row_of(page)))
    expect(page.locator("#probability")).to_be_in_viewport()


def test_the_page_works_with_the_keyboard_alone(page, scorer):
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the form")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator("#row-0")).to_be_focused()
    for _ in range(2):
        page.keyboard.press("Tab")
    site = page.locator("#row").get_by_label("site")
    expect(site).to_be_focused()
    assert site.evaluate("input => getComputedStyle(input).outlineStyle") == "solid"
    page.keyboard.press("Control+a")
    after = score_after(page, lambda: page.keyboard.type("site9"))
    assert is_shown(after, scorer.predict_one(row_of(page)))
    reached = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
    assert {"row-clear", "row-reset", "2 values", "Show all 45 terms", "Add a candidate"} <= reached


def test_inputs_have_names_and_the_score_is_announced(page):
    assert page.evaluate(UNNAMED) == []
    expect(page.get_by_role("status", name=re.compile("Click probability"))).to_have_text(re.compile("%$"))
    tables = page.locator("main table")
    assert tables.count() >= 3
    for table in tables.all():
        assert table.locator("th[scope=col]").count() > 0
        assert table.locator("th[scope=row]").count() > 0


def test_nothing_moves_if_the_user_prefers_so(page):
    assert page.locator("#probability-bar").evaluate("bar => getComputedStyle(bar).transitionDuration") == "0s"
    assert 0 < shown_percent(page.locator("#probability")) < 1
