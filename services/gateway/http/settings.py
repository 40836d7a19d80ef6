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
    unread_seconds: float = 20.0
    """How long a client may take none of the bytes written for it before it is cut off and its work cancelled."""
    ping_seconds: float = 15.0
    """A stream says something at least this often, so that proxies keep it open."""
    prompts: int = 64
    """Prompts in one call of /v1/completions; every one of them is a generation."""
    prompts_at_once: int = 8
    """How many of one call's prompts run at a time, so that one call leaves room for others."""
    prompt_token_ids: int = 262_144
    """Token ids in one call's prompts together; more are refused before they are looked at."""
    loop_bytes: int = 64 * 1024
    """A larger body is parsed and checked in a thread, so that other requests go on meanwhile."""
