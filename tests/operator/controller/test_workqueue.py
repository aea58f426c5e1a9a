"""The work queue: coalescing, one worker a key, pauses."""

from __future__ import annotations

import asyncio

import pytest

from gpugrant_operator.controller.workqueue import RETRY_LAST, WorkQueue


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def queue(time: Time) -> WorkQueue:
    return WorkQueue(time, lambda: 1.0)


async def taken(queue: WorkQueue) -> str | None:
    """The key that is due now; None: none is."""
    task = asyncio.ensure_future(queue.take())
    for _ in range(3):
        await asyncio.sleep(0)
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return None


async def test_additions_are_one_item(queue: WorkQueue) -> None:
    """However often a key is added before it is taken."""
    for _ in range(5):
        queue.add("m")

    assert await taken(queue) == "m"
    assert await taken(queue) is None


async def test_the_soonest_first_and_none_too_soon(queue: WorkQueue, time: Time) -> None:
    """By time; an earlier wish wins over a later one of the same key."""
    queue.add("late", 10)
    queue.add("soon", 20)
    queue.add("soon", 5)
    queue.add("soon", 30)

    assert await taken(queue) is None
    time.now += 6
    assert await taken(queue) == "soon"
    queue.done("soon", failed=False)
    time.now += 6
    assert await taken(queue) == "late"
    time.now += 100
    assert await taken(queue) is None


async def test_a_key_is_worked_on_once_and_comes_again(queue: WorkQueue) -> None:
    """News while it is worked on is not lost and not doubled."""
    queue.add("m")
    assert await taken(queue) == "m"
    queue.add("m")
    queue.add("other")

    assert await taken(queue) == "other"
    assert await taken(queue) is None
    queue.done("m", failed=False)
    assert await taken(queue) == "m"


async def test_failures_pause_longer_and_longer(queue: WorkQueue, time: Time) -> None:
    """Doubling up to a limit; a success forgets."""
    queue.add("m")
    assert await taken(queue) == "m"
    for pause in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, RETRY_LAST, RETRY_LAST):
        queue.done("m", failed=True)
        time.now += pause - 0.01
        assert await taken(queue) is None
        time.now += 0.02
        assert await taken(queue) == "m"
    assert queue.failing() == {"m": 11}

    queue.done("m", failed=False)
    assert queue.failing() == {}


async def test_news_does_not_wait_for_the_pause(queue: WorkQueue) -> None:
    """A failed key that is added is due at once."""
    queue.add("m")
    assert await taken(queue) == "m"
    queue.done("m", failed=True)
    assert await taken(queue) is None

    queue.add("m")

    assert await taken(queue) == "m"


async def test_a_waiter_wakes_for_news(queue: WorkQueue) -> None:
    """`take` that waits without anything due returns with the first addition."""
    waiting = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    queue.add("m")

    async with asyncio.timeout(5):
        assert await waiting == "m"


async def test_idle(queue: WorkQueue) -> None:
    """Nothing due and nothing worked on."""
    assert queue.idle()
    queue.add("m", 5)
    assert queue.idle()
    queue.add("m")
    assert not queue.idle()
    await taken(queue)
    assert not queue.idle()
    queue.done("m", failed=False)
    assert queue.idle()
