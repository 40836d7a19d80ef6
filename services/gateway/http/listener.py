"""uvicorn's HTTP/1.1 connection with the time limits that it lacks."""

import array
import asyncio
import fcntl
import json
import termios

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from services.gateway.http.api_error import ApiError
from services.gateway.http.settings import HttpSettings


class TimedConnection(H11Protocol):
    """Cuts a client that never finishes a request's head, or that leaves an answer unread.

    A client that closes only its sending side counts as gone: from here it looks like one that has left, and work for
    those has to end at once.
    """

    head_seconds: float
    unread_seconds: float
    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _unread_bytes = 0
    """How much the client had left unread when that was last looked at."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Waits for the first request, not for ever."""
        super().connection_made(transport)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the timers."""
        super().connection_lost(exc)
        self._stop_head_timer()
        self._stop_unread_timer()

    def data_received(self, data: bytes) -> None:
        """Starts the head's time at its first byte and stops it at its last."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_head_timer()
        elif self._head_timer is None and not self.transport.is_closing():
            self._watch_head()

    def pause_writing(self) -> None:
        """The client does not read: its time starts."""
        super().pause_writing()
        if self._unread_timer is None:
            self._watch_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._stop_unread_timer()

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP in the shape of every other error; closes where an answer is on its way already."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        error = ApiError(400, f"{msg} Send HTTP/1.1.", code="invalid_http")
        body = json.dumps(error.body()).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch_reading(self) -> None:
        self._unread_bytes = unread_bytes(self.transport)
        self._unread_timer = self.loop.call_later(self.unread_seconds, self._cut_or_watch_on)

    def _cut_or_watch_on(self) -> None:
        if unread_bytes(self.transport) < self._unread_bytes:
            self._watch_reading()
        else:
            self.transport.abort()

    def _watch_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None


def unread_bytes(transport: asyncio.WriteTransport) -> int:
    """Counts what the peer has not taken yet: our buffer's bytes, and the kernel's where it tells."""
    pending = array.array("i", [0])
    try:
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, pending)
    except OSError:
        return transport.get_write_buffer_size()
    return transport.get_write_buffer_size() + pending[0]


def timed_connection(settings: HttpSettings) -> type[TimedConnection]:
    """Returns the connection class with these limits."""
    limits = {"head_seconds": settings.head_seconds, "unread_seconds": settings.unread_seconds}
    return type("LimitedConnection", (TimedConnection,), limits)
