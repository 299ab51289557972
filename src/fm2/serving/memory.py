"""What a keeper that has to be restarted remembers: everything that was changed over HTTP, and where counters are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fm2.files import write_text
from fm2.serving.catalogs import Items
from fm2.serving.repository import Repository
from fm2.serving.state import ModelState, State

CHOICES, ITEMS = "choices.json", "items-{}-{}.json"


class Memory:
    """Files in the private directory of the server."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written: dict[tuple[str, str], Items] = {}

    def save(self, state: State, repository: Repository, items: dict[tuple[str, str], Items]) -> None:
        """Write what has changed."""
        for key in self._written.keys() - items.keys():
            (self._directory / ITEMS.format(*key)).unlink(missing_ok=True)
        for key, catalog in items.items():
            if self._written.get(key) is not catalog:
                content = {"candidate": catalog.candidate, "rows": catalog.rows}
                write_text(self._directory / ITEMS.format(*key), json.dumps(content))
        self._written = dict(items)
        models = {
            name: {"labels": model.labels, "canary": model.canary, "shadow": model.shadow, "unloaded": model.unloaded}
            for name, model in state.models.items()
        }
        choices = {"models": models, "blocks": repository.blocks(), "catalogs": list(items)}
        write_text(self._directory / CHOICES, json.dumps(choices))

    def read(self) -> dict[str, Any] | None:
        """Return what the previous keeper has written, or None if this is the first one."""
        path = self._directory / CHOICES
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def read_items(self, name: str, catalog: str) -> Items:
        """Return the items of a catalog."""
        content = json.loads((self._directory / ITEMS.format(name, catalog)).read_text(encoding="utf-8"))
        return Items(content["candidate"], content["rows"])


def restore_models(state: State, choices: dict[str, Any]) -> None:
    """Restore labels, canaries, shadows and which models are unloaded."""
    for name, values in choices["models"].items():
        canary = values["canary"]
        restored = {**values, "canary": (canary[0], canary[1]) if canary else None}
        state.models[name] = ModelState(**restored)
