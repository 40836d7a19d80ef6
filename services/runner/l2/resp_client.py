"""A small RESP2 client that moves large values between a socket and preallocated memory without copying them.

Whatever goes wrong inside a call closes the connection: a reply that comes late can then never be read by the next
caller as its own. Only an error reply of the server, which ends its command in good order, leaves it open.
"""

import socket
import ssl
import time
from collections.abc import Callable, Sequence

from services.runner.l2.redis_url import RedisTarget, TlsOptions

Buffer = bytes | bytearray | memoryview
Reply = str | int | bytes | None

_LINE_BYTES = 64 * 1024
_SMALL_REPLY_BYTES = 64 * 1024
# Small, so that little of a value's first bytes lands here and has to be moved.
_READ_AHEAD_BYTES = 512


class RedisUnavailable(Exception):
    """The server cannot be reached, went away, or does not speak the protocol."""


class RedisTimeout(RedisUnavailable):
    """The deadline passed before the reply was there."""


class RedisRefused(Exception):
    """The server answered with an error; code is its first word, for example OOM."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = message.split(" ", 1)[0]


class RespConnection:
    """One connection, for one thread. Deadlines are instants of time.monotonic()."""

    def __init__(self, target: RedisTarget, deadline: float) -> None:
        self._name = target.name
        self._buffer = bytearray()
        self._socket: socket.socket | None = None
        try:
            self._socket = _connect(target, _remaining(deadline))
            self._log_in(target, deadline)
        except TimeoutError as error:
            raise RedisTimeout(f"Redis at {target.name} did not accept in time") from error
        except (OSError, RedisRefused) as error:
            self.close()
            raise RedisUnavailable(f"Redis at {target.name}: {error}") from error

    @property
    def is_closed(self) -> bool:
        """Tells whether an error has ended this connection."""
        return self._socket is None

    def close(self) -> None:
        """Closes the connection; what is still under way on it is never read."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    def call(self, *words: bytes, deadline: float) -> Reply:
        """Sends one command and returns its small reply."""
        with _ClosesOnError(self):
            self._send([_command(words)], deadline)
            return self._read_reply(deadline)

    def get_into(self, key: bytes, staging: Callable[[int], memoryview], deadline: float) -> memoryview | None:
        """Reads a value into the memory that staging gives for its length; None when there is no such value."""
        with _ClosesOnError(self):
            self._send([_command((b"GET", key))], deadline)
            line = self._read_line(deadline)
            if line == b"$-1":
                return None
            value = staging(self._length_of(line))
            self._read_into(value, deadline)
            self._expect_line_end(deadline)
            return value

    def set_value(self, key: bytes, parts: Sequence[Buffer], expiry_milliseconds: int, deadline: float) -> None:
        """Stores the concatenation of the parts until the expiry; raises RedisRefused if the server does not."""
        length = sum(len(part) for part in parts)
        expiry = str(expiry_milliseconds).encode()
        head = b"*5\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n" % (len(key), key, length)
        tail = b"\r\n$2\r\nPX\r\n$%d\r\n%s\r\n" % (len(expiry), expiry)
        with _ClosesOnError(self):
            self._send([head, *parts, tail], deadline)
            if self._read_reply(deadline) != "OK":
                raise RedisUnavailable(f"Redis at {self._name} answered SET with something else than OK")

    def _log_in(self, target: RedisTarget, deadline: float) -> None:
        if target.password is not None:
            user = () if target.username is None else (target.username.encode(),)
            self.call(b"AUTH", *user, target.password.encode(), deadline=deadline)
        if target.database:
            self.call(b"SELECT", str(target.database).encode(), deadline=deadline)

    def _send(self, parts: Sequence[Buffer], deadline: float) -> None:
        connection = self._open_socket()
        views = [memoryview(part).cast("B") for part in parts]
        while views:
            connection.settimeout(_remaining(deadline))
            # TLS sockets have no sendmsg.
            is_tls = isinstance(connection, ssl.SSLSocket)
            sent = connection.send(views[0]) if is_tls else connection.sendmsg(views)
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if views:
                views[0] = views[0][sent:]

    def _read_reply(self, deadline: float) -> Reply:
        line = self._read_line(deadline)
        kind, text = line[:1], line[1:]
        if kind == b"+":
            return text.decode(errors="replace")
        if kind == b"-":
            raise RedisRefused(text.decode(errors="replace"))
        if kind == b":":
            return self._number(text)
        if line == b"$-1":
            return None
        length = self._length_of(line)
        if length > _SMALL_REPLY_BYTES:
            raise RedisUnavailable(f"Redis at {self._name} answered {length} bytes to a small question")
        value = bytearray(length)
        self._read_into(memoryview(value), deadline)
        self._expect_line_end(deadline)
        return bytes(value)

    def _length_of(self, line: bytes) -> int:
        if line.startswith(b"-"):
            raise RedisRefused(line[1:].decode(errors="replace"))
        if not line.startswith(b"$"):
            raise RedisUnavailable(f"Redis at {self._name} sent {line[:40]!r} where a value was due")
        length = self._number(line[1:])
        if length < 0:
            raise RedisUnavailable(f"Redis at {self._name} announced a value of {length} bytes")
        return length

    def _number(self, text: bytes) -> int:
        digits = text.removeprefix(b"-")
        if not digits.isdigit() or len(digits) > 19:
            raise RedisUnavailable(f"Redis at {self._name} sent {text[:40]!r} where a number was due")
        return int(text)

    def _read_line(self, deadline: float) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > _LINE_BYTES:
                raise RedisUnavailable(f"Redis at {self._name} sent a line without an end")
            self._buffer += self._receive(deadline)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _expect_line_end(self, deadline: float) -> None:
        if self._read_line(deadline):
            raise RedisUnavailable(f"Redis at {self._name} sent more than it announced")

    def _read_into(self, view: memoryview, deadline: float) -> None:
        ready = min(len(view), len(self._buffer))
        view[:ready] = self._buffer[:ready]
        del self._buffer[:ready]
        connection = self._open_socket()
        while ready < len(view):
            connection.settimeout(_remaining(deadline))
            received = connection.recv_into(view[ready:])
            if received == 0:
                raise RedisUnavailable(f"Redis at {self._name} closed the connection")
            ready += received

    def _receive(self, deadline: float) -> bytes:
        connection = self._open_socket()
        connection.settimeout(_remaining(deadline))
        data = connection.recv(_READ_AHEAD_BYTES)
        if not data:
            raise RedisUnavailable(f"Redis at {self._name} closed the connection")
        return data

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise RedisUnavailable(f"the connection to Redis at {self._name} is closed")
        return self._socket


class _ClosesOnError:
    """Closes the connection whatever ends the block early, and names errors of the socket."""

    def __init__(self, connection: RespConnection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is None or isinstance(error, RedisRefused):
            return
        self._connection.close()
        if isinstance(error, TimeoutError):
            raise RedisTimeout("Redis did not answer in time") from error
        if isinstance(error, OSError):
            raise RedisUnavailable(f"the connection to Redis broke: {error}") from error


def _command(words: Sequence[bytes]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def _remaining(deadline: float) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


def _connect(target: RedisTarget, timeout_seconds: float) -> socket.socket:
    if target.path is not None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_seconds)
            connection.connect(target.path)
        except BaseException:
            connection.close()
            raise
        return connection
    assert target.host is not None
    connection = socket.create_connection((target.host, target.port), timeout_seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connection if target.tls is None else _with_tls(connection, target.host, target.tls)


def _with_tls(connection: socket.socket, host: str, options: TlsOptions) -> socket.socket:
    context = ssl.create_default_context(cafile=options.ca_file)
    context.check_hostname = options.checks_hostname
    if not options.verifies_server:
        context.verify_mode = ssl.CERT_NONE
    if options.certificate_file is not None:
        context.load_cert_chain(options.certificate_file, options.key_file)
    try:
        return context.wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise
