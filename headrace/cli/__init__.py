"""The `headrace` command."""
