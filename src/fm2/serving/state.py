"""What the workers serve, as the keeper describes it to them: plain values that fit in a message."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from fm2.serving.sources import version_key


@dataclass
class CatalogState:
    """A catalog computed for one version of a model: files that the workers map."""

    rows: str  # the catalog file
    items: str  # a JSON array of the items' ids
    candidate: list[str]
    count: int
    checksum: str


@dataclass
class VersionState:
    """A version of a model. ``path`` leads to the verified file, even if another one has replaced it by name."""

    path: str
    file: str
    checksum: str
    bytes: int
    loaded: float
    block: int  # of its counters
    catalogs: dict[str, CatalogState] = field(default_factory=dict)


@dataclass
class ModelState:
    """A model: its versions, and which of them answer."""

    versions: dict[str, VersionState] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    canary: tuple[str, float] | None = None
    shadow: str | None = None
    unloaded: bool = False
    swaps: int = 0
    rejected: dict[str, str] = field(default_factory=dict)  # the reason why the newest file of a version is not used

    @property
    def serving(self) -> str | None:
        """The version that answers: the one labeled stable, or the newest one that is neither canary nor shadow."""
        stable = self.labels.get("stable")
        if stable in self.versions:
            return stable
        roles = (self.canary[0] if self.canary else None, self.shadow)
        others = [version for version in self.versions if version not in roles]
        return max(others or self.versions, key=version_key, default=None)


@dataclass
class State:
    """Everything that workers serve."""

    generation: int = 0
    draining: bool = False  # the server is about to stop
    models: dict[str, ModelState] = field(default_factory=dict)
    keys: list[tuple[str, str, str]] = field(default_factory=list)

    def to_message(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> State:
        """Return the state of a message."""
        models = {name: _read_model(model) for name, model in message["models"].items()}
        keys = [(right, name, digest) for right, name, digest in message["keys"]]
        return cls(message["generation"], message["draining"], models, keys)


def _read_model(message: dict[str, Any]) -> ModelState:
    canary = message["canary"]
    versions = {version: _read_version(state) for version, state in message["versions"].items()}
    return ModelState(**{**message, "versions": versions, "canary": (canary[0], canary[1]) if canary else None})


def _read_version(message: dict[str, Any]) -> VersionState:
    catalogs = {name: CatalogState(**catalog) for name, catalog in message["catalogs"].items()}
    return VersionState(**{**message, "catalogs": catalogs})
