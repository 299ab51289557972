"""Messages between the keeper and the workers: JSON with its length in front, through a Unix socket."""

from __future__ import annotations

import json
import socket
import struct
from pathlib import Path
from typing import Any

from fm2.errors import Fm2Error

SOCKET = "keeper.sock"  # in the private directory of the server
HEADER = struct.Struct("<I")
SECONDS = 60.0  # how long a call may take: a large catalog is computed for each version


def send(connection: socket.socket, message: Any) -> None:
    """Send one message."""
    text = json.dumps(message).encode()
    connection.sendall(HEADER.pack(len(text)) + text)


def receive(connection: socket.socket) -> Any:
    """Receive one message; raise EOFError if the other process closed the connection."""
    (size,) = HEADER.unpack(_read(connection, HEADER.size))
    return json.loads(_read(connection, size))


def _read(connection: socket.socket, size: int) -> bytes:
    text = bytearray(size)
    rest = memoryview(text)
    while rest:
        count = connection.recv_into(rest)
        if not count:
            raise EOFError("the connection was closed")
        rest = rest[count:]
    return bytes(text)


def connect(path: Path) -> socket.socket:
    """Connect to the keeper."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(SECONDS)
    connection.connect(str(path))
    return connection


def call(path: Path, **message: Any) -> Any:
    """Call the keeper and return its answer once all workers have applied the change.

    An error in the call raises :class:`fm2.Fm2Error`.
    """
    try:
        with connect(path) as connection:
            send(connection, message)
            answer = receive(connection)
    except (OSError, EOFError) as error:
        raise TimeoutError(f"the change was not applied: {error}") from error
    if "error" in answer:
        raise Fm2Error(answer["error"])
    return answer["result"]
