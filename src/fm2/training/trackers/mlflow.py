"""The MLflow tracker; by default it logs to a local database."""

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
    """Logs to the SQLite file ``mlflow.db``, which ``mlflow ui`` reads, or to another tracking ``uri``.

    A ``uri`` without ``://`` is the path of an SQLite file. A resumed training continues MLflow's run of the same
    directory and logs the evaluations that this run does not have yet.
    """

    def __init__(self, uri: str | Path | None = None) -> None:
        # MLflow sends usage data and retries for minutes to reach a server, unless these are set before its import.
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        self._module = require("mlflow", "mlflow", "tracking by MLflow")
        for module in ("sqlalchemy", "alembic"):
            require(module, "mlflow", "tracking by MLflow")
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # it reports every table that it creates
        self._uri = str(uri or "mlflow.db")
        self._client: Any = None
        self._run = ""
        self._known: set[int] = set()
        self._best: dict[str, float] = {}

    def begin(self, settings: dict[str, Any], path: Path, history: Sequence[Evaluation] | None) -> None:
        """Create a run, or find the run of a resumed training, and log the missing evaluations."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow's warnings about SQLAlchemy do not concern the user
            self._client = self._module.MlflowClient(self._tracking_uri())
            experiment = self._experiment()
        run = None if history is None else self._find(experiment, path)
        if run is None:
            self._create(experiment, path, settings)
        else:
            self._resume(run, settings)
        for evaluation in history or ():
            self.evaluated(evaluation)

    def _tracking_uri(self) -> str:
        if "://" in self._uri:
            return self._uri
        Path(self._uri).resolve().parent.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{Path(self._uri).resolve()}"

    def _experiment(self) -> str:
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        identifier: str = experiment.experiment_id if experiment else self._client.create_experiment(EXPERIMENT)
        return identifier

    def _find(self, experiment: str, path: Path) -> Any:
        """Return the last run of a directory; None if there is none."""
        query = f"tags.`{PATH_TAG}` = '{path.resolve().as_uri()}'"
        runs = self._client.search_runs([experiment], query, max_results=1, order_by=["attributes.start_time DESC"])
        return runs[0] if runs else None

    def _create(self, experiment: str, path: Path, settings: dict[str, Any]) -> None:
        directory = path.resolve()
        run = self._client.create_run(experiment, run_name=directory.name, tags={PATH_TAG: directory.as_uri()})
        self._run, self._known, self._best = run.info.run_id, set(), {}
        parameters = [self._module.entities.Param(name, str(value)) for name, value in settings.items()]
        self._client.log_batch(self._run, params=parameters)

    def _resume(self, run: Any, settings: dict[str, Any]) -> None:
        """Continue a run. MLflow does not allow its parameters to change, so changed settings become tags."""
        self._run, self._best = run.info.run_id, run.data.metrics
        self._known = {metric.step for metric in self._client.get_metric_history(self._run, "epoch")}
        self._client.update_run(self._run, status="RUNNING")
        for name, value in settings.items():
            if run.data.params.get(name) != str(value):
                self._client.set_tag(self._run, f"resumed.{name}", str(value))

    def evaluated(self, evaluation: Evaluation) -> None:
        """Log all metrics of an evaluation at once."""
        step = evaluation["step"]
        if step not in self._known:
            self._log(figures(evaluation), step)

    def _log(self, values: dict[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        metrics = [self._module.entities.Metric(name, float(value), now, step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, metrics: dict[str, Any] | None) -> None:
        """Log the best state's metrics; without them the run is marked as killed until it is resumed."""
        if metrics is not None:
            best = {f"best/{name}": value for name, value in metrics.items()}
            self._log({name: value for name, value in best.items() if self._best.get(name) != value}, step=0)
        self._client.set_terminated(self._run, "KILLED" if metrics is None else "FINISHED")
