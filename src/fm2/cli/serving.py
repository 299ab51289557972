"""The command ``serve``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fm2.cli.command import Argument, command, flag
from fm2.cli.engine import read_size
from fm2.errors import Fm2Error
from fm2.remote.paths import local_path

LIMITS, VERSIONS, LOGS, SECURITY = "Limits", "Versions", "Logs", "Security"


def _bytes(text: str) -> int:
    return int(read_size(text))


@command(
    "serve",
    "serve compiled models over HTTP",
    description="Serve compiled models over HTTP: the Open Inference Protocol v2, a JSON API and a web page.",
    example="fm2 serve model.fm2",
    notes="MODELS are files (model.fm2, NAME=model.fm2, NAME@VERSION=model.fm2), or directories with NAME.fm2 or "
    "NAME/VERSION.fm2. Files in directories are watched; replace them by renaming. URLs are downloaded at the start "
    "and not watched.",
    arguments=(
        Argument("models", "compiled models, or directories of them", metavar="MODELS", many=True),
        Argument("--host", "address to bind to", default="127.0.0.1"),
        Argument("--port", "port; 0 chooses a free one", int, default=8000),
        Argument("--workers", "number of worker processes", int, default=1),
        flag("--watch", "watch files as well, and replace models whose files are replaced", group=VERSIONS),
        Argument("--poll", "seconds between looks at the files", float, default=1.0, group=VERSIONS),
        Argument("--versions", "number of versions of a model to load, newest first", int, default=3, group=VERSIONS),
        Argument(
            "--label",
            "label a version; stable is the one that serves",
            metavar="MODEL:LABEL=VERSION",
            action="append",
            group=VERSIONS,
        ),
        Argument(
            "--canary",
            "send a share of a model's requests to a version",
            metavar="MODEL=VERSION:SHARE",
            action="append",
            group=VERSIONS,
        ),
        Argument(
            "--sticky",
            "request header that decides what goes to the canary",
            metavar="HEADER",
            default="X-Request-Id",
            group=VERSIONS,
        ),
        Argument(
            "--shadow",
            "score and compare with another version, too",
            metavar="MODEL=VERSION",
            action="append",
            group=VERSIONS,
        ),
        Argument(
            "--catalog",
            "catalog of candidates, JSON Lines with an id",
            metavar="MODEL:NAME=FILE",
            action="append",
            group=VERSIONS,
        ),
        Argument("--max-body", "largest request", _bytes, metavar="SIZE", default="16MB", group=LIMITS),
        Argument("--max-rows", "rows or candidates per request", int, default=100_000, group=LIMITS),
        Argument("--max-values", "values per request", int, default=10_000_000, group=LIMITS),
        Argument("--max-seconds", "time to receive and to answer a request", float, default=10.0, group=LIMITS),
        Argument("--max-queue", "requests of a worker at the same time", int, default=512, group=LIMITS),
        Argument(
            "--keys",
            "file of API keys: a line has a right (predict, manage), a name and a key",
            metavar="FILE",
            group=SECURITY,
        ),
        Argument("--tls-certificate", "PEM file of the certificate", metavar="FILE", group=SECURITY),
        Argument("--tls-key", "PEM file of its private key", metavar="FILE", group=SECURITY),
        Argument("--log-format", "format of log lines", choices=("text", "json"), default="text", group=LOGS),
        Argument("--log-sample", "share of the requests to log", float, default=0.0, group=LOGS),
        Argument("--traces", "send OpenTelemetry traces", choices=("otlp", "console"), group=LOGS),
    ),
    interrupted="the server had not started yet",
)
def serve(options: argparse.Namespace) -> None:
    from fm2.serving.run import serve
    from fm2.serving.settings import Limits, Settings
    from fm2.serving.sources import parse_sources

    limits = Limits(options.max_body, options.max_rows, options.max_values, options.max_seconds, options.max_queue)
    for name in ("workers", "versions", "poll"):
        if getattr(options, name) <= 0:
            raise Fm2Error(f"serve: {name} must be above 0, got {getattr(options, name)}")
    if not 0 <= options.log_sample <= 1:
        raise Fm2Error(f"serve: log_sample must be between 0 and 1, got {options.log_sample}")
    serve(
        Settings(
            sources=tuple(parse_sources(options.models)),
            host=options.host,
            port=options.port,
            workers=options.workers,
            watch=options.watch,
            poll=options.poll,
            versions=options.versions,
            limits=limits,
            traffic=_read_traffic(options),
            catalogs=_read_catalogs(options.catalog or []),
            sticky=options.sticky.lower(),
            keys=_path(options.keys),
            certificate=_path(options.tls_certificate),
            private_key=_path(options.tls_key),
            log_format=options.log_format,
            log_sample=options.log_sample,
            traces=options.traces or "",
        )
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _read_traffic(options: argparse.Namespace) -> dict[str, Any]:
    """Read the labels, canaries and shadows of all models."""
    from fm2.serving.settings import Traffic

    labels: dict[str, dict[str, str]] = {}
    canaries: dict[str, tuple[str, float]] = {}
    shadows: dict[str, str] = {}
    for text in options.label or []:
        (model, label), version = _split(text, "label", "MODEL:LABEL=VERSION")
        labels.setdefault(model, {})[label] = version
    for text in options.canary or []:
        model, _, canary = text.partition("=")
        version, _, share = canary.rpartition(":")
        try:
            canaries[model] = (version, float(share))
        except ValueError:
            raise Fm2Error(f"serve: expected canary= like shop=4:0.1, got '{text}'") from None
        if not (model and version and 0 <= canaries[model][1] <= 1):
            raise Fm2Error(f"serve: expected canary= like shop=4:0.1, with a share between 0 and 1, got '{text}'")
    for text in options.shadow or []:
        model, _, version = text.partition("=")
        if not (model and version):
            raise Fm2Error(f"serve: expected shadow= like shop=5, got '{text}'")
        shadows[model] = version
    names = {*labels, *canaries, *shadows}
    return {name: Traffic(labels.get(name, {}), canaries.get(name), shadows.get(name)) for name in names}


def _read_catalogs(texts: list[str]) -> dict[str, dict[str, Path]]:
    catalogs: dict[str, dict[str, Path]] = {}
    for text in texts:
        (model, name), file = _split(text, "catalog", "MODEL:NAME=FILE")
        catalogs.setdefault(model, {})[name] = local_path(file)
    return catalogs


def _split(text: str, option: str, form: str) -> tuple[tuple[str, str], str]:
    names, _, value = text.partition("=")
    model, _, name = names.partition(":")
    if not (model and name and value):
        raise Fm2Error(f"serve: expected {option}= like {form}, got '{text}'")
    return (model, name), value


COMMANDS = (serve,)
