"""The datasets of the benchmarks: two real logs, and generated ones. Each is prepared once per directory."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fm2
from fm2 import Field, Schema
from fm2.data.dataset import Split
from fm2.data.presets import paper_schema

LOGS = {"criteo": "criteo.tsv.gz", "avazu": "avazu.csv.gz"}
SPARE = 1.02  # rows are split at random, so a few more are generated than are needed
VALIDATION = 0.01


@contextlib.contextmanager
def working_directory(path: Path | None) -> Iterator[Path]:
    """Return the directory for the datasets: ``path``, or a temporary one."""
    if path:
        path.mkdir(parents=True, exist_ok=True)
        yield path
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def real_data(directory: Path) -> dict[str, Path]:
    """Prepare the real logs in the directory FM2_DATA, unless that has been done."""
    if "FM2_DATA" not in os.environ:
        sys.exit("set the variable FM2_DATA to the directory of criteo.tsv.gz and avazu.csv.gz")
    for name, log in LOGS.items():
        if not (directory / name).exists():
            fm2.prepare(Path(os.environ["FM2_DATA"], log), paper_schema(name), directory / name)
    return {name: directory / name for name in LOGS}


def generated_data(directory: Path, rows: int, features: int) -> Path:
    """Prepare a generated log, unless that has been done. Its true probabilities are stored next to it."""
    data, log = directory / f"{rows}-rows-{features}-features", directory / "log.parquet"
    if not data.exists():
        print(f"generating {rows:,} rows ...", flush=True)
        generated = fm2.generate(log, rows, features=features)
        generated.truth.rename(f"{data}.truth.npy")
        fm2.prepare(log, paper_schema("criteo"), data)
        log.unlink()
    return data


def named_data(name: str, directory: Path, rows: int, features: int) -> Path:
    """Prepare the real log with this name, or a generated one for ``generated``."""
    return generated_data(directory, rows, features) if name == "generated" else real_data(directory)[name]


@dataclass(frozen=True)
class Recipe:
    """A generated dataset with at least this many training rows. Every value that occurs is a feature."""

    rows: int
    features: int
    fields: int = 39

    @property
    def name(self) -> str:
        return f"{self.rows}-rows-{self.features}-features-{self.fields}-fields"


def prepare_recipe(recipe: Recipe, directory: Path) -> Path:
    """Prepare a generated dataset, unless that has been done; return its path."""
    path = directory / recipe.name
    if not path.exists():
        print(f"generating {recipe.rows:,} rows, {recipe.fields} fields ...", flush=True)
        with tempfile.TemporaryDirectory(dir=directory) as folder:
            rows = int(recipe.rows * SPARE)
            log = fm2.generate(f"{folder}/log.parquet", rows, fields=recipe.fields, features=recipe.features)
            fm2.prepare(log.path, _schema(recipe.fields), path, fractions=(1 - VALIDATION, VALIDATION, 0))
    return path


def open_first_rows(path: Path, rows: int) -> fm2.Dataset:
    """Open a dataset with only its first training rows; the vocabularies do not change."""
    dataset = fm2.Dataset.open(path)
    train = dataset.train
    dataset.train = Split("train", train.ids[:rows], train.labels[:rows], train.rows[:rows])
    return dataset


def _schema(fields: int) -> Schema:
    """Return the schema of a log from ``fm2.generate``: a third of the fields are numeric."""
    numeric = [Field(f"I{i + 1}", "numeric", min_count=1) for i in range(fields // 3)]
    categorical = [Field(f"C{i + 1}", min_count=1) for i in range(fields - fields // 3)]
    return Schema(numeric + categorical, label="label")
