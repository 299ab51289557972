"""The page of ``fm2 report``, parsed for tests."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


class Page:
    """A page, parsed as strict XML."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.root = ElementTree.fromstring(self.text)

    def section(self, heading: str) -> ElementTree.Element | None:
        return next((s for s in self.root.iter("section") if s.findtext("h2") == heading), None)

    @property
    def headings(self) -> list[str]:
        return [heading.text for heading in self.root.iter("h2")]

    @property
    def said(self) -> str:
        return " ".join("".join(self.root.find("body").itertext()).split())

    def figure(self, title: str) -> ElementTree.Element:
        return next(figure for figure in self.root.iter("figure") if title in figure.findtext("h3"))

    def facts(self) -> dict[str, str]:
        return {fact.findtext("dt"): fact.findtext("dd") for fact in self.root.find(".//dl")}


def rows_of(element: ElementTree.Element) -> list[list[str]]:
    return [[cell.text or "" for cell in row] for row in element.findall(".//tbody/tr")]


def titles_of(element: ElementTree.Element) -> list[str]:
    return [title.text for title in element.iter(f"{SVG}title")]
