"""``fm2.reproduce``: from one of the paper's two logs to its tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from fm2.comparison.comparing import compare
from fm2.comparison.planning import usable
from fm2.comparison.table import JSON as COMPARISON
from fm2.comparison.table import Comparison
from fm2.compression.shrinking import compare as shrink_all
from fm2.data.dataset import MANIFEST, Dataset
from fm2.data.preparation import prepare
from fm2.errors import Fm2Error, nearest
from fm2.reproduction import tables as made
from fm2.reproduction.contradictions import contradictions
from fm2.reproduction.protocol import (
    Protocol,
    common_settings,
    own_settings,
    preparation,
    schema_of,
    weighting,
)
from fm2.reproduction.published import QUALITY, SAMPLES, SHRUNK, TABLES
from fm2.storage import new_file, writing_to
from fm2.training.loop import Report
from fm2.training.run import SETTINGS, Run

FORMAT, VERSION = "fm2 reproduction", 1
RECORD, PAGE = "reproduction.json", "reproduction.md"
TRAINED = ("lr", "fm", "ffm", "fwfm", "fvfm", "fmfm")  # what the paper compares with its own, by its own code


@dataclass
class Reproduction:
    """The paper's tables for one log. ``tables`` are those that are done, ``failed`` the rows of models that failed."""

    path: Path
    log: str
    source: str
    protocol: Protocol
    models: list[str]
    numbers: list[int]
    rows: int = 0
    tables: list[made.Table] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Give the page: what the rows are, the tables, and where the paper contradicts itself."""
        whole, used = SAMPLES[self.log].rows, "the paper's optimiser" if self.protocol == "paper" else "fm2's defaults"
        share = f"{self.rows:,} rows of the {whole:,} that the paper has ({self.rows / whole:.1%})"
        part = "" if self.rows > 0.99 * whole else ": a part, whose figures are not to be compared with the whole's"
        lines = [f"# The paper's tables on {self.log.capitalize()}, with {used}", "", f"{share}{part}.", ""]
        lines += [line for table in self.tables for line in table.lines()]
        lines += ["## Where the paper contradicts itself", ""]
        return [*lines, *(f"- {text}" for text in contradictions(self.log))]

    def record(self) -> dict[str, Any]:
        """Give what is done in plain values."""
        own = {name: getattr(self, name) for name in ("log", "source", "protocol", "models", "numbers", "rows")}
        tables = [{"title": t.title, "header": list(t.header), "rows": t.rows, "notes": t.notes} for t in self.tables]
        return {"format": FORMAT, "version": VERSION, **own, "tables": tables}

    def save(self) -> None:
        """Write the page, and the record by which it can be gone on with."""
        with writing_to(self.path, "reproduce"):
            self.path.mkdir(parents=True, exist_ok=True)
            for name, text in ((RECORD, json.dumps(self.record(), indent=1)), (PAGE, "\n".join(self.lines()))):
                with new_file(self.path / name) as partial:
                    partial.write_text(text + "\n", encoding="utf-8")


def reproduce(
    log: str,
    source: str | Path,
    out: str | Path,
    *,
    protocol: Protocol = "fm2",
    models: str | Sequence[str] | None = None,
    tables: Sequence[int] | None = None,
    seeds: int | Sequence[int] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    own: Mapping[str, Mapping[str, Any]] | None = None,
    watch: Callable[[Report], None] = lambda report: None,
    begin: Callable[[str], None] = lambda run: None,
    tell: Callable[[dict[str, Any], Exception | None], None] = lambda row, error: None,
    **settings: Any,
) -> Reproduction:
    """Make the paper's tables 5 to 8 from the file of ``criteo`` or ``avazu``, all of it or a part.

    Thresholds, splits and K = 16 are the paper's. ``protocol`` says how models are trained: with the defaults of
    ``"fm2"``, or as in the ``"paper"``, whose code also counts values over the test rows. ``models`` are names of the
    paper's table, or ``all``; by default those that its authors trained. ``settings`` and ``own`` change the protocol's
    as in :func:`fm2.compare`, of which the rest is. What is done is in ``out``: ``data``, ``compare``, ``shrink``, and
    the tables.
    """
    begun = _begin(log, source, Path(out), protocol, models, tables, resume, overwrite)
    dataset = _data(begun, resume, overwrite, int(settings.get("threads", 0)))
    begun.rows = sum(entry["rows"] for entry in dataset.manifest["splits"].values())
    begun.tables = [made.samples(log, dataset)] if 5 in begun.numbers else []
    begun.save()
    if begun.numbers == [5]:
        return begun
    common, single = common_settings(protocol) | settings, own_settings(protocol, begun.models)
    single = {name: single.get(name, {}) | dict((own or {}).get(name, {})) for name in {*single, *(own or {})}}
    single = {name: {k: v for k, v in some.items() if k not in settings} for name, some in single.items()}
    place = begun.path / "compare"
    again = resume and (place / COMPARISON).is_file()
    comparison = compare(
        dataset,
        place,
        begun.models,
        seeds=seeds,
        resume=again,
        overwrite=overwrite and place.exists(),
        own=single,
        watch=watch,
        begin=begin,
        tell=tell,
        **usable(begun.models, common),
    )
    begun.failed = comparison.failed
    begun.tables += _tables_of(begun, comparison, dataset)
    begun.save()
    if 8 in begun.numbers:
        begun.tables += _shrunk(begun, comparison, dataset, resume, overwrite, watch, begin)
        begun.save()
    return begun


def _begin(
    log: str,
    source: str | Path,
    out: Path,
    protocol: Protocol,
    models: str | Sequence[str] | None,
    tables: Sequence[int] | None,
    resume: bool,
    overwrite: bool,
) -> Reproduction:
    """Check what is asked for, and what is there; models and tables of before are kept where none are named."""
    for what, value, choices in (("log", log, TABLES), ("protocol", protocol, get_args(Protocol))):
        if value not in choices:
            raise Fm2Error(f"reproduce: the {what} is '{value}'; it is one of {', '.join(choices)}")
    before = _before(out, log, source, protocol, resume, overwrite)
    numbers = sorted(set(tables or before.get("numbers", TABLES[log])))
    for number in numbers:
        if number not in TABLES[log]:
            there = ", ".join(map(str, TABLES[log]))
            raise Fm2Error(f"reproduce: table {number} is none of {log}'s; there are {there}")
    if numbers == [8]:
        raise Fm2Error("reproduce: table 8 is of table 6's FmFM; give --tables 6,8 --models fmfm")
    names = _models(log, models or before.get("models", TRAINED))
    if 8 in numbers and "fmfm" not in names:
        raise Fm2Error("reproduce: table 8 needs fmfm among the models; leave it out by --tables 5,6")
    return Reproduction(out, log, str(Path(source).resolve()), protocol, names, numbers)


def _before(out: Path, log: str, source: str | Path, protocol: str, resume: bool, overwrite: bool) -> dict[str, Any]:
    """Give the record of what is there, if it is to be gone on with."""
    if resume and overwrite:
        raise Fm2Error("reproduce: --resume goes on and --overwrite begins anew; choose one of them")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return {}
    try:
        record: dict[str, Any] = json.loads((out / RECORD).read_text(encoding="utf-8"))
        told, was = (record["format"], record["version"]), (record["log"], record["source"], record["protocol"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as wrong:
        raise Fm2Error(f"reproduce: {out} holds something else (no readable {RECORD}); give another --out") from wrong
    if overwrite:
        return {}
    if not resume:
        raise Fm2Error(f"reproduce: {out} is there already; --resume goes on with it, --overwrite replaces it")
    now = (log, str(Path(source).resolve()), protocol)
    if told != (FORMAT, VERSION) or was != now:
        raise Fm2Error(f"reproduce: {out} is of {', '.join(map(str, was))}, not of {', '.join(now)}")
    return record


def _models(log: str, models: str | Sequence[str]) -> list[str]:
    there = [row.model for row in QUALITY[log]]
    words = [word.strip() for word in models.split(",")] if isinstance(models, str) else list(models)
    for word in words:
        if word not in (*there, "all"):
            raise Fm2Error(f"reproduce: the table has no model '{word}'; {nearest(word, [*there, 'all'])}")
    wanted = there if "all" in words else words
    return [name for name in there if name in wanted]


def _data(begun: Reproduction, resume: bool, overwrite: bool, threads: int) -> Dataset:
    """Prepare the log as the paper did, unless that is done."""
    place = begun.path / "data"
    if resume and (place / MANIFEST).is_file():
        return Dataset.open(place)
    if not Path(begun.source).is_file():
        raise Fm2Error(
            f"reproduce: there is no file {begun.source}; the paper's logs are Kaggle's, named train.txt or so"
        )
    begun.save()
    schema, options = schema_of(begun.log, begun.protocol), preparation(begun.protocol)
    return prepare(begun.source, schema, place, overwrite=overwrite, threads=threads, **options)


def _tables_of(begun: Reproduction, comparison: Comparison, dataset: Dataset) -> list[made.Table]:
    good = [row["run"] for row in comparison.rows if not row["error"]]
    others = {run: made.aucs(Run.open(comparison.path / run), dataset) for run in good}
    return [made.quality(begun.log, comparison, others), made.costs(begun.log, comparison)]


def _shrunk(
    begun: Reproduction,
    comparison: Comparison,
    dataset: Dataset,
    resume: bool,
    overwrite: bool,
    watch: Callable[[Report], None],
    begin: Callable[[str], None],
) -> list[made.Table]:
    """Train FmFM a second time for every share of the variance, from scratch as the paper does."""
    first = comparison.path / f"fmfm-{comparison.seeds[0]}"
    if not (first / SETTINGS).is_file() or any(row["model"] == "fmfm" for row in comparison.failed):
        return []
    begin("table 8")
    variances = [row.variance for row in SHRUNK if row.variance is not None]
    rows = shrink_all(
        first,
        dataset,
        begun.path / "shrink",
        variances,
        weighting=weighting(begun.protocol),
        resume=resume,
        overwrite=overwrite,
        watch=watch,
        tell=lambda bases: begin(f"{sum(basis.dim for basis in bases) / len(bases):.2f} dimensions on average"),
    )
    return [made.shrunk(rows)]
