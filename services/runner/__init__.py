"""Weights, paged KV cache, forward pass, sampling."""
