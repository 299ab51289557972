"""Calls that no program should make: each raises an Fm2Error or a TypeError, or it works; none crashes or hangs."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tests.helpers.changing_ids import changing_ids
from tests.torture.findings import Findings
from tests.torture.processes import Budget, run_function

PER_CHILD = 50


def torture_calls(base: Path, work: Path, budget: Budget, seed: int, only: str = "") -> Findings:
    """Call a scorer, a ranker and a run with random odd arguments until the budget is spent."""
    findings = Findings("calls")
    work.mkdir(exist_ok=True)
    for batch in itertools.count():
        if budget.is_spent() or only not in "calls":
            break
        done = run_function(partial(_call_all, base, f"{seed} {batch}"), work)
        findings.count("hostile calls", PER_CHILD)
        if done.code:
            findings.add(f"exit code {done.code} at {done.last_line}")
        for fault in done.result or ():
            findings.add(fault)
    return findings


def _call_all(base: Path, seed: str) -> list[str]:
    from fm2.engine.scorer import load
    from fm2.errors import Fm2Error

    scorer = load(base / "model.fm2", threads=2)
    generator, faults = random.Random(seed), []
    for number, (name, call) in zip(range(PER_CHILD), _calls(scorer, generator), strict=False):
        print(f"call {number} of seed {seed!r}: {name}", flush=True)
        try:
            call()
        except (Fm2Error, TypeError):
            pass
        except Exception as error:
            faults.append(f"call {number} of seed {seed!r}: {name}: {type(error).__name__}: {str(error)[:200]}")
    return faults


def _calls(scorer: Any, generator: random.Random) -> Iterator[tuple[str, Callable[[], Any]]]:
    ranker = scorer.ranker(candidate=["C2"])
    while True:
        ids, row = _odd_ids(generator), _odd_row(generator)
        rows, top = [_odd_row(generator) for _ in range(generator.randrange(3))], generator.choice((0, 1, 10**12))
        yield "predict ids", partial(scorer.predict, ids)
        yield "predict rows", partial(scorer.predict, rows)
        yield "predict_one", partial(scorer.predict_one, row)
        yield "explain", partial(scorer.explain, ids[:1])
        yield "rank", partial(ranker.rank, row, rows, top=top)
        yield "catalog", partial(_use_catalog, ranker, rows, row, top)
        yield "changing ids", partial(_predict_while_written, scorer, generator)


def _use_catalog(ranker: Any, items: Any, context: Any, count: int) -> None:
    ranker.catalog(items).top(context, count)


def _odd_ids(generator: random.Random) -> Any:
    shape = generator.choice(((0, 3), (1, 3), (300, 3), (3,), (2, 2), (1, 3, 1), (0, 0)))
    kind = generator.choice((np.int32, np.int64, np.uint64, np.float64, np.int8, np.bool_, object))
    ids = np.zeros(shape, kind)
    if ids.size and kind not in (np.bool_, object):
        ids.flat[generator.randrange(ids.size)] = generator.choice((-1, 1, 100, 127)) if kind != np.uint64 else 2**63
    return ids[::-1] if generator.random() < 0.2 else ids


def _odd_row(generator: random.Random) -> dict[Any, Any]:
    values = (
        "",
        "x",
        "\0",
        "\ud800",
        "ü" * 1000,
        b"\xff",
        0,
        -1,
        2**70,
        1e400,
        float("nan"),
        None,
        True,
        [],
        {},
        object(),
    )
    keys = ("I1", "C1", "C2", "label", "", "\0", 7)
    return {generator.choice(keys): generator.choice(values) for _ in range(generator.randrange(5))}


def _predict_while_written(scorer: Any, generator: random.Random) -> None:
    from fm2.errors import Fm2Error

    with changing_ids(5_000, 3) as ids:
        for _ in range(generator.choice((1, 5))):
            with contextlib.suppress(Fm2Error):
                scorer.predict(ids)
