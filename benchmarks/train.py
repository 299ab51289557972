"""How fast fm2 trains, against xLearn and torch alone: rows per second of whole epochs, and the memory they take.

    python benchmarks/train.py [--directory DIRECTORY] [--only models|batches|growth] [--quick]

All train on the same generated rows, in turn, each time in a fresh process, several times; the best time counts. An
epoch is everything from shuffling the encoded rows to the last update, by Adagrad, without L2, in batches of 4096 rows.
(What is dense, such as the field matrices, fm2 moves by Adam. Its FFM, like xLearn, moves weights row after row.)

The epoch of xLearn is the difference between a fit of some epochs and one of a single epoch, so reading does not count.
`make peers` installs it; without it the rest still runs. Plain torch runs some batches of an epoch only.

It takes a quarter of an hour on 2 cores, 4 GB of disk, and 6 GB of memory, for xLearn's FFM.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import fm2
from bars import Bar, print_bars
from contenders import BareProducts, Contender, Fm2, PlainTorch, Timed, Xlearn
from generated import Recipe, open_shortened, prepare, working_directory
from peers import check_xlearn, write_libffm

FIELDS = 39
BATCH_SIZES = (1024, 8192)
ROOM_MB = 500  # beside the parameters and the optimizer's state

FM2_MODELS = {"FmFM K=16": ("fmfm", 16), "FmFM K=4": ("fmfm", 4), "FM K=16": ("fm", 16), "LR": ("lr", 0)}
# The model, its dimension, and how many epochs the longer of the two fits has.
XLEARN_MODELS = {"LR": ("lr", 1, 9), "FM K=16": ("fm", 16, 5), "FFM K=4": ("ffm", 4, 3), "FFM K=16": ("ffm", 16, 2)}


@dataclass(frozen=True)
class Point:
    """One size of the problem: rows to train with, values drawn from, fields, dimension."""

    rows: int
    drawn: int
    fields: int
    dim: int


@dataclass(frozen=True)
class Sizes:
    """How much is measured. Of the values that a log draws from, it shows a part: those are the features."""

    rows: int
    drawn: int
    rounds: int
    batches: int
    part_rows: int
    grown: tuple[str, ...]
    growth: dict[str, tuple[int, ...]]


FULL = Sizes(
    rows=1_000_000,
    drawn=11_000_000,  # a million of them are seen
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


# Ours, theirs, how many times as fast we have to be at least, and would like to be.
FASTER = (
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
    parser.add_argument("--directory", type=Path, help="keep the generated data sets here (default: nowhere)")
    parser.add_argument("--only", choices=("models", "batches", "growth"), help="measure this part alone")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try the command; its figures mean nothing")
    settings = parser.parse_args()
    sizes = QUICK if settings.quick else FULL
    print(f"{settings.threads} threads; {fm2.cpu_info()}{'; a trial' if settings.quick else ''}", flush=True)
    with working_directory(settings.directory) as directory:
        if settings.only in (None, "models"):
            compare_models(sizes, directory, settings.threads)
        if settings.only in (None, "batches"):
            compare_batches(sizes, directory, settings.threads)
        if settings.only in (None, "growth"):
            measure_growth(sizes, directory, settings.threads)


def compare_models(sizes: Sizes, directory: Path, threads: int) -> None:
    """Time ours and theirs in turn; print speeds, memory, and which bars are reached."""
    data = prepare(Recipe(sizes.rows, sizes.drawn, FIELDS), directory)
    print(f"{sizes.rows:,} rows, {FIELDS} fields, {count_features(data):,} features")
    models = FM2_MODELS | {"FFM K=4": ("ffm", 4)}
    contenders: dict[str, Contender] = {
        f"fm2 {name}": Fm2(data, sizes.rows, threads, model, dim) for name, (model, dim) in models.items()
    }
    for dim in (4, 16):
        contenders[f"plain torch K={dim}"] = PlainTorch(data, sizes.rows, threads, dim, sizes.batches)
    contenders["two products K=16"] = BareProducts(threads, FIELDS * 16, sizes.batches)
    fits = xlearn_fits(data, sizes.rows, threads)
    found = best_of(sizes.rounds, contenders | {name: fit for pair in fits.values() for name, fit in pair.items()})
    for name, pair in fits.items():
        short, long = (found.pop(fit) for fit in pair)
        found[name] = long.less(short)
    print_speeds(found)
    print_bars("speed", speed_bars(found))
    print_bars("peak memory", memory_bars(found))


def xlearn_fits(data: Path, rows: int, threads: int) -> dict[str, dict[str, Contender]]:
    """Give for each model of xLearn's a fit of one epoch and one of more; none if it is not installed."""
    try:
        check_xlearn()
    except fm2.Fm2Error as missing:
        print(missing)
        return {}
    text = data.with_suffix(".ffm.txt")
    if not text.exists():
        dataset = open_shortened(data, rows)
        write_libffm(dataset.train, dataset.field_sizes, text)
    Xlearn(text, rows, threads, "lr", 1, epochs=1).measure()  # makes its binary copy of the text, if there is none yet
    return {
        f"xLearn {name}": {
            f"xLearn {name}, epochs: {epochs}": Xlearn(text, rows, threads, model, dim, epochs) for epochs in (1, most)
        }
        for name, (model, dim, most) in XLEARN_MODELS.items()
    }


def best_of(rounds: int, contenders: dict[str, Contender]) -> dict[str, Timed]:
    """Measure all in turn, round after round; give each one's best time and largest peaks."""
    best: dict[str, Timed] = {}
    for number in range(rounds):
        for name, contender in contenders.items():
            timed = contender.measure()
            best[name] = best[name].best(timed) if name in best else timed
            print(f"round {number + 1}: {name:28}{timed.rows:>12,} rows in {timed.seconds:7.2f} s", flush=True)
    return best


def print_speeds(found: dict[str, Timed]) -> None:
    print(f"\n{'an epoch':24}{'rows/s':>14}{'peak MB':>12}{'anonymous MB':>14}")
    for name, timed in found.items():
        print(f"{name:24}{timed.speed:>14,.0f}{peaks(timed)}")


def speed_bars(found: dict[str, Timed]) -> Iterator[Bar]:
    for ours, theirs, least, aim in FASTER:
        ratio = found[ours].speed / found[theirs].speed if theirs in found else None
        yield Bar(f"{ours} / {theirs}", ratio, least=least, aim=aim)
    share = found["fm2 FmFM K=16"].speed / found["two products K=16"].speed
    yield Bar("fm2 FmFM K=16 / two products K=16", share, aim=0.8)


def memory_bars(found: dict[str, Timed]) -> Iterator[Bar]:
    """Compare anonymous memory, which is in no file, with parameters, Adagrad's number beside each, and some room."""
    for name, timed in found.items():
        if name.startswith("fm2"):
            allowed = timed.parameters * 8 / 1e6 + ROOM_MB
            yield Bar(f"{name}, anonymous / {allowed:,.0f} MB", timed.memory.anonymous / allowed, most=1)
    ours, theirs = found["fm2 FFM K=4"], found.get("xLearn FFM K=4")
    ratio = ours.memory.anonymous / theirs.memory.anonymous if theirs else None
    yield Bar("fm2 FFM K=4 / xLearn FFM K=4, anonymous", ratio, most=1)


def compare_batches(sizes: Sizes, directory: Path, threads: int) -> None:
    """Time small and large batches in turn."""
    data = prepare(Recipe(sizes.rows, sizes.drawn, FIELDS), directory)
    tasks = {
        (name, batch_rows): Fm2(data, sizes.part_rows, threads, model, dim, batch_rows)
        for name, (model, dim) in FM2_MODELS.items()
        for batch_rows in BATCH_SIZES
    }
    print(f"\ntiming batches of {' and '.join(map(str, BATCH_SIZES))} rows ...", flush=True)
    speeds = dict.fromkeys(tasks, 0.0)
    for _ in range(sizes.rounds):
        for key, task in tasks.items():
            speeds[key] = max(speeds[key], task.time().speed)
    small, large = BATCH_SIZES
    print_bars(
        f"batches of {small} / of {large}, {sizes.part_rows:,} rows",
        (
            Bar(f"{name}: {speeds[name, small]:,.0f} / {speeds[name, large]:,.0f} rows/s", ratio, least=0.5)
            for name in FM2_MODELS
            for ratio in [speeds[name, small] / speeds[name, large]]
        ),
    )


def measure_growth(sizes: Sizes, directory: Path, threads: int) -> None:
    """Let one size grow at a time, from a point that all have in common; print speed and memory."""
    base = Point(sizes.part_rows, sizes.drawn, FIELDS, 16)
    axes = [[replace(base, **{name: value}) for value in values] for name, values in sizes.growth.items()]
    data = {point: prepare(Recipe(base.rows, point.drawn, point.fields), directory) for axis in axes for point in axis}
    columns = f"{'rows':>12}{'features':>12}{'fields':>8}{'K':>6}{'rows/s':>14}{'peak MB':>12}{'anonymous MB':>14}"
    for model in sizes.grown:
        print(f"\n{model + ' grows':12}{columns}")
        found: dict[Point, Timed] = {}
        for axis in axes:
            for point in axis:
                if point not in found:
                    found[point] = Fm2(data[point], point.rows, threads, model, point.dim).measure()
                features = count_features(data[point])
                size = f"{'':12}{point.rows:>12,}{features:>12,}{point.fields:>8}{point.dim:>6}"
                print(f"{size}{found[point].speed:>14,.0f}{peaks(found[point])}", flush=True)
            print()


def peaks(timed: Timed) -> str:
    return f"{timed.memory.resident:>12,.0f}{timed.memory.anonymous:>14,.0f}"


def count_features(data: Path) -> int:
    return sum(fm2.Dataset.open(data).field_sizes)


if __name__ == "__main__":
    main()
