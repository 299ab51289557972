"""Fixtures of the engine's tests."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "native"  # `make native-test` has built most of it


@pytest.fixture(scope="session")
def capi() -> Path:
    """Build the C library and the example program; return their directory."""
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    cmake, ninja = shutil.which("cmake", path=paths), shutil.which("ninja", path=paths)
    assert cmake, "cmake is missing; make setup installs it"
    assert ninja, "ninja is missing; make setup installs it"
    BUILD.mkdir(parents=True, exist_ok=True)
    configure = [cmake, "-S", ROOT, "-B", BUILD, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    with (BUILD / "test.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes must not build at the same time
        for command in (configure, [cmake, "--build", BUILD, "--target", "fm2", "fm2_score_example"]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
    return BUILD
