"""Which candidates a race drops and keeps, mostly with planned scores instead of trainings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import SCHEMA, planted
from tests.helpers.races import FAST, record_of

from fm2 import prepare
from fm2.artifacts.run_directory import HISTORY, write_history
from fm2.training.loop import WITHOUT_TREES, DivergedError
from fm2.training.race import Race, new_record
from fm2.training.train import train


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return prepare(planted(1500, values=6), SCHEMA, tmp_path_factory.mktemp("planned") / "data")


METRICS = ("log_loss", "auc", "rig")
EPOCHS = (2.0, 4.0, 8.0, 9.0)  # at the end of the rounds
# Losses after the second and the third round, and at the end: the defaults are far behind, and variants that would be
# the best ones start too slowly. The last one diverges.
LOSSES = [
    (0.55, 0.53, 0.5),
    (0.5, 0.49, 0.49),
    (0.509, 0.492, 0.47),
    (0.53, 0.48, 0.45),
    (0.54, 0.53, 0.53),
    (0.509, 0.496, 0.46),
    (0.53, 0.5, 0.46),
]
DROPPED = [None, None, None, 2, 2, 3, 2, 1]


def evaluation(epoch: float, loss: float, metric: str, trees: str = "") -> dict[str, Any]:
    """Return a planned evaluation. With trees, all models are nearly equally good, maybe in reverse order."""
    values = {key: loss if key == "log_loss" else 1 - loss for key in METRICS}
    if not trees:
        return {"epoch": epoch, "best": True, **values}
    sign = -1 if trees == "reversed" and epoch < EPOCHS[-1] else 1
    blended = {key: 0.5 + sign * value / 100 for key, value in values.items()}
    return {"epoch": epoch, "best": True, **blended, WITHOUT_TREES: values[metric]}


def write_evaluations(path: Path, entries: list[dict[str, Any]], until: float) -> None:
    path.mkdir(parents=True, exist_ok=True)
    write_history(path / HISTORY, [entry for entry in entries if entry["epoch"] <= until])


@pytest.fixture
def medium(monkeypatch):
    """Make the log one of medium size, on which an ordinary training compares variants."""
    monkeypatch.setattr("fm2.training.candidates.FEWEST_ROWS", 100)
    monkeypatch.setattr("fm2.training.candidates.FEWEST_FOR_MATRICES", 100)


@pytest.mark.usefixtures("medium")
@pytest.mark.parametrize(("effort", "trees"), [(1, ""), (2, ""), (1, "same order"), (2, "same order"), (1, "reversed")])
@pytest.mark.parametrize("metric", METRICS)
def test_variants_that_are_far_behind_are_dropped(dataset, tmp_path, trees, metric, effort):
    def train_as_planned(settings, path, name, resume, until, callback) -> bool:
        number = int(name.removeprefix("candidate-")) - 1
        if number == len(LOSSES):
            raise DivergedError("the loss is too high")
        # Other settings, which only more effort tries, are better than all variants until the end.
        losses = (0.6, *LOSSES[number]) if number < len(LOSSES) else (0.58, 0.48, 0.478, 0.475)
        entries = [evaluation(epoch, loss, metric, trees) for epoch, loss in zip(EPOCHS, losses, strict=True)]
        write_evaluations(path, entries, until)
        return math.isinf(until)

    record = new_record("fmfm", effort, dataset, {"metric": metric}, None, {})
    Race(tmp_path, record, dataset, None, train_as_planned, lambda progress: None).run()
    assert [each.dropped for each in record.candidates[: len(DROPPED)]] == DROPPED
    assert record.winner == 2


@pytest.mark.usefixtures("medium")
def test_variants_that_have_finished_are_kept(dataset, tmp_path):
    """With trees, a variant may be the best one although its model alone is far behind."""

    def train_as_planned(settings, path, name, resume, until, callback) -> bool:
        number = int(name.removeprefix("candidate-")) - 1
        blended, own = (0.45, 0.56) if number == 2 else (0.46 + number / 1000, 0.5)
        write_evaluations(path, [{**evaluation(1.0, blended, "log_loss"), WITHOUT_TREES: own}], until)
        return True

    record = new_record("fmfm", 1, dataset, {}, None, {})
    Race(tmp_path, record, dataset, None, train_as_planned, lambda progress: None).run()
    assert not any(each.dropped for each in record.candidates)
    assert record.winner == 2


@pytest.mark.usefixtures("medium")
@pytest.mark.parametrize(("other", "gain"), [(0.42, 0.03), (0.48, 0.0)])
def test_the_gain_of_more_effort_is_compared_with_the_best_variant(dataset, tmp_path, other, gain):
    losses = [0.5, 0.49, 0.48, 0.45, 0.46, 0.47, 0.49, 0.48]

    def train_as_planned(settings, path, name, resume, until, callback) -> bool:
        number = int(name.removeprefix("candidate-")) - 1
        loss = losses[number] if number < len(losses) else other
        write_evaluations(path, [evaluation(1.0, loss, "log_loss")], until)
        return True

    record = new_record("fmfm", 2, dataset, {}, None, {})
    Race(tmp_path, record, dataset, None, train_as_planned, lambda progress: None).run()
    assert record.gain == pytest.approx(gain)
    best = "l2_power=1.0 l2=0.143 field_dropout=0.0 matrices=diagonal matrix_std=0.3"
    text = record.summary().replace(f"l2={record.candidates[3].changes['l2']}", "l2=0.143")
    if gain:
        assert text.endswith(f"validation log loss 0.4200, 0.0300 lower than with {best}")
    else:
        assert text == f"race: chose {best}: validation log loss 0.4500; none of 5 other candidates was better"


def plan_losses(monkeypatch, by_changes):
    """Make the log one of few rows, on which simpler matrices need a gain of 1%; return a planned training."""
    monkeypatch.setattr("fm2.training.candidates.FEWEST_ROWS", 100)

    def train_as_planned(settings, path, name, resume, until, callback) -> bool:
        losses = by_changes(settings, int(name.removeprefix("candidate-")) - 1)
        losses = [losses[0], *losses]
        entries = [evaluation(epoch, loss, "log_loss") for epoch, loss in zip(EPOCHS, losses, strict=True)]
        write_evaluations(path, entries, until)
        return math.isinf(until)

    return train_as_planned


@pytest.mark.parametrize(("other", "text"), [(0.503, "none of 5 other candidates was better"), (0.49, "0.0100 lower")])
def test_more_effort_is_not_worse_than_simpler_matrices(dataset, tmp_path, monkeypatch, other, text):
    def losses(settings, number):
        loss = 0.5 if settings.options.get("matrices") == "scalar" else 0.51 if number < 8 else other
        return [loss] * 3

    train_as_planned = plan_losses(monkeypatch, losses)
    record = new_record("fmfm", 2, dataset, {}, None, {})
    Race(tmp_path, record, dataset, None, train_as_planned, lambda progress: None).run()
    assert ("matrices" in record.candidates[record.winner].changes) == (other > 0.5)
    assert text in record.summary()
    assert record.gain == pytest.approx(max(0.5 - other, 0))


def test_simpler_matrices_that_are_hardly_better_are_mentioned(dataset, tmp_path, monkeypatch):
    def losses(settings, number):
        return [0.507 if settings.options.get("matrices") == "scalar" else 0.51] * 3

    train_as_planned = plan_losses(monkeypatch, losses)
    record = new_record("fmfm", 1, dataset, {}, None, {})
    Race(tmp_path, record, dataset, None, train_as_planned, lambda progress: None).run()
    assert record.winner == 0
    assert record.summary().endswith("none of 7 other candidates was clearly better")


def test_simpler_matrices_drop_others_only_if_they_are_clearly_better(dataset, tmp_path, monkeypatch):
    def losses(settings, number):
        scalar = settings.options.get("matrices") == "scalar"
        return [0.51, 0.5025 if scalar else 0.506 if number == 1 else 0.51, 0.504 if scalar else 0.506]

    train_as_planned = plan_losses(monkeypatch, losses)
    record = new_record("fmfm", 1, dataset, {}, None, {})
    Race(tmp_path, record, dataset, None, train_as_planned, lambda progress: None).run()
    assert record.candidates[1].dropped is None
    assert "matrices" not in record.candidates[record.winner].changes


@pytest.mark.usefixtures("medium")
def test_auto_races_other_settings_of_two_models_even_if_all_variants_of_one_are_the_best(dataset, tmp_path):
    losses = {"fmfm": 0.4, "fwfm": 0.44, "fm": 0.45, "ffm": 0.46}

    def train_as_planned(settings, path, name, resume, until, callback) -> bool:
        loss = losses.get(settings.model, 0.5)
        write_evaluations(path, [evaluation(epoch, loss, "log_loss") for epoch in EPOCHS], until)
        return math.isinf(until)

    record = new_record("auto", 2, dataset, {}, None, {})
    Race(tmp_path, record, dataset, None, train_as_planned, lambda progress: None).run()
    assert {record.candidates[number].model for number in record.entered} == {"fmfm", "fwfm"}


@pytest.mark.usefixtures("medium")
def test_more_effort_keeps_the_variants_that_an_ordinary_training_keeps(dataset, tmp_path):
    ordinary, more = (record_of(train("fmfm", dataset, tmp_path / str(e), effort=e, **FAST)) for e in (1, 2))
    assert [each.changes for each in more.candidates[:8]] == [each.changes for each in ordinary.candidates]
    assert len(more.candidates) == 13
    for before, after in zip(ordinary.candidates, more.candidates, strict=False):
        assert after.dropped is None or before.dropped
    assert any(each.dropped for each in more.candidates)
    assert more.candidates[more.winner].scores[-1] <= ordinary.candidates[ordinary.winner].scores[-1]
