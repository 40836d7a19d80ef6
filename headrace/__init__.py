"""Headrace: client, command line and generated stubs."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client import Answer, AnswerStream, Client, ModelInfo, Piece, Usage
    from headrace.errors import (
        AuthenticationFailed,
        Cancelled,
        DeadlineExceeded,
        FieldViolation,
        HeadraceError,
        InvalidRequest,
        NotFound,
        NotSupported,
        Overloaded,
        Unavailable,
    )
    from headrace.request_messages import GenerationOptions, Turn

__version__ = "0.1.0"

_HOME = {
    "headrace.client": ("Answer", "AnswerStream", "Client", "ModelInfo", "Piece", "Usage"),
    "headrace.errors": (
        "AuthenticationFailed",
        "Cancelled",
        "DeadlineExceeded",
        "FieldViolation",
        "HeadraceError",
        "InvalidRequest",
        "NotFound",
        "NotSupported",
        "Overloaded",
        "Unavailable",
    ),
    "headrace.request_messages": ("GenerationOptions", "Turn"),
}

__all__ = [
    "Answer",
    "AnswerStream",
    "AuthenticationFailed",
    "Cancelled",
    "Client",
    "DeadlineExceeded",
    "FieldViolation",
    "GenerationOptions",
    "HeadraceError",
    "InvalidRequest",
    "ModelInfo",
    "NotFound",
    "NotSupported",
    "Overloaded",
    "Piece",
    "Turn",
    "Unavailable",
    "Usage",
]


def __getattr__(name: str) -> object:
    """Imports grpc only for those who use the client: `headrace --help` and the services' stubs do not wait for it."""
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
