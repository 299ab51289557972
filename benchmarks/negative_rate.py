"""Measure time and quality against the share of the training rows without a click that prepare keeps.

    python benchmarks/negative_rate.py [--rows 5000000] [--model fmfm]

The log is generated, with 2% clicks and known probabilities. For every rate, the table has the number of training
rows, the seconds of prepare and train, and the metrics on the complete test rows. The gap is the share of the log loss
between the constant click rate and the true probabilities that the model does not close.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import fm2
from fm2.evaluation.metrics import log_loss
from fm2.studies.comparison.compare import measure_truth
from timing import seconds

RATES = (1, 0.5, 0.2, 0.1, 0.05)
CLICK_RATE = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--fields", type=int, default=20)
    parser.add_argument("--features", type=int, default=100_000)
    parser.add_argument("--model", default="fmfm")
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--directory", help="directory for temporary files (default: the system's)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        directory = Path(name)
        sizes = {"fields": options.fields, "features": options.features}
        log = fm2.generate(directory / "log.parquet", options.rows, click_rate=CLICK_RATE, **sizes)
        print(f"{log.rows:,} rows, {log.click_rate:.2%} clicks; {fm2.cpu_info()}\n", flush=True)
        print("| rate | training rows | prepare, s | train, s | log loss | AUC | predicted / observed clicks | gap |")
        print("|---|---|---|---|---|---|---|---|")
        for rate in RATES:
            print(measure(log, directory / f"{rate}", rate, options), flush=True)


def measure(log: fm2.GeneratedLog, directory: Path, rate: float, options: argparse.Namespace) -> str:
    """Prepare and train with one rate; return a row of the table."""
    schema = fm2.Schema.infer(log.path, label="label")
    directory.mkdir()
    made: dict[str, Any] = {}

    def prepare() -> None:
        made["data"] = fm2.prepare(log.path, schema, directory / "data", negative_rate=rate, progress=False)

    def train() -> None:
        made["run"] = fm2.train(options.model, made["data"], directory / "run", dim=options.dim)

    prepare_time, train_time = seconds(prepare), seconds(train)
    data = made["data"]
    metrics = made["run"].evaluate(data)
    constant = log_loss(data.test.labels, np.full(len(data.test), np.mean(data.test.labels)))
    truth = measure_truth(log.truth, data)["log_loss"]
    gap = (metrics["log_loss"] - truth) / (constant - truth)
    cells = [f"{rate:g}", f"{len(data.train):,}", f"{prepare_time:.1f}", f"{train_time:.1f}"]
    cells += [f"{metrics['log_loss']:.5f}", f"{metrics['auc']:.4f}", f"{metrics['calibration']:.3f}", f"{gap:.1%}"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
