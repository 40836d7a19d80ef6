"""The limits of the HTTP API."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """How much and how long a client may take."""

    body_bytes: int = 4 * 1024 * 1024
    body_seconds: float = 60.0
    """From the request's head to the last byte of its body."""
    head_seconds: float = 20.0
    """From the first byte of a request to the end of its head; also the wait for a first request."""
    head_bytes: int = 32 * 1024
    unread_seconds: float = 120.0
    """How long a client may leave written bytes unread before its connection is cut and its work cancelled."""
    ping_seconds: float = 15.0
    """A stream says something at least this often, so that proxies keep it open."""
    prompts: int = 64
    """Prompts in one call of /v1/completions; every one of them is a generation."""
