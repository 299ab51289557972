"""Compare predictions of compiled models with and without multi-valued fields, per lookup.

    python benchmarks/multivalued_scoring.py [--rows 5000] [--rounds 5] [--features 2000]

An FmFM of 30 single-valued and 3 multi-valued fields with 10 values on average (60 lookups per row), K = 16, against
one of 60 single-valued fields, and one of 33. Random weights, features from a Zipf distribution. Times are taken in
turn on one thread; the best round counts, and for single rows its median.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import tempfile
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fm2 import Field, Schema, Scorer
from fm2.compression.weights import Weights
from fm2.data.rows import EncodedRows
from fm2.data.vocabulary import Vocabulary
from fm2.engine.compile import draw_rows, exact_plans, spectral_plan, write
from fm2.engine.plans import Plan
from targets import Target, print_targets
from timing import in_turn, seconds

SINGLE, LISTS, VALUES, DIM, RANK, BATCH = 30, 3, 10, 16, 16, 1_000
PLANS = ("direct", "cached", "spectral")
Times = dict[tuple[str, str, str], float]  # seconds per lookup, by model, plan and kind of call


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=5_000, help="rows to score one by one, and in a batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--features", type=int, default=2_000, help="features of each field")
    settings = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        times = measure(Path(folder), settings.rows, settings.rounds, settings.features)
    for (model, plan, call), time in times.items():
        print(f"{f'{plan}, {call}, {model}':<64}{time * 1e9:>10.2f} ns per lookup")
    print_targets("time per lookup / single-valued fields", targets(times))


def targets(times: Times) -> list[Target]:
    """Compare multi-valued with single-valued fields: the same number of lookups, and the same number of fields."""
    models = dict.fromkeys(model for model, *_ in times)
    several, *others = models
    return [
        Target(f"{plan}, {call}, {other}", times[several, plan, call] / times[other, plan, call], at_most=1)
        for other in others
        for plan in PLANS
        for call in ("one row", "batch")
    ]


def measure(folder: Path, rows: int = 5_000, rounds: int = 5, features: int = 2_000) -> Times:
    """Return the seconds per lookup of every model, plan and kind of call; the multi-valued model comes first."""
    models = {
        f"{SINGLE} fields and {LISTS} lists of {VALUES}": make_weights(SINGLE, LISTS, features),
        f"{SINGLE + LISTS * VALUES} fields": make_weights(SINGLE + LISTS * VALUES, 0, features),
        f"{SINGLE + LISTS} fields": make_weights(SINGLE + LISTS, 0, features),
    }
    tasks: dict[tuple[str, str, str], Callable[[], float]] = {}
    for number, (title, weights) in enumerate(models.items()):
        drawn = draw_rows(weights, rows)
        for name in PLANS:
            path = write(weights, [make_plan(weights, name)], folder / f"{number} {name}.fm2").path
            scorer = Scorer(path, threads=1, verify=False)
            tasks[title, name, "one row"] = one_row(scorer, drawn)
            tasks[title, name, "batch"] = batch(scorer, drawn)
    return {key: min(times) for key, times in in_turn(tasks, rounds).items()}


def make_plan(weights: Weights, name: str) -> Plan:
    """Return a plan; the cached one orders the fields by dimension and lookups."""
    if name == "spectral":
        return spectral_plan(weights, RANK)
    return next(iter(exact_plans(weights, "direct" if name == "direct" else "cached")))


def lookups(rows: EncodedRows) -> float:
    """Return the average number of features of a row."""
    values = sum(len(lists.take(rows.ids[:, field]).ids) for field, lists in rows.lists.items())
    return float(rows.ids.shape[1] - len(rows.lists) + values / len(rows))


def one_row(scorer: Scorer, rows: EncodedRows) -> Callable[[], float]:
    """Return a measurement: the median time of a single row, per lookup."""
    per_row = lookups(rows)
    return lambda: float(np.median(scorer.measure_latency(rows))) / per_row


def batch(scorer: Scorer, rows: EncodedRows) -> Callable[[], float]:
    """Return a measurement: the median time of a batch, per lookup."""
    total = lookups(rows) * BATCH
    batches = [rows[begin : begin + BATCH] for begin in range(0, len(rows) - BATCH + 1, BATCH)]
    return lambda: statistics.median(seconds(functools.partial(scorer.logits, part)) for part in batches) / total


def make_weights(single: int, lists: int, features: int, seed: int = 0) -> Weights:
    """Make an FmFM with random weights and Zipf-distributed features; the last fields are multi-valued."""
    random, count = np.random.default_rng(seed), single + lists
    zipf = 1 / np.arange(1, features)
    zipf = (zipf * 1e9 / zipf.sum()).astype(np.int64)
    values = [f"{value:x}" for value in range(features - 1)]

    def draw(*shape: int) -> NDArray[np.float32]:
        return random.normal(0, 0.1, shape).astype(np.float32)

    def vocabularies(number: int, factor: int) -> Sequence[Vocabulary]:
        return [Vocabulary.of(values, (factor * zipf).tolist())] * number

    fields = [Field(f"F{field}", min_count=1, multivalued=field >= single) for field in range(count)]
    return Weights(
        name="fmfm",
        config={"model": "fmfm", "field_sizes": [features] * count, "dims": [DIM] * count, "linear": "features"},
        schema=Schema(fields, label="click"),
        vocabularies=[*vocabularies(single, 1), *vocabularies(lists, VALUES)],
        metrics={},
        bias=-1.0,
        linear=[draw(features) for _ in range(count)],
        embeddings=[draw(features, DIM) for _ in range(count)],
        blocks={pair: draw(DIM, DIM) for pair in combinations(range(count), 2)},
    )


if __name__ == "__main__":
    main()
