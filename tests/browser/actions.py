"""What users do on the page, and what they see."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page, expect


def shown_percent(locator: Locator) -> float:
    """Return a probability that the page shows."""
    return float(locator.inner_text().rstrip("%")) / 100


def is_shown(shown: float, probability: float) -> bool:
    """Return whether a probability is shown with three digits."""
    return math.isclose(shown, probability, rel_tol=6e-3, abs_tol=1e-8)


def number(text: str) -> float:
    """Return a number with a typographic minus."""
    return float(text.replace("\u2212", "-"))


def score_after(page: Page, action: Callable[[], object]) -> float:
    """Do something that changes the row, and return the new probability."""
    action()
    expect(page.locator("#result")).to_have_attribute("aria-busy", "false")
    return shown_percent(page.locator("#probability"))


def rank_after(page: Page, action: Callable[[], object]) -> dict[str, Any]:
    """Do something that changes the ranking; return what was sent and the answer."""
    with page.expect_response(re.compile("/rank$")) as answer:
        action()
    expect(page.locator("#ranking")).to_have_attribute("aria-busy", "false")
    return {"sent": answer.value.request.post_data_json, **answer.value.json()}


def row_of(page: Page) -> dict[str, Any]:
    """Return the row in the form, as a user reads it; empty inputs are missing values."""
    row: dict[str, Any] = {}
    for control in page.locator("#row .control").all():
        name = control.locator("label").evaluate("label => label.firstChild.textContent")
        chips = control.locator(".chip")
        if control.locator(".list-input").count():
            values = chips.locator(".chip-text").all_inner_texts()
            weights = [float(weight.input_value()) for weight in chips.locator(".weight").all()]
            row[name] = dict(zip(values, weights, strict=True)) if weights else values
        elif control.locator("select").count():
            row[name] = control.locator("select option:checked").inner_text()
        else:
            row[name] = control.locator("input").input_value() or None
    return {name: value or None for name, value in row.items()}


def ranked_letters(page: Page) -> list[str]:
    """Return the letters of the candidates, best first."""
    return [text.strip() for text in page.locator("#ranking tbody th b").all_inner_texts()]
