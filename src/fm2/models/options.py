"""Options: the settings that belong to some models only. Those that several models share are defined here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from fm2.models.choices import Activation, Linear, MatrixForm


@dataclass(frozen=True)
class Option:
    """A setting of a model: a keyword of its class, an option of ``fm2 train``, a line of settings.toml.

    ``kind`` is int, float, bool, str (one of ``choices``) or tuple (of integers, such as layer widths). Numbers lie
    between ``low`` and ``high``. An option that ``shapes`` the model cannot change in a warm start. ``field_indices``
    are a tuple of indices of fields.

    >>> Option("layers", int, 3, "number of layers", 1, 9).checked(2)
    2
    """

    name: str
    kind: type
    default: Any
    help: str
    low: float = 0
    high: float = 65_536
    choices: tuple[str, ...] = ()
    shapes: bool = True
    field_indices: bool = False

    def checked(self, value: Any) -> Any:
        """Return the value as the model takes it, or raise a ValueError that says what was expected."""
        if self.choices:
            valid, expected = value in self.choices, f"one of {', '.join(self.choices)}"
        elif self.kind is bool:
            valid, expected = isinstance(value, bool), "true or false"
        elif self.kind is tuple:
            valid = isinstance(value, list | tuple) and all(self._is_within(part, int) for part in value)
            expected = f"a list of integers between {self.low} and {self.high}"
        else:
            valid = self._is_within(value, self.kind)
            expected = f"{'an integer' if self.kind is int else 'a number'} between {self.low} and {self.high}"
        if not valid:
            raise ValueError(f"{self.name} must be {expected}, got {value!r}")
        return tuple(value) if self.kind is tuple else value

    def _is_within(self, value: Any, kind: type) -> bool:
        number = isinstance(value, int) or (kind is float and isinstance(value, float))
        return number and not isinstance(value, bool) and self.low <= value <= self.high


# Multi-layer perceptrons
HIDDEN = Option("hidden", tuple, (256, 128), "widths of the hidden layers: 400,400,400, or none", 1)
ACTIVATION = Option("activation", str, "relu", "activation of the hidden layers", choices=get_args(Activation))
NETWORK_DROPOUT = Option(
    "network_dropout", float, 0.0, "share of hidden units dropped in training", 0.0, 0.99, shapes=False
)
BATCH_NORM = Option("batch_norm", bool, False, "normalize the inputs of the hidden layers over the batch")
MLP = (HIDDEN, ACTIVATION, NETWORK_DROPOUT, BATCH_NORM)

# Parts of factorization machines
LINEAR_HELP = "linear term: a weight per feature, a vector per field, or both"
LINEAR = Option("linear", str, "features", LINEAR_HELP, choices=get_args(Linear))
LINEAR_STD_HELP = "standard deviation of the initial vectors of the linear part, one per field"
LINEAR_STD = Option("linear_std", float, 0.03, LINEAR_STD_HELP, 0.0, 100.0, shapes=False)
MATRIX_HELP = "standard deviation of the initial field matrices (in deepfmfm also of the vectors per field)"
MATRIX_STD = Option("matrix_std", float, 0.03, MATRIX_HELP, 0.0, 100.0, shapes=False)
FORM_HELP = "form of the field matrices: full, diagonal, or scalar (multiples of the identity)"
MATRICES = Option("matrices", str, "full", FORM_HELP, choices=get_args(MatrixForm))
