"""Compare the models' default settings with xLearn and with the true probabilities; search for better defaults.

    python benchmarks/quality.py search MODEL [--trials 30] [--seed 0] [--near JSON] [--optimizer O] [--generated]
    python benchmarks/quality.py defaults [--seeds 5] [--models MODEL ...]
    python benchmarks/quality.py generated [--rows 5000000] [--features 100000]

FM2_DATA names the directory of criteo.tsv.gz and avazu.csv.gz for the first two. Settings are selected on validation
rows and reported on test rows.

`search` draws settings from the search space of `fm2 tune`, and half as many near the best of these, trains with each
on both datasets, and trains the best few again with other seeds. The best settings have the lowest log loss over the
validation rows of both datasets. `--generated` searches on a million generated rows, for the defaults of large logs.
`defaults` trains every model with its defaults and several seeds, and compares it with xLearn's FFM, tuned on a small
grid, if `make peers` has installed it. Takes a few minutes.
`generated` trains on rows with known true probabilities, and prints the share of the log loss between LR and the truth
that each model closes. Takes about an hour on 2 cores, and 3 GB of disk space.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

import fm2
import xlearn_peer
from datasets import generated_data, real_data, working_directory
from fm2.artifacts.settings import Settings
from fm2.evaluation import metrics
from fm2.models.choices import Optimizer
from fm2.models.registry import model_names
from fm2.studies.tuning.spaces import draw_near, space_around
from targets import Target, print_targets
from trials import Outcome, Trial, run, run_all

SPLITS = ("validation", "test")
FINALISTS, FINAL_SEEDS = 4, 3
GENERATED = (1_000_000, 100_000)  # rows and features of the generated log for a search
XLEARN_GRID = {"lr": (0.05, 0.1, 0.2), "lambda": (2e-6, 2e-5, 2e-4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--directory", type=Path, help="keep the datasets here (default: do not keep them)")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("search", help="search for a model's defaults")
    command.add_argument("model", choices=model_names())
    command.add_argument("--trials", type=int, default=30)
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--near", type=json.loads, metavar="JSON", help="search only near these settings")
    command.add_argument("--optimizer", choices=get_args(Optimizer), help="instead of the model's default")
    command.add_argument(
        "--generated", action="store_true", help="use a million generated rows instead of the real logs"
    )
    command.set_defaults(job=search)
    command = commands.add_parser("defaults", help="train with defaults on the real logs")
    command.add_argument("--models", nargs="+", choices=model_names(), default=model_names(deep=False))
    command.add_argument("--seeds", type=int, default=5)
    command.set_defaults(job=compare_defaults)
    command = commands.add_parser("generated", help="train on rows with known true probabilities")
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


def search(settings: argparse.Namespace, directory: Path) -> None:
    """Draw settings, train, and train the best again; print all of them, the best last."""
    data = [generated_data(directory, *GENERATED)] if settings.generated else list(real_data(directory).values())
    fixed = {"optimizer": settings.optimizer} if settings.optimizer else {}
    defaults = Settings.of(settings.model, GENERATED[0] if settings.generated else 0, **fixed)
    space, random = space_around(defaults), np.random.default_rng(settings.seed)
    drawn = [fixed | draw_near(space, defaults.used(), random, share=1) for _ in range(settings.trials)]
    results = evaluate(settings.model, [fixed, *drawn], data, [0]) if settings.near is None else [(0.0, settings.near)]
    best = min(results, key=lambda entry: entry[0])[1]
    if best != fixed:
        print("\nnear the best:")
        start = defaults.used() | best
        neighbors = [fixed | draw_near(space, start, random) for _ in range(settings.trials // 2)]
        results += evaluate(settings.model, neighbors, data, [0])
    results.sort(key=lambda entry: entry[0])
    finalists = list({json.dumps(changes): changes for _, changes in results}.values())[:FINALISTS]
    print(f"\nbest {FINALISTS}, with {FINAL_SEEDS} other seeds:")
    seeds = range(1, 1 + FINAL_SEEDS)
    loss, best = min(evaluate(settings.model, finalists, data, seeds), key=lambda entry: entry[0])
    print(f"\nbest on validation ({loss:.5f}): {best or 'the defaults'}")


def evaluate(
    model: str, choices: list[dict[str, Any]], data: list[Path], seeds: Sequence[int]
) -> list[tuple[float, dict[str, Any]]]:
    """Train with each choice on each dataset and seed; return its validation loss over all rows."""
    weights = np.array([len(fm2.Dataset.open(path).validation) for path in data], dtype=float)
    each = list(itertools.product(choices, data, seeds))
    outcomes = run_all([Trial(path, model, {**changes, "seed": seed}) for changes, path, seed in each])
    results = []
    for changes in choices:
        of_data = [[next(outcomes) for _ in seeds] for _ in data]
        losses = [
            [np.mean([getattr(o, split)["log_loss"] for o in per_seed]) for per_seed in of_data] for split in SPLITS
        ]
        loss = float(np.average(losses[0], weights=weights))
        epochs = np.mean([outcome.best_epoch for outcome in of_data[0]])
        validation, test = (" ".join(f"{value:.5f}" for value in split) for split in losses)
        print(f"{loss:.5f}  validation {validation}  test {test}  best epoch {epochs:4.1f}  {changes}", flush=True)
        results.append((loss, changes))
    return results


def compare_defaults(settings: argparse.Namespace, directory: Path) -> None:
    """Print the test metrics of every model, mean and deviation over seeds, and the targets."""
    means: dict[tuple[str, str], float] = {}
    for name, path in real_data(directory).items():
        dataset = fm2.Dataset.open(path)
        print(f"\n{name}: {dataset!r}\n{'':12}{'test log loss':>20}{'test AUC':>20}{'validation':>12}")
        trials = [Trial(path, model, {"seed": seed}) for model in settings.models for seed in range(settings.seeds)]
        outcomes = run_all(trials)
        for model in settings.models:
            trained = [next(outcomes) for _ in range(settings.seeds)]
            means[name, model] = print_metrics(model, [o.test for o in trained], [o.validation for o in trained])
    try:
        xlearn_peer.check_xlearn()
        means["criteo", "xlearn"] = measure_xlearn(fm2.Dataset.open(directory / "criteo"), directory, settings.seeds)
    except fm2.Fm2Error as missing:
        print(missing)
    print_targets("reduction in log loss on Criteo, thousandths", targets(means))


def print_metrics(name: str, test: list[dict[str, float]], validation: list[dict[str, float]]) -> float:
    """Print a line of metrics; return the mean log loss."""
    columns = [np.array([entry[key] for entry in test]) for key in ("log_loss", "auc")]
    shown = "".join(f"{column.mean():>12.5f} ± {column.std():.5f}" for column in columns)
    print(f"{name:12}{shown}{np.mean([entry['log_loss'] for entry in validation]):>12.5f}", flush=True)
    return float(columns[0].mean())


def targets(means: dict[tuple[str, str], float]) -> list[Target]:
    """Compare log losses on Criteo: how much lower a model's is than a baseline's."""

    def reduction(model: str, baseline: str) -> float | None:
        if ("criteo", model) not in means or ("criteo", baseline) not in means:
            return None
        return 1e3 * (means["criteo", baseline] - means["criteo", model])

    others = [name for name in model_names() if name not in ("lr", "fmfm")]
    return [
        *(Target(f"{name} over lr", reduction(name, "lr"), at_least=0) for name in others),
        Target("fmfm over lr", reduction("fmfm", "lr"), at_least=1),
        Target("ffm over xLearn's FFM", reduction("ffm", "xlearn"), at_least=0),
        Target("fmfm over ffm", reduction("fmfm", "ffm"), goal=0),
    ]


def measure_xlearn(dataset: fm2.Dataset, directory: Path, seeds: int) -> float:
    """Tune xLearn's FFM on a small grid with validation rows; print its test metrics, and return the log loss."""
    texts = {name: directory / f"{name}.ffm" for name in ("train", "validation", "test")}
    for name, text in texts.items():
        xlearn_peer.write_libffm(dataset.split(name), dataset.field_sizes, text)

    def fit(parameters: dict[str, Any]) -> list[dict[str, float]]:
        common = {"k": 4, "epoch": 60, "opt": "adagrad", "nthread": 2, "stop_window": 2}
        predict = [texts["validation"], texts["test"]]
        options = {**common, **parameters}
        _, predictions = xlearn_peer.predict_xlearn("ffm", texts["train"], texts["validation"], options, predict)
        labels = (dataset.validation.labels, dataset.test.labels)
        return [metrics.evaluate(*pair) for pair in zip(labels, predictions, strict=True)]

    grid = [dict(zip(XLEARN_GRID, values, strict=True)) for values in itertools.product(*XLEARN_GRID.values())]
    results = []
    for parameters in grid:
        results.append((fit(parameters)[0]["log_loss"], parameters))
        print(f"xLearn FFM {parameters}: validation {results[-1][0]:.5f}", flush=True)
    best = min(results, key=lambda entry: entry[0])[1]
    figures = [fit(best) for _ in range(seeds)]  # no two fits are equal: its threads race, and it has no seed
    return print_metrics("xLearn FFM", [test for _, test in figures], [validation for validation, _ in figures])


def compare_generated(settings: argparse.Namespace, directory: Path) -> None:
    """Train on generated rows; print the metrics and the share of the gap between LR and the truth."""
    data = generated_data(directory, settings.rows, settings.features)
    dataset = fm2.Dataset.open(data)
    truth = np.load(f"{data}.truth.npy")[dataset.test.rows]
    best = metrics.evaluate(dataset.test.labels, truth)
    print(f"{dataset!r}\n{'':8}{'log loss':>10}{'AUC':>9}{'gap closed':>12}{'epochs':>8}{'seconds':>9}")
    losses: dict[str, float] = {}
    for model in settings.models:
        outcome: Outcome = run(Trial(data, model, {}))
        losses[model] = outcome.test["log_loss"]
        gap = (losses["lr"] - losses[model]) / (losses["lr"] - best["log_loss"])
        figures = f"{losses[model]:>10.5f}{outcome.test['auc']:>9.4f}{gap:>12.1%}"
        print(f"{model:8}{figures}{outcome.best_epoch:>8.1f}{outcome.seconds:>9.0f}", flush=True)
    print(f"{'truth':8}{best['log_loss']:>10.5f}{best['auc']:>9.4f}{1:>12.1%}")
    order = (("fm", "lr"), ("fwfm", "fm"), ("fvfm", "fwfm"), ("fmfm", "fvfm"), ("fmfm", "ffm"))
    compared = [(a, b) for a, b in order if {a, b} <= losses.keys()]
    print_targets(
        "reduction in log loss, thousandths",
        [Target(f"{a} over {b}", 1e3 * (losses[b] - losses[a]), at_least=0) for a, b in compared],
    )


if __name__ == "__main__":
    main()
