"""The record of a race: its candidates, their scores and the winner. It is the file race.json of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fm2.artifacts.run_directory import RACE
from fm2.errors import Fm2Error
from fm2.evaluation.metrics import metric_title
from fm2.files import write_text
from fm2.training.candidates import AUTO
from fm2.training.loop import HIGHER_IS_BETTER

FORMAT, VERSION = "fm2 race", 1


@dataclass
class Candidate:
    """A model, what it changes in its default settings, and how it did.

    ``scores`` are the best values of the validation metric at the end of each round. A candidate is ``dropped`` after
    a round, counted from 1. One that ``failed`` diverged or did not fit into memory; it has no score.
    """

    model: str
    changes: dict[str, Any] = field(default_factory=dict)
    scores: list[float | None] = field(default_factory=list)
    seconds: float = 0.0
    finished: bool = False
    dropped: int | None = None
    failed: str | None = None

    def __str__(self) -> str:
        """Return the changes as text: ``dim=16 learning_rate=0.005``."""
        return " ".join(f"{name}={_text(value)}" for name, value in self.changes.items())


@dataclass
class Record:
    """The state of a race, from which it can be resumed.

    ``model``, ``effort`` and ``settings`` are what the user asked for. ``entered`` are the numbers of the candidates
    of the current race, ``rounds`` is how many rounds of it are done. An ordinary training compares only the first
    ``variants`` of them. More effort keeps every variant that it keeps, so it cannot be worse on the validation
    rows. ``auto`` first races the ``models``. ``gain`` is how much better the score of the ``winner`` is than that of
    the ``baseline``: the model with its defaults, with more effort the best variant, or what ``auto`` chose first.
    """

    model: str
    effort: int
    metric: str
    settings: dict[str, Any]
    fingerprint: dict[str, str | None]
    candidates: list[Candidate] = field(default_factory=list)
    entered: list[int] = field(default_factory=list)
    rounds: int = 0
    models: bool = False
    variants: int = 1
    winner: int | None = None
    baseline: int | None = None
    gain: float | None = None

    @property
    def alive(self) -> list[int]:
        """The numbers of the candidates that are still in the current race."""
        return [number for number in self.entered if self.candidates[number].dropped is None]

    @property
    def compares_variants(self) -> bool:
        """Whether this is an ordinary training, which compares a few variants of a model."""
        return self.effort == 1 and self.model != AUTO

    def describe(self, number: int) -> str:
        """Return the text that names a candidate in the progress, with its model in a race of models.

        In the second race of ``auto``, which only some of the candidates enter, it has the place among these.

        >>> record = Record("fm", 1, "log_loss", {}, {}, [Candidate("fm") for _ in range(7)], list(range(7)))
        >>> record.describe(6)
        'candidate 7 of 7'
        >>> record.candidates[2].dropped = 2
        >>> record.describe(6)
        'candidate 7 (no. 6 of 6 left)'
        >>> Record("fm", 1, "log_loss", {}, {}, record.candidates, entered=[5, 6]).describe(6)
        'candidate 7 (no. 2 of 2)'
        """
        alive = self.alive
        counted = f" of {len(alive)}"
        if len(alive) < len(self.candidates):
            left = " left" if len(alive) < len(self.entered) else ""
            counted = f" (no. {alive.index(number) + 1} of {len(alive)}{left})"
        model = f"{self.candidates[number].model}, " if self.model == AUTO else ""
        return f"{model}candidate {number + 1}{counted}"

    def decide(self, winner: int, baseline: int) -> None:
        """Enter the winner and its gain over the baseline."""
        self.winner, self.baseline = winner, baseline
        if not self.models and not self.candidates[baseline].failed:
            self.gain = abs(final_score(self.candidates[winner]) - final_score(self.candidates[baseline]))

    def text(self) -> str:
        """Return the content of race.json."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1) + "\n"

    def save(self, run: Path) -> None:
        """Write the record into a run directory."""
        write_text(run / RACE, self.text())

    @classmethod
    def read(cls, run: Path) -> Record | None:
        """Read the record of a run; None if it has none."""
        if not (run / RACE).is_file():
            return None
        try:
            values = json.loads((run / RACE).read_text(encoding="utf-8"))
            if (values.pop("format"), values.pop("version")) != (FORMAT, VERSION):
                raise ValueError("unsupported format")
            candidates = [Candidate(**candidate) for candidate in values.pop("candidates")]
            return cls(candidates=candidates, **values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Fm2Error(f"train: {run / RACE} is damaged: {error}; use overwrite=True to start over") from error

    def check_resumed(self, path: Path, model: str, effort: int, settings: Mapping[str, Any]) -> None:
        """Raise an error if a race is resumed with another model, effort or settings; ``threads`` may differ."""
        if effort not in (1, self.effort):  # 1 is the default: a race continues with its own effort
            raise Fm2Error(
                f"train: the run in {path} has effort {self.effort}, not {effort}; resume it without effort=, "
                "or use overwrite=True to replace it"
            )
        if self.winner is not None:
            return
        if model != self.model:
            raise Fm2Error(
                f"train: the run in {path} trains {self.model}, not {model}; resume it as {self.model}, "
                "or use overwrite=True to replace it"
            )
        given = plain(settings)
        for name, value in given.items():
            if name != "threads" and value != self.settings.get(name):
                before = (
                    f"was started with {name} {self.settings[name]}"
                    if name in self.settings
                    else f"was started without {name}="
                )
                raise Fm2Error(
                    f"train: the run in {path} {before}, and several candidates are being compared; resume it with the "
                    "same settings, or use overwrite=True to replace it"
                )
        self.settings |= given

    def check_fingerprint(self, path: Path, fingerprint: Mapping[str, str | None]) -> None:
        """Raise an error if a race is resumed with other data, row weights or another model to start from."""
        for name, current in fingerprint.items():
            if self.fingerprint.get(name) != current:
                raise Fm2Error(f"train: the run in {path} had {name}; use the same to resume it")

    def model_to_resume(self, model: str) -> str:
        """Return the model that a finished race chose, if ``auto`` is resumed."""
        return self.candidates[self.winner].model if self.winner is not None and model == self.model else model

    def summary(self) -> str:
        """Return one line: what the race chose, its score, and how much better that is than the baseline."""
        assert self.winner is not None
        winner = self.candidates[self.winner]
        baseline = self.candidates[self.entered[0] if self.baseline is None else self.baseline]
        chosen = str(winner) or "the defaults"
        if self.model == AUTO:
            chosen = f"{winner.model} with {chosen}"
        what = f"compared {len(self.entered)} variants" if self.compares_variants else "race"
        text = f"{what}: chose {chosen}: validation {metric_title(self.metric)} {winner.scores[-1]:.4f}"
        others = len(self.entered) - (1 if self.compares_variants else self.variants)
        if self.models:
            return f"{text}, the best of {len({self.candidates[number].model for number in self.entered})} models"
        if winner is baseline and others:
            worse = "the other one was not" if others == 1 else f"none of {others} other candidates was"
            sign = -1 if HIGHER_IS_BETTER[self.metric] else 1
            scores = [sign * final_score(each) for each in self.candidates if each.scores and not each.failed]
            clearly = "clearly " if min(scores) < sign * final_score(winner) else ""
            return f"{text}; {worse} {clearly}better"
        if winner is baseline:
            return f"{text}; all settings were given, so that there was nothing to race"
        if baseline.failed:
            return f"{text}; with the defaults, training {baseline.failed}"
        direction = "higher" if HIGHER_IS_BETTER[self.metric] else "lower"
        gained = f"{self.gain:.4f}"
        compared = f"{baseline.model} with" if self.model == AUTO else "with"
        difference = f"{'no' if float(gained) == 0 else gained} {direction}"
        return f"{text}, {difference} than {compared} {str(baseline) or 'the defaults'}"


def final_score(candidate: Candidate) -> float:
    """Return the score after the last round that a candidate took part in."""
    score = candidate.scores[-1]
    assert score is not None
    return score


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as JSON stores them."""
    return {
        name: list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        for name, value in settings.items()
    }
