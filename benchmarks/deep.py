"""Compare fm2's deep models with deepctr-torch: training speed and test AUC on the same encoded rows.

    python benchmarks/deep.py [criteo|generated] [--rows 200000] [--seeds 2] [--only speed|quality]

`criteo` reads criteo.tsv.gz from the directory FM2_DATA. `make peers` installs deepctr-torch. Both libraries have
K = 16, the same layers and the same batches.

Speed is rows per second of whole epochs without evaluations, in fresh processes, in turn; the best round counts. The
result is the ratio to deepctr-torch, which trains as in its documentation: Adam, its default L2, verbose off. fm2
trains with its defaults.

Quality is the AUC on test rows of the epoch with the best validation loss, the mean of several seeds. Each library has
its default settings.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fm2
from contenders import Contender, Fm2
from datasets import named_data, working_directory
from deepctr_peer import DeepCtr, import_deepctr
from targets import Target, print_targets
from train import best_of, print_speeds
from trials import Trial, run

DIM, BATCH_ROWS = 16, 1024
TIMED_ROWS, EPOCHS, ROUNDS = 20_480, 2, 2  # the first epoch does not count; deepctr-torch's xDeepFM is slow
SPEEDUP = 2.0  # required
MOST_EPOCHS = 10  # of deepctr-torch, with early stopping


@dataclass(frozen=True)
class Pair:
    """The same network in both libraries: its names, and its options in each."""

    model: str
    peer: str
    sizes: dict[str, Any]
    peer_sizes: dict[str, Any]


# An attention layer of deepctr-torch is as wide as its input: two heads of 8.
PAIRS = (
    Pair("deepfm", "DeepFM", {"hidden": [256, 128]}, {"dnn_hidden_units": (256, 128)}),
    Pair(
        "xdeepfm",
        "xDeepFM",
        {"hidden": [256, 128], "cin": [100, 100], "cin_split": True},
        {"dnn_hidden_units": (256, 128), "cin_layer_size": (100, 100), "cin_split_half": True},
    ),
    Pair(
        "autoint",
        "AutoInt",
        {"attention_layers": 3, "attention_heads": 2, "attention_dim": 8, "wide": True},
        {"dnn_hidden_units": (), "att_layer_num": 3, "att_head_num": 2, "att_res": True},
    ),
)


@dataclass(frozen=True)
class Fm2Network(Fm2):
    """Epochs of an fm2 network with its default settings, except for its sizes."""

    sizes: tuple[tuple[str, Any], ...] = ()

    def settings(self) -> dict[str, Any]:
        return {
            "batch_size": self.batch_rows,
            "epochs": self.epochs,
            "evaluations_per_epoch": 1,
            "patience": self.epochs,
            "threads": self.threads,
            "dim": self.dim,
            **dict(self.sizes),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", nargs="?", choices=("criteo", "generated"), default="criteo")
    parser.add_argument("--rows", type=int, default=200_000, help="of the generated log (default: %(default)s)")
    parser.add_argument("--features", type=int, default=20_000, help="of the generated log (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=("speed", "quality"), help="run only this part")
    parser.add_argument("--directory", type=Path, help="keep the datasets here (default: do not keep them)")
    settings = parser.parse_args()
    import_deepctr()
    with working_directory(settings.directory) as directory:
        data = named_data(settings.data, directory, settings.rows, settings.features)
        dataset = fm2.Dataset.open(data)
        print(f"{settings.data}: {len(dataset.train):,} rows, {sum(dataset.field_sizes):,} features, K = {DIM}")
        if settings.only != "quality":
            compare_speed(data, min(TIMED_ROWS, len(dataset.train)), settings.threads)
        if settings.only != "speed":
            compare_quality(data, len(dataset.train), settings.threads, settings.seeds)


def compare_speed(data: Path, rows: int, threads: int) -> None:
    """Time both libraries in turn on the first rows; print rows per second and ratios."""
    contenders: dict[str, Contender] = {}
    for pair in PAIRS:
        sizes = tuple(pair.sizes.items())
        contenders[f"fm2 {pair.model}"] = Fm2Network(
            data, rows, threads, pair.model, DIM, BATCH_ROWS, EPOCHS, sizes=sizes
        )
        contenders[f"deepctr {pair.peer}"] = peer_network(pair, data, rows, threads, EPOCHS)
    best = best_of(ROUNDS, contenders)
    print_speeds(best)
    targets = []
    for pair in PAIRS:
        ratio = best[f"fm2 {pair.model}"].speed / best[f"deepctr {pair.peer}"].speed
        targets.append(Target(pair.peer, ratio, at_least=SPEEDUP))
    print_targets("speed, fm2 / deepctr-torch", targets)


def compare_quality(data: Path, rows: int, threads: int, seeds: int) -> None:
    """Train both libraries with early stopping and several seeds; print their metrics on test rows."""
    print(f"\n{'test rows, mean of seeds':28}{'AUC':>9}{'log loss':>10}")
    targets = []
    for pair in PAIRS:
        outcomes = [
            run(Trial(data, pair.model, {"dim": DIM, "seed": seed, **pair.sizes}), threads) for seed in range(seeds)
        ]
        contender = peer_network(pair, data, rows, threads, MOST_EPOCHS)
        figures = {
            f"fm2 {pair.model}": [outcome.test for outcome in outcomes],
            f"deepctr {pair.peer}": [contender.best(seed) for seed in range(seeds)],
        }
        auc = {}
        for name, seeds_metrics in figures.items():
            auc[name] = float(np.mean([metrics["auc"] for metrics in seeds_metrics]))
            loss = np.mean([metrics["log_loss"] for metrics in seeds_metrics])
            print(f"{name:28}{auc[name]:>9.5f}{loss:>10.5f}", flush=True)
        gain = 1e3 * (auc[f"fm2 {pair.model}"] - auc[f"deepctr {pair.peer}"])
        targets.append(Target(pair.peer, gain, at_least=0))
    print_targets("AUC gain over deepctr-torch, thousandths", targets)


def peer_network(pair: Pair, data: Path, rows: int, threads: int, epochs: int) -> DeepCtr:
    """Return deepctr-torch's network with the same sizes."""
    return DeepCtr(data, rows, threads, pair.peer, DIM, pair.peer_sizes, BATCH_ROWS, epochs)


if __name__ == "__main__":
    main()
