"""Compare fm2 prepare with Polars converting the same log to Parquet; measure peak memory and encoding speed.

    python benchmarks/prepare.py [--rows 5000000] [--features 1000000]

Both read the same generated file in Criteo's format in turn; the result is the ratio of the best times. Memory is the
peak of a fresh process, for 1/5, 2/5 and all of the rows. Encoding speed is for rows in a Polars frame.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
import tempfile
from pathlib import Path

import fm2
from fm2.data.presets import paper_schema
from timing import in_turn, seconds

ROUNDS = 3
PARTS = (0.2, 0.4, 1.0)
ENCODED_ROWS = 500_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--features", type=int, default=1_000_000)
    parser.add_argument("--directory", help="directory for temporary files (default: the system's)")
    settings = parser.parse_args()
    if shutil.disk_usage(settings.directory or tempfile.gettempdir()).free < 10e9:
        sys.exit("prepare.py requires 10 GB of free disk space")
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
    """Time both in turn; print every round and the ratio of the best times."""
    measurements = {
        "polars": lambda: seconds(lambda: sink_to_parquet(log, directory / "log.parquet")),
        "prepare": lambda: seconds(lambda: prepare(log, directory / "data")),
    }
    times = in_turn(measurements, ROUNDS)
    for turn, (polars, prepared) in enumerate(zip(times["polars"], times["prepare"], strict=True), 1):
        print(f"round {turn}: Polars scan + sink {polars:6.2f} s   prepare {prepared:6.2f} s")
    best = min(times["prepare"])
    print(f"prepare / Polars, best of {ROUNDS}: {best / min(times['polars']):.2f}   (limit: 3)")
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
    """Print how fast new rows in a frame are encoded."""
    import polars

    dataset = fm2.Dataset.open(directory / "data")
    names = list(dataset.schema.columns)
    frame = polars.read_csv(
        log, separator="\t", has_header=False, new_columns=names, n_rows=ENCODED_ROWS, infer_schema_length=100_000
    )
    dataset.encode(frame[:10])
    best = min(seconds(lambda: dataset.encode(frame)) for _ in range(ROUNDS))
    fields = len(dataset.schema.fields)
    print(f"encode a frame: {len(frame) / best:,.0f} rows/s × {fields} fields (goal: 500,000)")


def sink_to_parquet(log: Path, out: Path) -> None:
    import polars

    polars.scan_csv(log, separator="\t", has_header=False).sink_parquet(out)
    out.unlink()


def prepare(log: Path, out: Path) -> fm2.Dataset:
    return fm2.prepare(log, paper_schema("criteo"), out, overwrite=True)


def peak_memory(log: Path, out: Path) -> tuple[float, int]:
    dataset = prepare(log, out)
    # getrusage would report the peak that a new process inherits from its parent.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1e3, sum(dataset.field_sizes)


def copy_lines(source: Path, target: Path, lines: int) -> None:
    with source.open("rb") as reader, target.open("wb") as writer:
        for _, line in zip(range(lines), reader, strict=False):
            writer.write(line)


if __name__ == "__main__":
    main()
