"""``fm2.compile``: write the best model of a run to one file that scores without PyTorch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.compression import spectrum
from fm2.compression.moments import Moments
from fm2.compression.weights import Floats, Weights, read_weights
from fm2.data.dataset import Dataset
from fm2.data.encoder import Encoder
from fm2.data.rows import EncodedRows, Lists
from fm2.data.vocabulary import Vocabulary
from fm2.engine import plans
from fm2.engine.matrix_plans import cached_features, field_orders, matrix_plan
from fm2.engine.model_file import MODEL_START, ModelWriter, Sections
from fm2.engine.network_plan import network_plan
from fm2.engine.plans import Dtype, Plan
from fm2.engine.scorer import load
from fm2.errors import Fm2Error, suggest
from fm2.evaluation.id_mapping import make_id_map, map_ids
from fm2.field import MAX_PARTS, Field, Pooling
from fm2.files import check_replaceable, check_utf8, replace_file, temporary_directory, write_errors
from fm2.remote.paths import local_path, writes
from fm2.schema import Schema

PlanName = Literal["auto", "direct", "cached", "spectral"]
Progress = Callable[[str], None]
MEASURED_ROWS = 5000
DEFAULT_MEMORY, DEFAULT_RANK = 4e9, 16
TRANSFORMS = ("none", "log_square", "quantiles", "weekday", "hour", "interpolate", "linear")  # fm2::Transform::Kind
SLOT_BYTES = 16  # fm2::TableView::Slot


@dataclass(frozen=True)
class Compiled:
    """The result of :func:`compile`.

    ``rounding_error`` is the largest rounding error of a number. ``measured`` has the median microseconds per
    prediction of each plan that was tried. ``logit_error`` has, for the spectral plan, the root mean square ("rms") and
    the maximum ("max") difference from the exact logits.
    """

    path: Path
    plan: str
    bytes: int
    rounding_error: float
    measured: dict[str, float] = field(default_factory=dict)
    logit_error: dict[str, float] = field(default_factory=dict)


@writes("out")
def compile(
    run: str | Path,
    out: str | Path,
    *,
    plan: PlanName = "auto",
    rank: int | None = None,
    dtype: Dtype = "f32",
    memory: float = DEFAULT_MEMORY,
    data: Dataset | str | Path | None = None,
    watch: Progress = lambda step: None,
) -> Compiled:
    """Compile the best model of a run to one file, and replace the compiled model at ``out``, if any.

    ``plan`` selects how FwFM, FvFM and FmFM are scored:

    - ``direct`` multiplies embeddings by field matrices.
    - ``cached`` looks up the products (sections 4.2 and 4.3 of the paper) of as many features as fit into ``memory``
      bytes.
    - ``spectral`` approximates the field matrices by a low ``rank`` (16 by default), most accurately for rows like the
      training rows of ``data``. The approximation error is measured on validation rows of ``data``, or on rows drawn by
      feature frequency.
    - ``auto`` measures the exact plans on this machine, on rows drawn by feature frequency, and keeps the fastest.

    A network has one plan: its embeddings are looked up, and ONNX Runtime computes its layers, or sparse products if
    most weights are zero. Compiling one needs torch and the package onnx.

    ``watch`` is called with the name of each step.
    """
    _check_options(plan, rank, dtype, memory, data)
    run, out = local_path(run), Path(out)
    check_utf8(out, "compile")
    check_replaceable(out, "compile", "compiled model", MODEL_START)
    watch("reading the model")
    weights = read_weights(run)
    if weights.spec.is_network and plan != "spectral":
        weights, network = network_plan(run, weights, dtype)
        return write(weights, [network], out, watch)
    if plan != "spectral":
        return write(weights, list(exact_plans(weights, plan, dtype, memory)), out, watch)
    rank = DEFAULT_RANK if rank is None else rank
    spectrum.check_rank(weights, rank)
    watch("approximating the field matrices")
    moments, rows = _measure(weights, run, data)
    compiled = write(weights, [spectral_plan(weights, rank, dtype, moments)], out)
    return replace(compiled, logit_error=_logit_error(weights, out, rows))


def _check_options(plan: str, rank: int | None, dtype: str, memory: float, data: object) -> None:
    for name, value, choices in (("plan", plan, get_args(PlanName)), ("dtype", dtype, get_args(Dtype))):
        if value not in choices:
            raise Fm2Error(f"compile: unknown {name} '{value}'; {suggest(value, choices)}")
    for name, option in (("data", data), ("rank", rank)):
        if option is not None and plan != "spectral":
            raise Fm2Error(f"compile: {name} requires the plan spectral, got {plan}")
    if math.isnan(memory) or memory < 0:
        raise Fm2Error(f"compile: memory must be 0 or more bytes, got {memory:,.0f}")


def exact_plans(
    weights: Weights, plan: PlanName = "auto", dtype: Dtype = "f32", memory: float = DEFAULT_MEMORY
) -> Iterator[Plan]:
    """Yield the exact plans of a model that ``plan`` selects."""
    if weights.spec.compile_plan != "field_matrices":
        yield (plans.field_aware if weights.spec.compile_plan == "field_aware" else plans.sums)(weights, dtype)
        return
    orders = field_orders(weights)
    if plan in ("auto", "direct"):
        yield matrix_plan(weights, orders["by size"], [0] * len(weights.sizes), dtype, "direct")
    if plan in ("auto", "cached"):
        for name, order in orders.items():
            cached = cached_features(weights, order, dtype, memory)
            share = sum(cached) / sum(weights.sizes)
            yield matrix_plan(weights, order, cached, dtype, f"cached {name}, {share:.0%} of the features")


def spectral_plan(weights: Weights, rank: int, dtype: Dtype = "f32", moments: Moments | None = None) -> Plan:
    """Plan an approximation of this rank, most accurate for rows with these ``moments``."""
    approximation = spectrum.cut(weights, rank, moments)

    def features(field: int, ids: slice) -> tuple[Floats, Floats]:
        return approximation.features(weights, field, ids)

    shifted = replace(weights, bias=weights.bias + approximation.constant)
    return plans.pair_products(shifted, features, approximation.signs, dtype, f"spectral, rank {rank}")


class _Draft:
    """A complete model file under a temporary name. Its metadata has room for the latencies of these plans."""

    def __init__(self, weights: Weights, plan: Plan, path: Path, titles: Sequence[str]) -> None:
        self.path, self.plan = path, plan
        self._weights = weights
        meta_bytes = len(self._metadata(dict.fromkeys(titles, 0.001))) + 16 * len(titles)
        reserved: Sections = {"rows": plan.row_bytes, "meta": meta_bytes}
        calibration = weights.calibration.sections() if weights.calibration else {}
        self._writer = ModelWriter(path, {**plan.sections, **_encoder_sections(weights), **calibration, **reserved})
        self.rounding_error = plan.write_rows(self._writer["rows"])
        self.store({})

    def measure(self, rows: EncodedRows) -> float:
        """Return the median microseconds per prediction."""
        scorer = load(self.path, verify=False)
        for _ in range(2):  # the first time, pages are not mapped yet
            latencies = scorer.measure_latency(rows)
        return round(float(np.median(latencies)) * 1e6, 3)

    def store(self, measured: dict[str, float]) -> None:
        """Store the latencies of all plans in the metadata. JSON may end with spaces."""
        section = self._writer["meta"]
        section[:] = np.frombuffer(self._metadata(measured).ljust(len(section)), np.uint8)
        self._writer.seal()

    def _metadata(self, measured: dict[str, float]) -> bytes:
        metadata = {
            "model": self._weights.config,
            "schema": self._weights.schema.to_dict(),
            "metrics": self._weights.metrics,
            "negative_rate": self._weights.negative_rate,
            "plan": self.plan.title,
            "measured": measured,
            **({"counts": self._weights.costs} if self._weights.costs else {}),
        }
        return json.dumps(metadata).encode()


def _encoder_sections(weights: Weights) -> dict[str, NDArray[Any]]:
    """Return the sections that encode raw rows: field types, and vocabularies as hash tables."""
    schema, vocabularies = weights.schema, weights.vocabularies
    encoder = Encoder(schema, vocabularies)
    columns = schema.feature_columns
    positions = {name: index for index, name in enumerate(columns)}
    fields = [
        (
            -1 if field.is_derived else positions[field.column],
            TRANSFORMS.index(field.transform or field.part or "none"),
            schema.fields[owner].hash_bits,
            len(vocabulary.boundaries),
            *_list_settings(field, positions),
        )
        for field, vocabulary, owner in zip(schema.fields, vocabularies, schema.owners, strict=True)
    ]
    slots = [  # a hashed field has no hash table
        encoder.slots(index) if len(vocabulary.ends) else b"" for index, vocabulary in enumerate(vocabularies)
    ]
    counts = [
        (len(table) // SLOT_BYTES, len(vocabulary.ends), len(vocabulary.data))
        for table, vocabulary in zip(slots, vocabularies, strict=True)
    ]
    return {
        "encoder.columns": _texts(columns),
        "encoder.fields": np.array(fields, np.int32),
        "encoder.boundaries": np.concatenate([vocabulary.boundaries for vocabulary in vocabularies]).astype(np.float32),
        "encoder.formats": _texts(field.format or "" for field in schema.fields),
        "encoder.missing": _texts(schema.missing),
        "vocabulary.counts": np.array(counts, np.uint64),
        "vocabulary.slots": np.frombuffer(b"".join(slots), np.uint8),
        "vocabulary.ends": np.concatenate([vocabulary.ends for vocabulary in vocabularies]).astype(np.uint64),
        "vocabulary.bytes": np.concatenate([vocabulary.data for vocabulary in vocabularies]),
        **_cross_sections(schema, vocabularies),
        **_tree_sections(schema, vocabularies, encoder),
    }


def _cross_sections(schema: Schema, vocabularies: Sequence[Vocabulary]) -> dict[str, NDArray[Any]]:
    """Return the parts of crosses, and the hashes of the features of the parts of hashed crosses."""
    crosses = [(index, *parts) for index, parts in enumerate(schema.parts) if schema.fields[index].cross]
    if not crosses:
        return {}
    hashed = {part for index, *parts in crosses if schema.fields[index].hash_bits for part in parts}
    hashes = [
        _native.feature_hashes(vocabularies[part].data, vocabularies[part].ends)
        for part in sorted(hashed)
        if not vocabularies[part].hashed
    ]
    return {
        "crosses": np.array([(*cross, -1)[: 1 + MAX_PARTS] for cross in crosses], np.int32),
        "crosses.hashes": np.concatenate([np.empty(0, np.uint64), *hashes]),
    }


def _tree_sections(schema: Schema, vocabularies: Sequence[Vocabulary], encoder: Encoder) -> dict[str, NDArray[Any]]:
    """Return the trees of one field after the other: field, numbers of parts and words, parts, words; hash tables."""
    words, slots = list[NDArray[Any]](), list[NDArray[Any]]()
    for index, vocabulary in enumerate(vocabularies):
        if len(vocabulary.trees):
            parts = schema.parts[index]
            words += [np.array([index, len(parts), len(vocabulary.trees), *parts], np.uint32), vocabulary.trees]
            slots.append(encoder.tree_slots(index))
    return {"trees": np.concatenate(words), "trees.slots": np.concatenate(slots)} if words else {}


def _list_settings(field: Field, positions: Mapping[str, int]) -> tuple[int, ...]:
    """Return how the cells of a multi-valued field are read, or zeros."""
    return (
        int(field.multivalued),
        ord(field.separator) if field.multivalued else 0,
        get_args(Pooling).index(field.pooling) if field.pooling else 0,
        field.max_values,
        int(field.keep == "last"),
        int(field.weighted),
        int(field.empty_is_missing),
        1 + positions[field.weight_column] if field.weight_column else 0,
    )


def _texts(texts: Iterable[str]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(text.encode() + b"\0" for text in texts), np.uint8)


def write(weights: Weights, candidates: Sequence[Plan], out: Path, watch: Progress = lambda step: None) -> Compiled:
    """Write a model with the plan that is fastest on this machine, complete or not at all.

    Several candidates are written next to ``out`` and measured, each once. The fastest file becomes the output; at most
    two of them exist at a time.
    """
    if out.exists() and not out.is_file():
        raise Fm2Error(f"compile: {out} exists and is not a file")
    titles = [plan.title for plan in candidates] if len(candidates) > 1 else []
    rows = draw_rows(weights, MEASURED_ROWS if titles else 0)
    measured: dict[str, float] = {}
    drafts: list[_Draft] = []
    with write_errors(out.parent, "compile"), temporary_directory(out) as folder:
        for plan in candidates:
            watch(f"{'measuring' if titles else 'writing'} {plan.title}")
            drafts.append(_Draft(weights, plan, folder / f"{len(measured)}.fm2", titles))
            if titles:
                measured[plan.title] = drafts[-1].measure(rows)
                drafts.sort(key=lambda draft: measured[draft.plan.title])
            if len(drafts) > 1:
                drafts.pop().path.unlink()
        best = drafts[0]
        if measured:
            best.store(measured)
        replace_file(best.path, out.resolve())
    return Compiled(out, best.plan.title, out.stat().st_size, best.rounding_error, measured)


def _measure(weights: Weights, run: Path, data: Dataset | str | Path | None) -> tuple[Moments | None, EncodedRows]:
    """Return the moments of the training rows, if there is a dataset, and rows to measure the error on."""
    if data is None:
        return None, draw_rows(weights, MEASURED_ROWS)
    dataset = Dataset.of(data)
    mapping = make_id_map(weights, dataset, run, "compile")
    sample, row_weights = spectrum.sample_rows(dataset.train)
    training = map_ids(sample, mapping)
    validation = map_ids(dataset.validation.encoded[:MEASURED_ROWS], mapping)
    moments = spectrum.measure_moments(weights, training, row_weights)
    return moments, validation if len(validation) else training[:MEASURED_ROWS]


def _logit_error(weights: Weights, compiled: Path, rows: EncodedRows) -> dict[str, float]:
    """Compare the logits of a compiled model with the exact ones."""
    difference = load(compiled, verify=False).logits(rows) - spectrum.exact_logits(weights, rows)
    rms = float(np.sqrt(np.mean(np.square(difference, dtype=np.float64))))
    return {"rms": rms, "max": float(np.abs(difference).max())}


def draw_rows(weights: Weights, rows: int, seed: int = 0) -> EncodedRows:
    """Draw rows, each field independently by the frequencies of its features; lists have the estimated lengths."""
    random = np.random.default_rng(seed)
    columns = []
    lists = {}
    averages = plans.lookups(weights)
    for index, setting in enumerate(weights.schema.fields):
        sums = np.cumsum(weights.counts(index), dtype=np.float64)
        sizes = _draw_sizes(setting, averages[index], rows, random) if setting.is_list else np.ones(rows, np.int64)
        values = np.searchsorted(sums, random.random(sizes.sum()) * sums[-1], side="right").astype(np.int32)
        columns.append(np.arange(rows, dtype=np.int32) if setting.is_list else values)
        if setting.is_list:
            divisors = {"sum": np.ones(rows), "sqrt": np.sqrt(sizes)}.get(setting.pooling or "mean", sizes)
            shares = np.repeat(1 / np.maximum(divisors, 1), sizes).astype(np.float32)
            lists[index] = Lists(np.concatenate([[0], np.cumsum(sizes)]), values, shares)
    return EncodedRows(np.ascontiguousarray(np.stack(columns, axis=1)), lists)


def _draw_sizes(field: Field, average: float, rows: int, random: np.random.Generator) -> NDArray[np.int64]:
    if not field.multivalued:
        return np.full(rows, round(average))
    sizes = random.poisson(average, rows)
    return np.minimum(sizes, field.max_values) if field.max_values else sizes
