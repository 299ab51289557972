"""What a worker serves at one moment: an immutable table, which a swap replaces by one assignment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fm2.serving.keys import Key
from fm2.serving.served import Served
from fm2.serving.state import ModelState

PREDICT, INFER, RANK, EXPLAIN = range(4)  # the kinds of requests, as they are counted
PATHS = {PREDICT: "/v1/models/{}/predict", INFER: "/v2/models/{}/infer", RANK: "/v1/models/{}/rank"}


class Target:
    """Where the requests of a path go."""

    __slots__ = ("call", "canary", "kind", "served", "shadow", "share")

    def __init__(self, kind: int, served: Served) -> None:
        self.kind = kind
        self.served = served
        self.call: Callable[..., Any] = (served.endpoint.predict, served.endpoint.infer, served.endpoint.rank)[kind]
        self.canary: Target | None = None
        self.share = 0.0
        self.shadow: Served | None = None


@dataclass
class ServedModel:
    """A model: its versions that are loaded, and its state."""

    name: str
    state: ModelState
    versions: dict[str, Served]

    @property
    def serving(self) -> Served | None:
        """The version that answers if a request names none."""
        return self.versions.get(self.state.serving or "")


@dataclass
class Table:
    """The models, the paths of requests to be scored, and the keys."""

    generation: int = -1
    models: dict[str, ServedModel] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    keys: list[Key] = field(default_factory=list)
    draining: bool = False

    def add(self, model: ServedModel) -> None:
        """Add a model and its paths."""
        self.models[model.name] = model
        names = dict(model.versions)
        names |= {label: names[version] for label, version in model.state.labels.items() if version in names}
        for kind, path in PATHS.items():
            for version, served in names.items():
                self.targets[path.format(f"{model.name}/versions/{version}")] = Target(kind, served)
            if model.serving:
                self.targets[path.format(model.name)] = self._serving_target(kind, model, model.serving)

    @staticmethod
    def _serving_target(kind: int, model: ServedModel, serving: Served) -> Target:
        target = Target(kind, serving)
        canary, share = model.state.canary or ("", 0.0)
        if canary in model.versions and share > 0:
            target.canary, target.share = Target(kind, model.versions[canary]), share
        target.shadow = model.versions.get(model.state.shadow or "")
        return target
