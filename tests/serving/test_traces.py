"""OpenTelemetry traces: printed, and sent to a collector on loopback."""

from __future__ import annotations

import http.server
import socket
import threading
import time

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.helpers.servers import Server, wait_for
from tests.serving.conftest import ROW

PREDICT = "/v1/models/shop/predict"
TRACE, PARENT = "a" * 32, "b" * 16
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


class Collector:
    """Receives OTLP over HTTP, as protobuf; a context manager."""

    def __init__(self) -> None:
        self.spans: list = []
        self.services: set[str] = set()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.path == "/v1/traces"
                for resource in request.resource_spans:
                    attributes = {item.key: item.value.string_value for item in resource.resource.attributes}
                    collector.services.add(attributes["service.name"])
                    collector.spans += [span for scope in resource.scope_spans for span in scope.spans]
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Collector:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def attributes(span) -> dict[str, object]:
    """Return the attributes of a span."""
    return {item.key: item.value.string_value or item.value.int_value for item in span.attributes}


def test_spans_are_printed(files, tmp_path):
    with Server(tmp_path, f"shop={files[0]}", "--traces", "console") as server:
        server.post(PREDICT, {"rows": [ROW]}, traceparent=TRACEPARENT)
        server.stop()
        text = server.log_path.read_text()
        assert f'"trace_id": "0x{TRACE}"' in text
        assert '"http.response.status_code": 200' in text


def test_spans_are_sent_to_a_collector(files, tmp_path, monkeypatch):
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "ads")
        with Server(tmp_path, f"shop={files[0]}", "--traces", "otlp") as server:
            server.post(PREDICT, {"rows": [ROW]}, traceparent=TRACEPARENT)
            server.error(400, "POST", PREDICT, {"rows": [{"sitte": 1}]})
            wait_for(lambda: len(collector.spans) == 2)
            server.get("/v1/models")
            assert server.stop() == 0
        good, bad, last = collector.spans
        assert (good.name, good.trace_id.hex(), good.parent_span_id.hex()) == (f"POST {PREDICT}", TRACE, PARENT)
        assert attributes(good)["http.response.status_code"] == 200
        assert 0 < good.end_time_unix_nano - good.start_time_unix_nano < 10e9
        assert attributes(bad)["http.response.status_code"] == 400
        assert not bad.parent_span_id
        assert last.name == "GET /v1/models", "the last spans are sent when the server stops"
        assert collector.services == {"ads"}


@pytest.mark.parametrize("is_silent", [False, True], ids=["closed port", "silent collector"])
def test_without_a_collector_requests_are_answered_and_the_server_stops(files, tmp_path, monkeypatch, is_silent):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        if not is_silent:
            silent.close()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        with Server(tmp_path, f"shop={files[0]}", "--traces", "otlp") as server:
            for _ in range(3):
                server.post(PREDICT, {"rows": [ROW]})
                time.sleep(0.3)
            began = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - began < 10
        lines = server.log_path.read_text().splitlines()
        assert len(server.log()) == len(lines), "every line is JSON"
        assert is_silent or server.events("traces")
