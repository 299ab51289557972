"""The guides have a curl command for every call; tests/project/test_documentation.py runs them."""

from __future__ import annotations

import re

import pytest
from tests.helpers.documentation import ROOT, blocks_of, words

from fm2.serving.routes import ROUTES

GUIDES = [ROOT / "docs" / "guides" / name for name in ("serving.md", "production.md")]
IN_TEXT = {"/", "/page/{file}", "/openapi.json"}  # for browsers and tools


def documented():
    """Return the method and path of each curl command."""
    calls = set()
    for block in (block for guide in GUIDES for block in blocks_of(guide) if block.language == "sh"):
        for command in (words(command) for command in block.commands() if command.startswith("curl")):
            method = command[command.index("-X") + 1] if "-X" in command else "POST" if "-d" in command else "GET"
            url = next(word for word in command if word.startswith(("localhost:", "https://localhost:")))
            calls.add((method, "/" + url.partition(":8000/")[2]))
    return calls


@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if "/versions/" not in route.path and route.path not in IN_TEXT],
    ids=lambda route: f"{route.method} {route.path}",
)
def test_every_call_has_a_curl_command(route):
    pattern = re.sub(r"\{\w+\}", "[^/]+", route.path)
    assert any(route.method == method and re.fullmatch(pattern, path) for method, path in documented())
