"""A call that may never return, such as a read of a file whose driver hangs: it gets its time, then is left alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Answer(Generic[T]):
    """What the call returned or raised, once it has."""

    def __init__(self) -> None:
        self.value: T | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()


def within(seconds: float, call: Callable[[], T]) -> T:
    """What `call` returns; raises TimeoutError after `seconds`, and whatever `call` raises.

    A read in uninterruptible sleep can't be ended by anybody: its thread stays behind and holds nothing up.
    """
    answer: _Answer[T] = _Answer()
    threading.Thread(target=_answer, args=(call, answer), daemon=True).start()
    if not answer.done.wait(seconds):
        raise TimeoutError
    if answer.error is not None:
        raise answer.error
    return answer.value  # type: ignore[return-value]  # set unless there is an error


def _answer(call: Callable[[], T], answer: _Answer[T]) -> None:
    try:
        answer.value = call()
    except BaseException as error:  # handed over to the caller
        answer.error = error
    finally:
        answer.done.set()
