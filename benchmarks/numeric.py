"""Compare the transforms of numbers on the validation rows of real logs.

    python benchmarks/numeric.py [LOG ...] [--models lr fmfm] [--seeds 3] [--transforms NAME ...]

FM2_DATA names the directory of the logs: criteo.tsv.gz, adult_train.csv.gz, movies_train.csv.gz and avazu.csv.gz.
The columns that inference makes numeric are transformed in each of several ways; the other columns do not change. In
adult_all, integers with few or spiky values are transformed too; in avazu, only integers that are identifiers.
Prints the log loss of the validation rows, a random tenth of the log, for each model: the mean over the seeds. Test
rows are not used.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fm2
from datasets import working_directory
from fm2 import Field, Schema
from fm2.data.presets import PAPER_MIN_COUNTS, paper_schema
from fm2.training.train import train
from trials import Trial, in_processes

Transforms = list[dict[str, Any]]  # the settings of the fields that a number becomes


def _numeric(transform: str, **settings: Any) -> dict[str, Any]:
    return {"kind": "numeric", "transform": transform, **settings}


CATEGORY: dict[str, Any] = {}
LOG_SQUARE = _numeric("log_square")
QUANTILES = {size: _numeric("quantiles", buckets=size) for size in (10, 20, 50, 100)}
KNOTS = {size: _numeric("interpolate", knots=size) for size in (10, 20, 40)}
LOG_KNOTS = {size: _numeric("interpolate", knots=size, spacing="log") for size in (10, 20, 40)}
LINEAR = _numeric("linear")

TRANSFORMS: dict[str, Transforms] = {
    "categories": [CATEGORY],
    "log_square": [LOG_SQUARE],
    **{f"log_square, threshold {n}": [{**LOG_SQUARE, "min_count": n}] for n in (1, 2)},
    **{f"quantiles {size}": [QUANTILES[size]] for size in QUANTILES},
    **{f"interpolate {size}": [KNOTS[size]] for size in KNOTS},
    **{f"interpolate {size} log": [LOG_KNOTS[size]] for size in LOG_KNOTS},
    "linear": [LINEAR],
    "log_square + quantiles 20": [LOG_SQUARE, QUANTILES[20]],
    "log_square + interpolate 20": [LOG_SQUARE, KNOTS[20]],
    "categories + quantiles 20": [CATEGORY, QUANTILES[20]],
    "categories + interpolate 20": [CATEGORY, KNOTS[20]],
    "quantiles 20 + 100": [QUANTILES[20], QUANTILES[100]],
    "quantiles 50 + interpolate 20": [QUANTILES[50], KNOTS[20]],
    "quantiles 50 + linear": [QUANTILES[50], LINEAR],
}


@dataclass(frozen=True)
class Log:
    """A real log: its file, its fields that are not numbers, and the columns to transform."""

    file: str
    label: str
    fields: list[Field]
    numbers: list[str]
    columns: tuple[str, ...] = ()
    min_count: int = 4

    def schema(self, transforms: Transforms) -> Schema:
        """Return the schema in which every number has a field for each of the ``transforms``."""
        numbers = [
            Field(f"{column}_{i}", column=column, **{"min_count": self.min_count, **settings})
            for column in self.numbers
            for i, settings in enumerate(transforms)
        ]
        return Schema([*self.fields, *numbers], self.label, self.columns)


def _logs() -> dict[str, Log]:
    adult = "workclass education marital_status occupation relationship race sex native_country"
    few_values = ["education_num", "capital_gain", "capital_loss", "hours_per_week"]
    criteo, avazu = paper_schema("criteo"), paper_schema("avazu")
    return {
        "criteo": Log(
            "criteo.tsv.gz",
            "label",
            [field for field in criteo.fields if field.kind != "numeric"],
            [field.name for field in criteo.fields if field.kind == "numeric"],
            criteo.columns,
            min_count=PAPER_MIN_COUNTS["criteo"],
        ),
        "adult": Log(
            "adult_train.csv.gz",
            "label",
            [Field(name) for name in [*adult.split(), *few_values]],
            ["age", "fnlwgt"],
        ),
        "movies": Log(
            "movies_train.csv.gz",
            "label",
            [Field(name) for name in ("user", "movie", "weekday", "hour")],
            ["year", "movie_n", "movie_mean", "user_n", "user_mean"],
        ),
        "adult_all": Log(
            "adult_train.csv.gz",
            "label",
            [Field(name) for name in adult.split()],
            ["age", "fnlwgt", *few_values],
        ),
        "avazu": Log(
            "avazu.csv.gz",
            avazu.label,
            [field for field in avazu.fields if field.name not in AVAZU_CODES],
            AVAZU_CODES,
            min_count=PAPER_MIN_COUNTS["avazu"],
        ),
    }


AVAZU_CODES = ["C14", "C17", "C19", "C20", "C21"]  # integers that are no quantities


def main() -> None:
    logs = _logs()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("logs", nargs="*", metavar="LOG", help=f"{', '.join(logs)} (default: the first three)")
    parser.add_argument("--models", nargs="+", default=["lr", "fmfm"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--transforms", nargs="+", metavar="NAME", default=list(TRANSFORMS))
    parser.add_argument("--directory", type=Path, help="keep the datasets here (default: do not keep them)")
    options = parser.parse_args()
    if "FM2_DATA" not in os.environ:
        sys.exit("set the variable FM2_DATA to the directory of the logs")
    for known, chosen in ((logs, options.logs), (TRANSFORMS, options.transforms)):
        if unknown := set(chosen) - set(known):
            sys.exit(f"'{min(unknown)}' is none of: {', '.join(known)}")
    with working_directory(options.directory) as directory:
        for name in options.logs or list(logs)[:3]:
            compare(name, logs[name], options, directory)


def compare(name: str, log: Log, options: argparse.Namespace, directory: Path) -> None:
    """Print the validation log loss of every model with each of the transforms."""
    print(f"\n{name:32}" + "".join(f"{model:>18}" for model in options.models), flush=True)
    data = {transform: prepare(name, log, transform, directory) for transform in options.transforms}
    trials = [
        Trial(path, model, {"seed": seed})
        for path in data.values()
        for model in options.models
        for seed in range(options.seeds)
    ]
    losses = in_processes(validation_loss, trials)
    for transform in data:
        print(f"{transform:32}", end="")
        for _ in options.models:
            of_seeds = [next(losses) for _ in range(options.seeds)]
            print(f"{np.mean(of_seeds):>10.5f} ±{np.std(of_seeds):.5f}", end="", flush=True)
        print()


def validation_loss(trial: Trial) -> float:
    """Train; return the log loss of the validation rows."""
    dataset = fm2.Dataset.open(trial.data)
    with tempfile.TemporaryDirectory() as folder:
        run = train(trial.model, dataset, f"{folder}/run", threads=1, progress=False, **trial.settings)
    return float(run.metrics["log_loss"])


def prepare(name: str, log: Log, transform: str, directory: Path) -> Path:
    """Prepare the log with a transform, unless that has been done."""
    path = directory / f"{name} {transform}"
    if not path.exists():
        fm2.prepare(Path(os.environ["FM2_DATA"], log.file), log.schema(TRANSFORMS[transform]), path, progress=False)
    return path


if __name__ == "__main__":
    main()
