"""Runs a whole Headrace on this machine: Valkey and the services as child processes, watched and restarted."""
