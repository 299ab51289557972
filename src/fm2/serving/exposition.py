"""The metrics of all workers in Prometheus' text format."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from fm2.serving import counters as c
from fm2.serving.table import Table

Sample = tuple[str, dict[str, str], float]  # suffix of the name, labels, value
COUNTS = (
    ("fm2_requests_total", "Requests to be scored", c.REQUESTS),
    ("fm2_rows_total", "Rows and candidates scored", c.ROWS),
    ("fm2_shadow_rows_total", "Rows scored by this shadow version", c.SHADOW_ROWS),
    ("fm2_shadow_failures_total", "Requests that this shadow version could not score", c.SHADOW_FAILURES),
    ("fm2_shadow_dropped_total", "Requests not compared because too many were waiting", c.SHADOW_DROPPED),
    ("fm2_outcomes_total", "Outcomes reported", c.OUTCOMES),
)
SUMS = (
    ("fm2_shadow_difference_sum", "Sum of absolute differences of shadow probabilities", c.SHADOW_DIFFERENCE),
    ("fm2_shadow_squared_difference_sum", "Sum of squared differences of shadow probabilities", c.SHADOW_SQUARES),
    ("fm2_outcome_clicks_sum", "Sum of reported clicks", c.OUTCOME_CLICKS),
    ("fm2_outcome_predictions_sum", "Sum of the predictions of reported outcomes", c.OUTCOME_PREDICTIONS),
    ("fm2_outcome_log_loss_sum", "Sum of the log loss of reported outcomes", c.OUTCOME_LOSS),
)
TIMES = (
    ("fm2_parse_seconds", "Time to parse a request", c.PARSE_TIMES, c.PARSE_NS),
    ("fm2_score_seconds", "Time to score a request", c.SCORE_TIMES, c.SCORE_NS),
    ("fm2_request_seconds", "Time from the head of a request to its answer", c.TOTAL_TIMES, c.TOTAL_NS),
)


def expose(counters: c.Counters, table: Table) -> str:
    """Return all metrics."""
    return "\n".join(itertools.chain(_models(counters, table), _server(counters, table))) + "\n"


def _server(counters: c.Counters, table: Table) -> Iterator[str]:
    total = counters.total(c.SERVER_BLOCK, 0)
    failures = [({"reason": name}, total.words[index]) for name, index in c.REASON_INDEX.items()]
    yield from _metric("fm2_server_failures_total", "counter", "Refused requests to no model", _plain(failures))
    swaps = [({"model": model.name}, model.state.swaps) for model in table.models.values()]
    yield from _metric("fm2_swaps_total", "counter", "Files that were loaded after the start", _plain(swaps))
    rejected = [({"model": model.name}, len(model.state.rejected)) for model in table.models.values()]
    yield from _metric("fm2_rejected_files", "gauge", "Versions whose newest file was rejected", _plain(rejected))


def _models(counters: c.Counters, table: Table) -> Iterator[str]:
    served = [one for model in table.models.values() for one in model.versions.values()]
    labels = [{"model": one.name, "version": one.version} for one in served]
    names = [one.scorer.schema.names for one in served]
    totals = [counters.total(one.state.block, len(fields)) for one, fields in zip(served, names, strict=True)]
    information = [({**label, "checksum": one.state.checksum}, 1) for label, one in zip(labels, served, strict=True)]
    yield from _metric("fm2_model_info", "gauge", "Loaded versions", _plain(information))
    roles = [
        ({"model": model.name, "version": version, "role": role}, 1)
        for model in table.models.values()
        for role, version in {
            "serving": model.state.serving,
            "canary": (model.state.canary or (None,))[0],
            "shadow": model.state.shadow,
        }.items()
        if version
    ]
    yield from _metric("fm2_model_role", "gauge", "Versions that answer", _plain(roles))
    loaded = [(label, one.state.loaded) for label, one in zip(labels, served, strict=True)]
    yield from _metric("fm2_model_loaded_timestamp_seconds", "gauge", "When the file was loaded", _plain(loaded))
    pairs = list(zip(labels, totals, strict=True))
    for name, help, index in COUNTS:
        yield from _metric(name, "counter", help, _plain((label, total.words[index]) for label, total in pairs))
    for name, help, index in SUMS:
        yield from _metric(name, "counter", help, _plain((label, total.floats[index]) for label, total in pairs))
    kinds = [
        ({**label, "kind": kind}, total.words[c.KIND + i]) for label, total in pairs for i, kind in enumerate(c.KINDS)
    ]
    yield from _metric("fm2_requests_by_kind_total", "counter", "Requests by kind", _plain(kinds))
    failed = [
        ({**label, "reason": reason}, total.words[index])
        for label, total in pairs
        for reason, index in c.REASON_INDEX.items()
        if total.words[index]
    ]
    yield from _metric("fm2_failures_total", "counter", "Requests that failed", _plain(failed))
    predictions = [
        sample
        for label, total in pairs
        for sample in (("_sum", label, total.floats[c.PREDICTIONS]), ("_count", label, total.words[c.PREDICTED]))
    ]
    yield from _metric("fm2_prediction", "summary", "Predicted probabilities", predictions)
    for name, help, start, sum in TIMES:
        samples = [sample for label, total in pairs for sample in _histogram(label, total, start, sum)]
        yield from _metric(name, "histogram", help, samples)
    for position, (name, help) in enumerate(
        (("fm2_values_total", "Values looked up, by field"), ("fm2_unknown_values_total", "Unknown values, by field"))
    ):
        values = [
            ({**label, "field": field}, total.field(index)[position])
            for (label, total), fields in zip(pairs, names, strict=True)
            for index, field in enumerate(fields)
        ]
        yield from _metric(name, "counter", help, _plain(values))


def _plain(samples: object) -> list[Sample]:
    return [("", labels, value) for labels, value in samples]  # type: ignore[attr-defined]


def _histogram(labels: dict[str, str], total: c.Total, start: int, sum: int) -> Iterator[Sample]:
    counts = list(itertools.accumulate(total.times(start)))
    for bound, count in zip([*map(repr, c.BOUNDS), "+Inf"], counts, strict=True):
        yield "_bucket", {**labels, "le": bound}, count
    yield "_sum", labels, total.words[sum] * 1e-9
    yield "_count", labels, counts[-1]


def _metric(name: str, kind: str, help: str, samples: Sequence[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"
    for suffix, labels, value in samples:
        text = ",".join(f'{key}="{_escape(label)}"' for key, label in labels.items())
        yield f"{name}{suffix}{{{text}}} {value!r}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
