"""A served model and a browser. `make browser-test` runs these tests; they need Debian's chromium."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests.browser.server import Server
from tests.browser.shop import compile_shop

import fm2

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
MILLISECONDS = 20_000  # a busy machine may be slow
expect.set_options(timeout=MILLISECONDS)


@pytest.fixture(scope="session")
def workshop(tmp_path_factory) -> Path:
    """Return a directory for runs, with a compiled model, shop.fm2."""
    folder = tmp_path_factory.mktemp("workshop")
    compile_shop(folder, folder / "shop.fm2")
    return folder


@pytest.fixture(scope="session")
def scorer(workshop: Path) -> fm2.Scorer:
    return fm2.load(workshop / "shop.fm2", threads=1)


@pytest.fixture(scope="session")
def server(workshop: Path) -> Iterator[Server]:
    with Server(workshop / "shop.fm2") as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Yield a context of the browser that fails the test if the page logs an error or leaves its host."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(MILLISECONDS)
    problems: list[str] = []
    context.on("console", lambda message: message.type in ("error", "warning") and problems.append(message.text))
    context.on("weberror", lambda error: problems.append(str(error.error)))
    context.on("request", lambda request: "//127.0.0.1:" in request.url or problems.append(request.url))
    context.problems = problems  # type: ignore[attr-defined]
    yield context
    context.close()
    assert problems == []


@pytest.fixture
def page(context: BrowserContext, server: Server) -> Iterator[Page]:
    """Yield the page of the shop's model, scored."""
    with opened(context, server) as page:
        yield page


@contextlib.contextmanager
def opened(context: BrowserContext, server: Server) -> Iterator[Page]:
    """Open the page of a server and wait for its score. Close it before the server stops."""
    page = context.new_page()
    page.goto(server.url)
    page.locator("#logit").wait_for()
    page.locator("#ranking tbody tr").first.wait_for()
    yield page
    page.close()
