"""The commands of compiled models: ``fm2 compile``, ``fm2 inspect``, ``fm2 rank``."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from fm2.errors import Fm2Error

PLANS, DTYPES = ("auto", "direct", "cached", "spectral"), ("f32", "f16", "i8")
UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


def add_compile(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 compile``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "compile",
        help="turn a trained model into one file that scores quickly",
        description="Turn the best model of a run into one file that scores without PyTorch.",
        epilog="auto tries the exact plans here, on rows drawn by the features' frequencies, and takes the quickest. "
        "A compiled model that is there already is replaced.",
    )
    command.add_argument("run_path", metavar="RUN", help="a directory that fm2 train made")
    command.add_argument("--out", required=True, metavar="FILE", help="the model file to make, such as model.fm2")
    command.add_argument("--plan", choices=PLANS, default="auto", help="how it is scored (default: %(default)s)")
    command.add_argument("--rank", type=int, metavar="R", help="of the spectral plan (default: 16)")
    command.add_argument("--data", metavar="DATA", help="the data set; the spectral plan is better where it is known")
    command.add_argument(
        "--dtype", choices=DTYPES, default="f32", help="of the features' numbers (default: %(default)s)"
    )
    command.add_argument("--memory", default="4GB", metavar="SIZE", help="for cached products (default: %(default)s)")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_compile)
    return command


def read_size(text: str) -> float:
    """Understand a size in bytes.

    >>> read_size("1.5GB"), read_size("300 MB"), read_size("12")
    (1500000000.0, 300000000.0, 12.0)
    """
    found = re.fullmatch(r"\s*([0-9.]+)\s*([kmgt]?)b?\s*", text.lower())
    try:
        assert found
        return float(found[1]) * UNITS[found[2]]
    except (AssertionError, ValueError):
        raise Fm2Error(f"compile: --memory is '{text}', not a size like 500MB or 2GB") from None


def _tell(doing: str) -> None:
    if sys.stderr.isatty():
        print(f"fm2: {doing} ...", file=sys.stderr)


def _compile(settings: argparse.Namespace) -> None:
    from fm2.engine.compile import compile

    if settings.rank is not None and settings.plan != "spectral":
        raise Fm2Error(f"compile: the rank is for the plan spectral, and the plan is {settings.plan}")
    compiled = compile(
        settings.run_path,
        settings.out,
        plan=settings.plan,
        rank=settings.rank,
        dtype=settings.dtype,
        memory=read_size(settings.memory),
        data=settings.data,
        watch=_tell,
    )
    if settings.json:
        print(json.dumps({**vars(compiled), "path": str(compiled.path)}))
        return
    for title, microseconds in compiled.measured.items():
        print(f"  {title:<48} {microseconds:6.2f} µs a row, median")
    print(f"{compiled.path}: {compiled.plan}, {compiled.bytes / 1e6:,.1f} MB")
    if compiled.rounding_error:
        print(f"largest difference that rounding to {settings.dtype} made to a number: {compiled.rounding_error:.2g}")
    if compiled.logit_error:
        print(f"logits differ from the exact ones by {compiled.logit_error['rms']:.2g} (root mean square),", end=" ")
        rows = f"rows of {settings.data}" if settings.data else "rows drawn by the features' frequencies"
        print(f"{compiled.logit_error['max']:.2g} at most, on {rows}")


def add_inspect(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 inspect``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "inspect",
        help="show what a model is made of",
        description="Show the parameters, bytes, operations and dimensions of a run or a compiled model.",
    )
    command.add_argument("model", metavar="MODEL", help="a run, or a file that fm2 compile made")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_inspect)
    return command


def _inspect(settings: argparse.Namespace) -> None:
    from fm2.engine.inspect import inspect, print_inspection

    found = inspect(settings.model)
    if settings.json:
        print(json.dumps(found))
    else:
        print_inspection(found)


def add_rank(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 rank``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "rank",
        help="rank candidates in a context with a compiled model",
        description="Rank candidates in one context: line (from 0), probability and candidate, best first.",
        epilog="The context's columns are those that it names; all others are the candidates'. "
        'CONTEXT is JSON, such as \'{"user": "u1"}\', or a file with it. CANDIDATES is a file of JSON lines.',
    )
    command.add_argument("model", metavar="MODEL", help="a file that fm2 compile made")
    command.add_argument("context", metavar="CONTEXT", help="values of the context's columns")
    command.add_argument("candidates", metavar="CANDIDATES", help="candidates, one a line; - is standard input")
    command.add_argument("--top", type=int, default=10, metavar="N", help="how many to show (default: %(default)s)")
    command.add_argument("--json", action="store_true", help="print JSON lines")
    command.set_defaults(run=_rank)
    return command


def _rank(settings: argparse.Namespace) -> None:
    from fm2.engine.scorer import load

    scorer = load(settings.model)
    context = _read_context(settings.context)
    candidates = _read_lines(settings.candidates)
    for number, candidate in enumerate(candidates, start=1):
        for column in candidate.keys() & context.keys():
            raise Fm2Error(f"rank: {settings.candidates} line {number}: '{column}' is a column of the context already")
    ranked = scorer.ranker(context=list(context)).rank(context, candidates, top=settings.top)
    for place, probability in zip(ranked.indices.tolist(), ranked.probabilities.tolist(), strict=True):
        if settings.json:
            print(json.dumps({"place": place, "probability": probability, "candidate": candidates[place]}))
        else:
            print(f"{place:>8}  {probability:.6f}  {json.dumps(candidates[place], ensure_ascii=False)}")


def _read_context(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8"))
    except OSError as missing:
        raise Fm2Error(f"rank: the context '{text[:80]}' is neither JSON nor a file: {missing.strerror}") from missing
    except ValueError as wrong:
        raise Fm2Error(f"rank: the context '{text[:80]}' is neither JSON nor a file of JSON: {wrong}") from wrong
    if not isinstance(found, dict):
        raise Fm2Error("rank: the context is a JSON object: a value for each of its columns")
    return found


def _read_lines(path: str) -> list[dict[str, Any]]:
    try:
        lines = sys.stdin.readlines() if path == "-" else Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as wrong:
        raise Fm2Error(f"rank: {path} cannot be read: {wrong}") from wrong
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as wrong:
            raise Fm2Error(f"rank: {path} line {number} is not JSON: {wrong}") from wrong
        if not isinstance(row, dict):
            raise Fm2Error(f"rank: {path} line {number} is no JSON object")
        rows.append(row)
    return rows
