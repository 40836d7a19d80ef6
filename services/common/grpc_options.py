"""Channel and server settings that have to agree with each other."""

from collections.abc import Sequence

import grpc

MESSAGE_BYTES = 64 * 1024 * 1024

CLIENT_PING_SECONDS = 20
# A server must allow pings more often than clients send them, or it answers them with GOAWAY.
SERVER_MIN_PING_SECONDS = 10

_SHARED = [
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", CLIENT_PING_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
]

SERVER_OPTIONS = [
    *_SHARED,
    ("grpc.http2.min_ping_interval_without_data_ms", SERVER_MIN_PING_SECONDS * 1000),
    # Two processes on one port would share its calls at random; the second must fail to start.
    ("grpc.so_reuseport", 0),
]

CLIENT_OPTIONS = [
    *_SHARED,
    # A proxy of the environment is for the internet, not for our neighbours.
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


def open_channel(address: str, extra: Sequence[tuple[str, object]] = ()) -> grpc.aio.Channel:
    """Opens a plain channel to an address on this machine or on a private network."""
    return grpc.aio.insecure_channel(address, options=[*CLIENT_OPTIONS, *extra])
