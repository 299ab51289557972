"""The whole story, from nothing, in some minutes: a log, models, a smaller one, microseconds.

make demo                              a generated log, whose true probabilities are known
make demo FM2_LOG=path/to/criteo.txt   your own, in Criteo's format: its first rows
make demo FM2_ROWS=200000              so many rows
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import fm2
from fm2.cli.studies import RunReporter
from fm2.data.description import describe, print_description
from fm2.data.streams import open_stream
from fm2.engine.inspect import operations
from fm2.files import atomic_file
from fm2.progress import Progress
from fm2.studies.comparison.results import BEST_POSSIBLE, Comparison
from fm2.training.progress import TrainingDisplay

ROWS, FEATURES = 650_000, 20_000
MODELS = ("lr", "fm", "fwfm", "fvfm", "ffm", "fmfm")
ALONE = {name: {"threads": 1} for name in ("fwfm", "fvfm")}  # torch's threads wait for each other on a busy machine
SHRUNK = "fmfm, shrunk"
CANDIDATES, CANDIDATE_COLUMNS = 1000, [f"C{number}" for number in range(17, 27)]
DIRECTORY = Path("demo")


def main() -> None:
    begin = time.perf_counter()
    given, rows = os.environ.get("FM2_LOG"), os.environ.get("FM2_ROWS", str(ROWS))
    if not rows.isdecimal() or not int(rows):
        raise fm2.Fm2Error(f"FM2_ROWS is '{rows}'; it is how many rows there are to be, such as 200000")
    DIRECTORY.mkdir(exist_ok=True)
    log = first_rows(Path(given), int(rows)) if given else generated_log(int(rows))

    print(f"\nPreparing {log}: values become ids, rows are split 80 : 10 : 10 ...", flush=True)
    dataset = fm2.prepare(log, "criteo", DIRECTORY / "data", bad_rows="skip", overwrite=True)
    print_description(describe(dataset))

    print(f"\nTraining {', '.join(MODELS)} alike, each to its best on the validation rows ...", flush=True)
    with TrainingDisplay() as watch:
        reporter = RunReporter(watch)
        truth = None if given else f"{log}.truth.npy"
        options: dict[str, Any] = {"own": ALONE, "watch": watch, "begin": reporter.begin, "tell": reporter.end}
        table = fm2.compare(dataset, DIRECTORY / "compare", MODELS, truth=truth, overwrite=compared(), **options)
    if table.failed:
        raise fm2.Fm2Error(f"{table.failed[0]['run']} failed: {table.failed[0]['error']}")

    print("\nShrinking FmFM to the dimensions that keep 95 % of each field's variance ...", flush=True)
    with TrainingDisplay() as watch:
        fmfm = DIRECTORY / "compare" / "fmfm-0"
        small = fm2.shrink(fmfm, dataset, DIRECTORY / "small", warm=True, overwrite=True, watch=watch)

    print("Compiling all of them, each into one file that scores without torch ...", flush=True)
    places = {row["model"]: table.path / row["run"] for row in table.rows} | {SHRUNK: small.path}
    scorers = {name: compiled(name, place) for name, place in places.items()}
    show_table(table, small, scorers, dataset)
    show_scores(scorers[SHRUNK], log, dataset)
    show_ranking(scorers[SHRUNK], log, dataset)
    report = fm2.report(table.path, DIRECTORY / "report.html", data=dataset)
    print(f"\n{time.perf_counter() - begin:.0f} s in all. The models and the table are in {DIRECTORY}.")
    print(f"The report, with pictures of all this: {report}")


def generated_log(count: int) -> Path:
    """Generate a log whose clicks come from a planted field-matrixed model."""
    log = DIRECTORY / "log.tsv"
    print(f"Generating {count:,} rows with {FEATURES:,} features into {log} ...", flush=True)
    with Progress("writing", count) as progress:
        fm2.generate(log, count, features=FEATURES, progress=lambda rows: progress.update(rows, rows))
    return log


def first_rows(given: Path, count: int) -> Path:
    """Take the first rows of a log, for all of a large one would take hours."""
    if not given.is_file():
        raise fm2.Fm2Error(f"there is no file {given}; FM2_LOG is a log in Criteo's format")
    log = DIRECTORY / "log.tsv"
    print(f"Taking at most {count:,} rows of {given} ...", flush=True)
    with atomic_file(log) as partial, open_stream(given) as (lines, _), partial.open("wb") as file:  # it may be the log
        file.writelines(itertools.islice(lines, count))
    return log


def compared() -> bool:
    """Tell whether an earlier demo has left a comparison."""
    return (DIRECTORY / "compare" / "compare.json").is_file()


def compiled(name: str, place: Path) -> fm2.Scorer:
    """Compile the model of a run, by the plan that is the quickest here, and open it."""
    out = DIRECTORY / f"{name.replace(', ', '-')}.fm2"
    fm2.compile(place, out)
    return fm2.load(out)


def show_table(table: Comparison, small: fm2.Run, scorers: dict[str, fm2.Scorer], dataset: fm2.Dataset) -> None:
    """Print all models: size, quality, cost, and how near they are to the best possible."""
    rows = {row["model"]: dict(row) for row in table.rows}
    found = small.evaluate(dataset)
    rows[SHRUNK] = {"parameters": small.model.n_parameters, **found, **operations_of(small)}
    linear, best = rows["lr"]["log_loss"], table.truth
    gap = f" {'of the gap':>11}" if best else ""
    print(f"\n{'model':<18} {'parameters':>11} {'AUC':>8} {'log loss':>9}{gap} {'FLOPs':>8} {'µs a row':>9}")
    ids = np.asarray(dataset.test.ids[:5000])
    for name, row in rows.items():
        share = f" {(linear - row['log_loss']) / (linear - best['log_loss']):>11.1%}" if best else ""
        quality = f"{row['auc']:>8.5f} {row['log_loss']:>9.5f}{share}"
        microseconds = float(np.median(scorers[name].time(ids))) * 1e6
        flops = row["flops_cached"] or row["flops"]
        print(f"{name:<18} {row['parameters']:>11,} {quality} {flops:>8,} {microseconds:>9.2f}")
    if best:
        print(f"{BEST_POSSIBLE:<18} {'':>11} {best['auc']:>8.5f} {best['log_loss']:>9.5f} {1:>11.1%}")
        print("of the gap: which share of the log loss between LR and the true probabilities a model closes")
    print(f"on {len(dataset.test):,} test rows; FLOPs by the paper's counting, with cached vectors where there are any")


def operations_of(run: fm2.Run) -> dict[str, Any]:
    return {"flops": run.model.flops(), "flops_cached": operations(run.model.config)["cached"]}


def raw_rows(log: Path, dataset: fm2.Dataset, count: int) -> list[dict[str, str | None]]:
    """Read the first good rows of the log as a caller has them: a dict of values each."""
    names = dataset.schema.columns
    with log.open(encoding="utf-8", errors="replace") as lines:
        every = (line.rstrip("\n").split("\t") for line in lines)
        cells = list(itertools.islice((row for row in every if len(row) == len(names)), count))
    return [{name: value or None for name, value in zip(names, row, strict=True) if name != "label"} for row in cells]


def show_scores(scorer: fm2.Scorer, log: Path, dataset: fm2.Dataset) -> None:
    """Score one row as a caller has it, and say why it comes out so."""
    row = raw_rows(log, dataset, 1)[0]
    seconds = min(timed(lambda: scorer.predict_one(row)) for _ in range(1000))
    print(
        f"\nThe first row of the log, as a dict: {scorer.predict_one(row):.4f}, in {seconds * 1e6:.1f} µs from Python."
    )
    reasons = ", ".join(f"{name} {value:+.3f}" for name, value in scorer.explain(row).largest(4))
    print(f"What matters most: {reasons}")


def show_ranking(scorer: fm2.Scorer, log: Path, dataset: fm2.Dataset) -> None:
    """Rank candidates in one context, by their ids and from a catalog."""
    rows = raw_rows(log, dataset, CANDIDATES)
    ranker = scorer.ranker(candidate=CANDIDATE_COLUMNS)
    context = {name: value for name, value in rows[0].items() if name not in CANDIDATE_COLUMNS}
    candidates = [{name: row[name] for name in CANDIDATE_COLUMNS} for row in rows]
    fields = dataset.schema.names
    ids = dataset.encode({name: [row[name] for row in rows] for name in fields})
    own = np.ascontiguousarray(ids[:, [fields.index(name) for name in CANDIDATE_COLUMNS]])
    shared = np.ascontiguousarray(ids[0, [place for place, name in enumerate(fields) if name not in CANDIDATE_COLUMNS]])
    catalog = ranker.catalog(candidates)
    each = min(timed(lambda: ranker.rank(shared, own, top=10)) for _ in range(100))
    ahead = min(timed(lambda: catalog.top(shared, k=10)) for _ in range(100))
    best = ranker.rank(context, candidates, top=3)
    shown = ", ".join(f"{place} ({value:.4f})" for place, value in zip(best.places, best.probabilities, strict=True))
    times = f"{each * 1e6:.0f} µs, {ahead * 1e6:.0f} µs from a catalog"
    print(f"\nRanking {len(candidates):,} candidates in the same context: {times}.")
    print(f"The best three: {shown}")


def timed(job: Any) -> float:
    begin = time.perf_counter()
    job()
    return time.perf_counter() - begin


if __name__ == "__main__":
    try:
        main()
    except fm2.Fm2Error as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        sys.exit("demo: stopped; what is done is in the directory demo")
