"""How good the models are with their defaults, and the search that found the defaults.

    python benchmarks/quality.py search MODEL [--trials 30] [--seed 0] [--near JSON] [--optimizer O] [--generated]
    python benchmarks/quality.py defaults [--seeds 5] [--models MODEL ...]
    python benchmarks/quality.py generated [--rows 5000000] [--features 100000]

The first two need the directory with criteo.tsv.gz and avazu.csv.gz in the variable FM2_DATA. Settings are chosen on
validation; what is reported is test.

`search` draws settings at random from what `fm2 tune` tries, and half as many near the best of these, trains with each
on both data sets, and trains the best few again with other seeds; the best has the least log loss over the validation
rows of both. With `--generated` it does so on a million generated rows, for the defaults of large logs.
`defaults` trains every model with its defaults and several seeds, and xLearn's FFM, if `make peers` has installed it,
with the best of a small grid. It takes some minutes.
`generated` trains on rows whose true probabilities are known, and tells what share of the gap between LR and the truth
each model closes. It takes about an hour on 2 cores, and 3 GB of disk.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

import fm2
import peers
from bars import Bar, print_bars
from fm2.artifacts.settings import Settings
from fm2.data.presets import PRESETS
from fm2.evaluation import metrics
from fm2.models.choices import Optimizer
from fm2.models.registry import model_names
from fm2.studies.tuning.spaces import near, space_around
from generated import working_directory
from trials import Outcome, Trial, run, run_all

LOGS = {"criteo": "criteo.tsv.gz", "avazu": "avazu.csv.gz"}
FINALISTS, FINAL_SEEDS = 4, 3
SEARCHED = (1_000_000, 100_000)  # rows and features of the generated log
XLEARN_GRID = {"lr": (0.05, 0.1, 0.2), "lambda": (2e-6, 2e-5, 2e-4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--directory", type=Path, help="keep the data sets here (default: nowhere)")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("search", help="search for a model's defaults")
    command.add_argument("model", choices=model_names())
    command.add_argument("--trials", type=int, default=30)
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--near", type=json.loads, metavar="JSON", help="search near these settings alone")
    command.add_argument("--optimizer", choices=get_args(Optimizer), help="another than the model's own")
    command.add_argument("--generated", action="store_true", help="on a million generated rows, not on the real ones")
    command.set_defaults(job=search)
    command = commands.add_parser("defaults", help="train with defaults on real rows")
    command.add_argument("--models", nargs="+", choices=model_names(), default=model_names(deep=False))
    command.add_argument("--seeds", type=int, default=5)
    command.set_defaults(job=compare_defaults)
    command = commands.add_parser("generated", help="train on rows whose truth is known")
    command.add_argument(
        "--models",
        nargs="+",
        choices=model_names(),
        default=[name for name in model_names(deep=False) if name != "poly2"],
    )
    command.add_argument("--rows", type=int, default=5_000_000)
    command.add_argument("--features", type=int, default=100_000)
    command.set_defaults(job=compare_generated)
    settings = parser.parse_args()
    job: Callable[[argparse.Namespace, Path], None] = settings.job
    with working_directory(settings.directory) as directory:
        job(settings, directory)


def real_data(directory: Path) -> dict[str, Path]:
    """Prepare the real logs, unless that has been done."""
    if "FM2_DATA" not in os.environ:
        sys.exit("the variable FM2_DATA has to name the directory with criteo.tsv.gz and avazu.csv.gz")
    for name, log in LOGS.items():
        if not (directory / name).exists():
            fm2.prepare(Path(os.environ["FM2_DATA"], log), PRESETS[name](), directory / name)
    return {name: directory / name for name in LOGS}


def generated_data(directory: Path, rows: int, features: int) -> Path:
    """Prepare a generated log, unless that has been done; the true probabilities stay beside it."""
    data, log = directory / f"{rows}-rows-{features}-features", directory / "log.parquet"
    if not data.exists():
        print(f"generating {rows:,} rows ...", flush=True)
        made = fm2.generate(log, rows, features=features)
        made.truth.rename(f"{data}.truth.npy")
        fm2.prepare(log, PRESETS["criteo"](), data)
        log.unlink()
    return data


def search(settings: argparse.Namespace, directory: Path) -> None:
    """Draw settings, train, train the best again; print all, the best last."""
    data = [generated_data(directory, *SEARCHED)] if settings.generated else list(real_data(directory).values())
    other = {"optimizer": settings.optimizer} if settings.optimizer else {}
    usual = Settings.of(settings.model, SEARCHED[0] if settings.generated else 0, **other)
    space, random = space_around(usual), np.random.default_rng(settings.seed)
    drawn = [other | near(space, usual.used(), random, share=1) for _ in range(settings.trials)]
    found = try_out(settings.model, [other, *drawn], data, [0]) if settings.near is None else [(0.0, settings.near)]
    best = min(found, key=lambda entry: entry[0])[1]
    if best != other:
        print("\nnear the best:")
        start = usual.used() | best
        neighbors = [other | near(space, start, random) for _ in range(settings.trials // 2)]
        found += try_out(settings.model, neighbors, data, [0])
    found.sort(key=lambda entry: entry[0])
    finalists = list({json.dumps(changes): changes for _, changes in found}.values())[:FINALISTS]
    print(f"\nthe best {FINALISTS}, with {FINAL_SEEDS} other seeds:")
    seeds = range(1, 1 + FINAL_SEEDS)
    loss, best = min(try_out(settings.model, finalists, data, seeds), key=lambda entry: entry[0])
    print(f"\nthe best on validation ({loss:.5f}): {best or 'the defaults'}")


def try_out(
    model: str, choices: list[dict[str, Any]], data: list[Path], seeds: Sequence[int]
) -> list[tuple[float, dict[str, Any]]]:
    """Train with each choice on each data set and seed; give the validation loss of each choice, over all rows."""
    weights = np.array([len(fm2.Dataset.open(path).validation) for path in data], dtype=float)
    each = list(itertools.product(choices, data, seeds))
    outcomes = run_all([Trial(path, model, {**changes, "seed": seed}) for changes, path, seed in each])
    results = []
    for changes in choices:
        of_data = [[next(outcomes) for _ in seeds] for _ in data]
        losses = [[np.mean([getattr(o, split)["log_loss"] for o in some]) for some in of_data] for split in SPLITS]
        loss = float(np.average(losses[0], weights=weights))
        epochs = np.mean([outcome.best_epoch for outcome in of_data[0]])
        validation, test = (" ".join(f"{value:.5f}" for value in split) for split in losses)
        print(f"{loss:.5f}  validation {validation}  test {test}  best epoch {epochs:4.1f}  {changes}", flush=True)
        results.append((loss, changes))
    return results


SPLITS = ("validation", "test")


def compare_defaults(settings: argparse.Namespace, directory: Path) -> None:
    """Print the test figures of every model, mean and deviation over seeds, and which bars are reached."""
    means: dict[tuple[str, str], float] = {}
    for name, path in real_data(directory).items():
        dataset = fm2.Dataset.open(path)
        print(f"\n{name}: {dataset!r}\n{'':12}{'test log loss':>20}{'test AUC':>20}{'validation':>12}")
        trials = [Trial(path, model, {"seed": seed}) for model in settings.models for seed in range(settings.seeds)]
        outcomes = run_all(trials)
        for model in settings.models:
            some = [next(outcomes) for _ in range(settings.seeds)]
            means[name, model] = show(model, [o.test for o in some], [o.validation for o in some])
    try:
        peers.check_xlearn()
        means["criteo", "xlearn"] = measure_xlearn(fm2.Dataset.open(directory / "criteo"), directory, settings.seeds)
    except fm2.Fm2Error as missing:
        print(missing)
    print_bars("log loss on criteo.tsv.gz, in thousandths, less by", bars(means))


def show(name: str, test: list[dict[str, float]], validation: list[dict[str, float]]) -> float:
    """Print a line of figures; give the mean log loss."""
    columns = [np.array([entry[key] for entry in test]) for key in ("log_loss", "auc")]
    shown = "".join(f"{column.mean():>12.5f} ± {column.std():.5f}" for column in columns)
    print(f"{name:12}{shown}{np.mean([entry['log_loss'] for entry in validation]):>12.5f}", flush=True)
    return float(columns[0].mean())


def bars(means: dict[tuple[str, str], float]) -> list[Bar]:
    """Compare log losses on the Criteo rows: by how much the first is less than the second."""

    def less(one: str, other: str) -> float | None:
        if ("criteo", one) not in means or ("criteo", other) not in means:
            return None
        return 1e3 * (means["criteo", other] - means["criteo", one])

    worse = [Bar(f"{name} than lr", less(name, "lr"), least=0) for name in model_names() if name not in ("lr", "fmfm")]
    return [
        *worse,
        Bar("fmfm than lr", less("fmfm", "lr"), least=1),
        Bar("ffm than xLearn's FFM", less("ffm", "xlearn"), least=0),
        Bar("fmfm than ffm", less("fmfm", "ffm"), aim=0),
    ]


def measure_xlearn(dataset: fm2.Dataset, directory: Path, seeds: int) -> float:
    """Tune xLearn's FFM on a small grid, by validation; print and give what the best reaches on test."""
    texts = {name: directory / f"{name}.ffm" for name in ("train", "validation", "test")}
    for name, text in texts.items():
        peers.write_libffm(dataset.split(name), dataset.field_sizes, text)

    def fit(parameters: dict[str, Any]) -> list[dict[str, float]]:
        common = {"k": 4, "epoch": 60, "opt": "adagrad", "nthread": 2, "stop_window": 2}
        predict = [texts["validation"], texts["test"]]
        found = peers.predict_xlearn("ffm", texts["train"], texts["validation"], {**common, **parameters}, predict)
        labels = (dataset.validation.labels, dataset.test.labels)
        return [metrics.evaluate(*pair) for pair in zip(labels, found, strict=True)]

    grid = [dict(zip(XLEARN_GRID, values, strict=True)) for values in itertools.product(*XLEARN_GRID.values())]
    results = []
    for parameters in grid:
        results.append((fit(parameters)[0]["log_loss"], parameters))
        print(f"xLearn FFM {parameters}: validation {results[-1][0]:.5f}", flush=True)
    best = min(results, key=lambda entry: entry[0])[1]
    figures = [fit(best) for _ in range(seeds)]  # it has no seed; its threads see to it that no two fits are alike
    return show("xLearn FFM", [test for _, test in figures], [validation for validation, _ in figures])


def compare_generated(settings: argparse.Namespace, directory: Path) -> None:
    """Train on generated rows; print the log losses and the share of the gap from LR to the truth."""
    data = generated_data(directory, settings.rows, settings.features)
    dataset = fm2.Dataset.open(data)
    truth = np.load(f"{data}.truth.npy")[dataset.test.rows]
    best = metrics.evaluate(dataset.test.labels, truth)
    print(f"{dataset!r}\n{'':8}{'log loss':>10}{'AUC':>9}{'of the gap':>12}{'epochs':>8}{'seconds':>9}")
    losses: dict[str, float] = {}
    for model in settings.models:
        outcome: Outcome = run(Trial(data, model, {}))
        losses[model] = outcome.test["log_loss"]
        gap = (losses["lr"] - losses[model]) / (losses["lr"] - best["log_loss"])
        figures = f"{losses[model]:>10.5f}{outcome.test['auc']:>9.4f}{gap:>12.1%}"
        print(f"{model:8}{figures}{outcome.best_epoch:>8.1f}{outcome.seconds:>9.0f}", flush=True)
    print(f"{'truth':8}{best['log_loss']:>10.5f}{best['auc']:>9.4f}{1:>12.1%}")
    order = (("fm", "lr"), ("fwfm", "fm"), ("fvfm", "fwfm"), ("fmfm", "fvfm"), ("fmfm", "ffm"))
    print_bars(
        "log loss, in thousandths, less by",
        [Bar(f"{a} than {b}", 1e3 * (losses[b] - losses[a]), least=0) for a, b in order if {a, b} <= losses.keys()],
    )


if __name__ == "__main__":
    main()
