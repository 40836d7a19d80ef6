"""The waiting transfers: who goes first, and who has to wait."""

import threading
import time

import pytest
from byte_pool import load_order, publish_order

from services.runner.l2.order_queue import OrderQueue, Pending, QueueClosed
from services.runner.l2.orders import LoadOrder, PublishOrder, TransferReport


def pending(order: LoadOrder | PublishOrder) -> Pending:
    def ignore(_report: TransferReport) -> None:
        pass

    return Pending(order, ignore, time.monotonic())


def load(number: int) -> Pending:
    return pending(load_order(range(1), into=0, transfer_id=number))


def publish(number: int) -> Pending:
    return pending(publish_order(range(1), transfer_id=number))


def at_once() -> float:
    return 0.0


def taken(queue: OrderQueue) -> int | None:
    found = queue.take(at_once)
    return None if found is None else found.order.transfer_id


def test_loads_go_before_publishes_and_each_kind_in_order() -> None:
    queue = OrderQueue(max_waiting_publishes=9, max_running_publishes=9)
    for item in (publish(1), load(2), publish(3), load(4)):
        assert queue.put(item)
    assert [taken(queue) for _ in range(5)] == [2, 4, 1, 3, None]


def test_a_thread_is_always_left_for_loads() -> None:
    queue = OrderQueue(max_waiting_publishes=9, max_running_publishes=1)
    first = publish(1)
    for item in (first, publish(2)):
        queue.put(item)
    assert taken(queue) == 1
    assert taken(queue) is None
    queue.put(load(3))
    assert taken(queue) == 3
    queue.finish(first)
    assert taken(queue) == 2


def test_too_many_waiting_publishes_are_refused_and_loads_never() -> None:
    queue = OrderQueue(max_waiting_publishes=1, max_running_publishes=1)
    assert queue.put(publish(1))
    assert not queue.put(publish(2))
    assert queue.put(load(3))
    assert len(queue) == 2


def test_closing_wakes_the_takers_and_returns_what_had_not_begun() -> None:
    queue = OrderQueue(max_waiting_publishes=9, max_running_publishes=0)
    queue.put(publish(1))
    ended = threading.Event()

    def take() -> None:
        with pytest.raises(QueueClosed):
            queue.take(lambda: None)
        ended.set()

    thread = threading.Thread(target=take)
    thread.start()
    assert [item.order.transfer_id for item in queue.close()] == [1]
    assert ended.wait(5)
    thread.join()
    assert not queue.put(load(2))
