"""Measure what a cross adds to a prediction of a compiled model, and to loading it.

    python benchmarks/crosses.py [--rows 20000] [--rounds 10]

Logistic regressions with 10 fields of 2,000 values each, without crosses and with 10 crosses of two fields, with
vocabularies of the most frequent combinations or hashed. All of them predict the same dicts of strings, one by one,
with values from a Zipf distribution as in a log, and from a uniform one, where most look-ups miss all caches. Models
take turns; the best round of each 1,000 rows counts. The time of a cross is the difference divided by 10: its id and
its weight.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from pathlib import Path

import numpy as np

from fm2 import Field, Schema, Scorer
from fm2.compression.weights import Weights
from fm2.data.vocabulary import Vocabulary
from fm2.engine.compile import exact_plans, write
from fm2.engine.scorer import load
from targets import Target, print_targets
from timing import seconds

FIELDS, VALUES, CROSSES, CHUNK = 10, 2000, 10, 1000
SIZES = (1_000, 100_000, 1_000_000)
HASH_BITS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000, help="rows to predict one by one")
    parser.add_argument("--rounds", type=int, default=10)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = {"no cross": compiled(0, 0, Path(folder) / "none.fm2")}
        for size in SIZES:
            models[f"{size:,} features"] = compiled(CROSSES, size, Path(folder) / f"{size}.fm2")
        models[f"{HASH_BITS} bits"] = compiled(CROSSES, 0, Path(folder) / "hashed.fm2")
        for name, model in models.items():
            opening = min(seconds(functools.partial(load, model.path, verify=False)) for _ in range(5))
            print(f"{name:<20}{model.path.stat().st_size / 1e6:8.1f} MB, opened in {opening * 1e3:.2f} ms")
        weights = 1 / np.arange(1, VALUES + 1)
        for title, shares in (("zipf", weights / weights.sum()), ("uniform", np.full(VALUES, 1 / VALUES))):
            compare(title, models, shares, settings)


def compare(title: str, models: dict[str, Scorer], shares: np.ndarray, settings: argparse.Namespace) -> None:
    """Print the time of a cross in each model for rows whose values have these probabilities."""
    numbers = np.random.default_rng(1).choice(VALUES, (settings.rows, FIELDS), p=shares)
    rows = [{f"f{field}": f"v{value}" for field, value in enumerate(row)} for row in numbers.tolist()]
    rounds: dict[str, list[list[float]]] = {name: [] for name in models}
    for _ in range(settings.rounds):
        for name, model in models.items():
            rounds[name].append(chunk_times(model, rows))
    best = {name: float(np.min(times, axis=0).mean()) for name, times in rounds.items()}
    none = best.pop("no cross")
    print(f"\n{title}: {none * 1e9:,.0f} ns per row without crosses")
    limit = 60 if title == "zipf" else None
    targets = [Target(name, (value - none) / CROSSES * 1e9, at_most=limit) for name, value in best.items()]
    print_targets(f"{title}: nanoseconds per cross", targets)


def chunk_times(model: Scorer, rows: list[dict[str, str]]) -> list[float]:
    """Predict rows one by one; return the seconds per row of each chunk."""
    times = []
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        begin = time.perf_counter()
        for row in chunk:
            model.native.predict_one(row)
        times.append((time.perf_counter() - begin) / len(chunk))
    return times


def compiled(crosses: int, features: int, path: Path) -> Scorer:
    """Compile a logistic regression with random weights, whose crosses combine fields i and i + 1."""
    random = np.random.default_rng(0)
    fields = [Field(f"f{field}") for field in range(FIELDS)]
    vocabularies = [Vocabulary.of([f"v{value}" for value in range(VALUES)], [1] * VALUES) for _ in fields]
    frequency = np.arange(1, VALUES + 1)
    pairs = np.argsort(np.outer(frequency, frequency).ravel(), kind="stable")[:features]
    texts = [f"v{pair // VALUES} × v{pair % VALUES}" for pair in pairs.tolist()]
    for cross in range(crosses):
        parts = [f"f{cross}", f"f{(cross + 1) % FIELDS}"]
        fields.append(Field(f"cross{cross}", cross=parts, hash_bits=0 if features else HASH_BITS))
        vocabulary = Vocabulary.of(texts, [1] * len(texts))
        hashed = 0 if features else 1 << HASH_BITS
        vocabularies.append(
            Vocabulary(vocabulary.data, vocabulary.ends, vocabulary.counts, vocabulary.boundaries, hashed)
        )
    sizes = [len(vocabulary) for vocabulary in vocabularies]
    weights = Weights(
        "lr",
        {"model": "lr", "field_sizes": sizes},
        Schema(fields, label="click"),
        vocabularies,
        {},
        0.1,
        [random.normal(size=size).astype(np.float32) for size in sizes],
        [np.empty((size, 0), np.float32) for size in sizes],
        {},
    )
    write(weights, list(exact_plans(weights)), path)
    return load(path, threads=1)


if __name__ == "__main__":
    main()
