"""Training steps in fresh processes: one process, or several workers on one machine or in network namespaces."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from namespaces import Machine

FIELDS, SEED = 39, 0
SMALL_FIELDS = [3, 20, 100, 500, 1_500, 5_000]
LARGE_FIELDS = [10_000, 40_000, 150_000, 300_000]
WARM_UP = 5  # steps
SCRIPT = Path(__file__)


@dataclass(frozen=True)
class Task:
    """Some steps of a model in a number of workers with a number of threads each."""

    settings: dict[str, Any]
    batch: int
    steps: int
    threads: int
    workers: int = 0  # 0: one process, without communication
    local: bool = True  # whether workers share memory, and have cores of their own, as with `fm2 train --workers`
    latency: float = 0.0  # seconds that workers wait for every message, where the kernel cannot delay packets


def field_sizes() -> list[int]:
    """Return the sizes of 39 fields, most of them small."""
    return [*(SMALL_FIELDS * 6)[: FIELDS - len(LARGE_FIELDS)], *LARGE_FIELDS]


def draw_rows(rows: int, seed: int = SEED) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Draw ids whose frequencies fall with their rank."""
    random = np.random.default_rng(seed)
    columns = [np.minimum(size ** random.random(rows), size - 1) for size in field_sizes()]
    return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.int32))


def run_task(task: Task) -> dict[str, float]:
    """Take the steps in this process, as a worker if there are several; return speed, processor time and bytes."""
    from fm2.artifacts.settings import Settings
    from fm2.data.rows import EncodedRows
    from fm2.training.construction import count_torch_threads, make_backend, make_model
    from fm2.training.scorer import torch_threads

    rows = EncodedRows(draw_rows(task.batch * (task.steps + WARM_UP)))
    settings = Settings.of(**task.settings, batch_size=task.batch, threads=task.threads)
    sizes = field_sizes()
    if not task.workers:
        backend = make_backend(make_model(settings, sizes), settings, np.ones(sum(sizes), np.int64))
        with torch_threads(count_torch_threads(backend.model, settings)):
            return take_steps(backend, rows, task)

    from fm2.distributed.construction import shard_backend
    from fm2.distributed.launch import use_own_cores
    from fm2.distributed.workers import joined

    with joined(300, shares_memory=task.local) as workers:
        if task.local:
            use_own_cores(workers.index, workers.count, task.threads)
        delay_messages(workers, task.latency)
        counts = [np.ones(len(range(workers.index, size, workers.count)), np.int64) for size in sizes]
        squares = [own.astype(np.float64) for own in counts]
        with shard_backend(settings, sizes, counts, squares, workers) as sharded:
            with torch_threads(count_torch_threads(sharded.model, settings)):
                measured = take_steps(sharded, rows, task)
            dense = 4 * sum(parameter.numel() for parameter in sharded.model.dense_parameters())
            sent = workers.bytes_sent / (task.steps + WARM_UP) / task.batch * workers.count
        summed = 2 * dense * (workers.count - 1) / task.batch
        return {**measured, "bytes_per_row": sent - summed, "dense_bytes_per_row": summed, "dense_bytes": dense}


def delay_messages(workers: Any, seconds: float) -> None:
    """Let a worker wait after every exchange, and for the rounds of a sum, as if messages took so many seconds."""
    if not seconds:
        return
    start_sum, wait = workers.start_sum, workers.wait
    rounds = 2 * math.ceil(math.log2(workers.count))
    sums: list[Any] = []

    def noted_sum(values: Any) -> Any:
        sums.append(start_sum(values))
        return sums[-1]

    def delayed_wait(work: Any) -> None:
        wait(work)
        is_sum = bool(sums) and work is sums[-1]
        time.sleep(seconds * (rounds if is_sum else 1))

    workers.start_sum, workers.wait = noted_sum, delayed_wait


def take_steps(backend: Any, rows: Any, task: Task) -> dict[str, float]:
    """Take steps with shuffled batches, as training does; return the rows per second of those after the first ones, the
    processor time per row of this process, and the loss of the last one."""
    from fm2.training.shuffling import shuffled, with_next

    labels = (np.random.default_rng(1).random(len(rows.ids)) < 0.25).astype(np.float32)
    started = used = loss = 0.0
    for step, (order, following) in enumerate(with_next(shuffled(len(rows.ids), [SEED], task.batch))):
        if step == WARM_UP:
            started, used = time.perf_counter(), time.process_time()
        backend.announce(rows, following)
        loss = backend.step(rows, order, labels[order], None, 1.0)
    count = task.batch * task.steps
    speed = count / (time.perf_counter() - started)
    return {"rows_per_second": speed, "microseconds": (time.process_time() - used) / count * 1e6, "loss": loss}


def measure(task: Task, machines: Sequence[Machine] = ()) -> dict[str, float]:
    """Run a task in fresh processes; return what the first one reports, and the processor time of all.

    With ``machines``, each worker runs in one of these namespaces.
    """
    command = [sys.executable, str(SCRIPT), json.dumps(asdict(task))]
    address = machines[0].address if machines else "127.0.0.1"
    port = str(20_000 + os.getpid() % 10_000)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(max(task.workers, 1)):
            environment = {"MASTER_ADDR": address, "MASTER_PORT": port, "WORLD_SIZE": str(task.workers)}
            environment |= {"RANK": str(rank), "OMP_NUM_THREADS": str(task.threads)}
            inside = command
            if machines:
                inside = machines[rank].command(command)
                environment |= machines[rank].environment()
            processes.append(subprocess.Popen(inside, env={**os.environ, **environment}, stdout=subprocess.PIPE))
        outputs = [process.communicate()[0] for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    if any(process.returncode for process in processes):
        sys.exit(f"scaling.py: a worker failed: {task}")
    results: list[dict[str, float]] = [json.loads(output) for output in outputs]
    return {**results[0], "microseconds": sum(result["microseconds"] for result in results)}


if __name__ == "__main__":
    print(json.dumps(run_task(Task(**json.loads(sys.argv[1])))))
