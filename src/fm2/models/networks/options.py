"""A setting that only some networks have, and those that many of them share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from fm2.models.choices import Activation, Linear


@dataclass(frozen=True)
class Option:
    """A setting of a network: a keyword of its constructor, an option of ``fm2 train``, a line of settings.toml.

    ``kind`` is int, float, bool, str (one of ``choices``) or tuple (of whole numbers, such as the widths of layers);
    numbers lie between ``low`` and ``high``. A setting that ``shapes`` the model cannot change when a trained one is
    trained on.

    >>> Option("layers", int, 3, "how many", 1, 9).checked(2)
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

    def checked(self, value: Any) -> Any:
        """Give the value as the model takes it, or raise a ValueError that says what it should be."""
        if self.choices:
            fits, expected = value in self.choices, f"one of {', '.join(self.choices)}"
        elif self.kind is bool:
            fits, expected = isinstance(value, bool), "true or false"
        elif self.kind is tuple:
            fits = isinstance(value, list | tuple) and all(self._is_within(part, int) for part in value)
            expected = f"a list of whole numbers from {self.low} to {self.high}"
        else:
            fits = self._is_within(value, self.kind)
            expected = f"a {'whole ' if self.kind is int else ''}number from {self.low} to {self.high}"
        if not fits:
            raise ValueError(f"{self.name} is {value!r}; it is {expected}")
        return tuple(value) if self.kind is tuple else value

    def _is_within(self, value: Any, kind: type) -> bool:
        number = isinstance(value, int) or (kind is float and isinstance(value, float))
        return number and not isinstance(value, bool) and self.low <= value <= self.high


# Those of every multi-layer perceptron.
HIDDEN = Option("hidden", tuple, (256, 128), "widths of the hidden layers: 400,400,400, or none", 1)
ACTIVATION = Option("activation", str, "relu", "of the hidden layers", choices=get_args(Activation))
NETWORK_DROPOUT = Option(
    "network_dropout", float, 0.0, "share of hidden units dropped in training", 0.0, 0.99, shapes=False
)
BATCH_NORM = Option("batch_norm", bool, False, "normalize the hidden layers' inputs by the batch")
MLP: Sequence[Option] = (HIDDEN, ACTIVATION, NETWORK_DROPOUT, BATCH_NORM)

# What some networks have not, by their papers, and can have: what LR is made of.
WIDE = Option("wide", bool, False, "a weight per feature beside the network")

# Those that the factorization machines have too.
LINEAR = Option("linear", str, "features", "what the linear part is made of", choices=get_args(Linear))
MATRIX_SCALE = Option("matrix_std", float, 0.03, "deviation of the first field matrices", 0.0, 100.0, shapes=False)

# Those of cross networks.
CROSS_LAYERS = Option("cross_layers", int, 3, "how many cross layers", 1, 64)
STRUCTURE = Option(
    "structure",
    str,
    "parallel",
    "the perceptron above the cross network, or beside it",
    choices=("stacked", "parallel"),
)

# Those of attention between fields: of a layer, and of several.
HEADS: Sequence[Option] = (
    Option("attention_heads", int, 2, "in how many ways at once fields attend to each other", 1, 64),
    Option("attention_dim", int, 16, "dimension of what a head looks at and passes on", 1),
)
ATTENTION: Sequence[Option] = (
    Option("attention_layers", int, 2, "how many layers of attention between fields", 1, 64),
    *HEADS,
)
