"""Compare how much FmFM learns from fields with several values per row with how much it learns from single values.

    python benchmarks/multivalued_quality.py [--rows 1000000] [--features 50000] [--values 10] [--weighted] [--seeds 2]

The logs are generated, so their true probabilities are known. They have 42 fields, 3 of which have lists of values. In
the log "one value", these lists have one value each; its planted weights, embeddings and field matrices are the same,
so that only the pooling differs. FmFM is trained with its defaults on each, and on the log with lists without its
multi-valued fields. Prints the share of the gap between the expected log loss of the base rate and that of the truth
which each model closes, for each seed, and the ratios of their means.

A log without the three fields ("39 fields") is no fair comparison: its planted model is another one, and how much of
it can be learned from so many rows varies by more than the lists make a difference. It is trained as well, without a
limit. Takes about an hour on 2 cores with the default sizes.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fm2
from datasets import working_directory
from fm2 import Schema
from fm2.data.synthetic.generate import GeneratedLog
from targets import Target, print_targets

LISTS = 3
NOISE = 0.005  # of the ratio of two means; single seeds differ by that much


@dataclass(frozen=True)
class Result:
    """The expected log losses on the test rows of the base rate, a model, and the truth."""

    base: float
    model: float
    truth: float

    @property
    def closed(self) -> float:
        """The share of the gap between base rate and truth that the model closes."""
        return (self.base - self.model) / (self.base - self.truth)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--directory", type=Path, help="keep the datasets here (default: do not keep them)")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=50_000)
    parser.add_argument("--values", type=int, default=10, help="average number of values in a list")
    parser.add_argument("--weighted", action="store_true", help="give the values in lists weights")
    parser.add_argument("--model", default="fmfm")
    parser.add_argument("--seeds", type=int, default=2, help="number of logs of each kind")
    settings = parser.parse_args(arguments)
    with working_directory(settings.directory) as directory:
        compare(settings, directory)


def compare(settings: argparse.Namespace, directory: Path) -> None:
    """Train on all logs, with several seeds; print the shares of the gaps."""
    print(f"{settings.model}, {settings.rows:,} rows; expected test log loss")
    print(f"{'':22}{'base rate':>11}{'model':>10}{'truth':>10}{'gap closed':>12}", flush=True)
    closed: dict[str, list[float]] = defaultdict(list)
    for seed in range(settings.seeds):
        for name, (log, fields) in make_logs(settings, directory, seed).items():
            result = measure(settings.model, log.path, log.truth, fields, directory / name.replace(" ", "-"))
            closed[name].append(result.closed)
            losses = f"{result.base:>11.5f}{result.model:>10.5f}{result.truth:>10.5f}"
            print(f"{name + f', seed {seed}':22}{losses}{result.closed:>12.1%}", flush=True)
    mean = {name: float(np.mean(shares)) for name, shares in closed.items()}
    print_targets(
        "share of the gap that the model closes",
        [
            Target("lists / one value", mean["lists"] / mean["one value"], at_least=1 - NOISE),
            Target("lists ignored / lists", mean["lists ignored"] / mean["lists"], at_most=0.95),
            Target("lists / 39 fields, another planted model", mean["lists"] / mean["39 fields"]),
        ],
    )


def make_logs(settings: argparse.Namespace, directory: Path, seed: int) -> dict[str, tuple[GeneratedLog, Schema]]:
    """Generate the logs of a seed; return each with the schema to train with."""
    common: dict[str, Any] = {"features": settings.features, "seed": seed}
    lists, single = (
        fm2.generate(
            directory / f"{name}.tsv",
            settings.rows,
            multivalued=LISTS,
            values=values,
            weighted=settings.weighted,
            **common,
        )
        for name, values in (("lists", settings.values), ("single", 1))
    )
    plain = fm2.generate(directory / "plain.tsv", settings.rows, **common)
    assert lists.schema is not None
    schema = Schema.load(lists.schema)
    others = [field for field in schema.fields if not field.multivalued]
    columns = [name for name in schema.columns if not name.startswith("L")]
    return {
        "lists": (lists, schema),
        "one value": (single, schema),
        "lists ignored": (lists, schema.replace(fields=others)),
        "39 fields": (plain, Schema(others, schema.label, columns)),
    }


def measure(model: str, log: Path, truth: Path, schema: Schema, data: Path) -> Result:
    """Prepare a log, train a model with its defaults, and return its expected test log loss and those of its bounds."""
    dataset = fm2.prepare(log, schema, data, overwrite=True)
    run = fm2.train(model, dataset, data.with_name(f"{data.name}-run"), overwrite=True)
    true = np.load(truth)[dataset.test.rows].astype(np.float64)
    base = np.full(len(true), dataset.train.labels.mean())
    predicted = run.probabilities(dataset.test.encoded)
    return Result(*(expected_log_loss(true, each) for each in (base, predicted, true)))


def expected_log_loss(true: NDArray[np.float64], predicted: NDArray[Any]) -> float:
    """Return the log loss of predictions over all labels that could have been drawn, which has less noise."""
    p = np.clip(predicted.astype(np.float64), 1e-7, 1 - 1e-7)
    return float(-np.mean(true * np.log(p) + (1 - true) * np.log1p(-p)))


if __name__ == "__main__":
    main()
