"""Ray Train: the workers of a ``TorchTrainer`` train a model of fm2."""

from __future__ import annotations

from typing import Any

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
