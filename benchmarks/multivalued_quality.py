"""Compare how much FmFM learns from a log with multi-valued fields with how much it learns from a log without them.

    python benchmarks/multivalued_quality.py [--rows 1000000] [--features 50000] [--values 10] [--weighted]

Both logs are generated, so their true probabilities are known. One has 39 single-valued fields, the other has 3
multi-valued ones as well. FmFM is trained with its defaults on each, and on the second log without its multi-valued
fields. Prints the share of the gap between the log loss of the base rate and that of the truth which each model closes.
Takes about half an hour on 2 cores with the default sizes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import fm2
from datasets import working_directory
from fm2 import Schema
from fm2.evaluation import metrics
from targets import Target, print_targets

LISTS = 3


@dataclass(frozen=True)
class Result:
    """The test log losses of the base rate, a model, and the truth."""

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
    settings = parser.parse_args(arguments)
    with working_directory(settings.directory) as directory:
        compare(settings, directory)


def compare(settings: argparse.Namespace, directory: Path) -> None:
    """Train on both logs, and on the second without its lists; print the shares of the gaps."""
    sizes = {"features": settings.features, "values": settings.values, "weighted": settings.weighted}
    plain = fm2.generate(directory / "plain.tsv", settings.rows, features=settings.features)
    lists = fm2.generate(directory / "lists.tsv", settings.rows, multivalued=LISTS, **sizes)
    assert lists.schema is not None
    schema = Schema.load(lists.schema)
    single = [field for field in schema.fields if not field.multivalued]
    columns = [name for name in schema.columns if not name.startswith("L")]
    cases = {
        "no lists": (plain, Schema(single, schema.label, columns)),
        "lists": (lists, schema),
        "lists ignored": (lists, schema.replace(fields=single)),
    }
    print(f"{settings.model}, {settings.rows:,} rows; test log loss")
    print(f"{'':16}{'base rate':>11}{'model':>10}{'truth':>10}{'gap closed':>12}", flush=True)
    closed = {}
    for name, (log, fields) in cases.items():
        result = measure(settings.model, log.path, log.truth, fields, directory / name.replace(" ", "-"))
        closed[name] = result.closed
        print(
            f"{name:16}{result.base:>11.5f}{result.model:>10.5f}{result.truth:>10.5f}{result.closed:>12.1%}", flush=True
        )
    print_targets(
        "share of the gap that the model closes",
        [
            Target("lists / no lists", closed["lists"] / closed["no lists"], at_least=1),
            Target("lists ignored / lists", closed["lists ignored"] / closed["lists"], at_most=0.95),
        ],
    )


def measure(model: str, log: Path, truth: Path, schema: Schema, data: Path) -> Result:
    """Prepare a log, train a model with its defaults, and return its test log loss and those of its bounds."""
    dataset = fm2.prepare(log, schema, data, overwrite=True)
    test = dataset.test
    run = fm2.train(model, dataset, data.with_name(f"{data.name}-run"), overwrite=True)
    best = metrics.log_loss(test.labels, np.load(truth)[test.rows])
    rate = dataset.train.labels.mean()
    base = metrics.log_loss(test.labels, np.full(len(test), rate))
    return Result(base, run.evaluate(dataset)["log_loss"], best)


if __name__ == "__main__":
    main()
