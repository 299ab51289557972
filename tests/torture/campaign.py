"""The parts of the campaign, and what they share of the CPU time."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.torture.calls import torture_calls
from tests.torture.kills import torture_commands
from tests.torture.mutations import torture_files
from tests.torture.processes import Budget, cpu_seconds
from tests.torture.requests import torture_requests
from tests.torture.scenarios import make_base

MODULES = (
    "fm2.cli.main",
    "fm2.compression.prune",
    "fm2.compression.shrink",
    "fm2.engine.verify",
    "fm2.export.onnx",
    "fm2.studies.comparison.compare",
    "fm2.studies.reporting.report",
    "fm2.studies.tuning.search",
    "fm2.training.trackers",
    "fm2.training.train",
    "optuna",
    "polars",
)

PARTS = {
    "commands": torture_commands,
    "files": torture_files,
    "calls": torture_calls,
    "requests": torture_requests,
}
SHARES = {"commands": 0.65, "files": 0.2, "calls": 0.1, "requests": 0.05}  # the server takes as much again


def run(folder: Path, parts: list[str], seconds: float, seed: int, only: str = "") -> int:
    """Run parts of the campaign; return the exit code."""
    _import_everything()
    base, work = folder / "base", folder / "work"
    if not base.exists():
        make_base(base)
    left = max(seconds - cpu_seconds(), 1) / sum(SHARES[part] for part in parts)
    print(f"torture: seed {seed}, {seconds:g} s of CPU time", flush=True)
    results = []
    for part in parts:
        results.append(PARTS[part](base, work, Budget(SHARES[part] * left), seed, only))
        print(results[-1].summary(), flush=True)
    found = sum(len(findings.found) for findings in results)
    print(f"torture: {found} findings in {cpu_seconds():.1f} s of CPU time")
    return 1 if found else 0


def _import_everything() -> None:
    """Import what the commands need, so that children begin at once. Nothing of it may start threads that compute."""
    for module in MODULES:
        importlib.import_module(module)
