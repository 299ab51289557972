"""Keys, limits, slow senders and TLS."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import socket
import subprocess
import sys
import time

import pytest
from tests.helpers.servers import Server, wait_for
from tests.serving.conftest import ROW

from fm2.artifacts.model_file import MODEL

PREDICT, MANAGE, HASHED = "predict-" + "a" * 20, "manage-" + "b" * 20, "hashed-" + "c" * 20
SHOP = "/v1/models/shop"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    digest = hashlib.sha256(HASHED.encode()).hexdigest()
    path.write_text(f"# rights\npredict app {PREDICT}\nmanage ops {MANAGE}\n\npredict other sha256:{digest}\n")
    return path


@pytest.fixture(scope="module")
def server(files, keys, tmp_path_factory):
    limits = ("--max-body", "200k", "--max-rows", 50, "--max-seconds", 1, "--max-queue", 8)
    directory = tmp_path_factory.mktemp("security")
    with Server(directory, f"shop={files[0]}", "--keys", keys, "--poll", 0.2, *limits) as running:
        yield running


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def test_keys_have_rights(server):
    body = {"rows": [ROW]}
    for headers in ({}, bearer("wrong"), bearer(PREDICT[:-1]), {"Authorization": PREDICT}, bearer("é")):
        assert "API key" in server.error(401, "POST", f"{SHOP}/predict", body, **headers)
        assert server.send("GET", "/metrics", None, headers)[0] == 401
    for key in (PREDICT, MANAGE, HASHED):
        assert server.post(f"{SHOP}/predict", body, **bearer(key))["version"] == "1"
    unload = "/v2/repository/models/shop/unload"
    assert server.send("POST", unload)[0] == 401
    assert "not manage" in server.error(403, "POST", unload, None, **bearer(PREDICT))
    assert server.send("PUT", f"{SHOP}/traffic", {}, bearer(MANAGE))[0] == 200
    for path in ("/v2", "/v2/health/live", "/v2/health/ready", "/openapi.json"):
        assert server.send("GET", path)[0] == 200, "no key needed"


def test_keys_are_read_again_when_the_file_changes(server, keys):
    added = "added-" + "d" * 20
    text = keys.read_text()
    keys.write_text(f"{text}predict new {added}\n")
    wait_for(lambda: server.send("GET", "/v1/models", None, bearer(added))[0] == 200)
    keys.write_text("nonsense\n")
    wait_for(lambda: server.events("refused the keys"))
    assert server.send("GET", "/v1/models", None, bearer(added))[0] == 200
    keys.write_text(text)
    wait_for(lambda: server.send("GET", "/v1/models", None, bearer(added))[0] == 401)


def test_requests_that_are_too_large_are_refused(server):
    key = bearer(PREDICT)
    assert "--max-body" in server.error(413, "POST", f"{SHOP}/predict", b"x" * 300_000, **key)
    assert server.send("POST", f"{SHOP}/predict", {"rows": [ROW] * 50}, key)[0] == 200
    assert "50" in server.error(413, "POST", f"{SHOP}/predict", {"rows": [ROW] * 51}, **key)
    with contextlib.closing(server.connect()) as connection:
        chunks = (b"x" * 50_000 for _ in range(5))
        connection.request("POST", f"{SHOP}/predict", chunks, key, encode_chunked=True)
        response = connection.getresponse()
        assert response.status == 413
        assert b"--max-body" in response.read()


def test_a_slow_sender_is_answered_and_disconnected(server):
    for rest in (b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
            head = f"POST {SHOP}/predict HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {PREDICT}\r\n"
            slow.sendall(head.encode() + rest)
            began = time.monotonic()
            answer = slow.recv(4096)
            assert b" 408 " in answer.partition(b"\r\n")[0]
            assert b"--max-seconds" in answer
            assert 0.5 < time.monotonic() - began < 4
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
        slow.sendall(b"POST /v1/mod")
        assert slow.recv(4096) == b"", "a slow head closes the connection"


def test_too_many_requests_at_the_same_time_are_refused(server):
    head = f"POST {SHOP}/predict HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {PREDICT}\r\nContent-Length: 9\r\n\r\n"
    waiting = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(8)]
    try:
        for connection in waiting:
            connection.sendall(head.encode())
        status, content, headers = wait_for(lambda: _refused(server))
        assert status == 429
        assert "--max-queue" in content["error"]
        assert headers["retry-after"] == "1"
    finally:
        for connection in waiting:
            connection.close()
    wait_for(lambda: server.send("POST", f"{SHOP}/predict", {"rows": [ROW]}, bearer(PREDICT))[0] == 200)


def _refused(server):
    answer = server.send("POST", f"{SHOP}/predict", {"rows": [ROW]}, bearer(PREDICT))
    return answer if answer[0] != 200 else None


def test_tls(files, tmp_path):
    certificate, key = create_certificate(tmp_path)
    arguments = (f"shop={files[0]}", "--tls-certificate", certificate, "--tls-key", key)
    with Server(tmp_path, *arguments, tls=True) as server:
        assert server.post(f"{SHOP}/predict", {"rows": [ROW]})["version"] == "1"


def create_certificate(directory):
    """Write a self-signed certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    signed = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1)).sign(key, hashes.SHA256())
    (directory / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    private = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (directory / "key.pem").write_bytes(key.private_bytes(*private))
    return directory / "cert.pem", directory / "key.pem"


MISTAKES = {
    ("missing.fm2",): "serve: compiled model: file not found: missing.fm2",
    ("a b=model.fm2",): "model 'a b'",
    ("MODEL", "--canary", "shop"): "--canary like shop=4:0.1",
    ("MODEL", "--canary", "shop=9:0.1"): "no version '9'",
    ("MODEL", "--shadow", "shpo=1"): "did you mean 'shop'?",
    ("MODEL", "--workers", "0"): "--workers must be above 0",
    ("MODEL", "--log-sample", "2"): "--log-sample",
    ("MODEL", "--max-rows", "0"): "--max-rows must be above 0",
    ("MODEL", "--keys", "/dev/null"): "no keys",
    ("MODEL", "--keys", "/nowhere"): "serve: cannot read the keys in /nowhere",
    ("shop=damaged.fm2",): "damaged.fm2: not a valid compiled model",
    ("MODEL", "--tls-key", "x"): "--tls-certificate",
    ("MODEL", "--catalog", "shop:ads=/nowhere"): "/nowhere",
    ("run",): "run is a run; fm2 compile turns it into a model file",
}
RUN = """
import contextlib, io, json, sys
from fm2.cli.main import main
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(["serve", *words, "--port", "0"])
    print(json.dumps([code, errors.getvalue().splitlines()]), flush=True)
"""


def test_mistakes_on_the_command_line_are_explained(files, tmp_path):
    words = [[f"shop={files[0]}" if word == "MODEL" else word for word in mistake] for mistake in MISTAKES]
    command = [sys.executable, "-c", RUN, json.dumps(words)]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / MODEL).touch()
    (tmp_path / "damaged.fm2").write_text("damaged")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    for (code, errors), message in zip(map(json.loads, done.stdout.splitlines()), MISTAKES.values(), strict=True):
        assert code == 1, errors
        assert message in errors[-1]
        assert not [line for line in errors if " error " in line], "it is reported once"


def test_a_port_that_is_in_use_is_refused(server, files):
    command = [sys.executable, "-m", "fm2", "serve", f"shop={files[0]}", "--port", str(server.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"port {server.port}: Address already in use; --port selects another one" in done.stderr


def test_an_empty_directory_is_reported(tmp_path):
    models = tmp_path / "models"
    models.mkdir()
    with Server(tmp_path, models) as server:
        assert server.events("no compiled model yet; waiting for one")[0]["directory"] == str(models)
