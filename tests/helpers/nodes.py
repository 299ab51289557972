"""Two torchrun agents, as on two machines: on loopback, or each in a network namespace of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.helpers.random_kills import descendants
from tests.helpers.workers import ROOT, free_port

LINK = "fm2-link"


@dataclass(frozen=True)
class Node:
    """Where an agent runs: its address, and how to start a process there."""

    address: str
    prefix: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


LOOPBACK = [Node("127.0.0.1"), Node("127.0.0.1")]


@contextmanager
def namespaces() -> Iterator[list[Node]]:
    """Create two network namespaces with a link between them, and nothing else; remove them at the end."""
    names = [f"fm2-test-{os.getpid()}-{number}" for number in range(2)]
    addresses = [f"10.78.0.{number + 1}" for number in range(2)]
    with ExitStack() as stack:
        for name in names:
            _run("ip", "netns", "add", name)
            stack.callback(subprocess.run, ["ip", "netns", "delete", name], check=False)
        first, second = names
        _run(*_inside(first), "ip", "link", "add", LINK, "type", "veth", "peer", "name", LINK, "netns", second)
        for name, address in zip(names, addresses, strict=True):
            _run(*_inside(name), "ip", "address", "add", f"{address}/24", "dev", LINK)
            for link in ("lo", LINK):
                _run(*_inside(name), "ip", "link", "set", link, "up")
        yield [
            Node(address, _inside(name), {"GLOO_SOCKET_IFNAME": LINK})
            for name, address in zip(names, addresses, strict=True)
        ]


def _inside(name: str) -> tuple[str, ...]:
    return "ip", "netns", "exec", name


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def torchrun(nodes: list[Node], words: list[str], restarts: int = 0) -> Iterator[list[subprocess.Popen[str]]]:
    """Start ``fm2`` with these arguments on two nodes, with one worker each; end all of their processes at the end."""
    endpoint = f"{nodes[0].address}:{free_port()}"
    agents = []
    try:
        for number, node in enumerate(nodes):
            options = ["--rdzv-conf", f"is_host={number == 0}"]  # its name does not say so in a namespace
            options += ["--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", str(restarts)]
            options += ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--local-addr", node.address]
            agents.append(
                subprocess.Popen(
                    [*node.prefix, sys.executable, "-m", "torch.distributed.run", *options, "-m", "fm2", *words],
                    env={**os.environ, **node.environment, "OMP_NUM_THREADS": "1"},
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        yield agents
    finally:
        for agent in agents:
            for process in (*descendants(agent.pid), agent.pid):
                if agent.poll() is None:
                    subprocess.run(["kill", "-9", str(process)], check=False, capture_output=True)
            agent.communicate()
