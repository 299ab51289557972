"""Measure training on several workers: speed, bytes, slow networks, and a model of the cost on up to 64 machines.

    python benchmarks/scaling.py [--parts speed,bytes,network,model] [--quick]

speed    two workers with one thread each against one process with two threads, with the same rows and global batches
bytes    what workers send per row, by batch size, and what they would send without removing duplicates
network  two workers in network namespaces with links of 1 and 10 Gbit/s and a latency of 0.2 ms (requires root)
model    the time and cost of an epoch on 1 to 64 machines, checked against two and four workers on this machine

All runs are in fresh processes and in turn; the median of the rounds counts. The processor time of all threads and
workers is less noisy than the speed on a busy machine. Values are distributed like 1 / rank in 39 fields with sizes
like those of Criteo's. Takes 15 minutes on 2 cores. Workers of the first two parts share memory and have cores of their
own, as those of `fm2 train --workers`. The others communicate as on several machines. Without namespaces, they use
loopback: the network has no latency, but its work competes with the computation for the same cores.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import replace
from typing import Any

from cost_model import Cluster, CostModel, print_plan
from namespaces import Network, check_namespaces, connected, has_netem
from scaling_tasks import FIELDS, Task, measure

MODELS: dict[str, dict[str, Any]] = {
    "FmFM K=16": {"model": "fmfm", "dim": 16},
    "DeepFM": {"model": "deepfm", "dim": 16},
    "FM K=16": {"model": "fm", "dim": 16},
}
TARGETS = {"FmFM K=16": 0.8, "DeepFM": 0.8, "FM K=16": 0.6}
PARTS = ("speed", "bytes", "network", "model")
BATCH = 4096
SAME_LOSS = 1e-5  # the last loss of all runs is the same, apart from the order of sums
LATENCY = 0.2  # milliseconds, one way
PLAN_ROWS = 10e9
CLUSTERS = (Cluster(cores=4, dollars_per_hour=0.20), Cluster(cores=16, dollars_per_hour=0.80))


def compare_speed(steps: int, rounds: int, workers: int) -> None:
    """Print the speeds of both, and their ratio."""
    kinds = f"1 process x {workers} threads, then {workers} workers x 1 thread"
    print(f"{kinds}; batches of {BATCH:,} rows, {steps} steps, median of {rounds}:")
    for title, settings in MODELS.items():
        single, several = Task(settings, BATCH, steps, workers), Task(settings, BATCH, steps, 1, workers)
        results = [(measure(single), measure(several)) for _ in range(rounds)]
        losses = [run["loss"] for pair in results for run in pair]
        if max(losses) - min(losses) > SAME_LOSS:
            sys.exit(f"scaling.py: {title}: the losses differ, so the batches are not the same: {losses}")
        for name, unit in (("rows_per_second", "rows/s"), ("microseconds", "µs of processor time per row")):
            one, many = (statistics.median(pair[side][name] for pair in results) for side in (0, 1))
            ratio = many / one if name == "rows_per_second" else one / many
            print(f"  {title:<10} {one:>10,.1f} {many:>10,.1f} {unit}, ratio {ratio:.2f}", end="")
            print(f" (target {TARGETS[title]})", flush=True)


def compare_bytes(batches: list[int], workers: int) -> None:
    """Print the bytes that all workers send per row, with and without removing duplicates."""
    print(f"bytes per row that FM K=16 sends between {workers} workers, by batch size:")
    width = FIELDS * 17  # an embedding of 16 numbers and a linear weight per field
    plain = (width * 4 * 2 + FIELDS * 4) * (workers - 1) / workers
    for batch in batches:
        sent = measure(Task(MODELS["FM K=16"], batch, 4, 1, workers))["bytes_per_row"]
        print(f"  {batch:>6,} rows: {sent:>7,.0f}   with every lookup sent: {plain:>7,.0f}", flush=True)


def compare_networks(steps: int, rounds: int, workers: int) -> None:
    """Print the speed between namespaces, compared with that over loopback."""
    check_namespaces()
    delayed = has_netem()
    if not delayed:
        print(f"this kernel has no netem: links have a speed, and workers wait {LATENCY:g} ms after every message")
    networks = [Network(gigabits, LATENCY if delayed else 0.0) for gigabits in (1, 10)]
    kinds = ", then ".join(f"{network.gigabits:g} Gbit/s and {LATENCY:g} ms" for network in networks)
    print(f"{workers} workers x 1 thread over loopback, then {kinds};")
    print(f"batches of {BATCH:,} rows, {steps} steps, rows/s, median of {rounds}:")
    for title, settings in MODELS.items():
        task = Task(settings, BATCH, steps, 1, workers, local=False)
        speeds: list[list[float]] = []
        for _ in range(rounds):
            speeds.append([measure(task)["rows_per_second"]])
            for network in networks:
                slow = replace(task, latency=0.0 if delayed else LATENCY / 1e3)
                with connected(workers, network) as machines:
                    speeds[-1].append(measure(slow, machines)["rows_per_second"])
        loopback, *others = (statistics.median(column) for column in zip(*speeds, strict=True))
        ratios = "  ".join(f"{speed:>9,.0f} ({speed / loopback:.2f})" for speed in others)
        print(f"  {title:<10} {loopback:>9,.0f}  {ratios}", flush=True)


def check_model(steps: int, rounds: int) -> None:
    """Fit the cost model to three measurements; compare it with all; print the time and cost on more machines."""
    for title in ("FmFM K=16", "DeepFM"):
        settings = MODELS[title]
        tasks = {(1, BATCH): Task(settings, BATCH, steps, 1)}
        for workers, batch in ((2, BATCH // 4), (2, BATCH), (2, 4 * BATCH), (4, BATCH), (4, 4 * BATCH)):
            tasks[workers, batch] = Task(settings, batch, max(steps * BATCH // batch, 8), 1, workers, local=False)
        runs: dict[tuple[int, int], list[dict[str, float]]] = {key: [] for key in tasks}
        for _ in range(rounds):
            for key, task in tasks.items():
                runs[key].append(measure(task))
        used = {key: statistics.median(run["microseconds"] for run in results) for key, results in runs.items()}
        fitted = [(2, BATCH // 4), (2, BATCH), (4, BATCH)]
        single = used[1, BATCH]
        dense = runs[2, BATCH][0]["dense_bytes"]
        model = CostModel.fit(single, {key: used[key] for key in fitted}, dense)
        print(f"{title}: µs of processor time and bytes per row, measured and by the model:")
        for workers, batch in (key for key in tasks if key[0] > 1):
            expected = model.microseconds(workers, batch)
            sent, computed = runs[workers, batch][0]["bytes_per_row"], model.bytes_per_row(workers, batch)
            note = " (fitted)" if (workers, batch) in fitted else ""
            print(
                f"  {workers} workers, {batch:>6,} rows: {used[workers, batch]:>6.2f} µs, {expected:>6.2f} µs, ", end=""
            )
            print(f"ratio {expected / used[workers, batch]:.2f}{note}; ", end="")
            print(f"{sent:,.0f} bytes, {computed:,.0f} bytes, ratio {computed / sent:.2f}", flush=True)
        for cluster in CLUSTERS:
            print_plan(model, cluster, PLAN_ROWS, 4 * BATCH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    parts = options.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown part '{unknown.pop()}'; choose from {', '.join(PARTS)}")
    steps, rounds = (8, 1) if options.quick else (60, 5)
    rounds = options.rounds or rounds
    if "speed" in parts:
        compare_speed(steps, rounds, options.workers)
    if "bytes" in parts:
        compare_bytes([512, 4096] if options.quick else [256, 1024, 4096, 16384], options.workers)
    if "network" in parts:
        compare_networks(steps, max(rounds // 2, 1), options.workers)
    if "model" in parts:
        check_model(steps, max(rounds // 2, 1))


if __name__ == "__main__":
    main()
