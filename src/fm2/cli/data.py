"""Commands that create and describe datasets: ``generate``, ``prepare``, ``describe``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fm2.cli import shared
from fm2.cli.command import Argument, command, flag, input_path, output_path
from fm2.errors import Fm2Error

if TYPE_CHECKING:
    from fm2.data.dataset import Dataset
    from fm2.schema import Schema


@command(
    "generate",
    "generate a click log with known probabilities",
    description="Generate a click log whose labels are drawn from a random field-matrixed model.",
    example="fm2 generate log.tsv --rows 200000 --features 50000",
    notes="The true probability of each row is written to OUT.truth.npy, and the schema of a log with lists to "
    "OUT.schema.toml.",
    arguments=(
        output_path("out", "output file: .tsv or .tsv.gz in Criteo's format, or .parquet", "OUT"),
        Argument("--rows", "number of rows", int, default=1_000_000),
        Argument("--fields", "number of columns besides the label", int, default=39),
        Argument("--features", "number of distinct values in all fields together", int, default=1_000_000),
        Argument("--multivalued", "number of columns with lists of values, besides --fields", int, default=0),
        Argument("--values", "average number of values in a list", int, default=10),
        flag("--weighted", "give the values in lists weights"),
        Argument("--click-rate", "expected share of clicks", float, default=0.25),
        Argument("--seed", "random seed of the model and the rows", int, default=0),
        shared.OVERWRITE,
    ),
)
def generate(options: argparse.Namespace) -> None:
    from fm2.data.synthetic.generate import generate
    from fm2.files import check_output
    from fm2.progress import Progress

    check_output("generate", Path(options.out), "log", overwrite=options.overwrite)
    with Progress("writing", options.rows) as progress:
        log = generate(
            Path(options.out),
            progress=lambda rows: progress.update(rows, rows),
            **shared.pick(
                options, "rows", "fields", "features", "multivalued", "values", "weighted", "click_rate", "seed"
            ),
        )
    print(f"wrote {log.rows:,} rows to {log.path} ({log.click_rate:.1%} clicks), true probabilities to {log.truth}")
    print(f"best expected scores of any model: AUC {log.auc:.4f}, log loss {log.log_loss:.4f}")


@command(
    "prepare",
    "encode raw logs as a dataset",
    description="Build the vocabularies of raw click logs and write their rows, encoded, to a new directory.",
    example="fm2 prepare log.tsv --preset criteo --out data",
    notes="SOURCE is a CSV, TSV, Parquet or libffm file, plain or compressed (.gz, .zst); several files or a quoted "
    "glob pattern are possible.",
    arguments=(
        Argument("source", "files with the rows to learn from", metavar="SOURCE", many=True),
        Argument("--preset", "schema of a public log", choices=("criteo", "avazu"), alternative=True),
        input_path("--schema", "TOML file that declares the fields and the label", "FILE", alternative=True),
        Argument("--label", "click column (0 or 1); the fields are inferred", metavar="COLUMN", alternative=True),
        input_path("--like", "dataset whose schema, buckets and vocabulary are reused", "DATA", alternative=True),
        Argument(
            "--impressions",
            "column with the number of impressions; the label is the number of clicks",
            metavar="COLUMN",
        ),
        Argument("--weight", "column of row weights", metavar="COLUMN"),
        output_path("--out", "output directory", "DATA"),
        Argument("--validation", "separate files for the validation split", metavar="FILE", many=True),
        Argument("--test", "separate files for the test split", metavar="FILE", many=True),
        Argument("--split", "split the rows at random or by time", choices=("random", "time"), default="random"),
        Argument(
            "--fractions",
            "fractions of train, validation and test",
            shared.numbers(float, "numbers like 0.8,0.1,0.1"),
            metavar="A,B,C",
            default="0.8,0.1,0.1",
        ),
        Argument("--seed", "random seed of the split", int, default=0),
        Argument(
            "--min-count",
            "treat values with fewer occurrences as unknown, in every field (0: the default, 2 to 4)",
            int,
        ),
        Argument("--vocabulary", "rows from which the vocabulary is built", choices=("train", "all"), default="train"),
        Argument("--negative-rate", "keep this share of the training rows without a click", float, default=1.0),
        Argument("--crosses", "add crosses of fields that improve a model on the validation rows", choices=("auto",)),
        Argument("--crosses-model", "model that --crosses auto improves (default: fmfm)", metavar="MODEL"),
        Argument(
            "--trees",
            "add a field of gradient-boosted trees: always, or only if it helps (auto)",
            choices=("auto", "always"),
        ),
        Argument("--bad-rows", "stop at an invalid row, or skip it", choices=("stop", "skip"), default="stop"),
        Argument(
            "--engine",
            "local: one process on all cores; ray: tasks on a Ray cluster",
            choices=("local", "ray"),
            default="local",
        ),
        Argument("--address", "Ray cluster to use, such as auto (default: a new one on this machine)"),
        shared.OVERWRITE,
        shared.THREADS,
        shared.JSON,
    ),
)
def prepare(options: argparse.Namespace) -> None:
    from fm2.data.dataset import Dataset
    from fm2.data.description import describe
    from fm2.data.prepare import prepare

    like = Dataset.open(options.like) if options.like else None
    if like:
        for option in ("min_count", "impressions", "weight", "crosses", "trees"):
            if getattr(options, option) is not None:
                name = option.replace("_", "-")
                raise Fm2Error(f"prepare: --{name} cannot be combined with --like, which reuses a schema")
    if options.crosses_model and not options.crosses:
        raise Fm2Error("prepare: --crosses-model requires --crosses auto")
    schema = like.schema if like else _schema(options)
    if options.min_count is not None:
        schema = schema.with_min_count(options.min_count)
    if options.split == "time" and not any(field.kind == "timestamp" for field in schema.fields):
        shared.warn(
            "no timestamp field; assuming that the rows are in chronological order. If they are not, use --schema with "
            'kind = "timestamp" for the time column'
        )
    settings = {
        **shared.pick(options, "fractions", "validation", "test", "split", "seed", "vocabulary"),
        **shared.pick(options, "negative_rate", "bad_rows", "engine", "address", "overwrite", "threads"),
    }
    if options.trees == "always":
        schema = schema.with_trees()
    if options.trees == "auto":
        dataset = _prepare_with_trees(options, schema, settings)
    elif options.crosses:
        dataset = _prepare_with_crosses(options, schema, settings, options.out)
    else:
        dataset = prepare(options.source, like or schema, options.out, **settings)
    for name in ("validation", "test"):
        if not len(dataset.split(name)):
            together = ", because rows with the same time stay together" if options.split == "time" else ""
            shared.warn(f"there are no {name} rows{together}; --fractions and --{name} change that")
    _print(describe(dataset), options.json)


def _prepare_with_crosses(
    options: argparse.Namespace, schema: Schema, settings: dict[str, Any], out: str | Path
) -> Dataset:
    from fm2.studies.crosses.auto import prepare_with_crosses

    if options.min_count is not None:
        settings = {**settings, "min_count": options.min_count}
    if options.crosses_model:
        settings = {**settings, "model": options.crosses_model}
    dataset, chosen = prepare_with_crosses(options.source, schema, out, watch=shared.report_step, **settings)
    for cross in chosen:
        shared.warn(f"added the cross {cross}: log loss -{cross.gain:.6f} on the validation rows (z {cross.z:.1f})")
    if not chosen:
        shared.warn("no cross improves the log loss of the validation rows significantly")
    return dataset


def _prepare_with_trees(options: argparse.Namespace, schema: Schema, settings: dict[str, Any]) -> Dataset:
    from fm2.data.manifest import MANIFEST
    from fm2.files import check_output, temporary_directory
    from fm2.studies.trees import prepare_with_trees
    from fm2.training.progress import TrainingDisplay

    out = Path(options.out)
    check_output("prepare", out.resolve(), "dataset", MANIFEST, overwrite=options.overwrite)
    if options.crosses:  # only the last dataset appears under its name
        out.parent.mkdir(parents=True, exist_ok=True)
        with temporary_directory(out) as folder:
            schema = _prepare_with_crosses(options, schema, settings, folder / "crossed").schema
    with TrainingDisplay() as display:

        def report_step(step: str) -> None:
            display.restart()
            shared.report_step(step)

        dataset, gain = prepare_with_trees(options.source, schema, out, watch=report_step, callback=display, **settings)
    shared.warn(str(gain))
    return dataset


def _schema(options: argparse.Namespace) -> Schema:
    from fm2.schema import Schema

    targets = {name: getattr(options, name) for name in ("impressions", "weight") if getattr(options, name)}
    if options.label:
        return Schema.infer(options.source[0], label=options.label, **targets)
    schema = Schema.preset(options.preset) if options.preset else Schema.load(options.schema)
    return schema.replace(**targets)


@command(
    "describe",
    "describe a dataset",
    description="Describe the fields and splits of a dataset.",
    example="fm2 describe data",
    arguments=(shared.DATA, shared.JSON),
)
def describe(options: argparse.Namespace) -> None:
    from fm2.data.dataset import Dataset
    from fm2.data.description import describe

    _print(describe(Dataset.open(options.data)), options.json)


def _print(description: dict[str, Any], as_json: bool) -> None:
    from fm2.data.description import print_description

    if as_json:
        print(json.dumps(description, ensure_ascii=False))
    else:
        print_description(description)


COMMANDS = (generate, prepare, describe)
