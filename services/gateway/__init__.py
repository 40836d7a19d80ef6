"""Text in, text out: the public API, tokenizing, streams."""
