"""Train FmFM on rows with multi-valued fields; compare with torch's EmbeddingBag and with single-valued fields.

    python benchmarks/multivalued_training.py [--threads 2] [--rows 200000] [--batches 20] [--rounds 5]

30 single-valued fields and 3 multi-valued ones with 1 to 19 weighted values, 10 on average; K = 16, batches of 4096
rows, Adagrad for the tables and Adam for the field matrices. A row has 60 lookups, and its embeddings have 33 · 16 =
528 numbers. Features have Zipf-distributed frequencies. Every contender takes a few batches in turn; the fastest round
counts.

- torch: one sparse Embedding for the single-valued fields, a sparse EmbeddingBag with per_sample_weights for each
  multi-valued one, and the same block form 1/2 vᵀ S v with autograd. Its ids are prepared in advance.
- 60 lookups, same products: 60 single-valued fields with as many features in total. 6 of them have dimension 16 and 54
  have 8, so the embeddings also have 528 numbers, and the matrix products are as large as with the lists.
- 60 lookups, same dimension: the same fields with K = 16, so the embeddings have 960 numbers.
- tables: loading, gathering and updating without the products, with K = 16 in all fields.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fm2._native import update
from fm2.artifacts.settings import Settings
from fm2.data.rows import EncodedRows, Lists
from fm2.models.rows import TensorRows, to_tensors
from fm2.training.construction import make_backend, make_model
from fm2.training.scorer import torch_threads
from fm2.training.tables import EmbeddingTable, adagrad, load_batch, minibatch
from timing import in_turn, seconds

BATCH_ROWS, DIM, RATE = 4096, 16, 0.05
SINGLE, MULTI, LONGEST = 30, 3, 19
SIZES = [int(size) for size in np.geomspace(20, 100_000, SINGLE)] + [100_000] * MULTI
SPREAD_SIZES = SIZES[:SINGLE] + [10_000 * MULTI // 3] * (10 * MULTI)
SPREAD_DIMS = [16] * 6 + [8] * 54
Step = Callable[[int], None]


def draw(size: int, count: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draw ids with frequencies 1 / rank^1.05; ranks are in random order."""
    share = np.cumsum(np.arange(1, size + 1) ** -1.05)
    ranks = np.searchsorted(share, rng.random(count) * share[-1])
    ids: NDArray[np.int32] = rng.permutation(size)[np.minimum(ranks, size - 1)].astype(np.int32)
    return ids


def make_rows(sizes: Sequence[int], list_fields: Sequence[int], rows: int, seed: int = 0) -> EncodedRows:
    """Return random rows; the ``list_fields`` have lists of 1 to 19 values with weights that sum to 1."""
    rng = np.random.default_rng(seed)
    columns, lists = [], {}
    for field, size in enumerate(sizes):
        if field not in list_fields:
            columns.append(draw(size, rows, rng))
            continue
        lengths = rng.integers(1, LONGEST + 1, rows)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        weights = rng.random(offsets[-1]).astype(np.float32) + np.float32(0.1)
        weights /= np.repeat(np.add.reduceat(weights, offsets[:-1]), lengths)
        lists[field] = Lists(offsets, draw(size, int(offsets[-1]), rng), weights)
        columns.append(np.arange(rows, dtype=np.int32))
    return EncodedRows(np.stack(columns, axis=1), lists)


class Batches:
    """Batches of shuffled rows with random labels."""

    def __init__(self, rows: EncodedRows) -> None:
        rng = np.random.default_rng(1)
        self.rows, self.order = rows, rng.permutation(len(rows))
        self.labels = (rng.random(len(rows)) < 0.25).astype(np.float32)

    def batch(self, number: int) -> NDArray[np.int64]:
        """Return the numbers of a batch's rows."""
        begin = number * BATCH_ROWS % (len(self.order) - BATCH_ROWS)
        return self.order[begin : begin + BATCH_ROWS]


def fm2_step(sizes: Sequence[int], batches: Batches, dims: int | Sequence[int], threads: int) -> Step:
    """Return a training step of fm2's FmFM."""
    changes: dict[str, Any] = dict.fromkeys(("l2", "l2_power", "ema_decay", "field_dropout"), 0.0)
    changes |= {"dim": dims if isinstance(dims, int) else tuple(dims), "linear": "fields", "threads": threads}
    settings = Settings.of("fmfm", optimizer="adagrad", learning_rate=RATE, **changes)
    backend = make_backend(make_model(settings, sizes), settings, np.ones(sum(sizes), np.int64))

    def step(number: int) -> None:
        order = batches.batch(number)
        with torch_threads(1):
            backend.step(batches.rows, order, batches.labels[order], None, 1.0)

    return step


def table_step(sizes: Sequence[int], batches: Batches, threads: int) -> Step:
    """Return the loading, gathering and updating of a step, without matrix products."""
    table, batch = EmbeddingTable(sizes, DIM, adagrad(RATE), weights=0.01), minibatch(sizes)
    out = np.empty((BATCH_ROWS, table.width), np.float32)
    gradient = np.random.default_rng(0).standard_normal(out.shape, np.float32) * np.float32(0.001)

    def step(number: int) -> None:
        load_batch(batch, batches.rows, batches.batch(number), threads)
        table.gather(batch, out, threads=threads)
        update(batch, [table.update_by_rows(gradient)], number, threads)

    return step


class TorchModel(nn.Module):
    """FmFM in block form, with an Embedding for all single-valued fields and an EmbeddingBag per multi-valued one."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        width = len(SIZES) * DIM
        self.single = nn.Embedding(sum(SIZES[:SINGLE]), DIM, sparse=True)
        self.bags = nn.ModuleList(nn.EmbeddingBag(size, DIM, mode="sum", sparse=True) for size in SIZES[SINGLE:])
        for parameter in self.parameters():
            nn.init.normal_(parameter, 0, 0.01)
        self.upper = nn.Parameter(torch.randn(width, width) / 100)
        self.bias = nn.Parameter(torch.zeros(()))
        block = torch.arange(width) // DIM
        self.register_buffer("mask", (block[:, None] < block).float())

    def forward(self, ids: Tensor, bags: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
        """Return the logits; a bag has ids, offsets and weights."""
        pooled = [table(i, o, per_sample_weights=w) for table, (i, o, w) in zip(self.bags, bags, strict=True)]
        v = torch.cat([self.single(ids).flatten(1), *pooled], 1)
        logits: Tensor = ((v @ (self.upper * self.mask)) * v).sum(1) + self.bias
        return logits


def torch_step(batches: Batches, threads: int, prepared: int) -> Step:
    """Return a training step of torch's FmFM on batches whose tensors are prepared in advance."""
    torch.sparse.check_sparse_tensor_invariants.disable()  # type: ignore[no-untyped-call]
    model = TorchModel()
    matrices = [model.upper, model.bias]
    tables = [parameter for name, parameter in model.named_parameters() if name.endswith("weight")]
    sparse, dense = torch.optim.Adagrad(tables, lr=RATE), torch.optim.Adam(matrices)
    firsts = torch.from_numpy(np.cumsum([0, *SIZES[: SINGLE - 1]]))
    inputs = []
    for number in range(prepared):
        order = batches.batch(number)
        rows = to_tensors(batches.rows[order])
        assert isinstance(rows, TensorRows)
        bags = []
        for lists in rows.lists.values():
            lengths = torch.bincount(lists.row, minlength=len(order))
            bags.append((lists.id.long(), lengths.cumsum(0) - lengths, lists.weight))
        inputs.append((rows.ids[:, :SINGLE] + firsts, bags, torch.from_numpy(batches.labels[order])))

    def step(number: int) -> None:
        ids, bags, labels = inputs[number % prepared]
        with torch_threads(threads):
            loss = nn.functional.binary_cross_entropy_with_logits(model(ids, bags), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            for optimizer in (sparse, dense):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

    return step


def contenders(rows: int, threads: int, prepared: int) -> dict[str, Step]:
    """Return a step of every contender by name."""
    lists = Batches(make_rows(SIZES, range(SINGLE, SINGLE + MULTI), rows))
    single = Batches(make_rows(SPREAD_SIZES, [], rows))
    return {
        "fm2, 3 multi-valued fields": fm2_step(SIZES, lists, DIM, threads),
        "torch EmbeddingBag": torch_step(lists, threads, prepared),
        "fm2, 60 lookups, same products": fm2_step(SPREAD_SIZES, single, SPREAD_DIMS, threads),
        "fm2, 60 lookups, same dimension": fm2_step(SPREAD_SIZES, single, DIM, threads),
        "tables, 3 multi-valued fields": table_step(SIZES, lists, threads),
        "tables, 60 lookups": table_step(SPREAD_SIZES, single, threads),
    }


def measure_training(rows: int, threads: int, batches: int, rounds: int) -> dict[str, float]:
    """Return the rows per second of every contender."""
    steps = contenders(rows, threads, batches)
    numbers = itertools.count(1)

    def timed(step: Step) -> Callable[[], float]:
        return lambda: seconds(lambda: step(next(numbers)), batches)

    times = in_turn({name: timed(step) for name, step in steps.items()}, rounds + 1)
    return {name: BATCH_ROWS / min(values[1:]) for name, values in times.items()}


def print_training(speeds: dict[str, float]) -> None:
    """Print the speeds and their ratios to that of fm2 with multi-valued fields."""
    ours, tables = speeds["fm2, 3 multi-valued fields"], speeds["tables, 3 multi-valued fields"]
    print(f"{'training':<34} {'rows/s':>9}  multi-valued fields are")
    for name, speed in speeds.items():
        base = tables if name.startswith("tables") else ours
        print(f"{name:<34} {speed:9,.0f}  {base / speed:.2f}×")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--batches", type=int, default=20, help="batches per round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    print_training(measure_training(options.rows, options.threads, options.batches, options.rounds))


if __name__ == "__main__":
    main()
