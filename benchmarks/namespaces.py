"""Network namespaces whose links have a speed and a latency, so that processes communicate like several machines.

Each namespace has one link to a switch, which is a bridge in a namespace of its own: the network of the machine does
not change. Requires root and iproute2. Everything is removed at the end, also after an error or Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

PREFIX = "fm2-scaling"
LINK = "link0"
BURST_SECONDS, LARGEST_PACKETS = 1e-3, 262_144  # a link sends so much at full speed; fewer bytes would hold up packets
QUEUE = "50ms"
DELAYED_PACKETS = 20_000


@dataclass(frozen=True)
class Network:
    """Speed and latency of every link. A message passes one link, so ``milliseconds`` is the latency of one way."""

    gigabits: float
    milliseconds: float = 0.0


@dataclass(frozen=True)
class Machine:
    """A namespace that stands for a machine."""

    name: str
    address: str

    def command(self, command: list[str]) -> list[str]:
        """Return the command that runs a command in the namespace."""
        return ["ip", "netns", "exec", self.name, *command]

    def environment(self) -> dict[str, str]:
        """Return the variables that make gloo use the link."""
        return {"GLOO_SOCKET_IFNAME": LINK}


def check_namespaces() -> None:
    """Exit with a message if namespaces cannot be created."""
    if os.geteuid() != 0:
        sys.exit("scaling.py: the part network requires root, because it creates network namespaces; run it with sudo")
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            sys.exit(f"scaling.py: the part network requires the command '{tool}'; install iproute2")


@contextlib.contextmanager
def connected(count: int, network: Network) -> Iterator[list[Machine]]:
    """Create namespaces that are connected by a switch, and remove them at the end."""
    check_namespaces()
    _remove_abandoned()
    names = [f"{PREFIX}-{os.getpid()}-{number}" for number in range(count)]
    switch = f"{PREFIX}-{os.getpid()}-switch"
    previous = signal.signal(signal.SIGTERM, _terminate)  # a context manager ends after an exception, not a signal
    try:
        _run("ip", "netns", "add", switch)
        _inside(switch, "ip", "link", "add", "bridge0", "type", "bridge")
        _inside(switch, "ip", "link", "set", "bridge0", "up")
        machines = [_connect(name, switch, number, network) for number, name in enumerate(names)]
        yield machines
    finally:
        signal.signal(signal.SIGTERM, previous)
        for name in [*names, switch]:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def _connect(name: str, switch: str, number: int, network: Network) -> Machine:
    """Create a namespace with a link to the switch that limits what the namespace sends and what it receives."""
    address, port = f"10.77.0.{number + 1}", f"port{number}"
    _run("ip", "netns", "add", name)
    _inside(name, "ip", "link", "set", "lo", "up")
    _inside(switch, "ip", "link", "add", port, "type", "veth", "peer", "name", LINK, "netns", name)
    _inside(switch, "ip", "link", "set", port, "master", "bridge0", "up")
    _inside(name, "ip", "address", "add", f"{address}/24", "dev", LINK)
    _inside(name, "ip", "link", "set", LINK, "up")
    burst = max(network.gigabits * 1e9 / 8 * BURST_SECONDS, LARGEST_PACKETS)
    limit = ["tbf", "rate", f"{network.gigabits:g}gbit", "burst", f"{burst:.0f}", "latency", QUEUE]
    _inside(name, "tc", "qdisc", "add", "dev", LINK, "root", "handle", "1:", *limit)
    _inside(switch, "tc", "qdisc", "add", "dev", port, "root", *limit)
    if network.milliseconds:
        delay = ["netem", "delay", f"{network.milliseconds:g}ms", "limit", str(DELAYED_PACKETS)]
        _inside(name, "tc", "qdisc", "add", "dev", LINK, "parent", "1:1", *delay)
    return Machine(name, address)


def has_netem() -> bool:
    """Return whether the kernel can delay packets. Kernels of small virtual machines sometimes cannot."""
    name = f"{PREFIX}-{os.getpid()}-try"
    _run("ip", "netns", "add", name)
    try:
        command = ["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
        return subprocess.run(command, capture_output=True).returncode == 0
    finally:
        _run("ip", "netns", "delete", name)


def _inside(name: str, *command: str) -> None:
    _run("ip", "netns", "exec", name, *command)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"scaling.py: '{' '.join(command)}' failed: {done.stderr.strip()}")


def _remove_abandoned() -> None:
    """Remove the namespaces of processes that were killed."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.splitlines()
    for name in (line.split()[0] for line in listed if line.startswith(f"{PREFIX}-")):
        if not Path("/proc", name.split("-")[2]).exists():
            subprocess.run(["ip", "netns", "delete", name], check=False)


def _terminate(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
