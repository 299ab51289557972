"""Render docstrings as Markdown: examples become code blocks, and Sphinx roles become plain names."""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe

from fm2.estimators import classifiers

EXAMPLE = re.compile(r"^( *)(>>> .*?)(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
ROLE = re.compile(r":(?:func|class|meth|mod|attr):(`)~?")


class Markdown(griffe.Extension):
    """Rewrites every docstring before it is rendered."""

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """Add the classifiers, which are generated from the models' declarations."""
        if mod.path == "fm2.estimators":
            for name, classifier in classifiers().items():
                text = griffe.Docstring(as_markdown(inspect.cleandoc(classifier.__doc__ or "")))
                mod.set_member(name, griffe.Class(name, docstring=text, parent=mod))

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Put doctests into code fences and remove Sphinx roles."""
    return ROLE.sub(r"\1", EXAMPLE.sub(r"\1```python\n\1\2\n\1```", text))
