"""Send mutated requests to a server: it answers each of them, and afterwards it answers as before.

``python -m tests.torture.requests --count 100000`` sends a number of them.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.helpers.hostile_client import Client, Stalled, judge
from tests.helpers.mutated_requests import JSON, Sent, mutate
from tests.helpers.servers import Server
from tests.torture.findings import Findings
from tests.torture.processes import Budget

ROW = {"I1": "3", "C1": "a", "C2": "b"}
NAMES = list(ROW)
CHECKED = 500  # requests between valid ones
SLOW, SECONDS = 40, 2.0  # slow senders, and how long the server waits for them


def torture_requests(base: Path, work: Path, budget: Budget, seed: int, only: str = "") -> Findings:
    """Send mutated requests until the budget is spent."""
    findings = Findings("requests")
    if only in "requests":
        work.mkdir(exist_ok=True)
        send_mutated(base / "model.fm2", work, seed, findings, lambda sent: budget.is_spent())
    return findings


def send_mutated(
    model: Path, work: Path, seed: int, findings: Findings, is_last: Callable[[int], bool]
) -> Counter[str]:
    """Start a server and send mutated requests until ``is_last`` of their number; return how they were answered."""
    generator = random.Random(f"{seed} requests")
    with Server(work, f"shop={model}", "--max-seconds", SECONDS) as server:
        server.post("/v1/models/shop/catalogs/ads", _catalog(), "PUT")
        valid = list(valid_requests())
        client = Client(server.port)
        expected = [_valid_answer(client, sent) for sent in valid]
        workers = server.children()
        slow = [Stalled(server.port, generator.choice(valid), generator.random()) for _ in range(SLOW)]
        count, answers = 0, Counter[str]()
        while not is_last(count):
            sent = mutate(generator.choice(valid), generator)
            answered, fault = judge(sent, client.send(sent))
            findings.count(f"requests ({sent.mutation})")
            answers[answered] += 1
            count += 1
            if fault:
                findings.add(f"request {count} of seed {seed} ({sent.mutation} of {sent.path}): {fault}")
            if count % CHECKED == 0 and [_valid_answer(client, sent) for sent in valid] != expected:
                findings.add(f"after request {count} of seed {seed}, valid requests get other answers")
        for stalled in slow:
            answered, fault = stalled.end(SECONDS + 5)
            findings.count("slow senders")
            answers[f"slow: {answered}"] += 1
            if fault:
                findings.add(fault)
        if [_valid_answer(client, sent) for sent in valid] != expected:
            findings.add("at the end, valid requests get other answers")
        client.close()
        if server.children() != workers:
            findings.add("a worker was replaced")
        for line in server.events("internal error"):
            findings.add(f"the log has {line}")
    return answers


def valid_requests() -> Iterator[Sent]:
    """Yield a valid request of each kind."""
    model = "/v1/models/shop"
    bodies: dict[str, Any] = {
        f"{model}/predict": {"rows": [ROW, {**ROW, "C1": None}, {}], "id": "7"},
        f"{model}/versions/1/predict": {"columns": {name: [value, None, 4] for name, value in ROW.items()}},
        f"{model}/rank": {"context": {"I1": 3, "C1": "a"}, "candidates": [{"C2": "b"}, {"C2": "c"}], "top": 1},
        f"{model}/versions/1/rank": {"context": {"I1": 3, "C1": "a"}, "catalog": "ads", "top": 2},
        f"{model}/explain": {"row": ROW},
        f"{model}/outcomes": {"probabilities": [0.1, 0.5], "clicks": [0, 1]},
        "/v2/models/shop/infer": {"inputs": [_tensor(name, value) for name, value in ROW.items()]},
        "/v2/models/shop/versions/1/infer": {
            "inputs": [{"name": "ids", "shape": [2, 3], "datatype": "INT64", "data": [[1, 0, 2], [0, 1, 0]]}]
        },
        "/v2/repository/index": {"ready": True},
    }
    for path, body in bodies.items():
        yield Sent("POST", path, JSON, json.dumps(body).encode())
    yield Sent("PUT", f"{model}/catalogs/other", JSON, json.dumps(_catalog()).encode())
    yield _binary([_tensor(name, value) for name, value in ROW.items()], [_text(value) for value in ROW.values()])
    ids = np.array([[1, 0, 2], [0, 1, 0]], "<i4").tobytes()
    yield _binary([{"name": "ids", "shape": [2, 3], "datatype": "INT32"}], [ids])


def _tensor(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "shape": [1], "datatype": "BYTES", "data": [value]}


def _text(value: str) -> bytes:
    return len(value).to_bytes(4, "little") + value.encode()


def _binary(tensors: list[dict[str, Any]], data: list[bytes]) -> Sent:
    """Return a request with binary tensors."""
    inputs = []
    for tensor, bytes in zip(tensors, data, strict=True):
        named = {key: value for key, value in tensor.items() if key != "data"}
        inputs.append({**named, "parameters": {"binary_data_size": len(bytes)}})
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    return Sent("POST", "/v2/models/shop/infer", headers, head + b"".join(data))


def _catalog() -> dict[str, Any]:
    return {"candidate": ["C2"], "items": [{"id": str(n), "C2": value} for n, value in enumerate("abc")]}


def _valid_answer(client: Client, sent: Sent) -> bytes:
    answer = client.send(sent)
    return b"" if answer is None or answer[0] != 200 else answer[1]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture.requests", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("model", type=Path, help="a compiled model with the columns I1, C1 and C2")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    findings = Findings("requests")
    with tempfile.TemporaryDirectory(prefix="fm2-torture-") as folder:
        answers = send_mutated(
            options.model, Path(folder), options.seed, findings, lambda count: count >= options.count
        )
    print(findings.summary())
    print("answers:", ", ".join(f"{count:,} {answer}" for answer, count in answers.most_common()))
    return 1 if findings.found else 0


if __name__ == "__main__":
    sys.exit(main())
