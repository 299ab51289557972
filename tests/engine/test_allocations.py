"""Scoring one row performs no heap allocation after warm-up, from Python, from C and in requests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers.list_models import compiled as compile_weights
from tests.helpers.list_models import make_weights
from tests.helpers.mixed import SCHEMA, mixed
from tests.helpers.planted import QUICK

import fm2
from fm2.engine.scorer import load

# Counts the allocations of each thread; with LD_PRELOAD, these functions replace the C library's.
COUNTER = """
#include <stddef.h>
void* __libc_malloc(size_t); void* __libc_calloc(size_t, size_t); void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
static __thread long count;
long allocation_count(void) { return count; }
void* malloc(size_t size) { ++count; return __libc_malloc(size); }
void* calloc(size_t items, size_t size) { ++count; return __libc_calloc(items, size); }
void* realloc(void* old, size_t size) { ++count; return __libc_realloc(old, size); }
void* memalign(size_t to, size_t size) { ++count; return __libc_memalign(to, size); }
void* aligned_alloc(size_t to, size_t size) { ++count; return __libc_memalign(to, size); }
int posix_memalign(void** out, size_t to, size_t size) { ++count; return (*out = __libc_memalign(to, size)) ? 0 : 12; }
"""

# Python takes small objects from its own pools, so the counted allocations are those of native code.
SCRIPT = """
import ctypes, json, sys
import fm2
from fm2 import _native

counter = ctypes.CDLL(None).allocation_count
counter.restype = ctypes.c_long
scorer = fm2.load(sys.argv[1], threads=1)
rows = json.loads(sys.argv[2])
results = [0.0] * len(rows)

def score_rows():
    before = counter()
    for index in range(len(rows)):
        results[index] = scorer.predict_one(rows[index])
    return counter() - before

warm_up = score_rows()
before = counter()
_native.open_compiled(sys.argv[1])
control = counter() - before
print(json.dumps({"counts": [score_rows() for _ in range(3)], "control": control, "results": results}))
"""

# The bytes of a response are a Python object: responses of more than 512 bytes are not taken from Python's pools.
REQUESTS = """
import ctypes, json, sys
import numpy as np
import fm2
from fm2 import _native

counter = ctypes.CDLL(None).allocation_count
counter.restype = ctypes.c_long
scorer = fm2.load(sys.argv[1], threads=1)
rows = json.loads(sys.argv[2])
counters = np.zeros(2 * len(scorer.native.sizes), np.uint64)
endpoint = _native.Endpoint(scorer.native, counters, name="m", version="1", max_rows=9, max_values=999, threads=1)
bodies = [json.dumps({"rows": [row]}).encode() for row in rows]
results = [None] * len(rows)

def score_rows():
    before = counter()
    for index in range(len(bodies)):
        results[index] = endpoint.predict(bodies[index]).body
    return counter() - before

warm_up = score_rows()
before = counter()
_native.open_compiled(sys.argv[1])
control = counter() - before
counts = [score_rows() for _ in range(3)]
probabilities = [json.loads(each)["probabilities"][0] for each in results]
print(json.dumps({"counts": counts, "control": control, "results": probabilities}))
"""

DRIVER = """
#include <fm2.h>
#include <stdio.h>
#include <string.h>
long allocation_count(void);
int main(int count, char** arguments) {
    const char* values[5] = {"news.example", "u1", NULL, "17", "2024-05-05 05:05:05"};
    const char* unusual[5] = {"a value that training has never seen", "", "x", "not a number", "not a time"};
    float score;
    int32_t ids[6] = {0, 1, 0, 1, 0, 1};
    fm2_model* model;
    long before = 0;
    if (count != 2 || fm2_open(arguments[1], 1, &model) != FM2_OK) return 1;
    for (int round = 0; round < 100; ++round) {
        if (round == 1) before = allocation_count();
        if (fm2_score_values(model, values, NULL, 1, 5, 0, 0, &score) != FM2_OK) return 2;
        if (fm2_score_values(model, unusual, NULL, 1, 5, FM2_LOGITS, 2, &score) != FM2_OK) return 3;
        if (fm2_score_ids(model, ids, 1, 6, 0, 0, &score) != FM2_OK) return 4;
    }
    printf("%ld %ld\\n", allocation_count() - before, before);
    fm2_close(model);
    return 0;
}
"""

PLANS = {
    "lr": ("lr", {}, {}),
    "poly2": ("poly2", {"hash_bits": 8}, {}),
    "fm f16": ("fm", {"dim": 5}, {"dtype": "f16"}),
    "ffm i8": ("ffm", {"dim": 3}, {"dtype": "i8"}),
    "fwfm direct": ("fwfm", {"dim": 3}, {"plan": "direct"}),
    "fmfm cached": ("fmfm", {"dim": 4}, {"plan": "cached", "memory": 1000}),
    "fmfm spectral": ("fmfm", {"dim": 4}, {"plan": "spectral", "rank": 3}),
}


@pytest.fixture(scope="module")
def counter(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("counter")
    (folder / "counter.c").write_text(COUNTER)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", folder / "counter.c", "-o", folder / "counter.so"], check=True)
    return folder / "counter.so"


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    dataset = fm2.prepare(mixed(600), SCHEMA, folder / "data")
    compiled = {}
    for title, (name, settings, options) in PLANS.items():
        run = fm2.train(name, dataset, folder / title, **{**QUICK, **settings})
        compiled[title] = fm2.compile(run.path, folder / f"{title}.fm2", **options).path
    return compiled


@pytest.mark.parametrize("title", PLANS)
def test_predict_one_does_not_allocate(counter, models, title):
    rows = mixed(200, seed=1).to_dicts()
    rows += [{**rows[0], "visits": visits} for visits in (3, 2.5, 1e300, True, None, "strange", float("nan"))]
    rows += [{"site": "a value that training has never seen"}]
    check_allocations(counter, models[title], rows)


@pytest.mark.parametrize(
    ("name", "plan", "dtype"),
    [
        ("poly2", "auto", "f32"),
        ("fm", "auto", "i8"),
        ("ffm", "auto", "f16"),
        ("fmfm", "direct", "f32"),
        ("fmfm", "cached", "f32"),
        ("fmfm", "spectral", "f32"),
    ],
)
def test_lists_do_not_allocate(counter, tmp_path, name, plan, dtype):
    weights = make_weights(name, [4] * 3, [7, 30, 12], [1, 2])
    model = compile_weights(weights, tmp_path, plan, dtype).path
    texts = ["|".join(f"v{value}" for value in range(length)) for length in range(30)]
    rows = [{"f0": "v1", "f1": text, "f2": text[::-1]} for text in texts]
    check_allocations(counter, model, [*rows, {"f0": "x"}, {"f1": None}, {"f2": ""}])


def test_requests_do_not_allocate(counter, models):
    rows = mixed(200, seed=1).drop("click").to_dicts()
    rows += [{**rows[0], "visits": visits} for visits in (3, 2.5, 1e300, True, None, "strange", "\u2028\n")]
    check_allocations(counter, models["fmfm cached"], rows, REQUESTS)


def check_allocations(counter, model, rows, script=SCRIPT):
    done = subprocess.run(
        [sys.executable, "-c", script, model, json.dumps(rows)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LD_PRELOAD": str(counter)},
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["control"] > 0  # the counter works
    assert measured["counts"] == [0, 0, 0]
    assert measured["results"] == pytest.approx([load(model).predict_one(row) for row in rows], abs=1e-7)


@pytest.mark.parametrize("title", PLANS)
def test_the_c_interface_does_not_allocate_for_one_row(counter, models, capi, tmp_path, title):
    source, program = tmp_path / "driver.c", tmp_path / "driver"
    source.write_text(DRIVER)
    header = Path(__file__).parents[2] / "native" / "capi"
    libraries = [counter, f"-L{capi}", "-lfm2", f"-Wl,-rpath,{capi}", f"-Wl,-rpath,{counter.parent}"]
    subprocess.run(["cc", "-std=c99", f"-I{header}", source, "-o", program, *libraries], check=True)
    done = subprocess.run([program, models[title]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    after_warm_up, before = map(int, done.stdout.split())
    assert before > 0  # the counter works
    assert after_warm_up == 0
