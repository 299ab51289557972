"""granian with the settings that fm2 needs, and one listening socket for all workers."""

from __future__ import annotations

import socket
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.net import SocketSpec  # type: ignore[attr-defined]
from granian.server.mp import MPServer

from fm2.errors import Fm2Error
from fm2.serving.settings import Settings

BACKLOG = 2048
STOP_SECONDS = 30  # for running requests, after SIGTERM


class Server(MPServer):
    """Workers accept connections from the same socket.

    With a socket for each worker, which is granian's default on Linux, connections that wait for a worker are lost if
    it is killed.
    """

    def _init_shared_socket(self) -> None:
        holder: Any = SocketSpec(self.bind_addr, self.bind_port, self.backlog).build()
        self._shd = holder
        self._sfd = holder.get_fd()
        self._ssp = None
        self._sso = socket.socket(fileno=self._sfd)
        self._sso.set_inheritable(True)
        self.bind_port = self._sso.getsockname()[1]


def create_server(settings: Settings) -> Any:
    """Return a server that is ready to start."""
    if bool(settings.certificate) != bool(settings.private_key):
        raise Fm2Error("serve: TLS requires both tls_certificate= and tls_key=")
    return Server(
        "fm2.serving.app",
        address=settings.host,
        port=settings.port,
        interface=Interfaces.RSGI,
        workers=settings.workers,
        http=HTTPModes.auto if settings.certificate else HTTPModes.http1,
        websockets=False,
        backlog=BACKLOG,
        backpressure=max(2 * settings.limits.queue, BACKLOG),
        http1_settings=HTTP1Settings(header_read_timeout=int(settings.limits.seconds * 1000)),
        log_level=LogLevels.error,
        ssl_cert=settings.certificate,
        ssl_key=settings.private_key,
        respawn_failed_workers=True,
        workers_kill_timeout=STOP_SECONDS,
    )
