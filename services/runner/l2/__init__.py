"""The runner's way to the second-level KV cache: blocks between the pool and Redis, off the step's critical path."""
