"""xLearn, in the environment that `make peers` creates, and the libffm text it reads."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars
from numpy.typing import NDArray

import fm2
from fm2.data.dataset import Split
from fm2.files import atomic_file
from processes import Memory, watch_memory

PYTHON = Path(__file__).parents[1] / ".peers/bin/python"
DRIVER = Path(__file__).with_name("xlearn_driver.py")
# xLearn crashes if the variable USER is not set.
ENVIRONMENT = {"USER": "fm2", **os.environ}
CHUNK_ROWS = 100_000


@dataclass(frozen=True)
class Fit:
    """The wall and CPU seconds of a fit, including reading, and its peak memory."""

    seconds: float
    cpu_seconds: float
    memory: Memory


def write_libffm(split: Split, field_sizes: list[int], path: Path) -> None:
    """Write rows in libffm's format, ``label field:feature:1 ...``, with global feature numbers."""
    starts = np.cumsum([0, *field_sizes[:-1]])
    with atomic_file(path) as partial, partial.open("wb") as file:
        for begin in range(0, len(split), CHUNK_ROWS):
            features = split.ids[begin : begin + CHUNK_ROWS] + starts
            columns = {str(field): column for field, column in enumerate(features.T)}
            labels = polars.Series("label", split.labels[begin : begin + CHUNK_ROWS])
            cells = [polars.format("{}:{}:1", polars.lit(name), polars.col(name)).alias(name) for name in columns]
            table = polars.DataFrame(columns).select(labels, *cells)
            table.write_csv(file, include_header=False, separator=" ", quote_style="never")


def check_xlearn() -> None:
    """Raise an error if xLearn cannot be imported."""
    command = [str(PYTHON), "-c", "import xlearn"]
    if not PYTHON.exists() or subprocess.run(command, env=ENVIRONMENT, capture_output=True).returncode:
        raise fm2.Fm2Error("xLearn is not installed; run make peers")


def fit_xlearn(model: str, train: Path, parameters: dict[str, Any]) -> Fit:
    """Fit "lr", "fm" or "ffm" on libffm text in a separate process, with xLearn's parameters.

    xLearn leaves a binary copy next to the text, and reads that the next time.
    """
    with tempfile.TemporaryDirectory() as folder:
        return _run(Path(folder), {"model": model, "train": str(train.absolute()), "out": os.devnull}, parameters)


def predict_xlearn(
    model: str, train: Path, validation: Path, parameters: dict[str, Any], predict: list[Path]
) -> tuple[Fit, list[NDArray[np.float64]]]:
    """Fit with xLearn's defaults (normalized rows, early stopping); return the fit and its predictions for texts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        outs = {str(text.absolute()): str(folder / f"{number}.txt") for number, text in enumerate(predict)}
        texts = {"train": str(train.absolute()), "validation": str(validation.absolute()), "predict": outs}
        fit = _run(folder, {"model": model, "out": str(folder / "model"), **texts}, parameters)
        return fit, [np.loadtxt(out) for out in outs.values()]


def _run(folder: Path, request: dict[str, Any], parameters: dict[str, Any]) -> Fit:
    job, result = folder / "job.json", folder / "result.json"
    # Without a log path, every fit leaves three files in /tmp.
    options = {"task": "binary", "log": str(folder / "log"), **parameters}
    job.write_text(json.dumps({"validation": None, "predict": {}, **request, "parameters": options}))
    command = [PYTHON, DRIVER, job, result]
    with subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL) as process:
        memory = watch_memory(process.pid, lambda seconds: _ended(process, seconds))
    if not result.exists():  # its exit code is 0 in any case
        raise fm2.Fm2Error(f"xLearn failed to fit {request['model']} on {request['train']}; see its output above")
    return Fit(**json.loads(result.read_text()), memory=memory)


def _ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
