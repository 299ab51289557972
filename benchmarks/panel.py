"""Compare fm2's models with trees, linear models and xLearn on a panel of logs of different kinds.

    make peers && python benchmarks/panel.py [LOG ...] [--models MODEL ...] [--seeds N] [--directory DIR]
    python benchmarks/panel.py --log FILE --label COLUMN [--test FILE] [--split time] [--numbers COLUMN ...]

FM2_DATA names the directory of the real logs: criteo.tsv.gz, avazu.csv.gz, adult_train.csv.gz, movies_train.csv.gz and
the test files of the last two. Without it, only the generated logs run. Every tool gets the same rows in the same
splits, and selects its settings or its number of trees on the validation rows.

Prints a table for each log, by log loss of the test rows, with differences to the best peer and their paired 95%
confidence intervals in thousandths; then the targets. The predictions of the peers are kept in DIR and used again until
what they read changes; `--fresh` repeats them. Takes an hour on 2 cores, most of it for CatBoost and networks.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

import fm2
from datasets import working_directory
from fm2.studies.comparison.catalog import chosen
from panel_data import REAL_LOGS, Log, find_log
from panel_fits import fit_fm2
from panel_logs import KINDS
from panel_peers import LIMIT, PEERS, fit_peer
from panel_report import Report
from targets import print_targets

NETWORKS = ("deepfm", "dcnv2", "xdeepfm", "finalmlp")
WITH_TREES = ("lr", "fm", "ffm", "fwfm", "fmfm")  # those that `fm2 train auto` tries first


def main() -> None:
    options = _options()
    ranks: dict[str, list[int]] = defaultdict(list)
    missed: list[str] = []
    with working_directory(options.directory) as directory:
        for name in options.logs:
            log = _own_log(options) if options.log else find_log(name, directory, options.draw)
            report = run(name, log, directory, options)
            for rank, index in enumerate(np.argsort(report.log_loss.values), 1):
                ranks[report.names[index]].append(rank)
            missed += [f"{name}: {target.title}" for target in report.targets() if target.verdict() == "MISSED"]
    if len(options.logs) > 1:
        print("\nmean rank over the logs")
        for model, of_logs in sorted(ranks.items(), key=lambda entry: np.mean(entry[1])):
            print(f"  {model:18}{np.mean(of_logs):6.1f}")
    print(f"\nmissed targets: {len(missed)}", *missed, sep="\n  ")


def run(name: str, log: Log, directory: Path, options: argparse.Namespace) -> Report:
    """Fit all models and peers on a log; print the table and the targets."""
    with working_directory(None) as temporary:
        dataset = log.prepare(temporary / "data")
        print(f"\n{name}: {len(dataset.schema.fields)} fields, {sum(dataset.field_sizes):,} features, ", end="")
        print(", ".join(f"{part} {entry['rows']:,}" for part, entry in dataset.manifest["splits"].items()), flush=True)
        cache = directory / "peers"
        peers = [
            fit_peer(peer, log, dataset, cache, options.threads, options.fresh, options.limit) for peer in options.peers
        ]
        data = dict.fromkeys(options.models, dataset.path)
        if options.trees:
            began = time.process_time()
            with_trees = log.prepare(temporary / "trees", trees=True).path
            print(f"preparing the log with trees took {time.process_time() - began:.0f} CPU seconds", flush=True)
            data |= {f"{model} + trees": with_trees for model in options.models if model in options.trees}
        models = {
            model: [fit_fm2(model.split()[0], path, seed, options.threads) for seed in range(options.seeds)]
            for model, path in data.items()
        }
        report = Report(dataset, models, peers, log.truth)
        report.print_table()
        print_targets(f"{name}: targets, in thousandths", report.targets())
        return report


def _own_log(options: argparse.Namespace) -> Log:
    schema = fm2.Schema.load(options.schema) if options.schema else None
    files = {"source": options.log, "validation": options.validation, "test": options.test}
    return Log(**files, label=options.label, schema=schema, split=options.split, numbers=options.numbers)


def _options() -> argparse.Namespace:
    logs = [*(REAL_LOGS if "FM2_DATA" in os.environ else ()), *KINDS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("logs", nargs="*", metavar="LOG", help=f"{', '.join((*REAL_LOGS, *KINDS))} (default: all)")
    parser.add_argument(
        "--draw", type=int, default=0, help="other rows of the generated logs, from other models (0, 1, ...)"
    )
    parser.add_argument("--log", type=Path, help="a log of your own: CSV or TSV with a header, or Parquet")
    parser.add_argument("--label", help="its click column")
    parser.add_argument("--schema", type=Path, help="its schema (default: inferred)")
    parser.add_argument("--validation", type=Path, help="its validation rows (default: a tenth of the log)")
    parser.add_argument("--test", type=Path, help="its test rows (default: a tenth of the log)")
    parser.add_argument("--split", choices=("random", "time"), default="random")
    parser.add_argument("--numbers", nargs="+", type=str, help="columns that are numbers for the peers")
    parser.add_argument("--models", nargs="+", default=["shallow", *NETWORKS], help="names, 'shallow', 'deep', 'all'")
    parser.add_argument("--trees", nargs="*", default=WITH_TREES, help="models that are also fitted with a tree field")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS, metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--no-peers", dest="peers", action="store_const", const=())
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each fm2 model")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for each fit of a peer")
    parser.add_argument("--directory", type=Path, help="keep generated logs and the peers' predictions here")
    parser.add_argument("--fresh", action="store_true", help="fit the peers again")
    options = parser.parse_args()
    if options.log and not options.label:
        parser.error("--log needs --label")
    if unknown := set(options.logs) - {*REAL_LOGS, *KINDS}:
        parser.error(f"unknown log '{min(unknown)}'; choose from {', '.join((*REAL_LOGS, *KINDS))}")
    options.logs = [options.log.name] if options.log else options.logs or logs
    options.models = chosen(options.models)
    return options


if __name__ == "__main__":
    main()
