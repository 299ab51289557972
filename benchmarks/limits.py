"""Relate the time of a prediction to its instructions and cache misses, for every plan of a compiled model.

    make capi && python benchmarks/limits.py [--rows 4000] [--rounds 5]

Models and ids are those of score.py. valgrind's cachegrind counts instructions and the cache lines from beyond caches
of 32 KB, 512 KB and 32 MB, without prefetching. Times are medians over single rows: the same row again ("cached"), rows
from a Zipf distribution, and rows from a uniform distribution, most of whose lines are in main memory. One thread.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial
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
from timing import in_turn

CAPI = Path(__file__).parent.parent / "build" / "capi"
DRIVER = Path(__file__).with_suffix(".c")
L1, L2, L3 = "32768,8,64", "524288,8,64", "33554432,16,64"
WARM_UP_ROWS = 2000  # fill the simulated caches


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=4000, help="rows to count")
    parser.add_argument("--rounds", type=int, default=5)
    settings = parser.parse_args()
    if not shutil.which("valgrind") or not (CAPI / "lib").exists():
        sys.exit("limits.py requires valgrind and the C interface (make capi)")
    with tempfile.TemporaryDirectory() as folder:
        measure(settings, Path(folder))


def measure(settings: argparse.Namespace, folder: Path) -> None:
    """Count and time every plan; print a line for each."""
    equal, specific = make_weights([16] * len(CRITEO_DIMS)), make_weights(CRITEO_DIMS)
    models = make_models(equal, specific, folder)
    ids = draw_rows(equal, WARM_UP_ROWS + settings.rows).ids
    ids.tofile(folder / "ids")
    program = build_driver(folder)
    counts = {name: count(program, model.path, folder / "ids", settings.rows) for name, model in models.items()}
    inputs = {"cached": same_row(ids), "Zipf": ids, "uniform": uniform_rows(equal, len(ids))}
    measurements = {
        (name, kind): partial(nanoseconds, models[name], inputs[kind]) for name in models for kind in inputs
    }
    times = {key: min(rounds) for key, rounds in in_turn(measurements, settings.rounds).items()}
    flops = [complexity.fmfm([16] * 39, cached) for cached in (False, True)]
    flops += [complexity.fmfm(CRITEO_DIMS, True, order=order) for order in field_orders(specific).values()]
    flops.append(complexity.spectral(39, 16))
    titles = ("FLOPs", "instr.", "> 32 KB", "> 512 KB", "> 32 MB", "cached ns", "Zipf ns", "unif. ns", "instr./ns")
    print(f"{'a row':<32}" + "".join(f"{title:>10}" for title in titles[:-1]) + f"{titles[-1]:>12}")
    for (name, (instructions, *misses)), operations in zip(counts.items(), flops, strict=True):
        lines = "".join(f"{value:>10,.1f}" for value in misses)
        taken = "".join(f"{times[name, kind]:>10,.0f}" for kind in inputs)
        per_nanosecond = instructions / times[name, "cached"]
        print(f"{name:<32}{operations:>10,}{instructions:>10,.0f}{lines}{taken}{per_nanosecond:>12.2f}")


def make_models(equal: Weights, specific: Weights, folder: Path) -> dict[str, Scorer]:
    """Write and load a model for every plan."""

    def cached(weights: Weights, order: str, everything: bool = True) -> Plan:
        fields = field_orders(weights)[order]
        many = [weights.sizes[field] if everything else 0 for field in fields]
        return matrix_plan(weights, fields, many, "f32", order)

    contents = {
        "K=16 direct": (equal, cached(equal, "by size", everything=False)),
        "K=16 cached by size": (equal, cached(equal, "by size")),
        "95% dims cached by dimension": (specific, cached(specific, "by dimension")),
        "95% dims cached by size": (specific, cached(specific, "by size")),
        "spectral, rank 16": (equal, spectral_plan(equal, 16)),
    }
    return {
        name: Scorer(write(weights, [plan], folder / f"{number}.fm2").path, threads=1)
        for number, (name, (weights, plan)) in enumerate(contents.items())
    }


def build_driver(folder: Path) -> Path:
    program, library = folder / "limits", CAPI / "lib"
    options = ["-O2", f"-I{CAPI / 'include'}", f"-L{library}", "-lfm2", f"-Wl,-rpath,{library}"]
    subprocess.run(["cc", str(DRIVER), *options, "-o", str(program)], check=True)
    return program


def count(program: Path, model: Path, ids: Path, rows: int) -> tuple[float, ...]:
    """Return the instructions of a row, and its cache lines from beyond each cache: the cost of additional rows."""

    def run(rows: int, last: str) -> np.ndarray:
        caches = [f"--I1={L1}", f"--D1={L1}", f"--LL={last}", "--cachegrind-out-file=/dev/null"]
        tool = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", *caches]
        command = [*tool, str(program), str(model), str(ids), str(rows)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stderr
        matches = (re.search(rf"{name}:\s+([\d,]+)", output) for name in ("I *refs", "D1 *misses", "LLd misses"))
        return np.array([int(match[1].replace(",", "")) if match else np.nan for match in matches])

    with_l2, with_l3 = (run(WARM_UP_ROWS + rows, last) - run(WARM_UP_ROWS, last) for last in (L2, L3))
    return (*(with_l2 / rows).tolist(), float(with_l3[2] / rows))


def nanoseconds(model: Scorer, ids: Ids) -> float:
    return float(np.median(model.measure_latency(ids))) * 1e9


def same_row(ids: Ids) -> Ids:
    return np.ascontiguousarray(np.broadcast_to(ids[0], ids.shape))


def uniform_rows(weights: Weights, rows: int) -> Ids:
    random = np.random.default_rng(1)
    return random.integers(0, weights.sizes, (rows, len(weights.sizes)), dtype=np.int32)


if __name__ == "__main__":
    main()
