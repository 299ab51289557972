"""A trained model at work: native code scores where it can, as it does in training."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch

from fm2 import _native
from fm2.artifacts.settings import Settings
from fm2.models import FFM, GatheredModel, Model, Poly2
from fm2.models.lr import LR
from fm2.training.backend import Backend
from fm2.training.native_backend import NativeBackend
from fm2.training.rowwise_backend import FFMBackend, Poly2Backend


@contextlib.contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let torch use so many threads for a while, or as many as there are processors."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or _native.default_threads())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make_scorer(model: Model, threads: int = 0) -> Backend:
    """Make something that scores rows with a model's weights as they are; it is not there to be trained."""
    settings = Settings.from_dict({"model": model.name, "optimizer": "adagrad", "threads": threads})
    if isinstance(model, FFM):
        return FFMBackend(model, settings)
    if isinstance(model, Poly2 | LR):
        return Poly2Backend(model, settings)
    assert isinstance(model, GatheredModel)
    return NativeBackend(model.for_scoring(), settings, np.ones(sum(model.field_sizes), np.float32))
