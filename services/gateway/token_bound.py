"""A cheap lower bound of a text's tokens, so that a hopelessly long prompt is refused without tokenizing it."""

import json
import math
from typing import Any

# Canonical composition (NFC) joins at most this many bytes into one.
_COMPOSITION = 4

_KEEPING_PRETOKENIZERS = {"ByteLevel", "Metaspace", "Digits", "Punctuation"}


def longest_token_bytes(tokenizer_json: str) -> int | None:
    """Returns how many bytes of text one token stands for at most; None where a tokenizer may drop text."""
    tokenizer = json.loads(tokenizer_json)
    model = tokenizer["model"]
    keeps_all = model.get("type") == "BPE" and (
        model.get("byte_fallback") or _has(tokenizer.get("pre_tokenizer"), "ByteLevel")
    )
    if not keeps_all or not _pretokenizer_keeps(tokenizer.get("pre_tokenizer")):
        return None
    factor = _normalizer_factor(tokenizer.get("normalizer"))
    added = tokenizer.get("added_tokens") or []
    if factor is None or any(token.get("lstrip") or token.get("rstrip") for token in added):
        return None
    tokens = [*model["vocab"], *(token["content"] for token in added)]
    return factor * max((len(token.encode()) for token in tokens), default=1)


def _normalizer_factor(normalizer: dict[str, Any] | None) -> int | None:
    """Returns how much a normalizer may shrink a text; None for one that may drop it."""
    if normalizer is None or normalizer["type"] == "Prepend":
        return 1
    if normalizer["type"] == "NFC":
        return _COMPOSITION
    if normalizer["type"] == "Replace":
        pattern = normalizer["pattern"].get("String")
        is_no_shorter = pattern is not None and len(normalizer["content"].encode()) >= len(pattern.encode())
        return 1 if is_no_shorter else None
    if normalizer["type"] == "Sequence":
        factors = [_normalizer_factor(part) for part in normalizer["normalizers"]]
        known = [factor for factor in factors if factor is not None]
        return math.prod(known) if len(known) == len(factors) else None
    return None


def _pretokenizer_keeps(pretokenizer: dict[str, Any] | None) -> bool:
    if pretokenizer is None:
        return True
    if pretokenizer["type"] == "Sequence":
        return all(_pretokenizer_keeps(part) for part in pretokenizer["pretokenizers"])
    if pretokenizer["type"] == "Split":
        return bool(pretokenizer["behavior"] != "Removed")
    return pretokenizer["type"] in _KEEPING_PRETOKENIZERS


def _has(pretokenizer: dict[str, Any] | None, kind: str) -> bool:
    if pretokenizer is None:
        return False
    return pretokenizer["type"] == kind or any(_has(part, kind) for part in pretokenizer.get("pretokenizers", ()))
