"""Optional OpenTelemetry traces: a span per request. Without them, requests do not pass through this file."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from typing import TYPE_CHECKING, Any

from fm2.errors import require

if TYPE_CHECKING:
    from fm2.serving.app import App
    from fm2.serving.logs import Log

OTLP = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
PURPOSE = "fm2 serve with traces="
STOP_SECONDS = 3.0  # to send the last spans; a collector that does not answer must not delay the end


def check_traces(exporter: str) -> None:
    """Raise an error if a package for traces is missing."""
    require("opentelemetry.sdk.trace.export", "traces", PURPOSE)
    if exporter == "otlp":
        require(OTLP, "traces", PURPOSE)


class Status:
    """Passes responses on and remembers the status."""

    __slots__ = ("_proto", "status")

    def __init__(self, proto: Any) -> None:
        self._proto = proto
        self.status = 500

    def __call__(self) -> Any:
        """Return the body."""
        return self._proto()

    def __aiter__(self) -> Any:
        return self._proto.__aiter__()

    def response_bytes(self, status: int, headers: Any, body: bytes) -> None:
        """Send a response."""
        self.status = status
        self._proto.response_bytes(status, headers, body)


class LogHandler(logging.Handler):
    """Writes what OpenTelemetry reports to the log of the server."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        self._log(record.levelname.lower(), "traces", reason=record.getMessage())


class TracedApp:
    """An application whose requests have spans; the trace of the caller is continued (traceparent)."""

    def __init__(self, app: App, exporter: str) -> None:
        self._app = app
        self._exporter = exporter

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the exporter, which has a thread, in the worker."""
        export: Any = require("opentelemetry.sdk.trace.export", "traces", PURPOSE)
        sdk: Any = require("opentelemetry.sdk.trace", "traces", PURPOSE)
        resources: Any = require("opentelemetry.sdk.resources", "traces", PURPOSE)
        propagation: Any = require("opentelemetry.trace.propagation.tracecontext", "traces", PURPOSE)
        trace: Any = require("opentelemetry.trace", "traces", PURPOSE)
        otlp: Any = require(OTLP, "traces", PURPOSE) if self._exporter == "otlp" else None
        logging.getLogger("opentelemetry").addHandler(LogHandler(self._app.log))
        exporter = otlp.OTLPSpanExporter() if otlp else export.ConsoleSpanExporter()
        resource = resources.Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "fm2")})
        self._provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(export.BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("fm2.serving")
        self._context = propagation.TraceContextTextMapPropagator()
        self._kind = trace.SpanKind.SERVER
        self._app.__rsgi_init__(loop)

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send what is left."""
        self._app.__rsgi_del__(loop)
        last = threading.Thread(target=self._provider.shutdown, name="fm2-traces", daemon=True)
        last.start()
        last.join(STOP_SECONDS)

    async def __rsgi__(self, scope: Any, proto: Any) -> None:
        """Answer a request within a span."""
        parent = scope.headers.get("traceparent")
        context = self._context.extract({"traceparent": parent}) if parent else None
        attributes = {"http.request.method": scope.method, "url.path": scope.path}
        status = Status(proto)
        with self._tracer.start_as_current_span(
            f"{scope.method} {scope.path}", context=context, kind=self._kind, attributes=attributes
        ) as span:
            await self._app.__rsgi__(scope, status)
            span.set_attribute("http.response.status_code", status.status)
