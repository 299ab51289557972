"""How long preparing a log takes, against what Polars alone takes to make Parquet of it; and how much memory.

    python benchmarks/prepare.py [--rows 5000000] [--features 1000000]

Both read the same generated file in Criteo's format, in turn, several times; what counts is the ratio of the best
times. Memory is the peak of a process of its own, for 1/5, 2/5 and all of the rows. Last, how fast a frame is encoded.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import fm2

ROUNDS = 3
PARTS = (0.2, 0.4, 1.0)
ENCODED_ROWS = 500_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--features", type=int, default=1_000_000)
    parser.add_argument("--directory", help="where to put the files (default: a temporary directory)")
    settings = parser.parse_args()
    if shutil.disk_usage(settings.directory or tempfile.gettempdir()).free < 10e9:
        sys.exit("this needs 10 GB of free disk")
    with tempfile.TemporaryDirectory(dir=settings.directory) as name:
        directory = Path(name)
        log = directory / "log.tsv"
        print(f"generating {settings.rows:,} rows ...", flush=True)
        fm2.generate(log, settings.rows, features=settings.features)
        print(f"{log.stat().st_size / 1e6:,.0f} MB; {fm2.cpu_info()}\n")
        compare_speed(log, directory, settings.rows)
        measure_memory(log, directory, settings.rows)
        measure_encoding(log, directory)


def compare_speed(log: Path, directory: Path, rows: int) -> None:
    """Time both in turn; print each round and the ratio of the best."""
    polars_times, prepare_times = [], []
    for turn in range(ROUNDS):
        polars_times.append(seconds(lambda: sink_to_parquet(log, directory / "log.parquet")))
        prepare_times.append(seconds(lambda: prepare(log, directory / "data")))
        print(f"round {turn + 1}: polars scan + sink {polars_times[-1]:6.2f} s   prepare {prepare_times[-1]:6.2f} s")
    best = min(prepare_times)
    print(f"prepare / polars sink, best of {ROUNDS}: {best / min(polars_times):.2f}   (the bar: at most 3)")
    print(f"prepare: {rows / best:,.0f} rows/s\n")


def measure_memory(log: Path, directory: Path, rows: int) -> None:
    """Print the peak memory of preparing parts of the log, each in a fresh process."""
    for part in PARTS:
        short = directory / "part.tsv"
        copy_lines(log, short, int(rows * part))
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            peak, features = pool.apply(peak_memory, (short, directory / "data"))
        print(f"{int(rows * part):>10,} rows: peak {peak:6,.0f} MB, {features:,} features kept")
    print()


def measure_encoding(log: Path, directory: Path) -> None:
    """Print how fast new rows in a frame become ids."""
    import polars

    dataset = fm2.Dataset.open(directory / "data")
    names = list(dataset.schema.columns)
    frame = polars.read_csv(
        log, separator="\t", has_header=False, new_columns=names, n_rows=ENCODED_ROWS, infer_schema_length=100_000
    )
    dataset.encode(frame[:10])
    best = min(seconds(lambda: dataset.encode(frame)) for _ in range(ROUNDS))
    fields = len(dataset.schema.fields)
    print(f"encode a frame: {len(frame) / best:,.0f} rows/s × {fields} fields (the aim: 500,000)")


def sink_to_parquet(log: Path, out: Path) -> None:
    import polars

    polars.scan_csv(log, separator="\t", has_header=False).sink_parquet(out)
    out.unlink()


def prepare(log: Path, out: Path) -> fm2.Dataset:
    return fm2.prepare(log, "criteo", out, overwrite=True)


def peak_memory(log: Path, out: Path) -> tuple[float, int]:
    dataset = prepare(log, out)
    # Not getrusage's figure: a new process inherits its parent's.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1e3, sum(dataset.field_sizes)


def copy_lines(source: Path, target: Path, lines: int) -> None:
    with source.open("rb") as reader, target.open("wb") as writer:
        for _, line in zip(range(lines), reader, strict=False):
            writer.write(line)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
