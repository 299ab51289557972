"""A tour of fm2 in a few minutes: generate a log, compare models, shrink and compile one, score, rank and serve.

make demo                              a generated log with known true probabilities
make demo FM2_LOG=path/to/criteo.txt   the first rows of your own log in Criteo's format
make demo FM2_ROWS=200000              the number of rows
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fm2
from fm2.cli.studies import RunReporter
from fm2.data.decompress import open_stream
from fm2.data.description import describe, print_description
from fm2.files import atomic_file
from fm2.progress import Progress
from fm2.studies.comparison.results import BEST_POSSIBLE, Comparison
from fm2.training.progress import TrainingDisplay

ROWS, FEATURES = 650_000, 20_000
MODELS = ("lr", "fm", "fwfm", "fvfm", "ffm", "fmfm")
SHRUNK = "fmfm, shrunk"
CANDIDATES, CANDIDATE_COLUMNS = 1000, [f"C{number}" for number in range(17, 27)]
DIRECTORY = Path("demo")


def main() -> None:
    start = time.perf_counter()
    source, rows = os.environ.get("FM2_LOG"), os.environ.get("FM2_ROWS", str(ROWS))
    if not rows.isdecimal() or not int(rows):
        raise fm2.Fm2Error(f"FM2_ROWS must be a positive number of rows, such as 200000, got '{rows}'")
    DIRECTORY.mkdir(exist_ok=True)
    log = first_rows(Path(source), int(rows)) if source else generated_log(int(rows))

    print(f"\nPreparing {log}: encode values as ids, split rows 80/10/10 ...", flush=True)
    dataset = fm2.prepare(log, "criteo", DIRECTORY / "data", bad_rows="skip", overwrite=True)
    print_description(describe(dataset))

    print(f"\nTraining {', '.join(MODELS)} with early stopping on the validation rows ...", flush=True)
    with TrainingDisplay() as watch:
        reporter = RunReporter(watch)
        comparison = fm2.compare(
            dataset,
            DIRECTORY / "compare",
            MODELS,
            truth=None if source else f"{log}.truth.npy",
            overwrite=(DIRECTORY / "compare" / "compare.json").is_file(),
            watch=watch,
            on_start=reporter.begin,
            on_result=reporter.end,
        )
    for row in comparison.failed:
        raise fm2.Fm2Error(f"{row['run']} failed: {row['error']}")

    print("\nShrinking FmFM to the dimensions that keep 95% of each field's variance ...", flush=True)
    with TrainingDisplay() as watch:
        fmfm = DIRECTORY / "compare" / "fmfm-0"
        small = fm2.shrink(fmfm, dataset, DIRECTORY / "small", warm=True, overwrite=True, watch=watch)

    print("Compiling every model into one file that scores without torch ...", flush=True)
    runs = {row["model"]: comparison.path / row["run"] for row in comparison.rows} | {SHRUNK: small.path}
    scorers = {name: compile_and_load(name, run) for name, run in runs.items()}
    show_table(comparison, small, scorers, dataset)
    show_scores(scorers[SHRUNK], log, dataset)
    show_ranking(scorers[SHRUNK], log, dataset)
    show_server(scorers[SHRUNK], log, dataset)
    report = fm2.report(comparison.path, DIRECTORY / "report.html", data=dataset)
    print(f"\nDone in {time.perf_counter() - start:.0f} s. Models and results: {DIRECTORY}/")
    print(f"Report with charts: {report}")


def generated_log(count: int) -> Path:
    """Generate a log whose clicks are drawn from a known field-matrixed model."""
    log = DIRECTORY / "log.tsv"
    print(f"Generating {count:,} rows with {FEATURES:,} features into {log} ...", flush=True)
    with Progress("writing", count) as progress:
        fm2.generate(log, count, features=FEATURES, progress=lambda rows: progress.update(rows, rows))
    return log


def first_rows(source: Path, count: int) -> Path:
    """Copy the first rows of a log; all rows of a large log would take hours."""
    if not source.is_file():
        raise fm2.Fm2Error(f"file not found: {source}; FM2_LOG must be a log in Criteo's format")
    log = DIRECTORY / "log.tsv"
    print(f"Copying up to {count:,} rows of {source} ...", flush=True)
    # Source and copy may be the same file, so the copy appears only at the end.
    with atomic_file(log) as partial, open_stream(source) as (lines, _), partial.open("wb") as file:
        file.writelines(itertools.islice(lines, count))
    return log


def compile_and_load(name: str, run: Path) -> fm2.Scorer:
    """Compile the model of a run with the plan that is fastest on this machine, and load it."""
    out = DIRECTORY / f"{name.replace(', ', '-')}.fm2"
    fm2.compile(run, out)
    return fm2.load(out)


def show_table(comparison: Comparison, small: fm2.Run, scorers: dict[str, fm2.Scorer], dataset: fm2.Dataset) -> None:
    """Print size, metrics, FLOPs and scoring time of all models, and the share of the gap to the truth they close."""
    rows = {row["model"]: dict(row) for row in comparison.rows}
    flops = {"flops": small.model.flops(), "flops_cached": small.model.flops_by_plan()["cached"]}
    rows[SHRUNK] = {"parameters": small.model.n_parameters, **small.evaluate(dataset), **flops}
    linear, best = rows["lr"]["log_loss"], comparison.truth
    gap = f" {'gap closed':>11}" if best else ""
    print(f"\n{'model':<18} {'parameters':>11} {'AUC':>8} {'log loss':>9}{gap} {'FLOPs':>8} {'µs/row':>9}")
    ids = np.asarray(dataset.test.ids[:5000])
    for name, row in rows.items():
        share = f" {(linear - row['log_loss']) / (linear - best['log_loss']):>11.1%}" if best else ""
        quality = f"{row['auc']:>8.5f} {row['log_loss']:>9.5f}{share}"
        microseconds = float(np.median(scorers[name].measure_latency(ids))) * 1e6
        operation_count = row["flops_cached"] or row["flops"]
        print(f"{name:<18} {row['parameters']:>11,} {quality} {operation_count:>8,} {microseconds:>9.2f}")
    if best:
        print(f"{BEST_POSSIBLE:<18} {'':>11} {best['auc']:>8.5f} {best['log_loss']:>9.5f} {1:>11.1%}")
        print("gap closed: share of the log loss between LR and the true probabilities")
    print(f"{len(dataset.test):,} test rows; FLOPs are counted as in the paper, with cached vectors where they apply")


def raw_rows(log: Path, dataset: fm2.Dataset, count: int) -> list[dict[str, str | None]]:
    """Read the first valid rows of the log, each as a dict of its values."""
    names = dataset.schema.columns
    with log.open(encoding="utf-8", errors="replace") as lines:
        split = (line.rstrip("\n").split("\t") for line in lines)
        valid = list(itertools.islice((cells for cells in split if len(cells) == len(names)), count))
    return [{name: cell or None for name, cell in zip(names, row, strict=True) if name != "label"} for row in valid]


def show_scores(scorer: fm2.Scorer, log: Path, dataset: fm2.Dataset) -> None:
    """Score one row given as a dict, and explain its score."""
    row = raw_rows(log, dataset, 1)[0]
    seconds = min(timed(lambda: scorer.predict_one(row)) for _ in range(1000))
    print(
        f"\nScoring the first row of the log: {scorer.predict_one(row):.4f}, {seconds * 1e6:.1f} µs for a Python dict"
    )
    terms = ", ".join(f"{name} {value:+.3f}" for name, value in scorer.explain(row).largest(4))
    print(f"Largest contributions to its logit: {terms}")


def show_ranking(scorer: fm2.Scorer, log: Path, dataset: fm2.Dataset) -> None:
    """Rank candidates in one context, given their ids, and from a catalog."""
    rows = raw_rows(log, dataset, CANDIDATES)
    ranker = scorer.ranker(candidate=CANDIDATE_COLUMNS)
    context = {name: value for name, value in rows[0].items() if name not in CANDIDATE_COLUMNS}
    candidates = [{name: row[name] for name in CANDIDATE_COLUMNS} for row in rows]
    fields = dataset.schema.names
    ids = dataset.encode({name: [row[name] for row in rows] for name in fields})
    candidate_fields = [field for field, name in enumerate(fields) if name in CANDIDATE_COLUMNS]
    context_fields = [field for field, name in enumerate(fields) if name not in CANDIDATE_COLUMNS]
    candidate_ids, context_ids = np.ascontiguousarray(ids[:, candidate_fields]), ids[0, context_fields]
    catalog = ranker.catalog(candidates)
    by_ids = min(timed(lambda: ranker.rank(context_ids, candidate_ids, top=10)) for _ in range(100))
    from_catalog = min(timed(lambda: catalog.top(context_ids, k=10)) for _ in range(100))
    best = ranker.rank(context, candidates, top=3)
    top = ", ".join(f"#{place} ({value:.4f})" for place, value in zip(best.indices, best.probabilities, strict=True))
    times = f"{by_ids * 1e6:.0f} µs by ids, {from_catalog * 1e6:.0f} µs from a catalog"
    print(f"\nRanking {len(candidates):,} candidates in its context: {times}")
    print(f"Top 3 candidates: {top}")


def show_server(scorer: fm2.Scorer, log: Path, dataset: fm2.Dataset) -> None:
    """Serve the model over HTTP; request a prediction and a ranking."""
    rows = raw_rows(log, dataset, CANDIDATES)
    context = {name: value for name, value in rows[0].items() if name not in CANDIDATE_COLUMNS}
    candidates = [{name: row[name] for name in CANDIDATE_COLUMNS} for row in rows]
    with served(scorer.path) as (url, connection):

        def post(call: str, body: dict[str, Any]) -> dict[str, Any]:
            connection.request("POST", f"/v1/models/demo/{call}", json.dumps(body))
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
            return answer

        (probability,) = post("predict", {"rows": rows[:1]})["probabilities"]
        best = post("rank", {"context": context, "candidates": candidates, "top": 3})
        seconds = min(timed(lambda: post("predict", {"rows": rows[:1]})) for _ in range(200))
    print(f"\nServing it at {url}: {probability:.4f} for the first row, {seconds * 1e6:.0f} µs for request and answer")
    top = zip(best["indices"], best["probabilities"], strict=True)
    print(f"Top 3 candidates: {', '.join(f'#{place} ({value:.4f})' for place, value in top)}")


@contextlib.contextmanager
def served(model: Path) -> Iterator[tuple[str, http.client.HTTPConnection]]:
    """Run ``fm2 serve`` on a free port of this machine; yield its address and a connection."""
    words = ["serve", f"demo={model}", "--port", "0", "--log-format", "json"]
    with subprocess.Popen([sys.executable, "-m", "fm2", *words], stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            last = "it ended"
            for last in server.stderr:
                if '"listening"' in last:
                    break
            else:
                raise fm2.Fm2Error(f"fm2 serve failed: {last.strip()}")
            url = json.loads(last)["url"]
            with contextlib.closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)) as connection:
                yield url, connection
        finally:
            server.terminate()


def timed(task: Callable[[], object]) -> float:
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


if __name__ == "__main__":
    try:
        main()
    except fm2.Fm2Error as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        sys.exit(f"demo: interrupted; partial results are in {DIRECTORY}/")
