"""ModelSpec: everything the program needs to know about a model, without importing torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from fm2.models.choices import CompilePlan, Dimensions, ForwardBackward, Interaction, Optimizer
from fm2.models.defaults import LARGE_LOG, SMALL_LOG, adapt_defaults
from fm2.models.options import MLP, Option

Config = Mapping[str, Any]

# Training settings that not every model uses. All other settings apply to every model.
EMBEDDING_SETTINGS = ("dim", "embedding_std")
GATHERED_SETTINGS = (
    *EMBEDDING_SETTINGS,
    "dense_learning_rate",
    "learning_rate_scale",
    "dense_l2",
    "dropout",
    "field_dropout",
)
FAMILY_SETTINGS = (*GATHERED_SETTINGS, "linear_l2_scale")
NETWORK_SETTINGS = (*GATHERED_SETTINGS, "weight_decay")
OPTIONAL_SETTINGS = (*NETWORK_SETTINGS, "linear_l2_scale")


@dataclass(frozen=True)
class RowwiseTraining:
    """A native kernel that scores a row, computes its gradient and updates its weights at once.

    It supports some ``optimizers``, without averaging and without ``l2_power``.
    """

    kernel: Literal["polynomial", "field_aware"]
    optimizers: tuple[Optimizer, ...]


@dataclass(frozen=True)
class ModelSpec:
    """The declaration of a model. The defaults describe a network that autograd trains.

    ``equation`` is the logit in one line, with the symbols of the page "Models at a glance". ``torch_class`` is
    ``"module:Class"`` and is imported on first use. The class is called with ``field_sizes``, ``seed``, the
    ``arguments`` (keyword: the setting that supplies the value) and the ``options``.

    ``settings`` are those of :data:`OPTIONAL_SETTINGS` that the model uses. ``defaults`` apply to small logs;
    ``few_defaults`` replace some of them on logs with few rows, ``large_defaults`` on large logs. They may name
    training settings and options. With few fields, the default learning rates are higher: on small logs up to
    ``highest_rate``, on others by the same factor; None leaves them alone. With ``l2_by_density``, the default l2 is
    proportional to the number of features per row; with ``accumulator_by_rows``, the default
    initial_accumulator grows with the rows. On logs of medium size, an ordinary training also tries the
    ``other_penalties``, each an l2_power and a factor of the usual strength, and keeps the best one. ``scalar_form`` is
    the model that results from field matrices that are multiples of the identity. ``fm2 tune``
    leaves ``untuned`` settings alone. ``fm2 train auto`` tries the model from ``auto_effort`` on; None means never.

    ``many_fields`` says that the model's cost is linear in the number of fields, so that it takes any number of them.
    ``equal_dims`` explains why all fields need the same embedding dimension. ``interaction`` is the block of S between
    two fields, for models that consist of a bias, a linear part and 1/2 vᵀ S v. ``no_warm_start`` explains why a
    trained model cannot be trained on new data. Multiplying every parameter by the power of c in ``logit_exponents``
    multiplies the logit by c; without them, a model cannot be blended with trees.

    ``count_parameters`` (without the bias) and ``count_flops`` (per prediction, by plan; as trained first) take a
    model's config. Without them, the torch module counts, and the model file stores the numbers.

    ``rowwise`` is the native kernel for row-by-row training, if there is one. ``forward_backward`` is how native code
    trains batches; None leaves them to torch. ``compile_plan`` is how a compiled model is scored; None means that the
    model cannot be compiled.

    >>> from fm2.models.registry import get_spec
    >>> spec = get_spec("fmfm")
    >>> spec.title, spec.dimensions, spec.interaction
    ('FmFM', 'per_field', 'matrix')
    >>> spec.load()([5, 6], dims=[2, 3]).name
    'fmfm'
    """

    name: str
    title: str
    summary: str
    source: str
    torch_class: str
    deep: bool = True
    equation: str = ""

    options: Sequence[Option] = MLP
    settings: Sequence[str] = NETWORK_SETTINGS
    arguments: Mapping[str, str] = field(default_factory=lambda: {"dims": "dim", "embedding_std": "embedding_std"})
    defaults: Mapping[str, Any] = field(default_factory=lambda: SMALL_LOG)
    few_defaults: Mapping[str, Any] = field(default_factory=dict)
    large_defaults: Mapping[str, Any] = field(default_factory=lambda: LARGE_LOG)
    highest_rate: float | None = None
    l2_by_density: bool = False
    accumulator_by_rows: bool = False
    other_penalties: Sequence[tuple[float, float]] = ()
    scalar_form: str = ""
    untuned: Sequence[str] = ()
    auto_effort: int | None = None

    many_fields: bool = False
    dimensions: Dimensions = "per_field"
    equal_dims: str = ""
    interaction: Interaction | None = None
    no_warm_start: str = ""
    logit_exponents: Mapping[str, float] = field(default_factory=dict)

    count_parameters: Callable[[Config], int] | None = None
    count_flops: Callable[[Config], dict[str, int]] | None = None

    rowwise: RowwiseTraining | None = None
    forward_backward: ForwardBackward | None = "autograd"
    compile_plan: CompilePlan | None = "network"

    @property
    def class_name(self) -> str:
        """The name of the torch class, from which the classifier takes its name."""
        return self.torch_class.partition(":")[2]

    @property
    def is_network(self) -> bool:
        """Whether a compiled model looks embeddings up, and a network computes the rest."""
        return self.compile_plan == "network"

    @property
    def option_names(self) -> list[str]:
        """The names of the model's own options."""
        return [option.name for option in self.options]

    @property
    def has_field_matrices(self) -> bool:
        """Whether two fields interact through a matrix and nothing else."""
        return self.interaction is not None

    @property
    def learns_field_matrices(self) -> bool:
        """Whether the model learns its field matrices, so that pairs can be pruned and the spectrum cut."""
        return self.interaction not in (None, "constant")

    @property
    def has_full_matrices(self) -> bool:
        """Whether every pair of fields has a full matrix, so that each field can have its own dimension."""
        return self.interaction == "matrix"

    def load(self) -> Callable[..., Any]:
        """Import the torch class."""
        module, _, name = self.torch_class.partition(":")
        model: Callable[..., Any] = getattr(import_module(module), name)
        return model

    def takes(self, setting: str) -> bool:
        """Return whether the model uses an optional training setting or has an option of this name."""
        return setting in self.settings or setting in self.option_names

    def default_settings(
        self, rows: int = 0, field_sizes: Sequence[int] = (), click_rate: float = 0.0, batch_size: int = 0
    ) -> dict[str, Any]:
        """Return the default settings for so many training rows (0: unknown) and such fields (none: unknown).

        ``click_rate`` is that of the training rows (0: unknown). The defaults of networks do not depend on it: on
        rare_clicks of benchmarks/panel.py, with smaller batches and lower rates, the best of four had a log loss of
        .0298 instead of .0295.

        >>> from fm2.models.registry import get_spec
        >>> fmfm, deeplight = get_spec("fmfm"), get_spec("deeplight")
        >>> [fmfm.default_settings(rows)["batch_size"] for rows in (0, 10, 1_000, 10_000, 100_000, 1_000_000)]
        [256, 16, 16, 128, 256, 1024]
        >>> [fmfm.default_settings(field_sizes=[50] * fields)["field_dropout"] for fields in (0, 2, 6, 12, 23, 39)]
        [0.1, 0.005, 0.023, 0.05, 0.1, 0.1]
        >>> [deeplight.default_settings(rows)["warm_up"] for rows in (0, 1_000, 10_000, 100_000, 1_000_000)]
        [800, 116, 145, 727, 800]
        >>> deeplight.default_settings(100_000, batch_size=1024)["warm_up"]
        182
        """
        options = {option.name: option.default for option in self.options}
        small = {**options, **self.defaults}
        return adapt_defaults(
            self.few_defaults,
            small,
            self.large_defaults,
            rows,
            field_sizes,
            0.0 if self.deep else click_rate,
            batch_size,
            self.interaction,
            self.highest_rate,
            self.l2_by_density,
            self.accumulator_by_rows,
        )

    def check_options(self, config: Config) -> None:
        """Raise ValueError if a config, which may come from a damaged file, has an option that is out of range."""
        for option in self.options:
            if option.name in config:
                option.checked(config[option.name])

    def blends(self, config: Config) -> bool:
        """Return whether a model can be blended with trees, for which it needs a weight per feature.

        >>> from fm2.models.registry import get_spec
        >>> [get_spec("fmfm").blends({"linear": linear}) for linear in ("features", "fields", "both")]
        [True, False, True]
        """
        return bool(self.logit_exponents) and config.get("linear") != "fields"

    @property
    def shares_embeddings(self) -> bool:
        """Whether a field can use the embeddings of another one, with an interaction of its own."""
        return self.forward_backward is not None and self.dimensions != "none"

    def config(
        self, settings: Mapping[str, Any], field_sizes: Sequence[int], owners: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Return the model's config, from which ``fm2.models.build`` constructs it.

        ``owners`` has, for each field, the index of the field whose embeddings it uses.

        >>> from fm2.models.registry import get_spec
        >>> settings = {"dim": 2, "embedding_std": 0.1, "linear": "fields", "linear_std": 0.1, "matrix_std": 0.1}
        >>> get_spec("fwfm").config(settings, [5, 3, 5], owners=[0, 1, 0])["owners"]
        [0, 1, 0]
        >>> "owners" in get_spec("fwfm").config(settings, [5, 3, 5], owners=[0, 1, 2])
        False
        """
        renamed = self.arguments.values()
        options = {name: settings[name] for name in self.option_names if name not in renamed}
        arguments = {keyword: settings[name] for keyword, name in self.arguments.items()}
        shared = self.shares_embeddings and any(owner != field for field, owner in enumerate(owners))
        owned = {"owners": list(owners)} if shared else {}
        return {"model": self.name, "field_sizes": list(field_sizes), **arguments, **options, **owned}

    def shape(self, config: Config) -> dict[str, Any]:
        """Return the settings that determine the shapes of a model's weights; a warm start has to keep them."""
        shaping = {"dim", *(option.name for option in self.options if option.shapes)}
        keywords = {**{name: name for name in self.option_names}, **self.arguments}
        values = {name: config[keyword] for keyword, name in keywords.items() if name in shaping and keyword in config}
        if isinstance(values.get("dim"), list) and len(set(values["dim"])) == 1:
            values["dim"] = values["dim"][0]
        return values

    def dims(self, config: Config) -> list[int]:
        """Return the embedding dimension of every field; 0 for models without embeddings.

        >>> from fm2.models.registry import get_spec
        >>> get_spec("ffm").dims({"field_sizes": [5, 6], "dim": 4})
        [4, 4]
        """
        return list(config["dims"]) if "dims" in config else [int(config.get("dim", 0))] * len(config["field_sizes"])
