"""Warm start: training a model further on new data. Vocabularies grow, and known features keep their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fm2.data.dataset import Dataset
from fm2.data.vocabulary import Vocabulary
from fm2.evaluation.id_mapping import check_same_encoding
from fm2.models import Model
from fm2.training.run import Run


def fixed_config(run: Run) -> dict[str, Any]:
    """Return the parts of a model's config that training never changes: pruned pairs, and the signs of an FM."""
    return {name: run.model.config[name] for name in ("pruned", "signs") if name in run.model.config}


def extend_vocabularies(run: Run, dataset: Dataset) -> list[Vocabulary]:
    """Append to each vocabulary of a dataset the model's values that it lacks; the ids of the new data stay valid."""
    check_same_encoding("train", run.encoder, dataset, run.path)
    pairs = zip(run.encoder.vocabularies, dataset.vocabularies, strict=True)
    return [new.with_values_of(old) for old, new in pairs]


def copy_weights(run: Run, model: Model, vocabularies: Sequence[Vocabulary]) -> None:
    """Copy a trained model's weights into a new model: table rows by their feature's value, all else as it is."""
    old = run.model
    sources = [new.ids_in(before) for new, before in zip(vocabularies, run.encoder.vocabularies, strict=True)]
    with torch.no_grad():
        for name, table in model.tables.items():
            for field, source in enumerate(sources):
                known = torch.from_numpy(source >= 0)
                table.rows(field)[known] = old.tables[name].rows(field)[torch.from_numpy(source[source >= 0])]
        tables = {f"{name}.weight" for name in model.tables}
        trained = old.learned()
        for name, value in model.learned().items():
            if name not in tables:
                value.copy_(trained[name])
