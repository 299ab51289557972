"""Change files of every kind at random, and open them: each is rejected with an Fm2Error, or it works.

A child tries many mutations, with limits of memory and time, so that a crash or a hang costs one of them.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.helpers.hostile import Mutant, use
from tests.torture.findings import Findings
from tests.torture.processes import Budget, run_function

PER_CHILD = 40
NUMBERS = (0, 1, -1, 2, 255, 2**16, 2**31 - 1, -(2**31), 2**32, 2**53, 2**63, -(2**63), 2**64, 10**30)
ODD_VALUES = (
    *NUMBERS,
    None,
    True,
    "",
    "x",
    "\ud800",
    "NaN",
    1e308,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]],
    {"x": {}},
)


def torture_files(base: Path, work: Path, budget: Budget, seed: int, only: str = "") -> Findings:
    """Mutate the files of all kinds in turn until the budget is spent."""
    findings = Findings("files")
    kinds = {name: kind for name, kind in KINDS.items() if only in name}
    batch = 0
    while kinds and not budget.is_spent():
        for name, (source, use_file) in kinds.items():
            if budget.is_spent():
                break
            _try_batch(name, base / source, use_file, work, f"{seed} {name} {batch}", findings)
        batch += 1
    return findings


def _try_batch(
    name: str, source: Path, use_file: Callable[[Path], Any], work: Path, seed: str, findings: Findings
) -> None:
    """Try some mutations in a child. If it dies, the last line of its output says where."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()

    def child() -> list[str]:
        from fm2.errors import Fm2Error

        faults = []
        generator = random.Random(seed)
        for number in range(PER_CHILD):
            print(f"mutation {number} of seed {seed!r}", flush=True)
            path = _mutate(source, work / str(number), generator)
            try:
                use_file(path)
            except Fm2Error:
                pass
            except Exception as error:
                faults.append(f"mutation {number} of seed {seed!r}: {type(error).__name__}: {str(error)[:200]}")
            shutil.rmtree(work / str(number), ignore_errors=True)
        return faults

    done = run_function(child, work)
    findings.count(f"mutations of {name}", PER_CHILD)
    if done.code:
        findings.add(f"{name}: exit code {done.code} at {done.last_line}")
    for fault in done.result or ():
        findings.add(f"{name}: {fault}")


def _mutate(source: Path, folder: Path, generator: random.Random) -> Path:
    """Copy a file with its directory, change it, and return the copy of the file."""
    shutil.copytree(source.parent, folder, ignore=shutil.ignore_patterns(".*"))
    path = folder / source.name
    content = path.read_bytes()
    if source.suffix == ".fm2":
        mutant = Mutant(content, np.random.default_rng(generator.getrandbits(32)))
        mutant.change()
        path.write_bytes(mutant.sealed(mutant.sections))
    elif source.suffix == ".json" and generator.random() < 0.7:
        path.write_text(json.dumps(change_json(json.loads(content), generator)))
    elif source.suffix == ".safetensors" and generator.random() < 0.5:
        path.write_bytes(_change_header(content, generator))
    else:
        path.write_bytes(change_bytes(content, generator))
    return path


def change_bytes(content: bytes, generator: random.Random) -> bytes:
    """Flip, insert, remove or overwrite bytes, or cut the file off."""
    changed = bytearray(content)
    for _ in range(generator.choice((1, 1, 1, 2, 8))):
        at = generator.randrange(len(changed) + 1)
        match generator.randrange(5):
            case 0:
                changed[at : at + 1] = bytes([generator.randrange(256)])
            case 1:
                changed[at : at + 8] = struct.pack("<Q", generator.choice(NUMBERS[:11]) % 2**64)
            case 2:
                del changed[at : at + generator.choice((1, 4, 64))]
            case 3:
                changed[at:at] = changed[: generator.choice((1, 4, 64))]
            case _ if generator.random() < 0.3:
                del changed[at:]
    return bytes(changed)


def change_json(value: Any, generator: random.Random) -> Any:
    """Replace a value anywhere in a document, or remove or rename a key."""
    if isinstance(value, dict) and value and generator.random() < 0.85:
        key = generator.choice(list(value))
        rest = {name: part for name, part in value.items() if name != key}
        if generator.random() < 0.1:
            return rest | ({"odd": value[key]} if generator.random() < 0.5 else {})
        return rest | {key: change_json(value[key], generator)}
    if isinstance(value, list) and value and generator.random() < 0.85:
        at = generator.randrange(len(value))
        return [*value[:at], change_json(value[at], generator), *value[at + 1 :]]
    return generator.choice(ODD_VALUES)


def _change_header(content: bytes, generator: random.Random) -> bytes:
    """Change the JSON header of a safetensors file, or the values that fm2 stores in it."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    if generator.random() < 0.7:
        values = change_json(json.loads(header["__metadata__"]["fm2"]), generator)
        header["__metadata__"]["fm2"] = json.dumps(values)
    else:
        header = change_json(header, generator)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def _use_model(path: Path) -> None:
    from fm2.engine.scorer import load

    use(load(path, verify=False, threads=1), np.random.default_rng(0))


def _use_catalog(path: Path) -> None:
    from fm2.engine.scorer import load

    ranker = load(path.with_name("model.fm2"), threads=1).ranker(candidate=["C2"])
    ranker.load_catalog(path).top({"C1": "a"}, 3)


def _use_run(path: Path) -> None:
    from fm2.training.run import Run

    run = Run.open(path.parent, threads=1)
    run.predict(np.zeros((2, 3), np.int32))


def _use_dataset(path: Path) -> None:
    from fm2.data.dataset import Dataset
    from fm2.data.description import describe

    folder = next(parent for parent in path.parents if (parent / "manifest.json").exists())
    dataset = Dataset.open(folder)
    assert dataset.vocabularies
    for split in (dataset.train, dataset.validation, dataset.test):
        np.asarray(split.ids).sum()
    describe(dataset)


def _use_verified(path: Path) -> None:
    from fm2.engine.verify import verify

    verify(path if path.suffix == ".fm2" else path.parent)


def _use_comparison(path: Path) -> None:
    from fm2.studies.comparison.results import Comparison

    Comparison.open(path.parent).summary()


# The file to change, and how it is used.
KINDS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "models (fm)": ("compiled/0.fm2", _use_model),
    "models (direct)": ("compiled/1.fm2", _use_model),
    "models (cached)": ("compiled/2.fm2", _use_model),
    "models (spectral)": ("compiled/3.fm2", _use_model),
    "catalogs": ("catalog/catalog.fm2", _use_catalog),
    "model.safetensors": ("run/model.safetensors", _use_run),
    "checkpoint": ("run/checkpoint.safetensors", _use_verified),
    "manifest.json": ("data/manifest.json", _use_dataset),
    "schema.toml": ("data/schema.toml", _use_dataset),
    "vocabularies.npz": ("data/vocabularies.npz", _use_dataset),
    "settings.toml": ("run/settings.toml", _use_verified),
    "history.jsonl": ("run/history.jsonl", _use_verified),
    "compare.json": ("study/compare.json", _use_comparison),
}
