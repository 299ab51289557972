"""granian with the settings that fm2 needs, and one listening socket for all workers."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any

from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.net import SocketSpec  # type: ignore[attr-defined]
from granian.server.mp import MPServer

from fm2.errors import Fm2Error
from fm2.serving import channel
from fm2.serving.settings import Settings

BACKLOG = 2048
START_SECONDS = 1.0  # a worker that ends sooner has failed to start
STOP_SECONDS = 30  # for running requests, after SIGTERM


class Server(MPServer):
    """Workers accept connections from the same socket, and end after clients were asked to leave.

    With a socket for each worker, which is granian's default on Linux, connections that wait for a worker are lost if
    it is killed.
    """

    settings: Settings

    def shutdown(self, exit_code: int = 0) -> None:
        """Close connections by the answers to their next requests, then stop the workers."""
        with contextlib.suppress(TimeoutError, Fm2Error):
            channel.call(self.settings.runtime / channel.SOCKET, call="drain")
            time.sleep(self.settings.drain)
        super().shutdown(exit_code)  # type: ignore[no-untyped-call]

    def _respawn_workers(self, workers: Any, spawn_target: Any, target_loader: Any, delay: float = 0) -> None:
        """Replace workers; granian gives up on a worker that it has to replace twice within seconds.

        Here, only one that ended right after its start counts.
        """
        ended_early = {index for index in workers if time.monotonic() - self.wrks[index].birth < START_SECONDS}
        super()._respawn_workers(workers, spawn_target, target_loader, delay)
        for index in set(workers) - ended_early:
            self.respawned_wrks.pop(index, None)

    def _init_shared_socket(self) -> None:
        holder: Any = SocketSpec(self.bind_addr, self.bind_port, self.backlog).build()
        self._shd = holder
        self._sfd = holder.get_fd()
        self._ssp = None
        self._sso = socket.socket(fileno=self._sfd)
        self._sso.set_inheritable(True)
        self._sso.listen(self.backlog)  # connections wait for the first worker
        self.bind_port = self._sso.getsockname()[1]


def check_port(settings: Settings) -> None:
    """Raise an error if the port is taken: several servers could share it, and each would get some of the requests."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ports of closed connections are free
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            where = f"{settings.host} port {settings.port}"
            raise Fm2Error(f"serve: cannot listen on {where}: {error.strerror}; port= selects another one") from error


def create_server(settings: Settings) -> Any:
    """Return a server that is ready to start."""
    if bool(settings.certificate) != bool(settings.private_key):
        raise Fm2Error("serve: TLS requires both tls_certificate= and tls_key=")
    server = Server(
        "fm2.serving.app",
        address=settings.host,
        port=settings.port,
        interface=Interfaces.RSGI,
        loop=Loops.asyncio,
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
    server.settings = settings
    return server
