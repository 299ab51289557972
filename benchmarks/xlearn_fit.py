"""Fit one model of xLearn's. This runs in the environment of `make peers`, where there is no fm2; peers.py starts it.

python xlearn_fit.py JOB RESULT: two JSON files. The job names the model, the libffm text to train with, the file for
the model and xLearn's parameters; the result tells the seconds that all of it took, reading included.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import xlearn

MODELS = {"lr": xlearn.create_linear, "fm": xlearn.create_fm, "ffm": xlearn.create_ffm}


def main() -> None:
    job, result = (Path(name) for name in sys.argv[1:])
    wanted = json.loads(job.read_text())
    model = MODELS[wanted["model"]]()
    model.setTrain(wanted["train"])
    model.setQuiet()
    model.disableEarlyStop()
    model.disableNorm()
    begin = time.perf_counter()
    model.fit(wanted["parameters"], wanted["out"])
    result.write_text(json.dumps({"seconds": time.perf_counter() - begin}))


if __name__ == "__main__":
    main()
