"""Headrace: client, command line and generated stubs."""
