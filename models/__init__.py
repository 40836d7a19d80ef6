"""The built-in model: its data, the script that trained it and its measurement."""
