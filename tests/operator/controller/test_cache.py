"""The cache: news, echoes, late answers and ghosts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gen
from gpugrant_crds.v1alpha1 import GpuMachine, RepoGpuGrant
from gpugrant_operator.controller.cache import Cache, newer

KEY = ("default", "g")


def grant(version: int, *, uid: str = "u1", machine: str = gen.MACHINE, namespace: str = "default") -> RepoGpuGrant:
    made = gen.grant(name="g", uid=uid, machine=machine, namespace=namespace)
    return made.model_copy(update={"metadata": made.metadata.model_copy(update={"resource_version": str(version)})})


def machine(version: int, name: str = "m", *, uid: str = "m1", node: str | None = None) -> GpuMachine:
    made = gen.machine(name=name, uid=uid)
    meta = made.metadata.model_copy(update={"resource_version": str(version)})
    return made.model_copy(update={"metadata": meta, "spec": made.spec.model_copy(update={"node_name": node})})


@pytest.mark.parametrize(
    ("version", "than", "later"),
    [("10", "9", True), ("9", "10", False), ("9", "9", False), ("b", "a", True), ("a", "a", False)],
)
def test_newer(version: str, than: str, later: bool) -> None:
    """Numbers by value; versions of another make by difference."""
    assert newer(version, than) == later


def test_an_echo_affects_nobody() -> None:
    """Our own write comes back through the watch; an older version comes late."""
    cache = Cache()

    assert cache.put_grant(grant(2)) == {gen.MACHINE}
    assert cache.put_grant(grant(2)) == frozenset()
    assert cache.put_grant(grant(1)) == frozenset()
    assert cache.put_grant(grant(3)) == {gen.MACHINE}
    assert cache.grant(KEY) == grant(3)


def test_a_late_answer_brings_no_ghost_back() -> None:
    """The watch told of the deletion before the answer to our last write came."""
    cache = Cache()
    cache.put_grant(grant(2))

    assert cache.drop_grant(KEY, "u1") == {gen.MACHINE}
    assert cache.put_grant(grant(3)) == frozenset()
    assert cache.grants_of(gen.MACHINE) == ()
    assert cache.put_grant(grant(4, uid="u2")) == {gen.MACHINE}


def test_the_deletion_of_a_namesake_does_not_touch_the_new_one() -> None:
    """A deletion is of a uid."""
    cache = Cache()
    cache.put_grant(grant(4, uid="u2"))

    assert cache.drop_grant(KEY, "u1") == frozenset()
    assert cache.grant(KEY) == grant(4, uid="u2")


def test_a_grant_that_changed_its_machine_affects_both() -> None:
    """Only a namesake made anew can: the field is immutable."""
    cache = Cache()
    cache.put_grant(grant(1))

    assert cache.put_grant(grant(2, uid="u2", machine="other")) == {gen.MACHINE, "other"}
    assert cache.grants_of(gen.MACHINE) == ()
    assert cache.names == {"other"}


def test_a_claim_affects_all_machines_of_the_node() -> None:
    """A machine that comes, moves or goes: all of its node are looked at again; a status write affects only itself."""
    cache = Cache()
    cache.put_machine(machine(1, "a", uid="a1", node="n"))

    assert cache.put_machine(machine(2, "b", uid="b1", node="n")) == {"a", "b"}
    assert cache.put_machine(machine(3, "b", uid="b1", node="n")) == {"b"}
    assert cache.put_machine(machine(4, "b", uid="b1", node="elsewhere")) == {"a", "b"}
    assert cache.put_machine(machine(5, "b", uid="b1", node="n")) == {"a", "b"}
    assert cache.drop_machine("b", "b1") == {"a", "b"}
    assert cache.drop_machine("b", "b1") == frozenset()


def test_terminating_namespaces() -> None:
    """A change affects the machines of the grants in it; a repetition nobody."""
    cache = Cache()
    cache.put_grant(grant(1))
    cache.put_grant(grant(2, uid="u2", machine="other", namespace="else"))

    assert cache.set_terminating("default", True) == {gen.MACHINE}
    assert cache.set_terminating("default", True) == frozenset()
    assert cache.terminating == {"default"}
    assert cache.set_terminating("default", False) == {gen.MACHINE}
    assert cache.terminating == frozenset()


def test_lacks_says_what_is_news() -> None:
    """As `put` would take it, without taking it."""
    cache = Cache()
    assert cache.lacks(grant(1))
    cache.put_grant(grant(1))
    cache.put_machine(machine(1))

    assert not cache.lacks(grant(1))
    assert cache.lacks(grant(2))
    assert not cache.lacks(machine(1))
    assert cache.lacks(machine(2))
    assert cache.known().grants == {KEY: "u1"}
    assert cache.known().machines == {"m": "m1"}


@given(
    lives=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    alive=st.booleans(),
    random=st.randoms(use_true_random=False),
)
def test_the_order_of_news_does_not_matter(lives: list[int], alive: bool, random: Any) -> None:
    """A name that was made and deleted again and again, told in any order: the last state stands."""
    history: list[tuple[int, str, bool]] = []
    for life, versions in enumerate(lives):
        uid = f"u{life}"
        history += [(len(history) + number, uid, False) for number in range(1, versions + 1)]
        if life < len(lives) - 1 or not alive:
            history.append((len(history) + 1, uid, True))
    last = history[-1]
    random.shuffle(history)
    cache = Cache()

    for number, uid, gone in history:
        if gone:
            cache.drop_grant(KEY, uid)
        else:
            cache.put_grant(grant(number, uid=uid))

    assert cache.grant(KEY) == (grant(last[0], uid=last[1]) if alive else None)
    assert cache.grants_of(gen.MACHINE) == ((cache.grant(KEY),) if alive else ())
