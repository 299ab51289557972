"""The parts of a page: sections, figures, tables. Everything said in them is made harmless here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fm2.svg import words


def section(title: str, parts: Iterable[str]) -> str:
    """Put parts under a heading; nothing if there are none."""
    held = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{words(title)}</h2>\n{held}\n</section>" if held else ""


def paragraph(said: str, kind: str = "") -> str:
    """Say something."""
    return f"<p{_class(kind)}>{words(said)}</p>"


def figure(title: str, pictures: Sequence[str], reading: str, more: str = "") -> str:
    """Show pictures side by side, or below each other where there is no room, with how to read them."""
    shown = "\n".join(pictures)
    return (
        f'<figure>\n<h3>{words(title)}</h3>\n<div class="pictures">\n{shown}</div>\n'
        f"<figcaption>{words(reading)}</figcaption>\n{more}</figure>"
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], chosen: int = -1, words_first: int = 1) -> str:
    """Make a table; the first columns have words, the others numbers, and one row may stand out."""
    head = "".join(f"<th{_of(column, words_first)}>{words(name)}</th>" for column, name in enumerate(headings))
    body = ""
    for number, row in enumerate(rows):
        cells = "".join(f"<td{_of(column, words_first)}>{words(cell)}</td>" for column, cell in enumerate(row))
        body += f"<tr{_class('chosen' if number == chosen else '')}>{cells}</tr>\n"
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>'


def folded(title: str, held: str) -> str:
    """Hide something behind its title until it is asked for."""
    return f"<details><summary>{words(title)}</summary>\n{held}\n</details>"


def cards(facts: Iterable[tuple[str, str]]) -> str:
    """Show a few facts, each with its name."""
    shown = "".join(f"<div><dt>{words(name)}</dt><dd>{words(fact)}</dd></div>" for name, fact in facts)
    return f"<dl>{shown}</dl>"


def _of(column: int, words_first: int) -> str:
    return _class("" if column < words_first else "number")


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
