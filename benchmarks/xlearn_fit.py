"""Fit one model of xLearn's. This runs in the environment of `make peers`, where there is no fm2; peers.py starts it.

python xlearn_fit.py JOB RESULT: two JSON files. The job names the model, xLearn's parameters, the file for the model,
and libffm texts: to train with, perhaps to stop early by, and to predict, with a file for each one's probabilities. The
result tells the seconds that the fit took, reading included.
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
    if wanted["validation"]:
        model.setValidate(wanted["validation"])
    else:
        model.disableEarlyStop()
        model.disableNorm()
        model.setQuiet()  # which would also hide the validation from the early stop
    begin = time.perf_counter()
    model.fit(wanted["parameters"], wanted["out"])
    seconds = time.perf_counter() - begin
    for text, probabilities in wanted["predict"].items():
        model.setTest(text)
        model.setSigmoid()
        model.predict(wanted["out"], probabilities)
    result.write_text(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
