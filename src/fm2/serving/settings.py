"""The settings of a server; workers receive a copy."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fm2.errors import Fm2Error
from fm2.serving.sources import Source

LogFormat = Literal["text", "json"]


@dataclass(frozen=True)
class Limits:
    """What a request may cost. Beyond these, it gets the status 413, 408, 429 or 503 and a message."""

    body: int = 16 << 20  # bytes
    rows: int = 100_000
    values: int = 10_000_000
    seconds: float = 10.0
    queue: int = 512  # requests of a worker at the same time

    def __post_init__(self) -> None:
        for setting in dataclasses.fields(self):
            if not getattr(self, setting.name) > 0:
                raise Fm2Error(f"serve: max_{setting.name} must be above 0, got {getattr(self, setting.name)}")


@dataclass(frozen=True)
class Traffic:
    """Which versions of a model answer: ``canary`` is (version, share), ``shadow`` a version."""

    labels: dict[str, str] = field(default_factory=dict)
    canary: tuple[str, float] | None = None
    shadow: str | None = None


@dataclass(frozen=True)
class Settings:
    """How models are served."""

    sources: tuple[Source, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    watch: bool = False
    poll: float = 1.0  # seconds between looks at the files
    versions: int = 3  # the newest ones of a model that are loaded
    limits: Limits = Limits()
    traffic: dict[str, Traffic] = field(default_factory=dict)
    catalogs: dict[str, dict[str, Path]] = field(default_factory=dict)  # JSON Lines files by model and catalog
    sticky: str = "x-request-id"  # the header that decides whether a request goes to the canary
    keys: Path | None = None
    certificate: Path | None = None
    private_key: Path | None = None
    log_format: LogFormat = "text"
    log_sample: float = 0.0
    traces: Literal["", "otlp", "console"] = ""
    drain: float = 0.5  # seconds between SIGTERM and the end of the last connection
    runtime: Path = Path()  # private directory: sockets, counters, catalogs

    def replace(self, **changes: Any) -> Settings:
        """Return a copy with changes."""
        return dataclasses.replace(self, **changes)
