"""Commands for compiled models: ``compile``, ``inspect``, ``rank``, ``explain``, ``export``."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from fm2.cli import shared
from fm2.cli.command import Argument, command, flag, input_path, output_path
from fm2.errors import Fm2Error, cannot_read, printable

PLANS, DTYPES = ("auto", "direct", "cached", "spectral"), ("f32", "f16", "i8")
UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


def read_size(text: str) -> float:
    """Parse a size in bytes."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)b?\s*", text.lower())
    if not match:
        raise argparse.ArgumentTypeError(f"expected a size like 500MB or 2GB, got '{text}'")
    return float(match[1]) * UNITS[match[2]]


@command(
    "compile",
    "compile a trained model into one fast file",
    description="Compile the best model of a run into one file that scores without PyTorch.",
    example="fm2 compile run --out model.fm2",
    notes="The plan auto measures the exact plans on this machine, on rows drawn by feature frequency, and selects the "
    "fastest. An existing compiled model is replaced; any other file is an error.",
    arguments=(
        shared.RUN,
        output_path("--out", "model file to write, e.g. model.fm2", "FILE"),
        Argument("--plan", "scoring plan", choices=PLANS, default="auto"),
        Argument("--rank", "rank of the spectral plan (default: 16)", int, metavar="R"),
        input_path("--data", "dataset; it makes the spectral plan more accurate", "DATA"),
        Argument("--dtype", "number type of the feature tables", choices=DTYPES, default="f32"),
        Argument("--memory", "memory limit for cached products", read_size, metavar="SIZE", default="4GB"),
        shared.JSON,
    ),
)
def compile(options: argparse.Namespace) -> None:
    from fm2.engine.compile import compile

    replaced = shared.replaces(options.out)
    compiled = compile(
        options.run_path,
        options.out,
        watch=lambda step: shared.report_step(step) if sys.stderr.isatty() else None,
        **shared.pick(options, "plan", "rank", "dtype", "data", "memory"),
    )
    if options.plan != "auto" and not compiled.plan.startswith(options.plan):
        shared.warn(f"compile: --plan {options.plan} has no effect: the model has only one plan, {compiled.plan}")
    if options.json:
        print(json.dumps({**vars(compiled), "path": str(compiled.path)}))
        return
    for title, microseconds in compiled.measured.items():
        print(f"  {title:<48} {microseconds:6.2f} µs per row (median)")
    print(f"{compiled.path}: {compiled.plan}, {compiled.bytes / 1e6:,.1f} MB{replaced}")
    if compiled.rounding_error:
        print(f"maximum rounding error of a stored {options.dtype} number: {compiled.rounding_error:.2g}")
    if compiled.logit_error:
        rows = f"rows of {options.data}" if options.data else "rows drawn by feature frequency"
        mean, maximum = compiled.logit_error["rms"], compiled.logit_error["max"]
        print(f"approximation error of the logits: {mean:.2g} (root mean square), {maximum:.2g} (maximum), on {rows}")


@command(
    "inspect",
    "show the parameters, size and cost of a model",
    description="Show the parameters, bytes, operations and dimensions of a run or a compiled model.",
    example="fm2 inspect model.fm2",
    arguments=(input_path("model", "run directory or compiled model", "MODEL"), shared.JSON),
)
def inspect(options: argparse.Namespace) -> None:
    from fm2.engine.inspect import inspect, print_inspection

    inspection = inspect(options.model)
    if options.json:
        print(json.dumps(inspection))
    else:
        print_inspection(inspection)


@command(
    "rank",
    "rank candidates for a context with a compiled model",
    description="Rank candidates for one context and print line number (from 0), probability and candidate, best "
    "first.",
    example='fm2 rank model.fm2 \'{"user": "u1"}\' ads.jsonl --top 3',
    notes="CONTEXT is a JSON object or a file with one; its keys are the context columns. CANDIDATES is a JSON Lines "
    "file with the other columns.",
    arguments=(
        input_path("model", "compiled model (fm2 compile)", "MODEL"),
        input_path("context", "values of the context columns", "CONTEXT"),
        input_path("candidates", "candidates, one per line; - is standard input", "CANDIDATES"),
        Argument("--top", "number of candidates to print", int, default=10),
        flag("--json", "print JSON Lines"),
    ),
)
def rank(options: argparse.Namespace) -> None:
    from fm2.engine.scorer import load

    shared.check_top("rank", options.top)
    if options.candidates.lstrip().startswith("{"):
        raise Fm2Error("rank: the context comes first, then the file of candidates: fm2 rank MODEL CONTEXT CANDIDATES")
    scorer = load(options.model)
    context = _read_object(options.context, "rank", "context")
    candidates = _read_candidates(options.candidates)
    for number, candidate in enumerate(candidates, start=1):
        for column in candidate.keys() & context.keys():
            raise Fm2Error(f"rank: {options.candidates} line {number}: column '{column}' is already in the context")
    ranked = scorer.ranker(context=list(context)).rank(context, candidates, top=options.top)
    for index, probability in zip(ranked.indices.tolist(), ranked.probabilities.tolist(), strict=True):
        if options.json:
            print(json.dumps({"index": index, "probability": probability, "candidate": candidates[index]}))
        else:
            shown = printable(json.dumps(candidates[index], ensure_ascii=False))
            print(f"{index:>8}  {probability:.6f}  {shown}")


def _read_object(text: str, operation: str, name: str) -> dict[str, Any]:
    """Read a JSON object, or a file with one."""
    try:
        values = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8"))
    except OSError as error:
        if not text.startswith(("[", '"')):
            expected = "expected a JSON object or a file with one"
            raise cannot_read(f"{operation}: {name}", text[:80], error, expected) from error
        reason = f"is neither a JSON object nor a readable file: {error.strerror}"
        raise Fm2Error(f"{operation}: {name} '{text[:80]}' {reason}") from error
    except ValueError as error:
        raise Fm2Error(f"{operation}: {name} '{text[:80]}' is neither JSON nor a JSON file: {error}") from error
    if not isinstance(values, dict):
        raise Fm2Error(f"{operation}: expected a JSON object as the {name}, got {type(values).__name__}")
    return values


def _read_candidates(path: str) -> list[dict[str, Any]]:
    try:
        lines = sys.stdin.readlines() if path == "-" else Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise cannot_read("rank: candidates", path, error) from error
    except UnicodeDecodeError as error:
        raise Fm2Error(f"rank: cannot read {path} as lines of JSON, one candidate each: {error}") from error
    candidates = []
    for number, line in enumerate(lines, start=1):
        try:
            candidate = json.loads(line)
        except ValueError as error:
            raise Fm2Error(f"rank: {path} line {number} is not JSON (expected one object per line): {error}") from error
        if not isinstance(candidate, dict):
            raise Fm2Error(f"rank: {path} line {number}: expected a JSON object, got {type(candidate).__name__}")
        candidates.append(candidate)
    return candidates


@command(
    "explain",
    "show what a row's prediction consists of",
    description="Show the contributions of fields and pairs of fields to the logit of a row, largest first, and those "
    "of the values of multi-valued fields.",
    example='fm2 explain model.fm2 \'{"user": "u1", "tags": "news|sports"}\' --top 5',
    notes="ROW is a JSON object or a file with one. The contributions of all fields and pairs and the bias add up to "
    "the logit.",
    arguments=(
        input_path("model", "compiled model (fm2 compile)", "MODEL"),
        input_path("row", "values by column", "ROW"),
        Argument("--top", "number of contributions to print", int, default=10),
        shared.JSON,
    ),
)
def explain(options: argparse.Namespace) -> None:
    from fm2.engine.scorer import load

    shared.check_top("explain", options.top)
    scorer = load(options.model)
    explanation = scorer.explain(_read_object(options.row, "explain", "row"))
    values = {name: [vars(value) for value in parts] for name, parts in explanation.values.items()}
    largest = explanation.largest(options.top)
    others = len(explanation.fields) + len(explanation.pairs) - len(largest)
    remainder = explanation.logit - explanation.bias - sum(term for _, term in largest)
    if options.json:
        logit = {"probability": explanation.probability, "logit": explanation.logit, "bias": explanation.bias}
        rest = {"count": others, "sum": remainder}
        contributions = {"largest": dict(largest), "others": rest}
        print(json.dumps({**logit, **contributions, "values": values, "row": explanation.row}))
        return
    kind = "probability" if scorer.calibration is None else "uncalibrated probability"
    print(f"{kind} {explanation.probability:.6f}, logit {explanation.logit:.4f}, bias {explanation.bias:.4f}\n")
    labels = {name: f"{name} ({explanation.row[name] or 'missing'})" for name in explanation.row}
    labels |= {
        f"{first} × {second}": f"{labels.get(first, first)} × {labels.get(second, second)}"
        for first, second in explanation.pairs
    }
    for name, term in largest:
        print(f"{term:>10.4f}  {printable(labels.get(name, name))}")
    if others:
        print(f"{remainder:>10.4f}  {others} other contributions")
    for name, parts in values.items():
        name = printable(name)
        print(f"\n{name}: {'weight':>10}{'linear':>10}{'pairs':>10}")
        for part in parts:
            numbers = "".join(f"{part[key]:>10.4f}" for key in ("weight", "linear", "pairs"))
            print(
                f"{'':{len(name) + 2}}{numbers}  {'(missing)' if part['value'] is None else printable(part['value'])}"
            )


@command(
    "export",
    "export a trained model to ONNX",
    description="Export a trained model as an ONNX graph that maps ids (rows x fields) to click probabilities.",
    example="fm2 export run --out model.onnx",
    notes="An ONNX file contains no vocabularies: encode raw values with fm2. An existing ONNX file is replaced; any "
    "other file is an error.",
    arguments=(
        shared.RUN,
        output_path("--out", "ONNX file to write", "FILE"),
        Argument("--ids", "integer type of the ids", choices=("int64", "int32"), default="int64"),
    ),
)
def export(options: argparse.Namespace) -> None:
    from fm2.artifacts.model_file import check_model

    check_model(Path(options.run_path))

    from fm2.export.onnx import export_onnx  # after the check: importing torch takes seconds

    replaced = shared.replaces(options.out)
    out = export_onnx(options.run_path, options.out, ids=options.ids)
    print(f"wrote {out.stat().st_size:,} bytes to {out}{replaced}")


@command(
    "verify",
    "check files for damage",
    description="Read all files of a dataset, a run, a compiled model or a catalog, and compare their checksums.",
    example="fm2 verify data",
    notes="fm2 train verifies its dataset, and opening a compiled model or a catalog verifies the file.",
    arguments=(
        input_path("path", "dataset, run, compiled model or catalog", "PATH"),
        shared.JSON,
    ),
    interrupted="nothing was changed",
)
def verify(options: argparse.Namespace) -> None:
    from fm2.engine.verify import verify

    verified = verify(options.path)
    for file in verified.unchecked:
        shared.warn(f"{file} can be read, but an older version of fm2 wrote it without a checksum")
    if options.json:
        print(json.dumps(vars(verified)))
        return
    size = f"{verified.files} {'file' if verified.files == 1 else 'files'}, {verified.bytes / 1e6:,.1f} MB"
    print(f"{options.path}: {verified.kind}, {size}: no damage found ({verified.seconds:.1f} s)")


COMMANDS = (compile, inspect, verify, rank, explain, export)
