"""MLflow runs, in a local database by default."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fm2.errors import require
from fm2.training.tracking import Evaluation, Tracker, scalars

EXPERIMENT = "fm2"
PATH_TAG = "fm2.run"


class MLflow(Tracker):
    """Logs to the SQLite file ``mlflow.db``, which ``mlflow ui`` shows, or to another tracking ``uri``.

    A ``uri`` without ``://`` is the path of an SQLite file. A resumed training continues the MLflow run of the same
    directory; only evaluations that are missing there are logged. Each candidate of a race has an MLflow run of
    its own, named RUN/candidate-1 and so on, and the winner has one more, named RUN.
    """

    def __init__(self, uri: str | Path | None = None) -> None:
        # MLflow reads these on import. By default it sends telemetry, and retries for minutes to reach a server.
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        self._module = require("mlflow", "mlflow", "tracking with MLflow")
        for module in ("sqlalchemy", "alembic"):
            require(module, "mlflow", "tracking with MLflow")
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # it logs every table it creates
        self._uri = str(uri or "mlflow.db")
        self._client: Any = None
        self._run, self._name = "", ""
        self._known: set[int] = set()
        self._best: dict[str, float] = {}

    def begin(self, settings: dict[str, Any], path: Path, history: Sequence[Evaluation] | None) -> None:
        """Create an MLflow run, or find that of a resumed training, and log missing evaluations."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow's warnings about SQLAlchemy do not concern users of fm2
            self._client = self._module.MlflowClient(self._tracking_uri())
            experiment = self._experiment()
        earlier = None if history is None else self._find(experiment, path)
        if earlier is None:
            self._create(experiment, path, settings)
        else:
            self._resume(earlier, settings)
        for evaluation in history or ():
            self.evaluated(evaluation)

    def candidate(self, name: str, run: Path) -> MLflow:
        """Return a tracker that logs a candidate to an MLflow run of its own."""
        tracker = MLflow(self._uri)
        tracker._name = f"{run.resolve().name}/{name}"
        return tracker

    def _tracking_uri(self) -> str:
        if "://" in self._uri:
            return self._uri
        Path(self._uri).resolve().parent.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{Path(self._uri).resolve()}"

    def _experiment(self) -> str:
        existing = self._client.get_experiment_by_name(EXPERIMENT)
        experiment_id: str = existing.experiment_id if existing else self._client.create_experiment(EXPERIMENT)
        return experiment_id

    def _find(self, experiment: str, path: Path) -> Any:
        """Return the last MLflow run of a directory, or None."""
        tag = f"tags.`{PATH_TAG}` = '{path.resolve().as_uri()}'"
        runs = self._client.search_runs([experiment], tag, max_results=1, order_by=["attributes.start_time DESC"])
        return runs[0] if runs else None

    def _create(self, experiment: str, path: Path, settings: dict[str, Any]) -> None:
        directory = path.resolve()
        name = self._name or directory.name
        run = self._client.create_run(experiment, run_name=name, tags={PATH_TAG: directory.as_uri()})
        self._run, self._known, self._best = run.info.run_id, set(), {}
        parameters = [self._module.entities.Param(name, str(value)) for name, value in settings.items()]
        self._client.log_batch(self._run, params=parameters)

    def _resume(self, run: Any, settings: dict[str, Any]) -> None:
        """Continue an MLflow run. Its parameters are immutable in MLflow, so changed settings become tags."""
        self._run, self._best = run.info.run_id, run.data.metrics
        self._known = {metric.step for metric in self._client.get_metric_history(self._run, "epoch")}
        self._client.update_run(self._run, status="RUNNING")
        for name, value in settings.items():
            if run.data.params.get(name) != str(value):
                self._client.set_tag(self._run, f"resumed.{name}", str(value))

    def evaluated(self, evaluation: Evaluation) -> None:
        """Log an evaluation in one batch."""
        step = evaluation["step"]
        if step not in self._known:
            self._log(scalars(evaluation), step)

    def _log(self, values: dict[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        metrics = [self._module.entities.Metric(name, float(value), now, step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, metrics: dict[str, Any] | None) -> None:
        """Log the best evaluation's metrics. Without them, the run has the status KILLED until it is resumed."""
        if metrics is not None:
            best = {f"best/{name}": value for name, value in metrics.items()}
            self._log({name: value for name, value in best.items() if self._best.get(name) != value}, step=0)
        self._client.set_terminated(self._run, "KILLED" if metrics is None else "FINISHED")
