"""The documentation site builds without warnings, is complete, and loads nothing from the network."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers.documentation import ROOT, pages

import fm2
from fm2.cli.exit_codes import EXIT_CODES
from fm2.cli.main import COMMANDS


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return out


def text_of(page):
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def test_every_page_is_built_and_loads_nothing_from_the_network(site):
    docs = ROOT / "docs"
    written = {page.relative_to(docs).with_suffix(".html") for page in pages() if page.is_relative_to(docs)}
    built = {page.relative_to(site) for page in site.rglob("*.html")}
    assert written | {Path("reference/commands.html"), Path("reference/models.html")} <= built
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:link|script|img|iframe|source)\b[^>]*?(?:src|href)=\"?([^\" >]+)", text)
        assert fetched
        assert not [address for address in fetched if re.match(r"(https?:)?//", address)], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_every_command_is_documented(site):
    shown = text_of(site / "reference" / "commands.html")
    for name in COMMANDS:
        assert f"usage: fm2 {name} " in shown


def test_the_api_page_documents_every_public_name(site):
    page = site / "reference" / "api.html"
    shown = text_of(page)
    for name in fm2.__all__:
        if getattr(fm2, name).__module__.startswith("fm2"):
            assert re.search(rf'id="fm2\.[\w.]*\b{name}"', page.read_text(encoding="utf-8")), (
                f"docs/reference/api.md lacks {name}"
            )
    assert ">>> " in shown
    assert ":func:" not in shown
    assert ":class:" not in shown


def test_exit_codes_are_documented(site):
    shown = text_of(site / "reference" / "command-line.html")
    for code, meaning in EXIT_CODES.items():
        assert re.search(rf"\n{code}\n{meaning.split(';')[0].split(':')[0]}", shown), code
