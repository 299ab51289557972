"""The commands that make and show data sets: ``fm2 generate``, ``fm2 prepare``, ``fm2 describe``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fm2.errors import Fm2Error

if TYPE_CHECKING:
    from fm2.schema import Schema


def add_generate(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 generate``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "generate",
        help="make a click log with known probabilities",
        description="Make a click log whose labels come from a planted field-matrixed model.",
        epilog="The true probability of each row goes to OUT.truth.npy.",
    )
    command.add_argument("out", metavar="OUT", help="a file: .tsv or .tsv.gz in Criteo's format, or .parquet")
    command.add_argument("--rows", type=int, default=1_000_000, metavar="N", help="how many (default: %(default)s)")
    command.add_argument(
        "--fields", type=int, default=39, metavar="N", help="columns beside the label (default: %(default)s)"
    )
    command.add_argument(
        "--features", type=int, default=1_000_000, metavar="N", help="of all fields (default: %(default)s)"
    )
    command.add_argument("--seed", type=int, default=0, metavar="S", help="of model and rows (default: %(default)s)")
    command.add_argument("--overwrite", action="store_true", help="replace a file that is there already")
    command.set_defaults(run=_generate)
    return command


def _generate(settings: argparse.Namespace) -> None:
    from fm2.data.synthetic.generate import generate
    from fm2.files import check_output
    from fm2.progress import Progress

    check_output("generate", Path(settings.out), "log", overwrite=settings.overwrite)
    with Progress("writing", settings.rows) as progress:
        log = generate(
            Path(settings.out),
            settings.rows,
            fields=settings.fields,
            features=settings.features,
            seed=settings.seed,
            progress=lambda rows: progress.update(rows, rows),
        )
    print(f"{log.rows:,} rows in {log.path}, {log.click_rate:.1%} clicks; true probabilities in {log.truth}")
    print(f"no model can expect more than AUC {log.auc:.4f} and log loss {log.log_loss:.4f}")


def add_prepare(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 prepare``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "prepare",
        help="turn raw logs into encoded rows",
        description="Turn raw click logs into encoded rows in a new directory.",
        epilog="Sources are CSV, TSV, Parquet or libffm files, plain, .gz or .zst; several, or a quoted glob.",
    )
    command.add_argument("source", nargs="+", metavar="SOURCE", help="files with the rows to learn from")
    meaning = command.add_mutually_exclusive_group(required=True)
    meaning.add_argument("--preset", choices=("criteo", "avazu"), help="the schema of a well-known data set")
    meaning.add_argument("--schema", metavar="FILE", help="a TOML file that tells the fields and the label")
    meaning.add_argument("--label", metavar="COLUMN", help="the column that is 1 for a click; fields are inferred")
    meaning.add_argument("--like", metavar="DIR", help="an older data set, whose schema, buckets and values are kept")
    command.add_argument("--out", required=True, metavar="DIR", help="the directory to make")
    command.add_argument("--validation", nargs="+", metavar="FILE", help="files of their own for validation")
    command.add_argument("--test", nargs="+", metavar="FILE", help="files of their own for the test")
    command.add_argument(
        "--split", choices=("random", "time"), default="random", help="how rows are divided (default: %(default)s)"
    )
    command.add_argument(
        "--fractions", default="0.8,0.1,0.1", metavar="A,B,C", help="shares of the splits (default: %(default)s)"
    )
    command.add_argument("--seed", type=int, default=0, help="of the random split (default: %(default)s)")
    command.add_argument("--min-count", type=int, metavar="N", help="rarer values are unknown, in every field")
    command.add_argument(
        "--vocabulary",
        choices=("train", "all"),
        default="train",
        help="the rows whose values are counted (default: %(default)s)",
    )
    command.add_argument(
        "--bad-rows",
        choices=("stop", "skip"),
        default="stop",
        help="stop at a bad row, or set it aside (default: %(default)s)",
    )
    command.add_argument("--overwrite", action="store_true", help="replace a data set that is there already")
    command.add_argument("--threads", type=int, default=0, metavar="N", help="how many (default: all processors)")
    command.add_argument("--json", action="store_true", help="print what was found as JSON")
    command.set_defaults(run=_prepare)
    return command


def _prepare(settings: argparse.Namespace) -> None:
    from fm2.data.dataset import Dataset
    from fm2.data.description import describe
    from fm2.data.prepare import prepare

    like = Dataset.open(settings.like) if settings.like else None
    schema = like.schema if like else _schema(settings)
    if settings.min_count is not None:
        if like:
            raise Fm2Error("prepare: --min-count belongs to the schema, and --like takes that of another data set")
        schema = schema.with_min_count(settings.min_count)
    try:
        fractions = [float(share) for share in settings.fractions.split(",")]
    except ValueError:
        raise Fm2Error(f"prepare: --fractions is '{settings.fractions}', not numbers like 0.8,0.1,0.1") from None
    if settings.split == "time" and not any(field.kind == "timestamp" for field in schema.fields):
        print("fm2: there is no timestamp field: rows are taken to be in the order of time", file=sys.stderr)
    dataset = prepare(
        settings.source,
        like or schema,
        settings.out,
        validation=settings.validation,
        test=settings.test,
        split=settings.split,
        fractions=fractions,
        seed=settings.seed,
        vocabulary=settings.vocabulary,
        bad_rows=settings.bad_rows,
        overwrite=settings.overwrite,
        threads=settings.threads,
    )
    _show(describe(dataset), settings.json)


def _schema(settings: argparse.Namespace) -> Schema:
    from fm2.schema import Schema

    if settings.preset:
        return Schema.preset(settings.preset)
    return Schema.load(settings.schema) if settings.schema else Schema.infer(settings.source[0], label=settings.label)


def add_describe(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 describe``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "describe", help="show what a prepared data set holds", description="Show the fields and splits of a data set."
    )
    command.add_argument("data", metavar="DIR", help="a directory that fm2 prepare made")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_describe)
    return command


def _describe(settings: argparse.Namespace) -> None:
    from fm2.data.dataset import Dataset
    from fm2.data.description import describe

    _show(describe(Dataset.open(settings.data)), settings.json)


def _show(description: dict[str, Any], as_json: bool) -> None:
    from fm2.data.description import print_description

    if as_json:
        print(json.dumps(description, ensure_ascii=False))
    else:
        print_description(description)
