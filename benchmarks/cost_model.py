"""A model of the time and cost of training on 2 to 64 machines, from measured computation and communication.

Processor time per row is c + e x + (s + t N) / r, with N workers and r rows per worker and step: c is that of one
process, x is what a worker reads, sends and updates per row (bytes of weights, gradients and ids of distinct features),
s is a cost per step, such as the update of the dense parameters, which all workers compute, and t a cost per step and
message. Three measurements determine e, s and t. The number of distinct features is counted in drawn rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from scaling_tasks import draw_rows

WEIGHTS = 17  # floats per feature: an embedding of 16 and a linear weight
EXCHANGED = 2 * 4 * WEIGHTS + 5  # bytes per feature: its weights, its gradient, its id and whether it comes late
AHEAD_ROUNDS = 2  # of messages during the computation: requests, and the rows that are not being updated
LATE_ROUNDS = 2  # before and after it: the rows that the last step updated, and the gradients


@cache
def distinct_features(rows: int, previous: int = 0) -> tuple[float, float]:
    """Return the distinct features of some rows, and the share of them that ``previous`` other rows have as well."""
    ids = draw_rows(rows, seed=1)
    before = draw_rows(previous, seed=2) if previous else None
    total = repeated = 0
    for field in range(ids.shape[1]):
        own = np.unique(ids[:, field])
        total += len(own)
        if before is not None:
            repeated += int(np.isin(own, before[:, field]).sum())
    return float(total), repeated / total


@dataclass(frozen=True)
class CostModel:
    """Microseconds of one core: per row, per exchanged byte, per step, and per step and worker; dense parameters."""

    row: float
    byte: float
    step: float
    message: float
    dense_bytes: float

    @classmethod
    def fit(cls, single: float, several: Mapping[tuple[int, int], float], dense_bytes: float) -> CostModel:
        """Derive the model from the processor time per row: of one process, and by number of workers and batch size."""
        rows = [(workers, batch // workers) for workers, batch in several]
        costs = np.array([[exchanged_per_row(own), 1 / own, workers / own] for workers, own in rows])
        fitted = np.linalg.lstsq(costs, np.array(list(several.values())) - single, rcond=None)[0]
        byte, step, message = np.maximum(fitted, 0).tolist()
        return cls(single, byte, step, message, dense_bytes)

    def microseconds(self, workers: int, batch: int) -> float:
        """Return the processor time per row, in all workers together."""
        own = batch // workers
        return self.row + self.byte * exchanged_per_row(own) + self.step_cost(workers) / own

    def step_cost(self, workers: int) -> float:
        """Return the processor time of a worker per step that does not depend on the rows."""
        return self.step + self.message * workers

    def bytes_per_row(self, workers: int, batch: int) -> float:
        """Return what all workers send each other per row, without the sums of dense gradients."""
        return exchanged_per_row(batch // workers) * (workers - 1) / workers

    def step_seconds(self, workers: int, rows: int, cluster: Cluster) -> float:
        """Return the time of a step with so many rows per worker."""
        features, late = distinct_features(rows, min(rows * workers, 1 << 17))
        compute = rows * self.row / cluster.cores / cluster.efficiency * 1e-6
        own_work = (self.byte * EXCHANGED * features + self.step_cost(workers)) * 1e-6
        others, speed = (workers - 1) / workers, cluster.gigabits * 1e9 / 8
        weights = 4 * WEIGHTS * features * others
        ahead = ((EXCHANGED - 8 * WEIGHTS) * features * others + (1 - late) * weights) / speed
        ahead += AHEAD_ROUNDS * cluster.latency
        summed = 2 * self.dense_bytes * others / speed + 2 * math.ceil(math.log2(workers)) * cluster.latency
        after = (1 + late) * weights / speed + LATE_ROUNDS * cluster.latency
        return max(compute, ahead) + own_work + max(after, summed)


def exchanged_per_row(rows: int) -> float:
    """Return the bytes of the distinct features of a worker's rows, per row."""
    return distinct_features(rows)[0] * EXCHANGED / rows


@dataclass(frozen=True)
class Cluster:
    """Machines and the network between them; ``efficiency`` is that of all cores of one machine, compared with one."""

    cores: int
    dollars_per_hour: float
    gigabits: float = 10.0
    latency: float = 0.0002  # seconds
    efficiency: float = 0.8


def print_plan(model: CostModel, cluster: Cluster, rows: float, rows_per_worker: int) -> None:
    """Print the speed, time and cost of one epoch on 1 to 64 machines."""
    print(f"one epoch of {rows:,.0f} rows, {rows_per_worker:,} rows per machine and step; assumptions:")
    print(f"  machines with {cluster.cores} cores ({cluster.efficiency:.0%} efficient), ", end="")
    print(f"{cluster.gigabits:g} Gbit/s, {cluster.latency * 1e3:g} ms, ${cluster.dollars_per_hour:.2f} per hour each")
    print(
        f"  computation {model.row:.2f} µs per row; on one core, exchange {model.byte * 1e3:.2f} ns per byte and ",
        end="",
    )
    print(f"{model.step:.0f} + {model.message:.0f} N µs per step; {model.dense_bytes / 1e6:.2f} MB of dense gradients")
    print("  ids, and rows that the current step does not change, are sent during the computation")
    alone = cluster.cores * cluster.efficiency / model.row * 1e6
    titles = ("machines", "rows/s", "speedup", "efficiency", "hours", "dollars", "MB/s sent")
    print("".join(f"{title:>12}" for title in titles))
    for workers in (1, 2, 4, 8, 16, 32, 64):
        seconds = rows_per_worker / alone if workers == 1 else model.step_seconds(workers, rows_per_worker, cluster)
        speed = workers * rows_per_worker / seconds
        hours = rows / speed / 3600
        sent = model.bytes_per_row(workers, workers * rows_per_worker) * rows_per_worker / seconds / 1e6
        cost = hours * workers * cluster.dollars_per_hour
        ratio = speed / alone
        cells = (f"{speed:,.0f}", f"{ratio:.1f}", f"{ratio / workers:.0%}", f"{hours:.1f}", f"{cost:,.0f}")
        print("".join(f"{cell:>12}" for cell in (str(workers), *cells, f"{sent:,.0f}")))
