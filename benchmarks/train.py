"""Compare fm2's training speed and memory with xLearn and plain torch, over whole epochs.

    python benchmarks/train.py [--directory DIRECTORY] [--only models|batches|growth] [--quick]

All train on the same generated rows in turn, in fresh processes; the best of several rounds counts, and the result is
the ratio of speeds. An epoch is everything from shuffling the encoded rows to the last update, with Adagrad, without
L2, in batches of 4096 rows. (fm2 uses Adam for dense parameters such as field matrices. Its FFM, like xLearn, updates
weights row by row.)

An xLearn epoch is the difference between a fit of several epochs and a fit of one, so reading does not count. `make
peers` installs xLearn; without it, the other parts still run. Plain torch runs only some batches of an epoch.

Takes 15 minutes on 2 cores, 4 GB of disk space, and 6 GB of memory for xLearn's FFM.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import fm2
from contenders import BareProducts, Contender, Fm2, PlainTorch, Timed, Xlearn
from datasets import Recipe, open_first_rows, prepare_recipe, working_directory
from targets import Target, print_targets
from timing import in_turn
from xlearn_peer import check_xlearn, write_libffm

FIELDS = 39
BATCH_SIZES = (1024, 8192)
OVERHEAD_MB = 500  # besides parameters and optimizer state

FM2_MODELS = {"FmFM K=16": ("fmfm", 16), "FmFM K=4": ("fmfm", 4), "FM K=16": ("fm", 16), "LR": ("lr", 0)}
# Model, dimension, and the number of epochs of the longer fit.
XLEARN_MODELS = {"LR": ("lr", 1, 9), "FM K=16": ("fm", 16, 5), "FFM K=4": ("ffm", 4, 3), "FFM K=16": ("ffm", 16, 2)}


@dataclass(frozen=True)
class Point:
    """A problem size: training rows, values to draw from, fields, dimension."""

    rows: int
    drawn: int
    fields: int
    dim: int


@dataclass(frozen=True)
class Sizes:
    """The sizes to measure. The values that occur in a log are a part of those it draws from."""

    rows: int
    drawn: int
    rounds: int
    batches: int
    part_rows: int
    grown: tuple[str, ...]
    growth: dict[str, tuple[int, ...]]


FULL = Sizes(
    rows=1_000_000,
    drawn=11_000_000,  # a million of them occur
    rounds=3,
    batches=64,
    part_rows=200_000,
    grown=("fmfm", "fm"),
    growth={
        "rows": (50_000, 100_000, 200_000),
        "drawn": (110_000, 1_100_000, 11_000_000),
        "fields": (13, 39, 78),
        "dim": (4, 8, 16, 32),
    },
)
QUICK = Sizes(
    rows=20_000,
    drawn=40_000,
    rounds=1,
    batches=2,
    part_rows=10_000,
    grown=("fmfm",),
    growth={"rows": (5_000, 10_000), "drawn": (4_000, 40_000), "fields": (13, 39), "dim": (4, 16)},
)


# fm2, its peer, and the required and desired ratio of their speeds.
SPEEDUPS = (
    ("fm2 FmFM K=16", "plain torch K=16", 1.6, None),
    ("fm2 FmFM K=16", "xLearn FFM K=16", 1.4, None),
    ("fm2 FmFM K=4", "plain torch K=4", 4.0, None),
    ("fm2 FmFM K=4", "xLearn FFM K=4", 2.5, None),
    ("fm2 FM K=16", "xLearn FM K=16", 2.0, 3.0),
    ("fm2 LR", "xLearn LR", 1.5, 3.0),
    ("fm2 FFM K=4", "xLearn FFM K=4", 1.2, 2.0),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--directory", type=Path, help="keep the generated datasets here (default: do not keep them)")
    parser.add_argument("--only", choices=("models", "batches", "growth"), help="run only this part")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to test the script")
    settings = parser.parse_args()
    sizes = QUICK if settings.quick else FULL
    print(
        f"{settings.threads} threads; {fm2.cpu_info()}{'; --quick: not a measurement' if settings.quick else ''}",
        flush=True,
    )
    with working_directory(settings.directory) as directory:
        if settings.only in (None, "models"):
            compare_models(sizes, directory, settings.threads)
        if settings.only in (None, "batches"):
            compare_batches(sizes, directory, settings.threads)
        if settings.only in (None, "growth"):
            measure_growth(sizes, directory, settings.threads)


def compare_models(sizes: Sizes, directory: Path, threads: int) -> None:
    """Time fm2 and its peers in turn; print speeds, memory and targets."""
    data = prepare_recipe(Recipe(sizes.rows, sizes.drawn, FIELDS), directory)
    print(f"{sizes.rows:,} rows, {FIELDS} fields, {count_features(data):,} features")
    models = FM2_MODELS | {"FFM K=4": ("ffm", 4)}
    contenders: dict[str, Contender] = {
        f"fm2 {name}": Fm2(data, sizes.rows, threads, model, dim) for name, (model, dim) in models.items()
    }
    for dim in (4, 16):
        contenders[f"plain torch K={dim}"] = PlainTorch(data, sizes.rows, threads, dim, sizes.batches)
    contenders["two products K=16"] = BareProducts(threads, FIELDS * 16, sizes.batches)
    fits = xlearn_fits(data, sizes.rows, threads)
    best = best_of(sizes.rounds, contenders | {name: fit for pair in fits.values() for name, fit in pair.items()})
    for name, pair in fits.items():
        short, long = (best.pop(fit) for fit in pair)
        best[name] = long.minus(short)
    print_speeds(best)
    print_targets("speed", speed_targets(best))
    print_targets("peak memory", memory_targets(best))


def xlearn_fits(data: Path, rows: int, threads: int) -> dict[str, dict[str, Contender]]:
    """Return two fits per xLearn model, of one epoch and of several. Empty if xLearn is not installed."""
    try:
        check_xlearn()
    except fm2.Fm2Error as missing:
        print(missing)
        return {}
    text = data.with_suffix(".ffm.txt")
    if not text.exists():
        dataset = open_first_rows(data, rows)
        write_libffm(dataset.train, dataset.field_sizes, text)
    Xlearn(text, rows, threads, "lr", 1, epochs=1).measure()  # creates xLearn's binary copy of the text
    return {
        f"xLearn {name}": {
            f"xLearn {name}, epochs: {epochs}": Xlearn(text, rows, threads, model, dim, epochs) for epochs in (1, most)
        }
        for name, (model, dim, most) in XLEARN_MODELS.items()
    }


def best_of(rounds: int, contenders: dict[str, Contender]) -> dict[str, Timed]:
    """Measure all contenders in turn; return the best time and the largest peaks of each."""
    best: dict[str, Timed] = {}
    for number in range(rounds):
        for name, contender in contenders.items():
            timed = contender.measure()
            best[name] = best[name].best(timed) if name in best else timed
            print(f"round {number + 1}: {name:28}{timed.rows:>12,} rows in {timed.seconds:7.2f} s", flush=True)
    return best


def print_speeds(best: dict[str, Timed]) -> None:
    print(f"\n{'epoch':24}{'rows/s':>14}{'peak MB':>12}{'anonymous MB':>14}")
    for name, timed in best.items():
        print(f"{name:24}{timed.speed:>14,.0f}{peaks(timed)}")


def speed_targets(best: dict[str, Timed]) -> Iterator[Target]:
    for name, peer, required, goal in SPEEDUPS:
        ratio = best[name].speed / best[peer].speed if peer in best else None
        yield Target(f"{name} / {peer}", ratio, at_least=required, goal=goal)
    share = best["fm2 FmFM K=16"].speed / best["two products K=16"].speed
    yield Target("fm2 FmFM K=16 / two products K=16", share, goal=0.8)


def memory_targets(best: dict[str, Timed]) -> Iterator[Target]:
    """Compare anonymous memory with that of the parameters, Adagrad's state of the same size, and an overhead."""
    for name, timed in best.items():
        if name.startswith("fm2"):
            allowed = timed.parameters * 8 / 1e6 + OVERHEAD_MB
            yield Target(f"{name}, anonymous / {allowed:,.0f} MB", timed.memory.anonymous / allowed, at_most=1)
    ffm, peer = best["fm2 FFM K=4"], best.get("xLearn FFM K=4")
    ratio = ffm.memory.anonymous / peer.memory.anonymous if peer else None
    yield Target("fm2 FFM K=4 / xLearn FFM K=4, anonymous", ratio, at_most=1)


def compare_batches(sizes: Sizes, directory: Path, threads: int) -> None:
    """Time small and large batches in turn."""
    data = prepare_recipe(Recipe(sizes.rows, sizes.drawn, FIELDS), directory)
    contenders = {
        (name, batch_rows): Fm2(data, sizes.part_rows, threads, model, dim, batch_rows)
        for name, (model, dim) in FM2_MODELS.items()
        for batch_rows in BATCH_SIZES
    }
    print(f"\ntiming batches of {' and '.join(map(str, BATCH_SIZES))} rows ...", flush=True)
    measurements = {key: partial(speed_of, contender) for key, contender in contenders.items()}
    speeds = {key: max(rounds) for key, rounds in in_turn(measurements, sizes.rounds).items()}
    small, large = BATCH_SIZES
    targets = []
    for name in FM2_MODELS:
        title = f"{name}: {speeds[name, small]:,.0f} / {speeds[name, large]:,.0f} rows/s"
        targets.append(Target(title, speeds[name, small] / speeds[name, large], at_least=0.5))
    print_targets(f"batches of {small} / of {large}, {sizes.part_rows:,} rows", targets)


def speed_of(contender: Contender) -> float:
    return contender.time().speed


def measure_growth(sizes: Sizes, directory: Path, threads: int) -> None:
    """Increase one size at a time from a common base; print speed and memory."""
    base = Point(sizes.part_rows, sizes.drawn, FIELDS, 16)
    axes = [[replace(base, **{name: value}) for value in values] for name, values in sizes.growth.items()]
    data = {
        point: prepare_recipe(Recipe(base.rows, point.drawn, point.fields), directory)
        for axis in axes
        for point in axis
    }
    columns = f"{'rows':>12}{'features':>12}{'fields':>8}{'K':>6}{'rows/s':>14}{'peak MB':>12}{'anonymous MB':>14}"
    for model in sizes.grown:
        print(f"\n{model:12}{columns}")
        measured: dict[Point, Timed] = {}
        for axis in axes:
            for point in axis:
                if point not in measured:
                    measured[point] = Fm2(data[point], point.rows, threads, model, point.dim).measure()
                features = count_features(data[point])
                size = f"{'':12}{point.rows:>12,}{features:>12,}{point.fields:>8}{point.dim:>6}"
                print(f"{size}{measured[point].speed:>14,.0f}{peaks(measured[point])}", flush=True)
            print()


def peaks(timed: Timed) -> str:
    return f"{timed.memory.resident:>12,.0f}{timed.memory.anonymous:>14,.0f}"


def count_features(data: Path) -> int:
    return sum(fm2.Dataset.open(data).field_sizes)


if __name__ == "__main__":
    main()
