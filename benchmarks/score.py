"""Compare compiled models with ONNX Runtime: single rows, batches, candidates, catalogs and loading.

    python benchmarks/score.py [--rows 20000] [--rounds 5] [--items 1000000] [--limit 120]

39 fields with the sizes of the paper's table (1,327,180 features), random weights, ids from a Zipf distribution over
each vocabulary. All are measured in turn on one thread unless noted; the best round counts, and for single calls its
median. The result is the ratio to ONNX Runtime, which runs the block form of an FmFM with K = 16 on one thread, if it
is installed. DeepFM (three layers of 400 units) and DeepLight are networks; score_networks.py compares them. Times are
processor times, except those of two threads and of rows that native code times one by one. It takes half a
minute on a quiet machine.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import Field, Schema, Scorer
from fm2.compression.weights import Weights
from fm2.data.presets import CRITEO_FIELD_SIZES
from fm2.data.vocabulary import Vocabulary
from fm2.engine.compile import draw_rows, exact_plans, spectral_plan, write
from fm2.engine.scorer import load
from fm2.models.paper import CRITEO_DIMS
from targets import Target, print_targets
from timing import cpu_seconds, in_turn, median_cpu, seconds

Ids = NDArray[np.int32]
BATCH, CANDIDATES, CANDIDATE_FIELDS, TOP, CALLS, GROUP = 4096, 1000, 10, 100, 100, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000, help="rows to score one by one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=120, help="seconds after which no further round begins")
    parser.add_argument("--items", type=int, default=1_000_000, help="items in the catalog")
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(settings, Path(folder))


def measure(settings: argparse.Namespace, folder: Path) -> None:
    """Build the models, time everything in turn, and print microseconds and targets."""
    equal, specific = make_weights([16] * len(CRITEO_FIELD_SIZES)), make_weights(CRITEO_DIMS)
    ids = draw_rows(equal, settings.rows).ids
    models = {
        "K=16": compiled(equal, folder),
        "95% dims": compiled(specific, folder),
        "spectral, rank 16": Scorer(write(equal, [spectral_plan(equal, 16)], folder / "spectral.fm2").path, threads=1),
    }
    tasks: dict[str, Callable[[], float]] = {
        **{f"one row, {name}": one_row(model, ids) for name, model in models.items()},
        "one row, K=16, called from Python": one_call(models["K=16"], ids),
        "one dict of strings": one_dict(models["95% dims"], equal, ids[:2000]),
        "row of a batch, 95% dims": batch(models["95% dims"], ids),
        **ranking(models["95% dims"], ids, settings.items),
    }
    tasks |= onnx_tasks(equal, ids, folder)
    networks = network_tasks(equal, ids, folder)
    tasks |= networks
    best = {name: min(times) for name, times in in_turn(tasks, settings.rounds, settings.limit).items()}
    for name, time in best.items():
        print(f"{name:<56}{time * 1e6:>12,.2f} µs")
    size = models["K=16"].path.stat().st_size / 1e6
    best["load"] = seconds(lambda: load(models["K=16"].path))
    print(f"{f'load {size:,.0f} MB and verify its checksum, 2 threads':<56}{best['load'] * 1e6:>12,.2f} µs")
    print_targets("microseconds", time_targets(best))
    print_targets("speed / ONNX Runtime, by processor time", speed_targets(best))
    if networks:
        from score_networks import network_targets

        print_targets("speed of networks, by processor time", network_targets(best))


def network_tasks(weights: Weights, ids: Ids, folder: Path) -> dict[str, Callable[[], float]]:
    """Return measurements of compiled networks, if torch, onnx and ONNX Runtime are installed."""
    try:
        import score_networks
    except ImportError as missing:
        print(f"networks are not measured: package '{missing.name}' is not installed")
        return {}
    return score_networks.network_tasks(weights, ids, folder)


def time_targets(best: dict[str, float]) -> list[Target]:
    """Compare times with their limits and goals, in microseconds."""
    limits = {
        "one row, 95% dims": (3, 1.5),
        "one row, spectral, rank 16": (1.5, 0.8),
        "one dict of strings": (15, 8),
        "1,000 candidates by ids": (200, 100),
        "1,000 candidates of a catalog": (40, 20),
        "top 100 of the catalog, 2 threads": (40_000, 15_000),
        "load": (50_000, None),
    }
    return [Target(name, best[name] * 1e6, at_most=limit, goal=goal) for name, (limit, goal) in limits.items()]


def speed_targets(best: dict[str, float]) -> list[Target]:
    """Compare times with ONNX Runtime, if it was measured."""

    def ratio(name: str, peer: str) -> float | None:
        return best[peer] / best[name] if peer in best else None

    single = ratio("one row, K=16, called from Python", "one row, ONNX Runtime")
    batched = ratio("row of a batch, 95% dims", "row of a batch, ONNX Runtime")
    return [
        Target("one row, K=16", single, at_least=4, goal=10),
        Target("batch, 95% dims", batched, at_least=6, goal=15),
    ]


def make_weights(dims: Sequence[int], seed: int = 0) -> Weights:
    """Make an FmFM with random weights and Zipf-distributed features."""
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
        vocabularies=[Vocabulary.of(*field) for field in zip(values, counts, strict=True)],
        metrics={},
        bias=-1.0,
        linear=[draw(size) for size in sizes],
        embeddings=[
            random.normal(0, 0.1, (size, dim)).astype(np.float32) for size, dim in zip(sizes, dims, strict=True)
        ],
        blocks={(i, j): draw(dims[i], dims[j]) for i, j in pairs},
    )


def compiled(weights: Weights, folder: Path) -> Scorer:
    """Write and load a model with the plan that is fastest on this machine."""
    fastest = write(weights, list(exact_plans(weights)), folder / f"{sum(weights.dims)}.fm2")
    print(", ".join(f"{title} {microseconds:.2f} µs" for title, microseconds in fastest.measured.items()))
    return Scorer(fastest.path, threads=1)


def one_row(model: Scorer, ids: Ids) -> Callable[[], float]:
    """Return a measurement: the median time of a single row."""
    return lambda: float(np.median(model.measure_latency(ids)))


def one_call(model: Scorer, ids: Ids) -> Callable[[], float]:
    """Return a measurement: the median time of a single row including the Python call, as for ONNX Runtime."""
    rows, logit = [np.ascontiguousarray(ids[row : row + 1]) for row in range(2000)], np.empty(1, np.float32)

    return median_cpu([functools.partial(model.native.score, row, logit, 1) for row in rows], GROUP)


def one_dict(model: Scorer, weights: Weights, ids: Ids) -> Callable[[], float]:
    """Return a measurement: the median time of a dict of strings, including the Python call."""
    names = [field.name for field in weights.schema.fields]
    rows = [
        {name: vocabulary.value(int(id)) for name, vocabulary, id in zip(names, weights.vocabularies, row, strict=True)}
        for row in ids
    ]
    return median_cpu([functools.partial(model.predict_one, row) for row in rows], GROUP)


def batch(model: Scorer, ids: Ids) -> Callable[[], float]:
    """Return a measurement: the time of a row in a batch."""
    rows, logits = np.ascontiguousarray(ids[:BATCH]), np.empty(BATCH, np.float32)
    return lambda: cpu_seconds(lambda: model.native.score(rows, logits, 1)) / BATCH


def ranking(model: Scorer, ids: Ids, items: int) -> dict[str, Callable[[], float]]:
    """Return measurements of ranking by ids, in a small catalog and in a large one; every call has another context."""
    ranker = model.ranker(candidate=model.columns[-CANDIDATE_FIELDS:])
    contexts = [np.ascontiguousarray(row[:-CANDIDATE_FIELDS]) for row in ids[:CALLS]]
    candidates = np.ascontiguousarray(ids[:, -CANDIDATE_FIELDS:])
    starts = np.linspace(0, len(candidates) - CANDIDATES, CALLS).astype(int)
    groups = [np.ascontiguousarray(candidates[start : start + CANDIDATES]) for start in starts]
    small = ranker.catalog(groups[0])
    two_threads = load(model.path, threads=2).ranker(candidate=model.columns[-CANDIDATE_FIELDS:])
    large = two_threads.catalog(np.resize(candidates, (items, CANDIDATE_FIELDS)))

    def rank(call: int) -> None:
        ranker.rank(contexts[call], groups[call], top=10)

    return {
        "1,000 candidates by ids": median_cpu([functools.partial(rank, call) for call in range(CALLS)]),
        "1,000 candidates of a catalog": median_cpu([functools.partial(small.top, row, k=10) for row in contexts]),
        "top 100 of the catalog, 2 threads": median_of(lambda call: large.top(contexts[call], k=TOP), calls=10),
    }


def median_of(task: Callable[[int], Any], calls: int) -> Callable[[], float]:
    """Return a measurement: the median time of several calls, on any number of threads."""
    return lambda: statistics.median(seconds(functools.partial(task, call)) for call in range(calls))


def onnx_tasks(weights: Weights, ids: Ids, folder: Path) -> dict[str, Callable[[], float]]:
    """Return measurements of ONNX Runtime with the block form, if it is installed."""
    try:
        from onnx_block import open_session
    except ImportError as missing:
        print(f"ONNX Runtime is not measured: package '{missing.name}' is not installed")
        return {}
    session = open_session(weights, folder / "block.onnx")
    rows = [np.ascontiguousarray(ids[row : row + 1], dtype=np.int64) for row in range(500)]
    rows_of_batch = np.ascontiguousarray(ids[:BATCH], dtype=np.int64)

    def score(rows: NDArray[np.int64]) -> None:
        session.run(None, {"ids": rows})

    return {
        "one row, ONNX Runtime": median_cpu([functools.partial(score, row) for row in rows], GROUP),
        "row of a batch, ONNX Runtime": lambda: cpu_seconds(lambda: score(rows_of_batch)) / BATCH,
    }


if __name__ == "__main__":
    main()
