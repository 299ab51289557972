"""The main job, from nothing: generate a click log, prepare it, train models on it, compare them.

make demo                              a generated log
make demo FM2_LOG=path/to/criteo.txt   your own, in Criteo's format
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

import fm2
from fm2.data.description import describe, print_description
from fm2.progress import Progress
from fm2.training import metrics
from fm2.training.watching import Watcher

ROWS, FEATURES = 500_000, 100_000
DIRECTORY = Path("demo")


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    given = os.environ.get("FM2_LOG")
    log = Path(given) if given else generated_log()
    print(f"Preparing {log} ...")
    dataset = fm2.prepare(log, "criteo", DIRECTORY / "data", bad_rows="skip", overwrite=True)
    print_description(describe(dataset))
    show_rows(dataset)
    for model in ("lr", "fmfm"):
        print(f"\nTraining {model} ...", flush=True)
        with Watcher() as watch:
            run = fm2.train(model, dataset, DIRECTORY / model, overwrite=True, watch=watch)
        show_metrics(model, dataset, run.probabilities(dataset.test.ids))
    if not given:
        show_metrics("the true probabilities", dataset, np.load(f"{log}.truth.npy")[dataset.test.rows])
    print(f"\nThe models are in {DIRECTORY}: fm2 predict {DIRECTORY / 'fmfm'} {log} --out probabilities.txt")


def generated_log() -> Path:
    log = DIRECTORY / "log.tsv"
    print(f"Generating {ROWS:,} rows with {FEATURES:,} features into {log} ...")
    with Progress("writing", ROWS) as progress:
        fm2.generate(log, ROWS, features=FEATURES, progress=lambda rows: progress.update(rows, rows))
    return log


def show_rows(dataset: fm2.Dataset) -> None:
    """Print the first training row as ids, and what the ids stand for."""
    ids = np.asarray(dataset.train.ids[:1])
    values = {name: column[0] for name, column in dataset.decode(ids).items()}
    print(f"\nThe first training row: label {dataset.train.labels[0]}, ids {ids[0].tolist()}")
    print("stand for " + ", ".join(f"{name}={value}" for name, value in list(values.items())[:20]) + ", ...")
    print(f"\nEncoded rows are memory-mapped from {dataset.path}: fm2.Dataset.open({str(dataset.path)!r})")


def show_metrics(name: str, dataset: fm2.Dataset, probabilities: np.ndarray) -> None:
    """Print how good probabilities are on the test rows."""
    found = metrics.evaluate(dataset.test.labels, probabilities)
    print(f"{name} on {len(dataset.test):,} test rows: log loss {found['log_loss']:.4f}, AUC {found['auc']:.4f}")


if __name__ == "__main__":
    try:
        main()
    except fm2.Fm2Error as error:
        sys.exit(f"demo: {error}")
