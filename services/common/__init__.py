"""Process plumbing that knows no service: configuration, servers, channels, errors, telemetry."""
