"""Go from a log of the size of Criteo's to a compiled FmFM (K = 16) on one machine; measure every step.

    python benchmarks/whole_criteo.py [--rows 45840617] [--epochs N] [--directory DIR] [--keep]

Each step is a command in a fresh process, as a user would run it: generate the log (39 fields, the number of frequent
and rare values of Criteo's log), prepare, train with default settings, evaluate, compile, and score the first million
rows of the log. Processor time is that of all threads. "memory" is the peak of the process itself (anonymous memory),
"resident" includes the files that it maps, which the system can drop at any time. "page cache" is the size of all files
that the system has cached at the end of the step; the step would need to read them from disk on a smaller machine.

The whole log takes 11 GB as text, 7 GB as temporary file of prepare and 8 GB as dataset.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from criteo_log import ROWS, CriteoLog
from fm2.data.presets import PAPER_MIN_COUNTS
from processes import watch_memory

FM2 = [sys.executable, "-m", "fm2"]
MIN_COUNT = ["--min-count", str(PAPER_MIN_COUNTS["criteo"])]
SCORED_ROWS = 1_000_000
BYTES_PER_ROW = 600  # on disk: the log, the temporary file and the dataset
SAMPLE = 0.25  # seconds between two samples of the memory, so that watching costs nothing


@dataclass(frozen=True)
class Step:
    """What a step took, and what its command printed."""

    seconds: float
    cpu_seconds: float
    output: dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--epochs", type=int, help="maximum number of epochs (default: that of fm2 train)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--directory", type=Path, help="directory for the files (default: a temporary one)")
    parser.add_argument("--keep", action="store_true", help="keep the files, and reuse a log that exists")
    parser.add_argument("--generate", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.generate:
        CriteoLog.plan(options.rows).write(options.generate)
        print("{}")
        return
    parent = options.directory or Path(tempfile.gettempdir())
    parent.mkdir(parents=True, exist_ok=True)
    needed = options.rows * BYTES_PER_ROW
    if shutil.disk_usage(parent).free < needed:
        sys.exit(f"whole_criteo.py requires {needed / 1e9:.0f} GB of free disk space in {parent}; set --directory")
    if options.keep:
        run_all(parent, options)
        return
    with tempfile.TemporaryDirectory(dir=parent) as directory:
        run_all(Path(directory), options)


def run_all(directory: Path, options: argparse.Namespace) -> None:
    """Run all steps, and print a line for each."""
    log, data, run, model = (directory / name for name in ("log.tsv", "data", "run", "model.fm2"))
    rows, threads = options.rows, ["--threads", str(options.threads)]
    run_step = partial(measure, total_rows=rows)
    print(f"{rows:,} rows, {options.threads} threads")
    print(f"{'step':<10} {'wall s':>8} {'CPU s':>8} {'rows/s':>10} {'memory':>9} {'resident':>9} {'page cache':>11}")
    if not log.exists():
        run_step("generate", [sys.executable, __file__, "--rows", str(rows), "--generate", str(log)])
    prepare = ["prepare", str(log), "--preset", "criteo", *MIN_COUNT, "--out", str(data), "--overwrite"]
    prepared = run_step("prepare", [*FM2, *prepare, *threads, "--json"])
    epochs = [] if options.epochs is None else ["--epochs", str(options.epochs)]
    train = ["train", "fmfm", str(data), "--out", str(run), "--dim", "16", "--overwrite", *epochs]
    trained = run_step("train", [*FM2, *train, *threads, "--json"])
    tested = run_step("evaluate", [*FM2, "evaluate", str(run), str(data), *threads, "--json"], rows // 10)
    run_step("compile", [*FM2, "compile", str(run), "--out", str(model), "--json"], 0)
    head = directory / "head.tsv"
    scored = copy_lines(log, head, SCORED_ROWS)
    predict = ["predict", str(model), str(head), "--out", str(directory / "predictions.npy"), *threads]
    run_step("score", [*FM2, *predict], scored)
    report(log, data, run, model, {"prepare": prepared, "train": trained, "evaluate": tested})


def measure(name: str, command: list[str], rows: int | None = None, total_rows: int = 0) -> Step:
    """Run a command in a fresh process; print its time, speed and peak memory."""
    rows = total_rows if rows is None else rows
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output)

        def finished(_: float) -> bool:
            try:
                process.wait(SAMPLE)
            except subprocess.TimeoutExpired:
                return False
            return True

        memory = watch_memory(process.pid, finished)
        seconds = time.perf_counter() - start
        if process.returncode:
            sys.exit(f"{name} failed: {' '.join(command)}")
        output.seek(0)
        text = output.read().strip()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    speed = f"{rows / seconds:>10,.0f}" if rows else " " * 10
    sizes = f"{memory.anonymous / 1e3:>6.2f} GB {memory.resident / 1e3:>6.2f} GB {page_cache():>8.2f} GB"
    print(f"{name:<10} {seconds:>8.1f} {used:>8.1f} {speed} {sizes}", flush=True)
    return Step(seconds, used, json.loads(text) if text.startswith("{") else {})


def page_cache() -> float:
    """Return the size of all cached files in GB."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Cached:")) / 1e6


def copy_lines(source: Path, target: Path, lines: int) -> int:
    """Copy the first lines of a file; return their number."""
    with source.open("rb") as reader, target.open("wb") as writer:
        return sum(writer.write(line) > 0 for _, line in zip(range(lines), reader, strict=False))


def report(log: Path, data: Path, run: Path, model: Path, steps: dict[str, Step]) -> None:
    """Print the sizes of the files, the epochs and the scores."""
    manifest = json.loads((data / "manifest.json").read_text())
    features = sum(field["features"] for field in manifest["fields"])
    dropped = sum(field["dropped"] for field in manifest["fields"])
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    epochs = history[-1]["epoch"]
    trained = manifest["splits"]["train"]["rows"] * epochs
    train = steps["train"]
    size = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    sizes = {"log": log.stat().st_size, "dataset": size, "model": model.stat().st_size}
    print(", ".join(f"{name} {count / 1e9:.2f} GB" for name, count in sizes.items()))
    print(f"{features:,} features; {dropped:,} values occur fewer than 8 times in the training rows")
    print(f"trained for {epochs:.2f} epochs: {trained / train.seconds:,.0f} rows/s, ", end="")
    print(f"{train.cpu_seconds / trained * 1e6:.1f} µs of processor time per row")
    print(f"test: {steps['evaluate'].output}")


if __name__ == "__main__":
    main()
