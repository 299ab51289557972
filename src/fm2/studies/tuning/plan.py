"""The plan of a search, on disk: what one that is resumed goes on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fm2.artifacts.settings import read_settings
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error, require
from fm2.files import atomic_file
from fm2.models.choices import Metric
from fm2.studies.tuning.choice import Plan, make_plan, written_space
from fm2.training.inputs import fingerprint_of

PLAN, SPACE = "tune.json", "space.toml"


def find_plan(path: Path, resume: bool, model: str, dataset: Dataset, given: dict[str, Any]) -> Plan:
    """Plan a search, or take up the plan of one that is resumed, which what is given may not contradict."""
    if not resume:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise Fm2Error(f"tune: {path} is there already; --resume goes on with a search")
        return _make(model, dataset, given)
    if not (path / PLAN).is_file():
        raise Fm2Error(f"tune: there is no search to resume in {path}")
    kept, before = _read(path / PLAN)
    if kept.get("data") != fingerprint_of(dataset):
        raise Fm2Error(f"tune: the search in {path} had another data set; give the same to resume it")
    if kept.get("row_weights") != given["row_weights"]:
        raise Fm2Error(f"tune: the search in {path} had other row weights, or none; give the same to resume it")
    for name, value in (("model", model), ("metric", given["metric"]), ("seed", given["seed"])):
        if value is not None and value != kept[name]:
            raise Fm2Error(f"tune: the search in {path} has {name} {kept[name]}, not {value}")
    if given["fix"] or given["space"] is not None:
        now = _make(model, dataset, {**given, "metric": before.metric, "seed": before.seed})
        if (now.space, now.fixed) != (before.space, before.fixed):
            raise Fm2Error(f"tune: the search in {path} tries or fixes other settings; leave --fix and --space out")
    return before


def _read(path: Path) -> tuple[dict[str, Any], Plan]:
    """Read what a search was told; whatever a person made of the file is one clear error."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        size, told = (kept["rows"], kept["fields"]), (kept["metric"], kept["seed"], kept["fixed"], kept["space"])
        return kept, make_plan(kept["model"], *size, *told)
    except OSError as refused:
        raise Fm2Error(f"tune: {path}: {refused.strerror}") from refused
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise Fm2Error(f"tune: {path} is damaged, or no search of fm2's: {wrong}") from wrong


def _make(model: str, dataset: Dataset, given: dict[str, Any]) -> Plan:
    space = given["space"]
    written = read_settings(Path(space), "tune") if isinstance(space, str | Path) else space
    place = str(space) if isinstance(space, str | Path) else "the space"
    metric: Metric = given["metric"] or "log_loss"
    size = len(dataset.train), len(dataset.field_sizes)
    return make_plan(model, *size, metric, given["seed"] or 0, given["fix"] or {}, written, place)


def write_plan(path: Path, plan: Plan, dataset: Dataset, row_weights: str | None) -> None:
    """Write what a search that is resumed has to know, and the space as a file that a person may change and give."""
    kept = {
        "model": plan.model,
        "rows": plan.rows,
        "fields": plan.fields,
        "data": fingerprint_of(dataset),
        "row_weights": row_weights,
        "metric": plan.metric,
        "seed": plan.seed,
        "fixed": dict(plan.fixed),
        "space": {name: value for name, value in written_space(plan).items() if name in plan.space},
    }
    with atomic_file(path / SPACE) as partial:
        partial.write_text(require("tomli_w", "train", "writing settings").dumps(written_space(plan)), encoding="utf-8")
    with atomic_file(path / PLAN) as partial:
        partial.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
