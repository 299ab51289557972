"""``fm2.calibrate``: correct the probabilities of a trained model on rows that it was not trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fm2.artifacts.calibration import Calibration, delete_calibration, save_calibration
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error, suggest
from fm2.evaluation.calibration import CalibrationError, Method, fit_calibration
from fm2.evaluation.evaluate import score_split
from fm2.remote.cache import is_copy
from fm2.remote.paths import writes
from fm2.training.run import Run


@dataclass(frozen=True)
class Calibrated:
    """The result of :func:`calibrate`: the run, and how calibration changes it on the rows that the map was fitted on.

    ``before`` and ``after`` are the calibration errors, ``log_loss_before`` and ``log_loss_after`` the log losses of
    the model without any calibration and with this one.
    """

    run: Run
    calibration: Calibration
    rows: int
    before: CalibrationError
    after: CalibrationError
    log_loss_before: float
    log_loss_after: float


@writes("run", update=True)
def calibrate(
    run: Run | str | Path,
    data: Dataset | str | Path,
    *,
    method: Method = "isotonic",
    by: str | None = None,
    split: str = "validation",
) -> Calibrated:
    """Fit a calibration of a run's model on a split of a dataset, and store it in the run.

    From then on, the run predicts calibrated probabilities, and so do models compiled and exported from it; compile it
    again after calibrating. Logits and explanations stay those of the model. An earlier calibration is replaced, and
    training the run again removes it, as does :func:`remove_calibration`.

    ``isotonic`` fits an increasing, piecewise linear map of the logits; ``platt`` fits a line. Both keep the order of
    the predictions. ``by`` names a field whose values also get a shift each, which keeps the order of rows with the
    same value; shifts of rare values are small.

    >>> import fm2, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = fm2.generate(f"{folder}/log.tsv", 20_000, features=2000)
    ...     data = fm2.prepare(log.path, fm2.Schema.preset("criteo"), f"{folder}/data")
    ...     run = fm2.train("lr", data, f"{folder}/run", epochs=2, positive_weight=5)
    ...     fitted = fm2.calibrate(run, data)
    >>> round(fitted.before.error, 1), round(fitted.after.error, 1)
    (0.3, 0.0)
    """
    _check_path(run, "calibrate")
    run, dataset = Run.of(run), Dataset.of(data)
    names = run.encoder.schema.names
    if by is not None and by not in names:
        raise Fm2Error(f"calibrate: unknown field '{by}'; {suggest(by, names)}")
    field = None if by is None else names.index(by)
    if field is not None and run.encoder.schema.fields[field].is_list:
        raise Fm2Error(f"calibrate: field '{by}' has several values per row; choose a field with one value")
    scores = score_split(run, dataset, split, field, "calibrate")
    fitted = fit_calibration(
        scores.logits,
        scores.labels,
        scores.weights,
        method=method,
        field=field,
        features=scores.features,
        size=0 if field is None else run.model.field_sizes[field],
    )
    errors = scores.calibration_errors(fitted)
    save_calibration(run.path, fitted)
    run.calibration = fitted
    log_losses = (scores.metrics(calibration)["log_loss"] for calibration in (None, fitted))
    return Calibrated(run, fitted, len(scores.logits), errors["uncalibrated"], errors["calibrated"], *log_losses)


@writes("run", update=True)
def remove_calibration(run: Run | str | Path) -> None:
    """Remove the calibration of a run, which then predicts the probabilities of its model again.

    Models compiled or exported before keep the calibration.
    """
    _check_path(run, "remove_calibration")
    delete_calibration(run.path if isinstance(run, Run) else Path(run))
    if isinstance(run, Run):
        run.calibration = None


def _check_path(run: Run | str | Path, operation: str) -> None:
    """Raise an error for a run that was opened from a URL: only its local copy would change."""
    if isinstance(run, Run) and is_copy(run.path):
        raise Fm2Error(f"{operation}: pass the URL {run.path}, not the run that was opened from it")
