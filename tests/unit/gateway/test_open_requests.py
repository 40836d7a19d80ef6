"""A request's id is held while it runs, within its tenant."""

import pytest

from services.common.errors import AlreadyExists, Cancelled
from services.gateway.caller import caller_of
from services.gateway.open_requests import OpenRequests

ACME, BETA = caller_of("acme"), caller_of("beta")


def test_an_id_is_used_once_at_a_time_by_a_tenant() -> None:
    requests = OpenRequests()
    with requests.opened(ACME, "r1"):
        with pytest.raises(AlreadyExists, match="r1 is running"), requests.opened(ACME, "r1"):
            pass
        with requests.opened(BETA, "r1"):
            assert len(requests) == 2
    with requests.opened(ACME, "r1"):
        assert len(requests) == 1
    assert len(requests) == 0


def test_cancelling_ends_what_has_begun_and_only_the_tenants_own() -> None:
    requests = OpenRequests()
    ended = []
    with requests.opened(ACME, "r1") as request:
        request.on_cancel(lambda: ended.append("r1"))
        assert not requests.cancel(BETA, "r1")
        assert not requests.cancel(ACME, "r2")
        assert ended == []
        assert requests.cancel(ACME, "r1")
        assert ended == ["r1"]
        with pytest.raises(Cancelled):
            request.raise_if_cancelled()
    assert not requests.cancel(ACME, "r1")


def test_work_that_begins_after_the_cancel_is_ended_at_once() -> None:
    """The cancel came while the work was handed over."""
    requests = OpenRequests()
    ended = []
    with requests.opened(ACME, "r1") as request:
        requests.cancel(ACME, "r1")
        request.on_cancel(lambda: ended.append("r1"))
    assert ended == ["r1"]


def test_a_request_can_be_cancelled_before_its_work_begins() -> None:
    requests = OpenRequests()
    with requests.opened(ACME, "r1") as request:
        requests.cancel(ACME, "r1")
        with pytest.raises(Cancelled, match="r1"):
            request.raise_if_cancelled()
