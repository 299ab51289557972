"""Ray Train: the workers of a ``TorchTrainer`` train a model of fm2."""

from __future__ import annotations

from typing import Any

from fm2.distributed.launch import RESTARTS
from fm2.distributed.train import train
from fm2.errors import require


def train_loop_per_worker(config: dict[str, Any]) -> dict[str, float]:
    """Train as a worker of ``ray.train.torch.TorchTrainer``; ``config`` has the arguments of :func:`train`.

    The trainer needs ``TorchConfig(backend="gloo")``. Workers that Ray restarts resume from the last checkpoint. The
    paths of ``data`` and ``out`` must be absolute, because workers have directories of their own. All workers report
    and return the validation scores of the best state; ``return_value`` of the trainer's result has them.
    """
    ray, ray_train = require("ray", "ray", "training with Ray"), require("ray.train", "ray", "training with Ray")
    context = ray_train.get_context()
    launch = f"{ray.get_runtime_context().get_job_id()} {context.get_experiment_name()}"
    scores = train(**config, launch=launch)
    ray_train.report(scores)
    return scores


def fit(trainer: Any, restarts: int = RESTARTS) -> Any:
    """Return the result of ``trainer.fit()``; call it again, up to ``restarts`` times, if a worker died as it started.

    Ray Train restarts workers that die while they train, as often as its ``FailureConfig`` allows. Ray 2.60 does not do
    that if a worker dies while Ray connects the workers or while they load the training function: ``trainer.fit()``
    raises a ``ControllerError`` then, whatever the configuration is. As the trainer keeps its name, the workers of the
    next call resume from the last checkpoint.
    """
    controller_error = require("ray.train", "ray", "training with Ray").ControllerError
    for _ in range(restarts):
        try:
            return trainer.fit()
        except controller_error as error:
            if not _is_lost_worker(error.controller_failure):
                raise
    return trainer.fit()


def _is_lost_worker(failure: Exception) -> bool:
    """Return whether a worker died, or lost its connection to one that did, which torch reports as a RuntimeError."""
    errors = require("ray.exceptions", "ray", "training with Ray")
    if isinstance(failure, errors.RayTaskError):
        return isinstance(failure.cause, RuntimeError)
    return isinstance(failure, errors.RayActorError)
