"""Fit one xLearn model. xlearn_peer.py runs this in the environment of `make peers`, which has no fm2.

    python xlearn_driver.py JOB RESULT

Both are JSON files. JOB has the model, xLearn's parameters, the model file, and paths of libffm texts: for training,
optionally for early stopping, and for prediction, each with a file for the probabilities. RESULT has the wall and
CPU seconds of the fit, including reading.
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
    request = json.loads(job.read_text())
    model = MODELS[request["model"]]()
    model.setTrain(request["train"])
    if request["validation"]:
        model.setValidate(request["validation"])
    else:
        model.disableEarlyStop()
        model.disableNorm()
        model.setQuiet()  # quiet also turns off early stopping, which is why it is only here
    begin, cpu_begin = time.perf_counter(), time.process_time()
    model.fit(request["parameters"], request["out"])
    times = {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu_begin}
    for text, probabilities in request["predict"].items():
        model.setTest(text)
        model.setSigmoid()
        model.predict(request["out"], probabilities)
    result.write_text(json.dumps(times))


if __name__ == "__main__":
    main()
