"""What limits each plan: the instructions and cache lines of a prediction beside the time that it takes.

    make capi && python benchmarks/limits.py [--rows 4000] [--rounds 5]

The models and ids are those of score.py. Instructions and misses are counted by valgrind's cachegrind, which simulates
caches of 32 KB and 512 KB, and then 32 MB, without any fetching ahead: what it calls a miss is a cache line that has to
come from further away. Times are medians of single rows: of one row again and again, whose lines are all near; of rows
drawn from Zipf's law; and of rows drawn evenly, whose lines are mostly in memory. One thread.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from fm2 import Scorer
from fm2.compression.weights import Weights
from fm2.engine.compile import draw_rows, spectral_plan, write
from fm2.engine.matrix_plans import field_orders, matrix_plan
from fm2.engine.plans import Plan
from fm2.models import complexity
from fm2.models.paper import CRITEO_DIMS
from score import Ids, make_weights

CAPI = Path(__file__).parent.parent / "build" / "capi"
DRIVER = Path(__file__).with_suffix(".c")
NEAR, MIDDLE, FAR = "32768,8,64", "524288,8,64", "33554432,16,64"
WARM_ROWS = 2000  # that fill the simulated caches


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=4000, help="that are counted")
    parser.add_argument("--rounds", type=int, default=5)
    settings = parser.parse_args()
    if not shutil.which("valgrind") or not (CAPI / "lib").exists():
        sys.exit("this needs valgrind (a package of that name) and the C interface (make capi)")
    with tempfile.TemporaryDirectory() as folder:
        measure(settings, Path(folder))


def measure(settings: argparse.Namespace, folder: Path) -> None:
    """Count and time every plan; print a line for each."""
    equal, specific = make_weights([16] * len(CRITEO_DIMS)), make_weights(CRITEO_DIMS)
    models = make_models(equal, specific, folder)
    ids = draw_rows(equal, WARM_ROWS + settings.rows)
    ids.tofile(folder / "ids")
    program = build_driver(folder)
    counts = {name: count(program, model.path, folder / "ids", settings.rows) for name, model in models.items()}
    times = {name: [float("inf")] * 3 for name in models}
    for _ in range(settings.rounds):
        for name, model in models.items():
            found = [nanoseconds(model, rows) for rows in (same_row(ids), ids, even_rows(equal, len(ids)))]
            times[name] = [min(pair) for pair in zip(times[name], found, strict=True)]
    flops = [
        *[complexity.fmfm([16] * 39, cached) for cached in (False, True)],
        *[complexity.fmfm(CRITEO_DIMS, True)] * 2,
    ]
    flops.append(complexity.spectral(39, 16))
    titles = ("FLOPs", "instr.", "> 32 KB", "> 512 KB", "> 32 MB", "near ns", "Zipf ns", "even ns", "instr./ns near")
    print(f"{'a row':<32}" + "".join(f"{title:>10}" for title in titles[:-1]) + f"{titles[-1]:>16}")
    for (name, (instructions, *misses)), operations in zip(counts.items(), flops, strict=True):
        lines = "".join(f"{value:>10,.1f}" for value in misses)
        taken = "".join(f"{value:>10,.0f}" for value in times[name])
        print(f"{name:<32}{operations:>10,}{instructions:>10,.0f}{lines}{taken}{instructions / times[name][0]:>16.2f}")


def make_models(equal: Weights, specific: Weights, folder: Path) -> dict[str, Scorer]:
    """Write and open a model for every plan."""

    def cached(weights: Weights, order: str, everything: bool = True) -> Plan:
        fields = field_orders(weights)[order]
        many = [weights.sizes[field] if everything else 0 for field in fields]
        return matrix_plan(weights, fields, many, "f32", order)

    made = {
        "K=16 direct": (equal, cached(equal, "by size", everything=False)),
        "K=16 cached by size": (equal, cached(equal, "by size")),
        "95 % dims cached by dimension": (specific, cached(specific, "by dimension")),
        "95 % dims cached by size": (specific, cached(specific, "by size")),
        "spectral, rank 16": (equal, spectral_plan(equal, 16)),
    }
    return {
        name: Scorer(write(weights, plan, folder / f"{place}.fm2").path, threads=1)
        for place, (name, (weights, plan)) in enumerate(made.items())
    }


def build_driver(folder: Path) -> Path:
    program, library = folder / "limits", CAPI / "lib"
    options = ["-O2", f"-I{CAPI / 'include'}", f"-L{library}", "-lfm2", f"-Wl,-rpath,{library}"]
    subprocess.run(["cc", str(DRIVER), *options, "-o", str(program)], check=True)
    return program


def count(program: Path, model: Path, ids: Path, rows: int) -> tuple[float, ...]:
    """Give instructions of a row, and its lines from beyond each cache: what so many rows more take more."""

    def run(rows: int, last: str) -> np.ndarray:
        caches = [f"--I1={NEAR}", f"--D1={NEAR}", f"--LL={last}", "--cachegrind-out-file=/dev/null"]
        tool = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", *caches]
        told = subprocess.run(
            [*tool, program, model, ids, str(rows)], check=True, capture_output=True, text=True
        ).stderr
        found = (re.search(rf"{name}:\s+([\d,]+)", told) for name in ("I *refs", "D1 *misses", "LLd misses"))
        return np.array([int(part[1].replace(",", "")) if part else np.nan for part in found])

    middle, far = (run(WARM_ROWS + rows, last) - run(WARM_ROWS, last) for last in (MIDDLE, FAR))
    return (*(middle / rows).tolist(), float(far[2] / rows))


def nanoseconds(model: Scorer, ids: Ids) -> float:
    return float(np.median(model.measure_latency(ids))) * 1e9


def same_row(ids: Ids) -> Ids:
    return np.ascontiguousarray(np.broadcast_to(ids[0], ids.shape))


def even_rows(weights: Weights, rows: int) -> Ids:
    random = np.random.default_rng(1)
    return random.integers(0, weights.sizes, (rows, len(weights.sizes)), dtype=np.int32)


if __name__ == "__main__":
    main()
