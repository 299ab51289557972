"""The Open Inference Protocol v2 over REST, except infer, which native code answers."""

from __future__ import annotations

from typing import Any

from fm2 import __version__
from fm2.serving.http import Request, Response
from fm2.serving.refusals import Refused
from fm2.serving.served import Served

EXTENSIONS = ["binary_tensor_data", "model_repository"]
PLATFORM = "fm2"
OUTPUTS = ("probabilities", "logits")  # a request without outputs gets the first one


def server(request: Request) -> Response:
    """``GET /v2``."""
    return Response({"name": "fm2", "version": __version__, "extensions": EXTENSIONS})


def live(request: Request) -> Response:
    """``GET /v2/health/live``."""
    return Response()


def ready(request: Request) -> Response:
    """``GET /v2/health/ready``: a model is loaded. One whose file was refused must not stop the others."""
    if request.table.draining:
        raise Refused(503, "the server is stopping", "not_ready")
    if not any(model.serving for model in request.table.models.values()):
        raise Refused(503, "no model is loaded", "not_ready")
    return Response()


def metadata(request: Request) -> Response:
    """``GET /v2/models/{model}``."""
    served = request.served()
    labels = [label for label, version in request.model().state.labels.items() if version == served.version]
    return Response(
        {
            "name": served.name,
            "versions": list(request.model().versions),
            "platform": PLATFORM,
            "inputs": _inputs(served),
            "outputs": [{"name": name, "datatype": "FP32", "shape": [-1]} for name in OUTPUTS],
            "parameters": {"version": served.version, "labels": ",".join(labels)},
        }
    )


def _inputs(served: Served) -> list[dict[str, Any]]:
    """Return a tensor for each column; native code accepts other data types as well."""
    inputs = []
    for column in served.scorer.columns:
        field = next(f for f in served.scorer.schema.fields if column in (f.column, f.weight_column))
        is_number = field.kind == "numeric" or column == field.weight_column
        shape = [-1, -1] if field.multivalued else [-1]
        inputs.append({"name": column, "datatype": "FP32" if is_number else "BYTES", "shape": shape})
    return inputs


def model_ready(request: Request) -> Response:
    """``GET /v2/models/{model}/ready``."""
    request.served()
    return Response()


def index(request: Request) -> Response:
    """``POST /v2/repository/index``; the body may be empty or ``{"ready": true}``."""
    only_ready = bool(request.json_object("ready").get("ready")) if request.body.strip() else False
    entries = []
    for name, model in request.table.models.items():
        entries += [{"name": name, "version": version, "state": "READY", "reason": ""} for version in model.versions]
        for version, reason in model.state.rejected.items():
            if version not in model.versions:
                entries.append({"name": name, "version": version, "state": "UNAVAILABLE", "reason": reason})
        if not model.versions and not model.state.rejected:
            entries.append({"name": name, "version": "", "state": "UNAVAILABLE", "reason": "unloaded"})
    return Response([entry for entry in entries if entry["state"] == "READY" or not only_ready])


def load(request: Request) -> Response:
    """``POST /v2/repository/models/{model}/load``: look at the model's files now."""
    _check_parameters(request)
    refused = request.app.call_keeper("load", name=request.parts["model"])
    if refused:  # other versions may have been loaded
        raise Refused(400, "; ".join(refused), "invalid_request")
    return Response()


def unload(request: Request) -> Response:
    """``POST /v2/repository/models/{model}/unload``."""
    _check_parameters(request)
    request.app.call_keeper("unload", name=request.parts["model"])
    return Response()


def _check_parameters(request: Request) -> None:
    """Refuse parameters that would have no effect."""
    parameters = request.json_object("parameters").get("parameters") if request.body.strip() else None
    if not isinstance(parameters, dict | None):
        raise Refused(400, '"parameters" must be an object', "invalid_request")
    for name in parameters or {}:
        if name != "unload_dependents":
            raise Refused(
                400, f"the parameter '{name}' is not supported; models are files of the server", "invalid_request"
            )
