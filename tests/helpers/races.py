"""Races of short trainings: their settings, their files, their records, and interruptions."""

from __future__ import annotations

from fm2.training.race_record import Record

FAST = {"epochs": 4, "batch_size": 64, "evaluations_per_epoch": 2, "threads": 1}
ORDINARY = ["checkpoint.safetensors", "history.jsonl", "model.safetensors", "settings.toml"]


def names(path):
    return sorted(entry.name for entry in path.iterdir())


def record_of(run):
    record = Record.read(run.path)
    assert record is not None
    return record


class Interrupt:
    """Interrupts a training at some steps, counted over all calls."""

    def __init__(self, steps, error=KeyboardInterrupt):
        self.steps, self.error, self.count = set(steps), error, 0

    def __call__(self, report):
        self.count += 1
        if self.count in self.steps:
            raise self.error
