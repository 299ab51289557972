"""fm2: click-through-rate prediction with field-matrixed factorization machines.

Importing it needs numpy and the native module alone; what a function needs beyond that is imported when it is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fm2.errors import Fm2Error
from fm2.machine import cpu_info
from fm2.schema import Field, Schema

if TYPE_CHECKING:
    from fm2.data.dataset import Dataset
    from fm2.data.generation import generate
    from fm2.data.preparation import prepare

__version__ = "0.1.0"

_LATER = {
    "Dataset": "fm2.data.dataset",
    "generate": "fm2.data.generation",
    "prepare": "fm2.data.preparation",
}

__all__ = ["Dataset", "Field", "Fm2Error", "Schema", "cpu_info", "generate", "prepare"]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'fm2' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
