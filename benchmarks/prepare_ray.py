"""Compare fm2 prepare in one process with Ray, for a log of several files.

    python benchmarks/prepare_ray.py [--rows 2000000] [--files 8] [--cpus 2]

One process has as many threads as Ray has CPUs, and each task of Ray has one. The time to start Ray is printed apart
from the rest. CPU time is that of all processes, those of Ray included. The datasets must be the same.
"""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import fm2
from fm2.data.presets import paper_schema
from fm2.data.splits import SPLITS

ROUNDS = 3
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--features", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--directory", help="directory for temporary files (default: the system's)")
    settings = parser.parse_args()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = importlib.import_module("ray")

    with tempfile.TemporaryDirectory(dir=settings.directory) as name:
        directory = Path(name)
        print(f"generating {settings.rows:,} rows in {settings.files} files ...", flush=True)
        fm2.generate(directory / "log.tsv", settings.rows, features=settings.features)
        split_file(directory / "log.tsv", settings.files)
        start = time.perf_counter()
        ray.init(num_cpus=settings.cpus, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
        print(f"starting Ray: {time.perf_counter() - start:.1f} s; {fm2.cpu_info()}\n", flush=True)
        try:
            prepare(directory, "ray", settings.cpus)  # starts the processes of the tasks
            rounds = []
            for turn in range(ROUNDS):
                rounds.append({engine: prepare(directory, engine, settings.cpus) for engine in ("local", "ray")})
                texts = (f"{engine} {wall:6.2f} s, CPU {cpu:6.2f} s" for engine, (wall, cpu) in rounds[-1].items())
                print(f"round {turn + 1}: {'   '.join(texts)}", flush=True)
        finally:
            ray.shutdown()
        walls, cpus = ([min(each[engine][kind] for each in rounds) for engine in ("ray", "local")] for kind in (0, 1))
        print(f"Ray / one process, best of {ROUNDS}: time {walls[0] / walls[1]:.2f}, CPU time {cpus[0] / cpus[1]:.2f}")
        check_same(directory)


def split_file(log: Path, files: int) -> None:
    """Divide the lines of a file among new files, part-000.tsv and so on."""
    lines = log.read_bytes().splitlines(keepends=True)
    for number, chosen in enumerate(np.array_split(np.arange(len(lines)), files)):
        (log.parent / f"part-{number:03}.tsv").write_bytes(b"".join(lines[chosen[0] : chosen[-1] + 1]))
    log.unlink()


def prepare(directory: Path, engine: str, cpus: int) -> tuple[float, float]:
    """Prepare the files; return the seconds and the CPU seconds that it takes."""
    start, cpu = time.perf_counter(), cpu_seconds()
    settings = {"threads": cpus} if engine == "local" else {"engine": engine}
    fm2.prepare(str(directory / "part-*.tsv"), paper_schema("criteo"), directory / engine, overwrite=True, **settings)
    return time.perf_counter() - start, cpu_seconds() - cpu


def cpu_seconds() -> float:
    """Return the CPU time so far of this process and of all that it started, directly or not."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for pid, parent, used in processes():
        children.setdefault(parent, []).append(pid)
        ticks[pid] = used
    total, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += ticks[pid]
        waiting += children.get(pid, [])
    return total / TICKS


def processes() -> Iterator[tuple[int, int, int]]:
    """Yield all processes: their number, that of their parent, and the ticks that they and dead children used."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        yield int(path.parent.name), int(fields[1]), sum(map(int, fields[11:15]))


def check_same(directory: Path) -> None:
    """Stop if the datasets differ."""
    one, other = (fm2.Dataset.open(directory / engine) for engine in ("local", "ray"))
    for split in SPLITS:
        for name in ("ids", "labels", "rows"):
            if not np.array_equal(getattr(one.split(split), name), getattr(other.split(split), name)):
                raise SystemExit(f"the {name} of the split {split} differ")
    files = [(dataset.path / "vocabularies.npz").read_bytes() for dataset in (one, other)]
    if files[0] != files[1]:
        raise SystemExit("the vocabularies differ")
    print("the datasets are the same")


if __name__ == "__main__":
    main()
