"""Moves blocks between the pool and Redis on threads of their own, so that no step ever waits for Redis."""

from services.runner.l2.orders import (
    BlockPool,
    Done,
    L2Config,
    L2Counters,
    LayoutIdentity,
    LoadOrder,
    PublishOrder,
)


class L2Transfers:
    """Takes orders from the model's thread, never blocks it, and reports each order's end exactly once."""

    def __init__(self, config: L2Config, pool: BlockPool, identity: LayoutIdentity) -> None:
        raise NotImplementedError

    def submit_load(self, order: LoadOrder, done: Done) -> None:
        """Queues a load; loads go before publishes."""
        raise NotImplementedError

    def submit_publish(self, order: PublishOrder, done: Done) -> None:
        """Queues a publish; an outcome other than DONE only costs a later hit."""
        raise NotImplementedError

    def counters(self) -> L2Counters:
        """Returns a snapshot for metrics."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the threads; orders that have not begun are reported as UNAVAILABLE, running ones finish first."""
        raise NotImplementedError
