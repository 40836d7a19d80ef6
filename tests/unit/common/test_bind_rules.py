import socket

import pytest

from services.common.bind import is_loopback, require_free, require_safe_bind, split_host_port
from services.common.config import ConfigError


@pytest.mark.parametrize(
    "address", ["127.0.0.1:50051", "127.9.9.9:1", "[::1]:50051", "localhost:50051", "unix:/run/headrace.sock"]
)
def test_an_address_of_this_machine_alone_is_loopback(address):
    assert is_loopback(address)
    require_safe_bind([address], is_authenticated=False, allow_insecure=False, way_out="set keys")


@pytest.mark.parametrize("address", ["0.0.0.0:50051", "[::]:50051", ":50051", "10.0.0.7:50051", "example.org:50051"])
def test_an_address_that_others_reach_needs_authentication(address):
    assert not is_loopback(address)
    with pytest.raises(ConfigError) as caught:
        require_safe_bind(
            ["127.0.0.1:1", address], is_authenticated=False, allow_insecure=False, way_out="set HEADRACE_X_KEYS"
        )
    message = str(caught.value)
    assert address in message
    assert "set HEADRACE_X_KEYS" in message
    assert "HEADRACE_PROCESS_ALLOW_INSECURE_BIND=true" in message
    require_safe_bind([address], is_authenticated=True, allow_insecure=False, way_out="")
    require_safe_bind([address], is_authenticated=False, allow_insecure=True, way_out="")


def test_host_and_port_are_taken_apart():
    assert split_host_port("127.0.0.1:80") == ("127.0.0.1", 80)
    assert split_host_port("[::1]:65535") == ("::1", 65535)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:65536", "127.0.0.1:x", "a:-1", ""])
def test_a_malformed_address_is_refused(address):
    """grpc would take 127.0.0.1 for port 443 and port 99999 for another one."""
    with pytest.raises(ConfigError, match="is not an address; use host:port"):
        split_host_port(address)
    with pytest.raises(ConfigError):
        require_free(address)


def test_a_unix_socket_that_somebody_serves_is_not_free(tmp_path):
    address = f"unix:{tmp_path}/s.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/s.sock")
        server.listen(1)

        with pytest.raises(ConfigError, match="another process serves it"):
            require_free(address)

    require_free(address)  # a socket file that its owner left behind


def test_a_unix_path_that_is_too_long_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="longer than the 107 bytes"):
        require_free(f"unix:{tmp_path}/{'x' * 108}.sock")
