"""The variants of a trained model: without a field, or with a part replaced."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from fm2.artifacts.settings import Settings, is_used
from fm2.data.dataset import Dataset
from fm2.data.reduced import dependent_fields
from fm2.errors import Fm2Error, suggest
from fm2.models.registry import get_spec, spec_of_interaction
from fm2.models.spec import ModelSpec
from fm2.models.specs.shallow import FFM, LR
from fm2.training.resolve import log_for_defaults

Kind = Literal["complete", "field", "interaction", "linear", "network"]

COMPLETE = "complete"
KEY = re.compile(r"(complete|field-\d+|model-\w+|linear-\w+|wide|no-hidden)-\d+")  # of a run
# How two fields interact instead, from the most to the least flexible; FFM, which section 3.2 compares with, first.
INTERACTIONS = {
    FFM.name: "an embedding per feature and other field",
    spec_of_interaction("matrix").name: "a matrix per field pair",
    spec_of_interaction("vector").name: "a vector per field pair",
    spec_of_interaction("scalar").name: "a scalar per field pair",
    spec_of_interaction("constant").name: "the same for all pairs",
    LR.name: "no interactions",
}
# Settings of the complete model that a model with other interactions keeps.
KEPT = (
    *("linear", "positive_weight", "metric", "batch_size", "epochs", "evaluations_per_epoch", "patience"),
    *("threads", "device"),
)
LINEAR_TITLES = {"features": "a weight per feature", "fields": "a vector per field", "both": "weights and vectors"}


@dataclass(frozen=True)
class Variant:
    """A variant: its name in tables, the ``key`` in the names of its runs, and how it is trained.

    ``without`` are the fields that its dataset does not have.
    """

    key: str
    name: str
    kind: Kind
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a JSON file, without the settings, which are in the runs."""
        return {"key": self.key, "name": self.name, "kind": self.kind, "model": self.model, "without": self.without}


def plan_variants(
    model: str, settings: Mapping[str, Any], dataset: Dataset, fields: Sequence[str] | None, parts: bool
) -> list[Variant]:
    """Return the complete model and its variants.

    ``settings`` are those of the complete model. ``fields`` are left out one by one; None means each field.
    """
    spec, names = get_spec(model, "ablate"), dataset.schema.names
    for name in fields or ():
        if name not in names:
            raise Fm2Error(f"ablate: unknown field '{name}'; {suggest(name, names)}")
    variants = [Variant(COMPLETE, COMPLETE, "complete", model, dict(settings))]
    if parts:
        variants += _interactions(spec, settings, dataset) if spec.has_field_matrices else []
        variants += _options(spec, settings)
    left_out = names if fields is None else fields
    variants += [_without(spec, settings, dataset, name) for name in left_out if len(names) > 1]
    return variants


def _without(spec: ModelSpec, settings: Mapping[str, Any], dataset: Dataset, name: str) -> Variant:
    """Leave out a field, and the crosses and trees that read it."""
    names = dataset.schema.names
    dropped = dependent_fields(dataset.schema, [name])
    title = f"without {name}" + (f" and {', '.join(n for n in dropped if n != name)}" if len(dropped) > 1 else "")
    kept = [index for index, each in enumerate(names) if each not in dropped]
    reduced = dict(settings)
    if isinstance(reduced.get("dim"), list | tuple):
        reduced["dim"] = [reduced["dim"][index] for index in kept]
    for option in spec.options:
        if option.field_indices and option.name in reduced:
            reduced[option.name] = [kept.index(index) for index in reduced[option.name] if index in kept]
    return Variant(f"field-{names.index(name)}", title, "field", spec.name, reduced, tuple(dropped))


def _interactions(spec: ModelSpec, settings: Mapping[str, Any], dataset: Dataset) -> list[Variant]:
    """Replace the field matrices. Optimizer and regularization are the defaults of each model, the rest is kept."""
    log = log_for_defaults(dataset)
    kept = {name: settings[name] for name in KEPT if name in settings}
    variants = []
    for model, title in INTERACTIONS.items():
        if model == spec.name:
            continue
        other = get_spec(model)
        used = {name: value for name, value in kept.items() if is_used(model, name)}
        if other.has_field_matrices:  # FFM needs far fewer dimensions
            used["dim"] = _dim(settings["dim"], other)
        try:
            chosen = Settings.of(model, *log, **used).used()
        except Fm2Error as error:
            raise Fm2Error(f"{str(error).replace('train:', f'ablate: {model}:', 1)}; parts=False omits it") from error
        del chosen["model"]
        variants.append(Variant(f"model-{model}", f"{title} ({other.title})", "interaction", model, chosen))
    return variants


def _dim(dim: int | Sequence[int], spec: ModelSpec) -> int | Sequence[int]:
    """Return the dimensions for another model: their mean if it needs equal ones."""
    return dim if isinstance(dim, int) or spec.dimensions == "per_field" else max(round(fmean(dim)), 1)


def _options(spec: ModelSpec, settings: Mapping[str, Any]) -> list[Variant]:
    """Replace the parts that a model has as options: the linear part (section 4.5), the hidden layers."""
    options = {option.name: option for option in spec.options}
    variants = []
    if "linear" in options:
        variants += [
            Variant(f"linear-{choice}", f"linear part: {title}", "linear", spec.name, {**settings, "linear": choice})
            for choice, title in LINEAR_TITLES.items()
            if choice != settings.get("linear")
        ]
    if "wide" in options:
        wide = not settings.get("wide", options["wide"].default)
        title = "with a weight per feature" if wide else "without a weight per feature"
        variants.append(Variant("wide", title, "linear", spec.name, {**settings, "wide": wide}))
    if "hidden" in options and settings.get("hidden", options["hidden"].default):
        variants.append(Variant("no-hidden", "without hidden layers", "network", spec.name, {**settings, "hidden": []}))
    return variants
