"""Bodies that are not what they should be."""

import httpx
import pytest
from fake_generation import FakeGeneration, ready

from services.gateway.authentication import Authentication
from services.gateway.http.app import create_app
from services.gateway.http.settings import HttpSettings

JSON = {"content-type": "application/json"}


async def post(api: httpx.AsyncClient, body: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
    return await api.post("/v1/completions", content=body, headers=JSON if headers is None else headers)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"prompt": "a",}',
        b"{'prompt': 'a'}",
        b'{"prompt": "a"} x',
        b'{"prompt": "a", "temperature": NaN}',
        b'{"prompt": "a", "temperature": -Infinity}',
        b'{"prompt": "\xff"}',
        b'{"prompt": "\xed\xa0\x80"}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "\\udc00 x"}',
        b'{"prompt": "a\nb"}',
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"prompt": [' + b"1" * 5000 + b"]}",
    ],
)
async def test_what_is_not_json_is_refused_with_its_position(api: httpx.AsyncClient, body: bytes) -> None:
    response = await post(api, body)
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_json")
    assert "line 1 column" in error["message"] or "line 2 column" in error["message"]


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"null", b"5"])
async def test_body_has_to_be_an_object(api: httpx.AsyncClient, body: bytes) -> None:
    assert (await post(api, body)).json()["error"]["code"] == "invalid_json"


async def test_number_beyond_a_float_is_refused(api: httpx.AsyncClient) -> None:
    response = await post(api, b'{"prompt": "a", "temperature": 1e999}')
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "temperature"


async def test_number_beyond_the_wire_type_reaches_validation(
    api: httpx.AsyncClient, generation: FakeGeneration
) -> None:
    """A temperature that no float32 holds is judged like any other one."""
    assert (await post(api, b'{"prompt": "a", "temperature": 1e300}')).status_code == 200
    assert generation.requests[0].sampling.temperature == float("inf")


async def test_last_of_repeated_keys_counts(api: httpx.AsyncClient, generation: FakeGeneration) -> None:
    assert (await post(api, b'{"prompt": "a", "prompt": "b"}')).status_code == 200
    assert generation.requests[0].prompt.text == "b"


async def test_surrogate_pairs_and_nul_are_text(api: httpx.AsyncClient, generation: FakeGeneration) -> None:
    assert (await post(api, b'{"prompt": "\\ud83d\\ude00\\u0000"}')).status_code == 200
    assert generation.requests[0].prompt.text == "\U0001f600\x00"


@pytest.mark.parametrize("media", ["", "text/plain", "application/x-www-form-urlencoded"])
async def test_other_content_types_are_refused(api: httpx.AsyncClient, media: str) -> None:
    """A web page can send these across origins without asking."""
    response = await post(api, b'{"prompt": "a"}', {"content-type": media} if media else {})
    assert response.status_code == 415
    assert "application/json" in response.json()["error"]["message"]


async def test_charset_of_the_content_type_does_not_matter(api: httpx.AsyncClient) -> None:
    response = await post(api, b'{"prompt": "a"}', {"content-type": "application/json; charset=utf-8"})
    assert response.status_code == 200


async def test_compressed_bodies_are_refused(api: httpx.AsyncClient) -> None:
    response = await post(api, b"x", JSON | {"content-encoding": "gzip"})
    assert response.status_code == 415


@pytest.mark.parametrize("has_length", [True, False])
async def test_too_large_body_is_refused_with_the_limit(generation: FakeGeneration, has_length: bool) -> None:
    app = create_app(generation, Authentication(None), ready(), HttpSettings(body_bytes=1000))

    async def pieces() -> object:
        for _ in range(20):
            yield b"x" * 100

    content = b"x" * 1001 if has_length else pieces()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://h") as api:
        response = await api.post("/v1/completions", content=content, headers=JSON)
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"
    assert "1000 bytes" in response.json()["error"]["message"]
