"""Runs for MLflow, in a database of this machine unless another place is named."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fm2.errors import require
from fm2.training.tracking import Evaluation, Tracker, figures

EXPERIMENT = "fm2"
PATH_TAG = "fm2.run"


class MLflow(Tracker):
    """Logs into the SQLite file ``mlflow.db``, which ``mlflow ui`` shows, or to another ``uri`` of MLflow's.

    A ``uri`` without ``://`` is the path of such a file. A run that is resumed goes on in MLflow's run of the same
    directory; what it has of the evaluations already is not logged again, and what it lacks is.
    """

    def __init__(self, uri: str | Path | None = None) -> None:
        # MLflow sends usage figures to its makers and tries for minutes to reach a server; it reads this when imported.
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        self._module = require("mlflow", "mlflow", "tracking by MLflow")
        for module in ("sqlalchemy", "alembic"):
            require(module, "mlflow", "tracking by MLflow")
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # it tells of each table that it makes
        self._uri = str(uri or "mlflow.db")
        self._client: Any = None
        self._run = ""
        self._known: set[int] = set()
        self._best: dict[str, float] = {}

    def begin(self, settings: dict[str, Any], path: Path, history: Sequence[Evaluation] | None) -> None:
        """Make a run, or find that of a training which is resumed, and log what it lacks."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what MLflow says of SQLAlchemy is no news to who trains a model
            self._client = self._module.MlflowClient(self._place())
            experiment = self._experiment()
        found = None if history is None else self._find(experiment, path)
        if found is None:
            self._make(experiment, path, settings)
        else:
            self._go_on(found, settings)
        for evaluation in history or ():
            self.evaluated(evaluation)

    def _place(self) -> str:
        if "://" in self._uri:
            return self._uri
        Path(self._uri).resolve().parent.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{Path(self._uri).resolve()}"

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(EXPERIMENT)
        identity: str = found.experiment_id if found else self._client.create_experiment(EXPERIMENT)
        return identity

    def _find(self, experiment: str, path: Path) -> Any:
        """Give the last run of a directory; None if there is none."""
        wanted = f"tags.`{PATH_TAG}` = '{path.resolve().as_uri()}'"
        runs = self._client.search_runs([experiment], wanted, max_results=1, order_by=["attributes.start_time DESC"])
        return runs[0] if runs else None

    def _make(self, experiment: str, path: Path, settings: dict[str, Any]) -> None:
        place = path.resolve()
        run = self._client.create_run(experiment, run_name=place.name, tags={PATH_TAG: place.as_uri()})
        self._run, self._known, self._best = run.info.run_id, set(), {}
        parameters = [self._module.entities.Param(name, str(value)) for name, value in settings.items()]
        self._client.log_batch(self._run, params=parameters)

    def _go_on(self, found: Any, settings: dict[str, Any]) -> None:
        """Take up a run. Its parameters cannot change in MLflow; what a resumed training has changed is a tag."""
        self._run, self._best = found.info.run_id, found.data.metrics
        self._known = {metric.step for metric in self._client.get_metric_history(self._run, "epoch")}
        self._client.update_run(self._run, status="RUNNING")
        for name, value in settings.items():
            if found.data.params.get(name) != str(value):
                self._client.set_tag(self._run, f"resumed.{name}", str(value))

    def evaluated(self, evaluation: Evaluation) -> None:
        """Log an evaluation, all of it or nothing."""
        step = evaluation["step"]
        if step not in self._known:
            self._log(figures(evaluation), step)

    def _log(self, values: dict[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        metrics = [self._module.entities.Metric(name, float(value), now, step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, metrics: dict[str, Any] | None) -> None:
        """Log the best state's metrics; without them the run counts as killed, until it is resumed."""
        if metrics is not None:
            best = {f"best/{name}": value for name, value in metrics.items()}
            self._log({name: value for name, value in best.items() if self._best.get(name) != value}, step=0)
        self._client.set_terminated(self._run, "KILLED" if metrics is None else "FINISHED")
