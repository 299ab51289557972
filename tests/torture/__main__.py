"""The hostile campaign: ``python -m tests.torture --seconds 60 --seed 0``. ``make torture`` runs all of it.

The exit code is 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
READY, NATIVE = "FM2_TORTURE_LIBRARY", "FM2_TORTURE_NATIVE"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="CPU time of the campaign")
    parser.add_argument("--seed", type=int, default=0, help="selects the points and mutations that are tried")
    parser.add_argument("--only", default="", help="only scenarios whose name contains this")
    parser.add_argument("--keep", help="work in this directory and keep it")
    parser.add_argument("--parts", default="commands,files,calls,requests", help="parts of the campaign (default: all)")
    options = parser.parse_args()
    if READY not in os.environ:
        return _restart_with_faults()

    if directory := os.environ.get(NATIVE):
        _replace_native_module(Path(directory))

    from tests.torture.campaign import run

    with tempfile.TemporaryDirectory(prefix="fm2-torture-") as folder:
        parts = options.parts.split(",")
        return run(Path(options.keep or folder), parts, options.seconds, options.seed, options.only)


def _replace_native_module(directory: Path) -> None:
    """Use a native module that was built with a sanitizer."""
    path = next(directory.glob("_native*.so"))
    spec = importlib.util.spec_from_file_location("fm2._native", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fm2._native"] = module
    spec.loader.exec_module(module)


def _restart_with_faults() -> int:
    """Compile faults.c and start again with it."""
    with tempfile.TemporaryDirectory(prefix="fm2-torture-") as folder:
        library = Path(folder) / "faults.so"
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, FOLDER / "faults.c", "-ldl"], check=True)
        preloaded = f"{os.environ.get('LD_PRELOAD', '')}:{library}".lstrip(":")  # a sanitizer has to be first
        environment = {**os.environ, "LD_PRELOAD": preloaded, READY: str(library), "OMP_NUM_THREADS": "1"}
        environment |= {"POLARS_MAX_THREADS": "1", "PYTHONHASHSEED": "0"}
        return subprocess.run(
            [sys.executable, "-m", "tests.torture", *sys.argv[1:]], env=environment, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
