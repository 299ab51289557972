"""Measure the paired tests of all pairs of models, compared with a test per pair.

    python benchmarks/significance.py [--rows 1000000] [--models 26]

The labels are drawn from known probabilities, and the predictions of each model are these with noise. A test per pair
sorts both models each time; its total is extrapolated from a few pairs.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from fm2.evaluation.metrics import sigmoid
from fm2.evaluation.significance import compare_auc, compare_log_loss
from fm2.studies.statistics import measure_statistics

TIMED_PAIRS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--models", type=int, default=26)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    logits = random.normal(-1.2, 1, options.rows)
    labels = (random.random(options.rows) < sigmoid(logits)).astype(np.uint8)
    models = {
        f"model {n}": sigmoid(logits + random.normal(0, 0.3 + 0.01 * n, options.rows)).astype(np.float32)
        for n in range(options.models)
    }
    begin = time.process_time()
    statistics = measure_statistics(labels, None, {name: [name] for name in models}, models.__getitem__)
    together = time.process_time() - begin
    names, pairs = list(models), len(statistics.metrics["auc"].pairs)
    begin = time.process_time()
    for name in names[1 : 1 + TIMED_PAIRS]:
        for compare in (compare_auc, compare_log_loss):
            compare(labels, models[name], models[names[0]])
    each = (time.process_time() - begin) / min(TIMED_PAIRS, len(names) - 1) * pairs
    print(f"{pairs} pairs of {options.models} models on {options.rows:,} rows, AUC and log loss, CPU seconds:")
    print(f"all at once {together:.1f}, a test per pair {each:.0f}: {each / together:.0f} times faster")


if __name__ == "__main__":
    main()
