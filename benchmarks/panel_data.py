"""The logs of the panel: how fm2 prepares each one, and the table of raw columns that its peers read."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars
from numpy.typing import NDArray

import fm2
from fm2 import Schema
from fm2.data.presets import PRESETS
from fm2.data.splits import SPLITS
from fm2.field import DEFAULT_TIME_FORMAT
from panel_logs import KINDS, LABEL

SPLIT = "split"  # the column of the peers' table with 0, 1 or 2: train, validation or test
LIST_VALUES = 50  # the most frequent values of a list that become a column for the peers
VALIDATION = 1 / 8  # the share of each user's training rows in movies_users


@dataclass(frozen=True)
class Log:
    """A log of the panel.

    Without a ``schema``, fm2 infers one. ``numbers`` are the columns that a user of the peers would treat as numbers;
    None means those that fm2 infers.
    """

    source: Path
    label: str
    schema: Schema | None = None
    validation: Path | None = None
    test: Path | None = None
    split: Literal["random", "time"] = "random"
    numbers: tuple[str, ...] | None = None
    truth: NDArray[np.float64] | None = field(default=None, compare=False)

    def prepare(self, out: Path, trees: bool = False) -> fm2.Dataset:
        """Prepare the log as a new user of fm2 would, with ``fm2 prepare --trees always`` or without."""
        schema = self.schema or Schema.infer(self.source, self.label)
        schema = schema.with_trees() if trees else schema
        files: dict[str, Any] = {"validation": self.validation, "test": self.test}
        return fm2.prepare(self.source, schema, out, **files, split=self.split, overwrite=True, progress=False)

    def peer_table(self, dataset: fm2.Dataset) -> tuple[polars.DataFrame, list[str]]:
        """Return the rows of all splits with raw values, in the order of the splits, and the names of the categories.

        Categories are texts, with "" for missing ones; all other columns are numbers. A timestamp becomes its weekday
        and hour. A list becomes its length and a column for each of its most frequent values.
        """
        files = (self.source, self.validation, self.test)  # in which order fm2 numbers the rows
        raw = polars.concat([_read_texts(path, dataset.schema) for path in files if path])
        splits = [dataset.split(name) for name in SPLITS]
        numbers = np.repeat(np.arange(len(SPLITS), dtype=np.uint8), [len(split) for split in splits])
        raw = raw[np.concatenate([split.rows for split in splits])].with_columns(polars.Series(SPLIT, numbers))
        columns: list[polars.Series] = [raw[self.label].cast(polars.Float64).alias("label"), raw[SPLIT]]
        categories = []
        done = set()
        for each in dataset.schema.fields:
            if each.cross:
                continue  # the peers see its parts
            if each.kind == "timestamp":
                columns.append(_time_part(raw[each.column], each).alias(each.name))
                continue
            if each.column in done:
                continue
            done.add(each.column)
            if each.multivalued:
                columns += _list_columns(raw, each.column, each.separator)
            elif each.column in self.numbers if self.numbers is not None else each.kind == "numeric":
                columns.append(raw[each.column].cast(polars.Float64, strict=False))
            else:
                categories.append(each.column)
                columns.append(raw[each.column].fill_null(""))
        return polars.DataFrame(columns), categories


def find_log(name: str, directory: Path, draw: int = 0) -> Log:
    """Return the log with this name; generate it in ``directory`` if it is a generated one and not there yet.

    Every ``draw`` of a generated log has other rows, from another model of the same kind.
    """
    return _generated(name, directory, draw) if name in KINDS else _real(name, directory)


def _real(name: str, directory: Path) -> Log:
    if "FM2_DATA" not in os.environ:
        raise SystemExit("set the variable FM2_DATA to the directory of the real logs, or name a generated log")
    return REAL_LOGS[name](Path(os.environ["FM2_DATA"]), directory / name)


def _criteo(logs: Path, _: Path) -> Log:
    schema = PRESETS["criteo"]()
    numbers = tuple(each.name for each in schema.fields if each.kind == "numeric")
    return Log(logs / "criteo.tsv.gz", schema.label, schema, numbers=numbers)


def _criteo_inferred(logs: Path, directory: Path) -> Log:
    """Return Criteo's log with a header and without a schema, as a log that fm2 does not know."""
    known, log = _criteo(logs, directory), directory / "log.tsv"
    if not log.exists():
        directory.mkdir(parents=True, exist_ok=True)
        _read_texts(known.source, PRESETS["criteo"]()).write_csv(log, separator="\t")
    return Log(log, known.label, numbers=known.numbers)


def _adult(logs: Path, _: Path) -> Log:
    numbers = ("age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week")
    return Log(logs / "adult_train.csv.gz", "label", test=logs / "adult_test.csv.gz", numbers=numbers)


def _movies(logs: Path, _: Path) -> Log:
    """Return MovieLens; the validation rows are the latest training rows, mostly of users without a training row."""
    numbers = ("year", "hour", "weekday", "movie_n", "movie_mean", "user_n", "user_mean")
    train, test = logs / "movies_train.csv.gz", logs / "movies_test.csv.gz"
    return Log(train, "label", test=test, split="time", numbers=numbers)


def _movies_users(logs: Path, directory: Path) -> Log:
    """Return MovieLens; the validation rows are the latest training rows of each user, like the test rows."""
    known = _movies(logs, directory)
    train, validation = directory / "train.csv", directory / "validation.csv"
    if not validation.exists():
        directory.mkdir(parents=True, exist_ok=True)
        rows = polars.read_csv(known.source, infer_schema=False)
        is_late = polars.int_range(polars.len()).over("user") >= (1 - VALIDATION) * polars.len().over("user")
        rows.filter(~is_late).write_csv(train)
        rows.filter(is_late).write_csv(validation)
    return Log(train, known.label, None, validation, known.test, numbers=known.numbers)


def _avazu(logs: Path, _: Path) -> Log:
    return Log(logs / "avazu.csv.gz", "click", PRESETS["avazu"](), numbers=())


# Functions of the directory of the real logs and of one for files that are derived from them.
REAL_LOGS: dict[str, Callable[[Path, Path], Log]] = {
    "criteo": _criteo,
    "criteo_inferred": _criteo_inferred,
    "adult": _adult,
    "movies": _movies,
    "movies_users": _movies_users,
    "avazu": _avazu,
}


def _generated(name: str, directory: Path, draw: int) -> Log:
    folder = directory / (f"{name}-{draw}" if draw else name)
    log, truth = folder / "log.parquet", folder / "truth.npy"
    if not truth.exists():
        print(f"generating {folder.name} ...", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        seed = 1 + list(KINDS).index(name) + draw * len(KINDS)
        table, probabilities = KINDS[name](seed)
        table.write_parquet(log)
        np.save(truth, probabilities)
    types = polars.read_parquet_schema(log).items()
    numbers = tuple(column for column, type in types if type.is_numeric() and column != LABEL)
    split: Literal["random", "time"] = "time" if name == "drift" else "random"
    return Log(log, LABEL, split=split, numbers=numbers, truth=np.load(truth))


def _read_texts(path: Path, schema: Schema) -> polars.DataFrame:
    """Read the columns of a log as texts, with null for missing values; lists stay lists."""
    if path.suffix == ".parquet":
        table = polars.read_parquet(path)
        return table.with_columns(
            polars.col(name).cast(polars.String) for name in table.columns if not _is_list(table[name])
        )
    separator = "\t" if ".tsv" in path.name else ","
    options: dict[str, Any] = {"has_header": not schema.columns, "new_columns": list(schema.columns) or None}
    return polars.read_csv(path, separator=separator, infer_schema=False, **options)


def _is_list(column: polars.Series) -> bool:
    return isinstance(column.dtype, polars.List | polars.Array)


def _time_part(column: polars.Series, each: fm2.Field) -> polars.Series:
    format = each.format or DEFAULT_TIME_FORMAT
    if format in ("unix", "unix_ms"):
        time = polars.from_epoch(column.cast(polars.Int64), "ms" if format == "unix_ms" else "s")
    elif "%H" in format and "%M" not in format:  # polars requires minutes
        time = (column + "00").str.to_datetime(format + "%M")
    else:
        time = column.str.to_datetime(format)
    return (time.dt.weekday() - 1 if each.part == "weekday" else time.dt.hour()).cast(polars.Float64)


def _list_columns(raw: polars.DataFrame, name: str, separator: str) -> list[polars.Series]:
    lists = raw[name] if _is_list(raw[name]) else raw[name].str.split(separator)
    lists = lists.fill_null([]).cast(polars.List(polars.String))
    counts = lists.filter(raw[SPLIT] == 0).explode().drop_nulls().value_counts().sort("count", name, descending=True)
    length = lists.list.len().cast(polars.Float64).alias(f"{name} length")
    values = counts[name][:LIST_VALUES].to_list()
    return [length, *(lists.list.contains(value).cast(polars.Float32).alias(f"{name} {value}") for value in values)]
