"""Generated stubs of protos/headrace/v1; made by `make protos`."""
