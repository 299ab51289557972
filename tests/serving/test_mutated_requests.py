"""Requests that no client should send, over HTTP. ``python -m tests.torture.requests`` sends many more."""

from __future__ import annotations

import json
import socket

import pytest
from tests.helpers.clicks import click_log
from tests.helpers.hostile_client import Client
from tests.helpers.mutated_requests import Sent
from tests.helpers.servers import Server
from tests.torture.findings import Findings
from tests.torture.requests import NAMES, send_mutated

import fm2
from fm2 import Field, Schema

COUNT = 1500


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return a compiled model with the columns of the campaign."""
    folder = tmp_path_factory.mktemp("mutated")
    log = (
        click_log(1000)
        .select("click", "price", "site", "ad")
        .rename(dict(zip(("price", "site", "ad"), NAMES, strict=True)))
    )
    fields = [Field(NAMES[0], "numeric"), *(Field(name, min_count=1) for name in NAMES[1:])]
    dataset = fm2.prepare(log, Schema(fields, label="click"), folder / "data")
    fm2.train("fmfm", dataset, out=folder / "run", epochs=1, threads=1)
    fm2.compile(folder / "run", folder / "model.fm2")
    return folder / "model.fm2"


def test_every_mutated_request_is_answered(model, tmp_path):
    findings = Findings("requests")
    send_mutated(model, tmp_path, 1, findings, lambda count: count >= COUNT)
    assert sum(findings.tried.values()) > COUNT
    assert not findings.found


def test_what_went_wrong_is_said(model, tmp_path):
    predict = "/v1/models/shop/predict"
    with Server(tmp_path, f"shop={model}") as server:
        client = Client(server.port)
        cases = {
            b'{"rows": [{"C1": "\xff"}]}': "the body is not valid UTF-8",
            b'{"rows": [{"C1": "\\ud800"}]}': "rows[0]: column 'C1': invalid JSON at byte 24: "
            "a surrogate has no partner",
            b'{"rows": [{"C1": ' + b"[" * 10_000: "rows[0]: column 'C1': the value is a list; only multi-valued fields "
            "may have several values",
            b'{"rows": [{"C3": 1}]}': "rows[0]: unknown column 'C3'; did you mean 'C1'?",
            b'{"row": []}': "unknown key 'row'; did you mean 'rows'?",
            b"": "invalid JSON: expected an object, but the text ends after 0 bytes",
        }
        for body, message in cases.items():
            status, answer, _ = client.send(Sent("POST", predict, {}, body)) or (0, b"{}", {})
            assert (status, json.loads(answer)["error"]) == (400, message)
        early = client.send(Sent("POST", predict, {}, b'{"rows"', is_alone=True, is_complete=False, length="500"))
        assert early is not None
        assert early[0] == 400
        assert "Content-Length" in json.loads(early[1])["error"]
        chunked = {"Transfer-Encoding": "chunked"}
        whole = b'15\r\n{"rows": [{"C1": 1}]}\r\n0\r\n\r\n'
        for body, expected in {
            whole: (200, None),
            whole.replace(b"\n0", b"\nzz"): (400, "the chunked body is damaged or incomplete"),
            whole[:-5]: (400, "the chunked body is damaged or incomplete"),
        }.items():
            sent = Sent("POST", predict, chunked, body, is_alone=True, is_complete=body == whole or b"zz" in body)
            status, answer, _ = client.send(sent) or (0, b"{}", {})
            assert (status, json.loads(answer).get("error", "").partition(", or")[0] or None) == expected
        client.close()
        status, answer, _ = server.send("POST", "/v1/models/shop/explain", b'{"row": {"C1": "\\ud800"}}')
        assert (status, "surrogate" in answer["error"]) == (400, True)
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as plain:
            plain.sendall(b"this is not HTTP\r\n\r\n")
            assert b" 400 " in plain.recv(1000)
