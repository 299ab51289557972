"""A model that does not fit into the memory of one worker."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from tests.helpers.processes import run_python
from tests.helpers.workers import run_workers

import fm2

BITS, DIM = 20, 256
TABLES = (1 << BITS) * (DIM + 1) * 4 / 2**20  # megabytes of the tables: 1,028
STATE = 2 * TABLES  # Adam's two moments
# What a worker may allocate after it has imported Python's modules and joined the others: half of the tables and state,
# so that the model needs twice the memory that a worker has for it, and a tenth of that for everything else: stacks of
# threads, batches, messages, counts of features, the pieces in which files are written. 130 MB were measured.
SHARE = (TABLES + STATE) / 2
OTHER = SHARE / 10

# Compiles and evaluates with address space for the tables, which are mapped from the file and can be changed, and a
# quarter of that for everything else; prints the log loss and the megabytes that were really allocated.
COMPILE = """
import sys
import fm2, fm2.engine.compile, fm2.engine.scorer
from fm2.evaluation.evaluate import evaluate_split
from tests.helpers.limits import limit_memory, peak_memory
run, data, out, tables = sys.argv[1:]
limit_memory(1.25 * float(tables))
with peak_memory() as peak:
    fm2.compile(run, out)
    print(evaluate_split(fm2.load(out), data, "test")["log_loss"], peak())
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "data"
    random = np.random.default_rng(0)
    users, ads = random.integers(0, 100_000, 3000), random.integers(0, 20, 3000)
    clicks = (random.random(3000) < 0.2 + 0.03 * (ads % 20)).astype(np.int8)
    log = pl.DataFrame({"click": clicks, "user": [f"u{n}" for n in users], "ad": [f"a{n}" for n in ads]})
    schema = fm2.Schema([fm2.Field("user", hash_bits=BITS), fm2.Field("ad", min_count=1)], label="click")
    fm2.prepare(log, schema, path)
    return path


SETTINGS = {
    "model": "fm",
    "dim": DIM,
    "epochs": 1,
    "evaluations_per_epoch": 1,
    "batch_size": 500,
    "threads": 1,
    "ema_decay": 0.0,
}


def test_a_model_of_twice_the_memory_of_a_worker_is_trained_saved_resumed_and_compiled(data, tmp_path):
    plan = tmp_path / "plan.json"
    run = {"data": str(data), "out": str(tmp_path / "run"), **SETTINGS}
    for epochs in (1, 2):  # the second time in new processes, from the checkpoint of the first ones
        each = {**run, "epochs": epochs, "resume": epochs > 1}
        plan.write_text(json.dumps({"runs": [each], "memory": SHARE + OTHER, "time_limit": 300}))
        for code, printed in run_workers(2, ["-m", "tests.helpers.worker_runs", str(plan)], seconds=600):
            assert code == 0, printed
    arguments = [str(tmp_path / "run"), str(data), str(tmp_path / "model.fm2"), str(TABLES)]
    compiled = run_python(f"import sys; sys.argv[1:] = {arguments!r}\n{COMPILE}")
    assert compiled.returncode == 0, compiled.stderr
    loss, megabytes = map(float, compiled.stdout.split())
    assert 0.3 < loss < 0.8
    assert megabytes < TABLES / 10
    print(f"compiled and evaluated with {megabytes:.0f} MB")
    alone = run_workers(1, ["-m", "tests.helpers.worker_runs", _alone(plan, tmp_path)])
    assert alone[0][0] != 0
    assert "MemoryError" in alone[0][1] or "allocate" in alone[0][1]


def _alone(plan, path):
    """Return the plan of one worker with the same memory."""
    values = json.loads(plan.read_text())
    values["runs"][0] |= {"out": str(path / "alone"), "resume": False}
    file = path / "alone.json"
    file.write_text(json.dumps(values))
    return str(file)
