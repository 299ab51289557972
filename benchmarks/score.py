"""How fast compiled models score and rank, beside ONNX Runtime.

    python benchmarks/score.py [--rows 20000] [--rounds 5] [--items 1000000]

39 fields of the sizes in the paper's table (1,327,180 features), random weights, ids drawn from a Zipf law over each
vocabulary. One thread, unless said; all are timed in turn, several rounds, and the best round counts; of single rows
its median. ONNX Runtime, if it is installed, runs the block form of an FmFM with K = 16 on one thread.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bars import Bar, print_bars
from fm2 import Field, Schema, Scorer
from fm2.compression.weights import Weights
from fm2.data.vocabulary import Vocabulary
from fm2.engine.compile import draw_rows, exact_plans, spectral_plan, write, write_fastest
from fm2.engine.scorer import load
from fm2.models.paper import CRITEO_DIMS, CRITEO_FIELD_SIZES

Ids = NDArray[np.int32]
BATCH, CANDIDATES, CANDIDATE_FIELDS, TOP, CALLS = 4096, 1000, 10, 100, 100


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000, help="rows that are scored one by one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", type=int, default=1_000_000, help="in the catalog")
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(settings, Path(folder))


def measure(settings: argparse.Namespace, folder: Path) -> None:
    """Build the models, time everything in turn, print microseconds and bars."""
    equal, specific = make_weights([16] * len(CRITEO_FIELD_SIZES)), make_weights(CRITEO_DIMS)
    ids = draw_rows(equal, settings.rows)
    models = {
        "K=16": compiled(equal, folder),
        "95 % dimensions": compiled(specific, folder),
        "spectral, rank 16": Scorer(write(equal, spectral_plan(equal, 16), folder / "spectral.fm2").path, threads=1),
    }
    tasks: dict[str, Callable[[], float]] = {
        **{f"one row, {name}": one_row(model, ids) for name, model in models.items()},
        "one row, K=16, called from Python": one_call(models["K=16"], ids),
        "one dict of strings": one_dict(models["95 % dimensions"], equal, ids[:2000]),
        "a row of a batch, 95 % dimensions": batch(models["95 % dimensions"], ids),
        **ranking(models["95 % dimensions"], ids, settings.items),
    }
    tasks |= onnx_tasks(equal, ids, folder)
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(settings.rounds):
        for name, task in tasks.items():
            best[name] = min(best[name], task())
    for name, seconds in best.items():
        print(f"{name:<56}{seconds * 1e6:>12,.2f} µs")
    started = time.perf_counter()
    load(models["K=16"].path)
    size = models["K=16"].path.stat().st_size / 1e6
    best["load"] = time.perf_counter() - started
    print(f"{f'load of {size:,.0f} MB, every byte checked, 2 threads':<56}{best['load'] * 1e6:>12,.2f} µs")
    print_bars("microseconds", time_bars(best))
    print_bars("times as fast as ONNX Runtime", speed_bars(best))


def time_bars(best: dict[str, float]) -> list[Bar]:
    """Compare times with what they should be."""
    most = {
        "one row, 95 % dimensions": (3, 1.5),
        "one row, spectral, rank 16": (1.5, 0.8),
        "one dict of strings": (15, 8),
        "1,000 candidates by ids": (200, 100),
        "1,000 candidates of a catalog": (40, 20),
        "the best 100 of the catalog, 2 threads": (40_000, 15_000),
        "load": (50_000, None),
    }
    return [Bar(name, best[name] * 1e6, most=bar, aim=aim) for name, (bar, aim) in most.items()]


def speed_bars(best: dict[str, float]) -> list[Bar]:
    """Compare times with ONNX Runtime's, if it was there."""

    def ratio(one: str, other: str) -> float | None:
        return best[other] / best[one] if other in best else None

    return [
        Bar("one row, K=16", ratio("one row, K=16, called from Python", "one row, ONNX Runtime"), least=4, aim=10),
        Bar(
            "a batch, 95 % dimensions",
            ratio("a row of a batch, 95 % dimensions", "a row of a batch, ONNX Runtime"),
            least=6,
            aim=15,
        ),
    ]


def make_weights(dims: Sequence[int], seed: int = 0) -> Weights:
    """Make an FmFM of random weights, whose features are Zipf-distributed."""
    random, sizes = np.random.default_rng(seed), list(CRITEO_FIELD_SIZES)
    pairs = itertools.combinations(range(len(sizes)), 2)
    counts = [(1e9 / np.arange(1, size)).astype(int).tolist() for size in sizes]
    values = [[f"{field:x}-{value:x}" for value in range(size - 1)] for field, size in enumerate(sizes)]

    def draw(*shape: int) -> NDArray[np.float32]:
        return random.normal(0, 0.1, shape).astype(np.float32)

    return Weights(
        name="fmfm",
        config={"model": "fmfm", "field_sizes": sizes, "dims": list(dims), "linear": "features"},
        schema=Schema([Field(f"F{field}", min_count=1) for field in range(len(sizes))], label="click"),
        vocabularies=[Vocabulary.of(*own) for own in zip(values, counts, strict=True)],
        metrics={},
        bias=-1.0,
        linear=[draw(size) for size in sizes],
        embeddings=[
            random.normal(0, 0.1, (size, dim)).astype(np.float32) for size, dim in zip(sizes, dims, strict=True)
        ],
        blocks={(i, j): draw(dims[i], dims[j]) for i, j in pairs},
    )


def compiled(weights: Weights, folder: Path) -> Scorer:
    """Write and open a model by the plan that is the quickest here."""
    fastest = write_fastest(weights, list(exact_plans(weights)), folder / f"{sum(weights.dims)}.fm2")
    print(", ".join(f"{title} {microseconds:.2f} µs" for title, microseconds in fastest.measured.items()))
    return Scorer(fastest.path, threads=1)


def one_row(model: Scorer, ids: Ids) -> Callable[[], float]:
    """Give the median time of a row on its own."""
    return lambda: float(np.median(model.measure_latency(ids)))


def one_call(model: Scorer, ids: Ids) -> Callable[[], float]:
    """Give the median time of a row on its own, the call from Python included, as ONNX Runtime's is timed."""
    rows, logit = [np.ascontiguousarray(ids[row : row + 1]) for row in range(2000)], np.empty(1, np.float32)

    def run() -> float:
        return statistics.median(timed(functools.partial(model.native.score, row, logit, 1))() for row in rows)

    return run


def one_dict(model: Scorer, weights: Weights, ids: Ids) -> Callable[[], float]:
    """Give the median time of a dict of strings, the call from Python included."""
    names = [field.name for field in weights.schema.fields]
    rows = [
        {name: vocabulary.value(int(id)) for name, vocabulary, id in zip(names, weights.vocabularies, row, strict=True)}
        for row in ids
    ]

    def run() -> float:
        times = []
        for row in rows:
            begin = time.perf_counter()
            model.predict_one(row)
            times.append(time.perf_counter() - begin)
        return float(np.median(times))

    return run


def timed(task: Callable[[], Any], count: int = 1) -> Callable[[], float]:
    """Give the time of a task, divided by how much it does."""

    def run() -> float:
        begin = time.perf_counter()
        task()
        return (time.perf_counter() - begin) / count

    return run


def batch(model: Scorer, ids: Ids) -> Callable[[], float]:
    """Give the time of a row in a batch."""
    some, logits = np.ascontiguousarray(ids[:BATCH]), np.empty(BATCH, np.float32)
    return timed(lambda: model.native.score(some, logits, 1), BATCH)


def ranking(model: Scorer, ids: Ids, items: int) -> dict[str, Callable[[], float]]:
    """Give the times of ranking candidates by ids, of a small catalog and of a large one; each call has its context."""
    ranker = model.ranker(candidate=model.columns[-CANDIDATE_FIELDS:])
    contexts = [np.ascontiguousarray(row[:-CANDIDATE_FIELDS]) for row in ids[:CALLS]]
    every = np.ascontiguousarray(ids[:, -CANDIDATE_FIELDS:])
    starts = np.linspace(0, len(every) - CANDIDATES, CALLS).astype(int)
    groups = [np.ascontiguousarray(every[start : start + CANDIDATES]) for start in starts]
    small = ranker.catalog(groups[0])
    both = load(model.path, threads=2).ranker(candidate=model.columns[-CANDIDATE_FIELDS:])
    large = both.catalog(np.resize(every, (items, CANDIDATE_FIELDS)))

    def ranked(call: int) -> None:
        ranker.rank(contexts[call], groups[call], top=10)

    return {
        "1,000 candidates by ids": median_of(ranked),
        "1,000 candidates of a catalog": median_of(lambda call: small.top(contexts[call], k=10)),
        "the best 100 of the catalog, 2 threads": median_of(lambda call: large.top(contexts[call], k=TOP), calls=10),
    }


def median_of(task: Callable[[int], Any], calls: int = 0) -> Callable[[], float]:
    """Give the median time of some calls of a task."""

    def run() -> float:
        return statistics.median(timed(functools.partial(task, call))() for call in range(calls or CALLS))

    return run


def onnx_tasks(weights: Weights, ids: Ids, folder: Path) -> dict[str, Callable[[], float]]:
    """Give ONNX Runtime's times for the block form, where it is installed."""
    try:
        from onnx_block import open_session
    except ImportError as missing:
        print(f"without ONNX Runtime: there is no package '{missing.name}'")
        return {}
    session = open_session(weights, folder / "block.onnx")
    rows = [np.ascontiguousarray(ids[row : row + 1], dtype=np.int64) for row in range(500)]
    some = np.ascontiguousarray(ids[:BATCH], dtype=np.int64)

    def single() -> float:
        times = []
        for row in rows:
            begin = time.perf_counter()
            session.run(None, {"ids": row})
            times.append(time.perf_counter() - begin)
        return float(np.median(times))

    batched = timed(lambda: session.run(None, {"ids": some}), BATCH)
    return {"one row, ONNX Runtime": single, "a row of a batch, ONNX Runtime": batched}


if __name__ == "__main__":
    main()
