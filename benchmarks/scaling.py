"""Compare the training speed of two workers with one thread each with one process with two threads.

    python benchmarks/scaling.py [--quick] [--workers N]

Both train on the same generated rows with the same global batches, in fresh processes and in turn; the median of the
rounds counts. The processor time of all threads and workers is less noisy than the speed on a busy machine. Values are
distributed like 1 / rank in 39 fields with sizes like those of Criteo's. A second table has the bytes that workers send
per row, by batch size, and what they would send without removing duplicates.

Takes 5 minutes on 2 cores. Workers communicate over loopback, so the network has no latency, but its work competes with
the computation for the same cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

FIELDS, SEED = 39, 0
SMALL_FIELDS = [3, 20, 100, 500, 1_500, 5_000]
LARGE_FIELDS = [10_000, 40_000, 150_000, 300_000]
MODELS: dict[str, dict[str, Any]] = {
    "FmFM K=16": {"model": "fmfm", "dim": 16},
    "DeepFM": {"model": "deepfm", "dim": 16},
    "FM K=16": {"model": "fm", "dim": 16},
}
TARGETS = {"FmFM K=16": 0.8, "DeepFM": 0.8, "FM K=16": 0.6}


@dataclass(frozen=True)
class Task:
    """Some steps of a model in a number of workers with a number of threads each."""

    settings: dict[str, Any]
    batch: int
    steps: int
    threads: int
    workers: int = 0  # 0: one process, without communication


def field_sizes() -> list[int]:
    """Return the sizes of 39 fields, most of them small."""
    return [*(SMALL_FIELDS * 6)[: FIELDS - len(LARGE_FIELDS)], *LARGE_FIELDS]


def draw_rows(rows: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Draw ids whose frequencies fall with their rank."""
    random = np.random.default_rng(SEED)
    columns = [np.minimum(size ** random.random(rows), size - 1) for size in field_sizes()]
    return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.int32))


def run_task(task: Task) -> dict[str, float]:
    """Take the steps in this process, as a worker if there are several, and return rows per second and bytes."""
    from fm2.artifacts.settings import Settings
    from fm2.data.rows import EncodedRows
    from fm2.training.construction import count_torch_threads, make_backend, make_model
    from fm2.training.scorer import torch_threads

    rows = EncodedRows(draw_rows(task.batch * (task.steps + 5)))
    settings = Settings.of(**task.settings, batch_size=task.batch, threads=task.threads)
    sizes = field_sizes()
    if not task.workers:
        backend = make_backend(make_model(settings, sizes), settings, np.ones(sum(sizes), np.int64))
        with torch_threads(count_torch_threads(backend.model, settings)):
            return take_steps(backend, rows, task)

    from fm2.distributed.construction import shard_backend
    from fm2.distributed.workers import joined

    with joined(120) as workers:
        counts = [np.ones(len(range(workers.index, size, workers.count)), np.int64) for size in sizes]
        squares = [own.astype(np.float64) for own in counts]
        with shard_backend(settings, sizes, counts, squares, workers) as sharded:
            with torch_threads(count_torch_threads(sharded.model, settings)):
                measured = take_steps(sharded, rows, task)
            dense = 4 * sum(parameter.numel() for parameter in sharded.model.dense_parameters())
            sent = workers.bytes_sent / (task.steps + 5) / task.batch * workers.count
        summed = 2 * dense * (workers.count - 1) / task.batch
        return {**measured, "bytes_per_row": sent - summed, "dense_bytes_per_row": summed}


def take_steps(backend: Any, rows: Any, task: Task) -> dict[str, float]:
    """Return the rows per second of the steps after the first five, and the processor time per row of this process."""
    labels = (np.random.default_rng(1).random(task.batch) < 0.25).astype(np.float32)
    orders = np.arange(len(rows.ids)).reshape(-1, task.batch)
    started = used = 0.0
    for step, order in enumerate(orders):
        if step == 5:
            started, used = time.perf_counter(), time.process_time()
        backend.announce(rows, orders[step + 1] if step + 1 < len(orders) else None)
        backend.step(rows, order, labels, None, 1.0)
    count = task.batch * task.steps
    speed = count / (time.perf_counter() - started)
    return {"rows_per_second": speed, "microseconds": (time.process_time() - used) / count * 1e6}


def measure(task: Task) -> dict[str, float]:
    """Run a task in fresh processes; return what the first one reports, and the processor time of all."""
    command = [sys.executable, __file__, "--task", json.dumps(asdict(task))]
    port = str(20_000 + os.getpid() % 20_000)
    processes = []
    for rank in range(max(task.workers, 1)):
        environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(task.workers)}
        environment |= {"RANK": str(rank), "OMP_NUM_THREADS": str(task.threads)}
        processes.append(subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE))
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit("a process failed")
    results: list[dict[str, float]] = [json.loads(output) for output in outputs]
    return {**results[0], "microseconds": sum(result["microseconds"] for result in results)}


def compare_speed(batch: int, steps: int, rounds: int, workers: int) -> None:
    """Print the speeds of both, and their ratio."""
    kinds = f"1 process x {workers} threads, then {workers} workers x 1 thread"
    print(f"{kinds}; batches of {batch:,} rows, {steps} steps, median of {rounds}:")
    for title, settings in MODELS.items():
        single, several = Task(settings, batch, steps, workers), Task(settings, batch, steps, 1, workers)
        results = [(measure(single), measure(several)) for _ in range(rounds)]
        for name, unit in (("rows_per_second", "rows/s"), ("microseconds", "µs of processor time per row")):
            one, many = (statistics.median(pair[side][name] for pair in results) for side in (0, 1))
            ratio = many / one if name == "rows_per_second" else one / many
            target = f" (target {TARGETS[title]})" if name == "rows_per_second" else ""
            print(f"  {title:<10} {one:>10,.1f} {many:>10,.1f} {unit}, ratio {ratio:.2f}{target}", flush=True)


def compare_bytes(batches: list[int], workers: int) -> None:
    """Print the bytes that all workers send per row, with and without removing duplicates."""
    print("bytes per row that FM K=16 sends between workers, by batch size:")
    width = FIELDS * 17  # an embedding of 16 numbers and a linear weight per field
    plain = (width * 4 * 2 + FIELDS * 4) * (workers - 1) / workers
    for batch in batches:
        sent = measure(Task(MODELS["FM K=16"], batch, 4, 1, workers))["bytes_per_row"]
        print(f"  {batch:>6,} rows: {sent:>7,.0f}   with every lookup sent: {plain:>7,.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        print(json.dumps(run_task(Task(**json.loads(options.task)))))
        return
    compare_speed(4096, 8 if options.quick else 60, 1 if options.quick else 5, options.workers)
    compare_bytes([512, 4096] if options.quick else [256, 1024, 4096, 16384], options.workers)


if __name__ == "__main__":
    main()
