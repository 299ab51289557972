"""The plan of a search on disk, which a resumed search reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fm2.artifacts.settings import read_settings
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error, require
from fm2.files import atomic_file, check_output
from fm2.models.choices import Metric
from fm2.studies.tuning.plan import Plan, make_plan, written_space
from fm2.training.inputs import fingerprint_of

PLAN, SPACE = "tune.json", "space.toml"


def find_plan(path: Path, resume: bool, model: str, dataset: Dataset, arguments: dict[str, Any]) -> Plan:
    """Plan a new search, or read the plan of a resumed one. Raise an error if the arguments contradict it."""
    check_output("tune", path, "search", PLAN, resume=resume)
    if not resume:
        return _make(model, dataset, arguments)
    stored, plan = _read(path / PLAN)
    if stored.get("data") != fingerprint_of(dataset):
        raise Fm2Error(f"tune: the search in {path} uses another dataset; resume with that one")
    if stored.get("row_weights") != arguments["row_weights"]:
        raise Fm2Error(f"tune: the search in {path} uses other row weights, or none; resume with the same")
    for name, value in (("model", model), ("metric", arguments["metric"]), ("seed", arguments["seed"])):
        if value is not None and value != stored[name]:
            raise Fm2Error(f"tune: the search in {path} has {name} {stored[name]}, not {value}")
    if arguments["fix"] or arguments["space"] is not None:
        now = _make(model, dataset, {**arguments, "metric": plan.metric, "seed": plan.seed})
        if (now.space, now.fixed) != (plan.space, plan.fixed):
            raise Fm2Error(f"tune: the search in {path} has another space; resume without --fix and --space")
    return plan


def _read(path: Path) -> tuple[dict[str, Any], Plan]:
    """Read a plan, and the file's content with it."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        names = ("model", "rows", "fields", "metric", "seed", "fixed", "space")
        return stored, make_plan(*(stored[name] for name in names))
    except OSError as error:
        raise Fm2Error(f"tune: {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fm2Error(f"tune: {path} is damaged or not a search: {error}") from error


def _make(model: str, dataset: Dataset, arguments: dict[str, Any]) -> Plan:
    space, source = arguments["space"], "space"
    if isinstance(space, str | Path):
        space, source = read_settings(Path(space), "tune"), str(space)
    metric: Metric = arguments["metric"] or "log_loss"
    size = len(dataset.train), len(dataset.field_sizes)
    return make_plan(model, *size, metric, arguments["seed"] or 0, arguments["fix"] or {}, space, source)


def write_plan(path: Path, plan: Plan, dataset: Dataset, row_weights: str | None) -> None:
    """Write the plan for a resumed search, and its space as a file that users can edit and pass as ``--space``."""
    space = written_space(plan)
    stored = {
        "model": plan.model,
        "rows": plan.rows,
        "fields": plan.fields,
        "data": fingerprint_of(dataset),
        "row_weights": row_weights,
        "metric": plan.metric,
        "seed": plan.seed,
        "fixed": dict(plan.fixed),
        "space": {name: space[name] for name in plan.space},
    }
    with atomic_file(path / SPACE) as partial:
        partial.write_text(require("tomli_w", "train", "writing settings").dumps(space), encoding="utf-8")
    with atomic_file(path / PLAN) as partial:
        partial.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
