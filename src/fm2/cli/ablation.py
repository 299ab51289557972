"""The command ``ablate``: what each field and each part contributes to a model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fm2.cli import shared
from fm2.cli.command import Argument, command, input_path, output_path
from fm2.errors import Fm2Error


def _names(text: str | None, known: Sequence[str]) -> list[str] | None:
    """Parse the names of fields.

    >>> _names("all", ["C1"]), _names("none", ["C1"]), _names("C1, C2", ["C1"]), _names(None, ["C1"])
    (['C1'], [], ['C1', 'C2'], None)
    """
    if text is None or text in ("all", "none"):
        return {None: None, "all": list(known), "none": []}[text]
    return [name.strip() for name in text.split(",")]


@command(
    "ablate",
    "train a model without each field and each part",
    description="Train a model again without each of its fields, and with its parts replaced, and report which changes "
    "are significant on the test split.",
    example="fm2 ablate run data --out ablation --fields user,item",
    notes="Interactions are replaced by those of FFM, by vectors, by scalars, by those of FM, and by none; the linear "
    "part by the variants of the paper's section 4.5. DIR/ablate.json and DIR/ablate.csv contain the table and are "
    "updated after every training. fm2 report shows charts: differences, maps of embeddings, and the gap between "
    "training and test loss by the frequency of features. Ctrl-C stops cleanly; --resume continues.",
    interrupted=shared.CONTINUE,
    arguments=(
        shared.RUN,
        input_path("data", "the dataset that RUN was trained on", "DATA"),
        output_path("--out", "directory to create", "DIR"),
        Argument("--fields", "fields to leave out, one by one: a,b, all or none (default: all)", metavar="LIST"),
        Argument("--no-parts", "do not replace parts", action="store_false", dest="parts"),
        Argument("--embeddings", "fields to map: a,b, all or none (default: the 6 needed most)", metavar="LIST"),
        Argument("--seeds", "number of random seeds per variant (default: 1)", int, default=1),
        shared.RESUME,
        shared.OVERWRITE,
        shared.ROW_WEIGHTS,
        Argument("--epochs", "maximum number of epochs (default: as for RUN)", int),
        Argument("--patience", "evaluations without improvement before early stopping", int),
        Argument("--threads", "number of threads (default: as for RUN)", int),
        shared.JSON,
    ),
)
def ablate(options: argparse.Namespace) -> None:
    from fm2.artifacts.model_file import check_model
    from fm2.cpu import check_threads
    from fm2.data.dataset import Dataset

    check_threads("ablate", options.threads or 0)
    check_model(Path(options.run_path))
    dataset = Dataset.open(options.data)

    from fm2.cli.studies import RunReporter  # after the checks: importing torch takes seconds
    from fm2.studies.ablation.ablate import ablate
    from fm2.studies.ablation.results import CSV, JSON
    from fm2.training.progress import TrainingDisplay

    training = shared.pick(options, "epochs", "patience", "threads")
    with TrainingDisplay() as watch:
        reporter = RunReporter(watch, options.debug)
        ablation = ablate(
            options.run_path,
            dataset,
            options.out,
            fields=_names(options.fields, dataset.schema.names),
            embeddings=_names(options.embeddings, dataset.schema.names),
            watch=watch,
            on_start=reporter.begin,
            on_result=lambda row, error: reporter.end({**row, "run": row["variant"]}, error),
            **shared.pick(options, "parts", "seeds", "resume", "overwrite", "row_weights"),
            **{name: value for name, value in training.items() if value is not None},
        )
    if options.json:
        print((ablation.path / JSON).read_text(encoding="utf-8"), end="")
    else:
        print("\n".join(ablation.lines()))
        print(f"saved as {ablation.path / JSON} and {ablation.path / CSV}")
        print(f"fm2 report {options.out} --out report.html shows charts")
    if ablation.failed:
        names = ", ".join(row["variant"] for row in ablation.failed)
        raise Fm2Error(f"ablate: {len(ablation.failed)} of {len(ablation.rows)} trainings failed: {names}")


COMMANDS = (ablate,)
