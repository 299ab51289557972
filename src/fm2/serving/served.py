"""A version of a model in a worker: opened, read into memory, warmed up, and ready to answer."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fm2 import _native
from fm2.data.rows import EncodedRows, Lists
from fm2.engine.ranker import Ranker
from fm2.engine.scorer import Scorer, load
from fm2.errors import Fm2Error
from fm2.serving.counters import Block, Counters
from fm2.serving.settings import Limits
from fm2.serving.state import CatalogState, VersionState

KEPT_BODIES, LARGEST_BODY, EVERY = 64, 32 << 10, 16  # recent requests, with which the next version is warmed up
WARM_ROWS = 256
Body = tuple[int, bytes, int]  # the kind of the request, its body, the length of the JSON in it


class Served:
    """A version of a model that answers requests."""

    __slots__ = ("block", "bodies", "catalogs", "endpoint", "name", "scorer", "seen", "state", "version")

    def __init__(self, name: str, version: str, state: VersionState, counters: Counters, limits: Limits) -> None:
        self.name = name
        self.version = version
        self.state = state
        self.scorer: Scorer = load(state.path, threads=1, verify=False)  # the keeper has verified this very file
        if self.scorer.fingerprint != state.checksum:
            raise Fm2Error(f"serve: {state.file} is not the file that was verified")
        self.block: Block = counters.block(state.block, len(self.scorer.schema.fields))
        self.endpoint = self._endpoint(self.block.fields, limits)
        self.catalogs: dict[str, ServedCatalog] = {}
        self.bodies: list[Body] = []
        self.seen = 0

    def _endpoint(self, counters: Any, limits: Limits) -> Any:
        return _native.Endpoint(
            self.scorer.native,
            counters,
            name=self.name,
            version=self.version,
            max_rows=limits.rows,
            max_values=limits.values,
            threads=1,
            score=self._network(),
        )

    def _network(self) -> Callable[[Any, Any], Any] | None:
        """Return a function that scores encoded rows if native code cannot: networks that run in ONNX Runtime."""
        if _native.network_width(self.scorer.native) is None:
            return None
        scorer = self.scorer

        def score(ids: Any, lists: Any) -> Any:
            by_field = {field: Lists(*arrays) for field, arrays in enumerate(lists) if arrays is not None}
            return scorer.logits(EncodedRows(ids, by_field))

        return score

    def remember(self, kind: int, body: bytes, header_length: int) -> None:
        """Remember a request for the warm-up of the next version."""
        if len(body) <= LARGEST_BODY:
            if len(self.bodies) < KEPT_BODIES:
                self.bodies.append((kind, body, header_length))
            else:
                self.bodies[random.randrange(KEPT_BODIES)] = (kind, body, header_length)

    def warm_up(self, bodies: list[Body], limits: Limits) -> None:
        """Read the file into memory and score recent requests, or rows of known values, without counting them."""
        self.scorer.native.prefault()
        endpoint = self._endpoint(np.zeros_like(self.block.fields), limits)
        for kind, body, header_length in bodies:
            if kind == 0:
                endpoint.predict(body)
            elif kind == 1:
                endpoint.infer(body, header_length)
            else:
                endpoint.rank(body)
        if not bodies:
            sizes = np.array(self.scorer.native.sizes)
            draws = np.random.default_rng(0).random((WARM_ROWS, len(sizes)))
            if not any(self.scorer.native.lists):
                self.scorer.predict((draws**3 * sizes).astype(np.int32))  # frequent values have small ids
            endpoint.predict(json.dumps({"rows": [dict.fromkeys(self.scorer.columns)]}).encode())
        self.bodies = list(bodies)

    def replace_catalogs(self, state: VersionState) -> None:
        """Open the catalogs of a state; those that have not changed stay open."""
        catalogs = {}
        for name, given in state.catalogs.items():
            known = self.catalogs.get(name)
            same = known is not None and known.state == given
            catalogs[name] = known if known is not None and same else ServedCatalog(self.scorer, given)
        for name, catalog in catalogs.items():
            if self.catalogs.get(name) is not catalog:
                ranking, rows = catalog.ranker._native, catalog.catalog.rows
                self.endpoint.set_catalog(name, ranking, rows, catalog.catalog.shifts, catalog.ids)
        for name in self.catalogs.keys() - catalogs.keys():
            self.endpoint.remove_catalog(name)
        self.catalogs, self.state = catalogs, state


class ServedCatalog:
    """A catalog of a served model, mapped into memory."""

    __slots__ = ("catalog", "ids", "ranker", "state")

    def __init__(self, scorer: Scorer, state: CatalogState) -> None:
        self.state = state
        self.ranker: Ranker = scorer.ranker(candidate=state.candidate)
        self.catalog = self.ranker.load_catalog(state.rows)
        self.ids: list[str] = json.loads(Path(state.items).read_text(encoding="utf-8"))
