"""The index of the second-level KV cache."""
