"""Model files that cannot be opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from fm2.engine.scorer import load
from fm2.errors import Fm2Error


def load_error(path: Path, *, verify: bool = True) -> str:
    """Return the message of the error with which a model file is rejected; it names the file."""
    with pytest.raises(Fm2Error) as raised:
        load(path, verify=verify)
    assert str(path) in str(raised.value)
    return str(raised.value)
