"""The page around a report: one HTML text that fetches nothing, runs nothing, and reads well on paper and phones."""

from __future__ import annotations

from collections.abc import Iterable

from fm2 import __version__
from fm2.svg import words

BEGIN = "<!DOCTYPE html>"

# What is drawn in attributes for a white page takes its colors from here.
STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #62686f; --line: #dcdfe3; --axis: #888; --paper: #fff;
  --card: #f5f6f8; --accent: #2f6fb3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6e9; --soft: #9aa1a9; --line: #363b42; --axis: #777;
  --paper: #16181c; --card: #202329; --accent: #6aa8e8; } }
@media print { :root { --ink: #000; --soft: #444; --line: #ccc; --paper: #fff; --card: #fff; --accent: #2f6fb3;
  color-scheme: light; } details::details-content { content-visibility: visible; } figure { break-inside: avoid; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 48rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0; }
h2 { font-size: 1.3rem; margin: 3rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.5rem 0 .5rem; }
p { margin: .5rem 0 1rem; } a { color: var(--accent); }
.soft, figcaption, footer, dt { color: var(--soft); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; margin: 1.5rem 0; }
dl > div { background: var(--card); border-radius: .5rem; padding: .7rem .9rem; }
dt { font-size: .85rem; } dd { margin: 0; font-size: 1.25rem; font-weight: 600; }
figure { margin: 1.5rem 0 2rem; } figcaption { font-size: .95rem; margin-top: .25rem; }
.pictures { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 1rem; }
.pictures svg { flex: 1 1 20rem; min-width: 0; max-width: 38rem; height: auto; }
svg { fill: var(--ink); } .grid { stroke: var(--line); } .axis { stroke: var(--axis); } .hollow { fill: var(--paper); }
.cells { fill: var(--accent); } .halo { stroke: var(--paper); }
.wide { overflow-x: auto; margin: .75rem 0; } table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { padding: .3rem .6rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 500; } .number { text-align: right; white-space: nowrap; }
.chosen td { font-weight: 600; background: var(--card); }
summary { cursor: pointer; color: var(--accent); margin: .5rem 0; }
footer { margin-top: 4rem; font-size: .9rem; }
"""


def page(title: str, subtitle: str, parts: Iterable[str]) -> str:
    """Put a page together."""
    held = "\n".join(part for part in parts if part)
    # The policy lets a browser fetch and run nothing, even if a name had found a way to ask for it.
    return f"""{BEGIN}
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<title>{words(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{words(title)}</h1>
<p class="soft">{words(subtitle)}</p>
</header>
{held}
<footer>Made by fm2 {words(__version__)}, fm2 report. The figures and their numbers follow
“FM2: Field-matrixed Factorization Machines for Recommender Systems” (WWW ’21).</footer>
</body>
</html>
"""
