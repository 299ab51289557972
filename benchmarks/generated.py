"""Generated data sets: prepared once, kept in a directory, and shortened to as many rows as are wanted."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fm2
from fm2 import Field, Schema
from fm2.data.dataset import Split

SPARE = 1.02  # rows are divided at random, so a few more are generated than are wanted
VALIDATION = 0.01


@dataclass(frozen=True)
class Recipe:
    """A data set with at least so many training rows; every value seen is a feature, if it was seen only once."""

    rows: int
    features: int
    fields: int = 39

    @property
    def name(self) -> str:
        return f"{self.rows}-rows-{self.features}-features-{self.fields}-fields"


def prepare(recipe: Recipe, directory: Path) -> Path:
    """Give the path of the data set, which is made if it is not there."""
    path = directory / recipe.name
    if not path.exists():
        print(f"generating {recipe.rows:,} rows, {recipe.fields} fields ...", flush=True)
        with tempfile.TemporaryDirectory(dir=directory) as folder:
            rows = int(recipe.rows * SPARE)
            log = fm2.generate(f"{folder}/log.parquet", rows, fields=recipe.fields, features=recipe.features)
            fm2.prepare(log.path, _schema(recipe.fields), path, fractions=(1 - VALIDATION, VALIDATION, 0))
    return path


@contextlib.contextmanager
def working_directory(given: Path | None) -> Iterator[Path]:
    """Give the directory for the data sets: one that stays, or a temporary one."""
    if given:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def open_shortened(path: Path, rows: int) -> fm2.Dataset:
    """Open a data set, with its first rows alone to train with; the vocabularies stay as they are."""
    dataset = fm2.Dataset.open(path)
    whole = dataset.train
    dataset.train = Split("train", whole.ids[:rows], whole.labels[:rows], whole.rows[:rows])
    return dataset


def _schema(fields: int) -> Schema:
    """Describe a generated log as ``fm2.generate`` makes it: a third of the fields are numeric."""
    numbers = [Field(f"I{i + 1}", "numeric", min_count=1) for i in range(fields // 3)]
    categories = [Field(f"C{i + 1}", min_count=1) for i in range(fields - fields // 3)]
    return Schema(numbers + categories, label="label")
