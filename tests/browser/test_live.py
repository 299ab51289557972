"""Live figures: rates, latencies and unknown values, while the page is visible."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from tests.browser.actions import number
from tests.browser.conftest import opened
from tests.browser.server import Server

ROWS = [{"site": "site1", "ad": "nobody", "user": "u1", "tags": ["sale"]}, {"site": "site2", "ad": "ad2", "user": "u2"}]
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture
def fresh(workshop):
    """Yield a server without earlier requests."""
    with Server(workshop / "shop.fm2") as running:
        yield running


@pytest.fixture
def page(context, fresh):
    with opened(context, fresh) as page:
        yield page


def test_requests_latency_and_unknown_values_follow_the_traffic(page, fresh):
    tiles = page.locator("#tiles .tile")
    expect(tiles).to_have_count(3)
    for _ in range(200):
        fresh.post("v1/models/shop/predict", {"rows": ROWS})
    expect(tiles.nth(0).get_by_role("img")).to_have_attribute("aria-label", re.compile(r"at most [1-9]"))
    expect(tiles.nth(1).locator(".figure")).to_have_text(re.compile(r"^[\d.]+ (µs|ms)$"))
    expect(tiles.nth(2).locator(".figure")).to_have_text(re.compile(r"^[\d.]+ (µs|ms)$"))
    first = page.locator("#unknown li").filter(has=page.get_by_text("ad", exact=True))
    expect(first.locator(".number")).to_have_text(re.compile(r"^\d\d\.\d%$"))
    assert number(first.locator(".number").inner_text().rstrip("%")) == pytest.approx(50, abs=3)
    assert page.locator("#unknown li").count() == 9


def test_a_hidden_page_does_not_poll(page):
    asked = []
    page.evaluate(HIDE, True)
    page.wait_for_timeout(2500)  # a refresh may be under way
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(3000)
    assert asked == []
    with page.expect_request(re.compile("/v1/stats$")):
        page.evaluate(HIDE, False)


def test_the_page_recovers_from_a_server_that_does_not_answer(page, context):
    context.route(re.compile("/v1/"), lambda route: route.abort())
    expect(page.locator("#notice")).to_have_text("The server does not answer.")
    context.unroute_all()
    expect(page.locator("#notice")).to_be_hidden()
    context.problems.clear()  # the browser logs every failed request
