"""Fixtures for the tests of models."""

from __future__ import annotations

import pytest
import torch

from fm2.training.scorer import torch_threads


@pytest.fixture(autouse=True)
def one_seeded_thread():
    """Use one thread, because more slow down small products, and the same random inputs in every run."""
    torch.manual_seed(0)
    with torch_threads(1):
        yield
