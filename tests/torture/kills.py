"""Kill every writing command at its file operations, and let the disk be full at its writes.

After a kill or an error, nothing half-written may open, the same command has to succeed as its messages say, with the
result of a command that was not disturbed, and nothing may be left over.
"""

from __future__ import annotations

import hashlib
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.torture.findings import Findings
from tests.torture.processes import FULL, KILL, Budget, Outcome, run_command, run_function
from tests.torture.scenarios import SCENARIOS, Scenario, repeat, start

VOLATILE = (".jsonl", "table.json")  # history.jsonl is compared as lines that were written once


@dataclass(frozen=True)
class Reference:
    """An undisturbed command: its files, and how many file operations and writes it takes."""

    files: dict[str, str]
    operations: int
    writes: int


def torture_commands(base: Path, work: Path, budget: Budget, seed: int, only: str = "") -> Findings:
    """Disturb commands at random points until the budget is spent, or all points have been tried."""
    findings = Findings("commands")
    chosen = [scenario for scenario in SCENARIOS if only in scenario.name]
    plans = [(scenario, _points(scenario, base, work, seed, findings)) for scenario in chosen]
    while plans and not budget.is_spent():
        for scenario, points in list(plans):
            point = next(points, None)
            if point is None:
                plans.remove((scenario, points))
            elif not budget.is_spent():
                _disturb(scenario, base, work, *point, findings)
    return findings


def _points(
    scenario: Scenario, base: Path, work: Path, seed: int, findings: Findings
) -> Iterator[tuple[Reference, int, int]]:
    """Yield the points of a command in random order: first some kills and full disks, in turn, then the other kills."""
    start(scenario, base, work)
    done = run_command(list(scenario.words), work)
    if done.code:
        findings.add(f"{scenario.name}: fails undisturbed: {done.last_line}")
        return
    reference = Reference(_digests(scenario, work), done.result["operations"], done.result["writes"])
    findings.count("commands")
    findings.count("file operations", reference.operations)
    order = random.Random(f"{seed} {scenario.name}")
    kills = [(reference, KILL, at) for at in range(1, reference.operations + 1)]
    fulls = [(reference, FULL, at) for at in range(1, reference.writes + 1)]
    order.shuffle(kills)
    order.shuffle(fulls)
    for kill, full in zip(kills, fulls, strict=False):
        yield kill
        yield full
    yield from kills[len(fulls) :]


def _disturb(
    scenario: Scenario, base: Path, work: Path, reference: Reference, mode: int, at: int, findings: Findings
) -> None:
    start(scenario, base, work)
    done = run_command(list(scenario.words), work, mode, at)
    kind = "kill" if mode == KILL else "full disk"
    place = f"{scenario.name}: {kind} at {'operation' if mode == KILL else 'write'} {at}"
    findings.count(f"{kind} points")
    for problem in _problems(scenario, work, reference, mode, done):
        findings.add(f"{place}: {problem}")


def _problems(scenario: Scenario, work: Path, reference: Reference, mode: int, done: Outcome) -> Iterator[str]:
    if mode == FULL and done.code != 1 and not (done.code == 0 and "No space left" in done.output):
        yield f"exit code {done.code}: {done.last_line}"
    if mode == FULL and (leftovers := _leftovers(work)):
        yield f"left {', '.join(leftovers)}"
    if mode == KILL and done.code not in (0, -signal.SIGKILL):
        yield f"exit code {done.code}: {done.last_line}"
    opened = run_function(lambda: _open_outputs(work), work)
    if opened.code:
        yield f"a part of the output opens: {opened.last_line}"
    again = repeat(scenario, work)
    if again.code:
        yield f"afterward, exit code {again.code}: {again.last_line}"
        return
    if leftovers := _leftovers(work):
        yield f"afterward, left {', '.join(leftovers)}"
    found = _digests(scenario, work)
    if set(found) != set(reference.files):
        yield f"afterward, other files: {sorted(set(found) ^ set(reference.files))}"
    for name in found.keys() & reference.files.keys():
        if found[name] != reference.files[name]:
            yield f"afterward, {name} differs"


def _open_outputs(work: Path) -> None:
    """Raise an error if a dataset, run, model or catalog is there that is damaged."""
    from fm2.engine.verify import verify

    markers = ("manifest.json", "settings.toml", "model.safetensors")
    paths = {file.parent for marker in markers for file in work.rglob(marker)} | set(work.rglob("*.fm2"))
    for path in paths:
        if ".partial-" not in str(path):
            verify(path)


def _leftovers(work: Path) -> list[str]:
    return sorted(str(path.relative_to(work)) for path in work.rglob("*") if ".partial-" in path.name)


def _digests(scenario: Scenario, work: Path) -> dict[str, str]:
    """Return all files, with a digest of those that are reproducible."""
    digests = {}
    for path in sorted(work.rglob("*")):
        name = str(path.relative_to(work))
        if not path.is_file() or path.name.endswith((".lock", ".log")):
            continue
        reproducible = any(name == part or name.startswith(f"{part}/") for part in scenario.compared)
        reproducible = reproducible and not path.name.endswith(VOLATILE)
        digests[name] = hashlib.sha256(path.read_bytes()).hexdigest() if reproducible else ""
    return digests
