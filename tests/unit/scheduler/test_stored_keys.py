"""What the scheduler believes about the second-level cache."""

from services.scheduler import stored_keys
from services.scheduler.stored_keys import StoredKeys


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def test_what_was_heard_is_believed_for_a_while_and_then_asked_again() -> None:
    now = [0.0]
    stored = StoredKeys(lambda: now[0])
    stored.note([key(1), key(2)])
    now[0] = stored_keys.BELIEVED_SECONDS - 1
    stored.note([key(2)])
    assert key(1) in stored
    now[0] = stored_keys.BELIEVED_SECONDS

    assert key(1) not in stored
    assert key(2) in stored
    stored.drop([key(2)])
    assert key(2) not in stored


def test_it_holds_a_bounded_number_of_keys_the_latest_ones() -> None:
    stored = StoredKeys(lambda: 0.0)
    stored.note([key(0)])
    stored.note(key(number) for number in range(1, stored_keys.MOST_KEYS))
    stored.note([key(0), key(stored_keys.MOST_KEYS)])

    assert len(stored) == stored_keys.MOST_KEYS
    assert key(0) in stored
    assert key(1) not in stored


def test_old_keys_do_not_stay_in_memory() -> None:
    now = [0.0]
    stored = StoredKeys(lambda: now[0])
    stored.note(key(number) for number in range(100))
    now[0] = stored_keys.BELIEVED_SECONDS
    stored.note([key(100)])

    assert len(stored) == 1
