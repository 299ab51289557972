"""Networks of fm2 beside those of deepctr-torch: the same encoded rows and sizes, how fast and how good.

    python benchmarks/deep.py [criteo|generated] [--rows 200000] [--seeds 2] [--only speed|quality]

`criteo` needs the directory with criteo.tsv.gz in FM2_DATA. `make peers` installs deepctr-torch. All have embeddings of
16, the same layers, and the same batches.

Speed is rows per second of whole epochs, each time in a fresh process, in turn, several times; the best time counts,
and evaluations do not. deepctr-torch trains as its documentation shows: Adam, its own L2, verbose off. fm2 trains with
its defaults.

Quality is that of the test rows: the best epoch by validation, each library with its own settings, the mean of seeds.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fm2
from bars import Bar, print_bars
from contenders import Contender, Fm2
from deepctr import DeepCtr, import_deepctr
from generated import working_directory
from quality import generated_data, real_data
from train import best_of, print_speeds
from trials import Trial, run

DIM, BATCH_ROWS = 16, 1024
TIMED_ROWS, EPOCHS, ROUNDS = 20_480, 2, 2  # of which the first epoch does not count; their xDeepFM has its time
FASTER = 2.0  # how many times as fast we have to be
MOST_EPOCHS = 10  # of deepctr-torch, which stops before


@dataclass(frozen=True)
class Pair:
    """The same network in both libraries: its names, and its sizes in the words of each."""

    model: str
    theirs: str
    sizes: dict[str, Any]
    their_sizes: dict[str, Any]


# A layer of deepctr-torch's attention is as wide as its input: two heads of 8.
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
class Ours(Fm2):
    """Epochs of one of fm2's networks with its default settings, but for its sizes."""

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
    parser.add_argument("--only", choices=("speed", "quality"), help="measure this part alone")
    parser.add_argument("--directory", type=Path, help="keep the data sets here (default: nowhere)")
    settings = parser.parse_args()
    import_deepctr()
    with working_directory(settings.directory) as directory:
        if settings.data == "criteo":
            data = real_data(directory)["criteo"]
        else:
            data = generated_data(directory, settings.rows, settings.features)
        dataset = fm2.Dataset.open(data)
        print(f"{settings.data}: {len(dataset.train):,} rows, {sum(dataset.field_sizes):,} features, K = {DIM}")
        if settings.only != "quality":
            compare_speed(data, min(TIMED_ROWS, len(dataset.train)), settings.threads)
        if settings.only != "speed":
            compare_quality(data, len(dataset.train), settings.threads, settings.seeds)


def compare_speed(data: Path, rows: int, threads: int) -> None:
    """Time both in turn on the first rows; print rows per second, and which bars are reached."""
    contenders: dict[str, Contender] = {}
    for pair in PAIRS:
        sizes = tuple(pair.sizes.items())
        contenders[f"fm2 {pair.model}"] = Ours(data, rows, threads, pair.model, DIM, BATCH_ROWS, EPOCHS, sizes=sizes)
        contenders[f"deepctr {pair.theirs}"] = theirs(pair, data, rows, threads, EPOCHS)
    found = best_of(ROUNDS, contenders)
    print_speeds(found)
    bars = []
    for pair in PAIRS:
        ratio = found[f"fm2 {pair.model}"].speed / found[f"deepctr {pair.theirs}"].speed
        bars.append(Bar(pair.theirs, ratio, least=FASTER))
    print_bars("rows/s / deepctr-torch's", bars)


def compare_quality(data: Path, rows: int, threads: int, seeds: int) -> None:
    """Train both to their best by validation with several seeds; print what they reach on test rows."""
    print(f"\n{'on test rows, mean of seeds':28}{'AUC':>9}{'log loss':>10}")
    bars = []
    for pair in PAIRS:
        ours = [
            run(Trial(data, pair.model, {"dim": DIM, "seed": seed, **pair.sizes}), threads) for seed in range(seeds)
        ]
        contender = theirs(pair, data, rows, threads, MOST_EPOCHS)
        figures = {
            f"fm2 {pair.model}": [outcome.test for outcome in ours],
            f"deepctr {pair.theirs}": [contender.best(seed) for seed in range(seeds)],
        }
        auc = {}
        for name, every in figures.items():
            auc[name] = float(np.mean([each["auc"] for each in every]))
            print(f"{name:28}{auc[name]:>9.5f}{np.mean([each['log_loss'] for each in every]):>10.5f}", flush=True)
        gained = 1e3 * (auc[f"fm2 {pair.model}"] - auc[f"deepctr {pair.theirs}"])
        bars.append(Bar(pair.theirs, gained, least=0))
    print_bars("AUC above deepctr-torch's, in thousandths", bars)


def theirs(pair: Pair, data: Path, rows: int, threads: int, epochs: int) -> DeepCtr:
    """Give deepctr-torch's network of the same sizes."""
    return DeepCtr(data, rows, threads, pair.theirs, DIM, pair.their_sizes, BATCH_ROWS, epochs)


if __name__ == "__main__":
    main()
