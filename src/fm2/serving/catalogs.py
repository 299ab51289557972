"""Catalogs in the keeper: their items, and files with the items' part of the score for each version of a model."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fm2.engine.scorer import Scorer, load
from fm2.errors import Fm2Error, cannot_read, suggest
from fm2.serving.logs import Log
from fm2.serving.state import CatalogState, ModelState

ID = "id"  # of an item; it is not a column


@dataclass
class Items:
    """The items of a catalog by their ids, and the columns of the candidates."""

    candidate: list[str]
    rows: dict[str, dict[str, Any]]


class Catalogs:
    """Creates, changes and deletes catalogs. A change is complete or, after an error, does not happen."""

    def __init__(self, runtime: Path, log: Log) -> None:
        self.retired: list[Callable[[], None]] = []
        self._directory = runtime
        self._log = log
        self.items: dict[tuple[str, str], Items] = {}
        self._count = 0

    def put(
        self, model: ModelState, name: str, catalog: str, candidate: list[str], items: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Create or replace a catalog."""
        return self._change(model, name, catalog, Items(list(candidate), _by_id(items, {})))

    def extend(self, model: ModelState, name: str, catalog: str, items: list[dict[str, Any]]) -> dict[str, Any]:
        """Add items, or replace those of the same ids."""
        current = self._find(name, catalog)
        return self._change(model, name, catalog, Items(current.candidate, _by_id(items, current.rows)))

    def prune(self, model: ModelState, name: str, catalog: str, ids: list[str]) -> dict[str, Any]:
        """Remove items."""
        current = self._find(name, catalog)
        for id in ids:
            if id not in current.rows:
                raise Fm2Error(f"catalog: '{catalog}' has no item '{id}'; nothing was removed")
        removed = set(ids)
        rows = {id: row for id, row in current.rows.items() if id not in removed}
        return self._change(model, name, catalog, Items(current.candidate, rows))

    def delete(self, model: ModelState, name: str, catalog: str) -> dict[str, Any]:
        """Delete a catalog."""
        self._find(name, catalog)
        del self.items[name, catalog]
        for version in model.versions.values():
            self._retire(version.catalogs.pop(catalog, None))
        return {"catalog": catalog, "deleted": True}

    def compute(self, model: ModelState, name: str, version: str, scorer: Scorer) -> None:
        """Compute all catalogs of a model for a new version. One that does not fit is left out and logged."""
        for (owner, catalog), items in self.items.items():
            if owner == name:
                try:
                    model.versions[version].catalogs[catalog] = self._write(scorer, items)
                except Fm2Error as error:
                    self._leave_out(name, version, catalog, error)

    def _leave_out(self, name: str, version: str, catalog: str, reason: Fm2Error) -> None:
        self._log("error", "left out a catalog", model=name, version=version, catalog=catalog, reason=reason)

    def _find(self, name: str, catalog: str) -> Items:
        if (name, catalog) not in self.items:
            known = [other for owner, other in self.items if owner == name]
            meant = f"; {suggest(catalog, known)}" if known else ""
            raise Fm2Error(f"unknown catalog '{catalog}' of the model '{name}'{meant}")
        return self.items[name, catalog]

    def _change(self, model: ModelState, name: str, catalog: str, items: Items) -> dict[str, Any]:
        """Compute a catalog for all versions; only then replace it."""
        computed: dict[str, CatalogState] = {}
        problem = None
        for version, state in model.versions.items():
            try:
                computed[version] = self._write(load(state.path, threads=1, verify=False), items)
            except Fm2Error as error:
                problem = error
                if version == model.serving:
                    break
                self._leave_out(name, version, catalog, error)
        else:
            problem = None if computed else problem
        if problem:
            for unused in computed.values():
                remove_files(unused)
            raise problem
        for version, state in model.versions.items():
            self._retire(state.catalogs.pop(catalog, None))
            if version in computed:
                state.catalogs[catalog] = computed[version]
        self.items[name, catalog] = items
        return {"catalog": catalog, "candidate": items.candidate, "items": len(items.rows)}

    def _write(self, scorer: Scorer, items: Items) -> CatalogState:
        """Compute a catalog of a model and write its files."""
        columns = set(items.candidate)
        rows = [{key: row[key] for key in row if key != ID or ID in columns} for row in items.rows.values()]
        for id, row in zip(items.rows, rows, strict=True):
            for key in row.keys() - columns:
                raise Fm2Error(f"catalog: item '{id}': unknown column '{key}'; {suggest(key, items.candidate)}")
        ranker = scorer.ranker(candidate=items.candidate)
        try:
            catalog = ranker.catalog(rows)
        except Fm2Error as error:
            raise _name_item(error, list(items.rows)) from error
        self._count += 1
        path, ids = self._directory / f"catalog-{self._count}", self._directory / f"catalog-{self._count}.ids"
        catalog.save(path)
        ids.write_text(json.dumps(list(items.rows)), encoding="utf-8")
        return CatalogState(str(path), str(ids), items.candidate, len(rows), f"{self._count}")

    def _retire(self, state: CatalogState | None) -> None:
        if state is not None:
            self.retired.append(functools.partial(remove_files, state))


def remove_files(state: CatalogState) -> None:
    """Remove the files of a catalog that no worker uses any more."""
    for path in (state.rows, state.items):
        Path(path).unlink(missing_ok=True)


def _name_item(error: Fm2Error, ids: list[str]) -> Fm2Error:
    """Return an error that names the item instead of its row, if it is about a row."""
    found = re.fullmatch(r"rank: (?:row (\d+): )?(column .*)", str(error), re.DOTALL)
    return Fm2Error(f"catalog: item '{ids[int(found[1] or 0)]}': {found[2]}") if found else error


def _by_id(items: list[dict[str, Any]], existing: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the existing items with new ones added."""
    rows = dict(existing)
    seen = set()
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise Fm2Error(f"catalog: items[{index}] must be an object, got {type(item).__name__}")
        id = item.get(ID)
        if not isinstance(id, str | int) or isinstance(id, bool):
            raise Fm2Error(f'catalog: items[{index}] has no "{ID}", a string that identifies it')
        if str(id) in seen:
            raise Fm2Error(f"catalog: items[{index}]: a second item '{id}'")
        seen.add(str(id))
        rows[str(id)] = item
    return rows


def read_items(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Read a JSON Lines file of items; return the columns of the first one, and the items."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        items = [json.loads(line) for line in lines if line.strip()]
    except OSError as error:
        raise cannot_read("catalog: items", path, error) from error
    except ValueError as error:
        raise Fm2Error(f"catalog: cannot read {path} as lines of JSON, one item each: {error}") from error
    if not items or not isinstance(items[0], dict):
        raise Fm2Error(f'catalog: {path} has no items; a line is an object with an "{ID}" and the candidate\'s columns')
    columns = {key: None for item in items if isinstance(item, dict) for key in item if key != ID}
    return list(columns), items
