"""Going on with a trained model on new logs: vocabularies grow, old features keep what they learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fm2.artifacts.settings import Settings
from fm2.data.dataset import Dataset
from fm2.data.vocabulary import Vocabulary
from fm2.errors import Fm2Error
from fm2.evaluation.id_mapping import check_same_encoding
from fm2.models import Model
from fm2.models.networks import NETWORKS
from fm2.training.run import Run


def shape_of(run: Run) -> dict[str, Any]:
    """Give the settings that decide the shape of a run's model; whoever goes on with it has to keep them."""
    config = run.model.config
    if config["model"] == "poly2":
        raise Fm2Error("train: poly2 finds its pairs by their ids, which new data changes; train it anew")
    dims = config.get("dims", [])
    found = {
        "dim": config.get("dim") or (dims[0] if len(set(dims)) == 1 else list(dims)),
        "linear": config.get("linear"),
    }
    options = NETWORKS[config["model"]].options if config["model"] in NETWORKS else ()
    own = {option.name: config[option.name] for option in options if option.shapes}
    return {name: value for name, value in found.items() if value} | own


def held(run: Run) -> dict[str, Any]:
    """Give what no training changes of a run's model: which pairs are pruned, and an FM's signs."""
    return {name: run.model.config[name] for name in ("pruned", "signs") if name in run.model.config}


def check_shape(run: Run, settings: Settings) -> None:
    """Refuse settings that ask for another model than the run's."""
    for name, value in {"model": run.model.name, **shape_of(run)}.items():
        if settings.to_dict()[name] != value:
            raise Fm2Error(f"train: the model of {run.path} has {name} {value}, not {settings.to_dict()[name]}")


def grow(run: Run, dataset: Dataset) -> list[Vocabulary]:
    """Append to each new vocabulary the old values that it lacks; the ids of the new data stay as they are."""
    check_same_encoding("train", run.encoder, dataset, run.path)
    pairs = zip(run.encoder.vocabularies, dataset.vocabularies, strict=True)
    return [new.with_values_of(old) for old, new in pairs]


def transplant(run: Run, model: Model, vocabularies: Sequence[Vocabulary]) -> None:
    """Give a new model the weights of the old one: by value in the tables, as they are elsewhere."""
    old = run.model
    sources = [new.ids_in(before) for new, before in zip(vocabularies, run.encoder.vocabularies, strict=True)]
    with torch.no_grad():
        for name, table in model.tables.items():
            before = old.tables[name]
            for field, source in enumerate(sources):
                found = torch.from_numpy(source >= 0)
                table.rows(field)[found] = before.rows(field)[torch.from_numpy(source[source >= 0])]
        tables = {f"{name}.weight" for name in model.tables}
        learned = {**dict(old.named_parameters()), **old.statistics()}
        for name, value in {**dict(model.named_parameters()), **model.statistics()}.items():
            if name not in tables:
                value.copy_(learned[name])
