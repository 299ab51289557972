"""Small requests, answered on granian's thread without asyncio."""

from __future__ import annotations

import contextvars
import time
from typing import TYPE_CHECKING, Any

from fm2.serving.refusals import CLOSE, Refused

if TYPE_CHECKING:
    from fm2.serving.app import App
    from fm2.serving.table import Target

CONTEXT = contextvars.Context()  # granian asks for one


class Answer:
    """A request whose body is being received; granian calls it with the body."""

    __slots__ = ("app", "began", "deadline", "target", "watcher")

    def __init__(self, app: App, watcher: Any, target: Target, began: int) -> None:
        self.app = app
        self.watcher = watcher
        self.target = target
        self.began = began
        self.deadline = time.monotonic() + app.settings.limits.seconds

    def __call__(self, future: Any) -> None:
        """Answer the request, unless it took too long."""
        app = self.app
        if app.intake.direct.pop(self, None) is None:
            return  # the sweeper has answered
        watcher = self.watcher
        try:
            app.answer(watcher.scope, watcher.proto, self.target, future.result(), self.began)
        except Exception as error:
            app.refuse(watcher.scope, watcher.proto, error, self.target, self.began)
        watcher.done()

    def give_up(self, seconds: float) -> None:
        """Refuse the request of a slow sender."""
        if self.app.intake.direct.pop(self, None) is not None:
            self.app.refuse(self.watcher.scope, self.watcher.proto, slow_sender(seconds), self.target, self.began)
            self.watcher.done()


def slow_sender(seconds: float) -> Refused:
    """Return the error for a body that does not arrive."""
    message = f"the body did not arrive within {seconds:g} seconds (fm2 serve --max-seconds)"
    return Refused(408, message, "slow_sender", [CLOSE])
