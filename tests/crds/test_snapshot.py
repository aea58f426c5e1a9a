"""The snapshot: digest, order, expiry, repo ids, and what a gate may take."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import gen
from gpugrant_crds import snapshot
from gpugrant_crds.reasons import Reason
from gpugrant_crds.snapshot import GrantRef, Snapshot, SnapshotGrant


def line(
    repo: str = "gpu-a", device: str = "nvidia.com/gpu=all", *, uid: str = "u1", **fields: object
) -> SnapshotGrant:
    return SnapshotGrant.model_validate(
        {"repo": repo, "repoId": f"id-{repo}", "device": device, "grant": {"namespace": "n", "name": "g", "uid": uid}}
        | fields
    )


def build(
    *grants: SnapshotGrant,
    epoch: int = 3,
    uid: str = "machine-1",
    api: str = "api-1",
    supersedes: str | None = None,
) -> Snapshot:
    return snapshot.build(
        api_id=api,
        machine="m",
        machine_uid=uid,
        epoch=epoch,
        issued_at=gen.NOW,
        grants=tuple(grants),
        supersedes=supersedes,
    )


def test_survives_its_own_text() -> None:
    """What is sent is what is read, digest included."""
    sent = build(line(expiresAt="2026-03-01T13:00:00Z"), line("gpu-b", uid="u2"))
    read = Snapshot.model_validate(sent.to_json())

    assert read == sent
    assert snapshot.sound(read)


@given(st.permutations([line(uid=uid, repo=repo) for uid in ("u1", "u2") for repo in ("a1", "b1")]))
def test_digest_is_of_the_set(grants: list[SnapshotGrant]) -> None:
    """The order in which grants are given doesn't matter; epoch and whose place it takes are not part of it."""
    assert build(*grants).digest == build(*reversed(grants), epoch=9, supersedes="machine-0").digest


@pytest.mark.parametrize(
    "change",
    [{"repo": "gpu-x"}, {"repoId": "id-x"}, {"device": "nvidia.com/gpu=0"}, {"expiresAt": "2026-03-01T13:00:00Z"}],
    ids=lambda change: next(iter(change)),
)
def test_an_edited_snapshot_is_not_sound(change: dict[str, str]) -> None:
    """Any change of a grant shows in the digest."""
    data = build(line()).to_json()
    data["grants"][0] |= change

    assert not snapshot.sound(Snapshot.model_validate(data))


BROKEN = {
    "an unknown field": {"sudo": True},
    "a negative epoch": {"epoch": -1},
    "another schema": {"schema": 2},
    "no digest": {"digest": ""},
    "a grant without a repo id": {"grants": [{"repo": "a", "device": "nvidia.com/gpu=0", "grant": {}}]},
    "a grant for a path": {
        "grants": [line().to_json() | {"device": "/dev/dri"}],
    },
    "a repo that is a path": {"grants": [line().to_json() | {"repo": "../x"}]},
    "a final newline in a device": {"grants": [line().to_json() | {"device": "nvidia.com/gpu=0\n"}]},
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN.keys())
def test_refuses_what_it_does_not_know(change: dict[str, object]) -> None:
    """A field or value of another shape is no snapshot: it could be a restriction."""
    with pytest.raises(ValidationError):
        Snapshot.model_validate(build(line()).to_json() | change)


@pytest.mark.req("R2", "R9")
@pytest.mark.parametrize(
    ("repo", "repo_id", "granted"),
    [("gpu-a", "id-gpu-a", True), ("gpu-a", "id-fork", False), ("gpu-a", "", False), ("fork", "id-gpu-a", False)],
    ids=["the repo itself", "another repo of that name", "a repo without an id", "a copy that kept the id"],
)
def test_granted_to_name_and_id(repo: str, repo_id: str, granted: bool) -> None:
    """Only the repo of that name and that id gets the device."""
    assert bool(build(line()).granted(repo, repo_id, gen.NOW)) == granted


def test_granted_until_it_expires() -> None:
    """A grant ends at its time to the second."""
    held = build(line(expiresAt="2026-03-01T12:00:01Z"))

    assert held.granted("gpu-a", "id-gpu-a", gen.NOW)
    assert not held.granted("gpu-a", "id-gpu-a", gen.NOW + timedelta(seconds=1))


FENCE = {
    "the first snapshot": (None, (), build(line()), None),
    "a newer epoch": (build(line()), (), build(epoch=4), None),
    "the same once more": (build(line()), (), build(line()), None),
    "an older epoch": (build(line()), (), build(line(), epoch=2), Reason.STALE_EPOCH),
    "the same epoch with other grants": (build(line()), (), build(), Reason.EPOCH_REUSED),
    "another machine while grants stand": (build(line()), (), build(uid="machine-2"), Reason.OTHER_MACHINE),
    "another machine after an empty snapshot": (build(), (), build(line(), uid="machine-2", epoch=1), None),
    "another API's machine after an empty one": (
        build(),
        (),
        build(uid="machine-2", api="api-2"),
        Reason.OTHER_MACHINE,
    ),
    "the same machine by another API": (build(line()), (), build(line(), epoch=9, api="api-2"), Reason.OTHER_MACHINE),
    "in the place of that machine": (build(line()), (), build(uid="machine-2", supersedes="machine-1"), None),
    "in the place of another machine": (
        build(line()),
        (),
        build(uid="machine-2", supersedes="machine-0"),
        Reason.OTHER_MACHINE,
    ),
    "in the place of another API's machine": (
        build(line()),
        (),
        build(uid="machine-2", api="api-2", supersedes="machine-1"),
        None,
    ),
    "in the place of the same machine of another API": (
        build(line(), epoch=9),
        (),
        build(epoch=1, api="api-2", supersedes="machine-1"),
        None,
    ),
    "in the place of its own, older": (
        build(line(), epoch=9),
        (),
        build(epoch=1, supersedes="machine-1"),
        Reason.STALE_EPOCH,
    ),
    "one that was served before, in that machine's place": (
        build(line()),
        ("machine-0",),
        build(uid="machine-0", supersedes="machine-1"),
        Reason.OTHER_MACHINE,
    ),
    "a machine that was served before": (
        build(),
        ("machine-0",),
        build(uid="machine-0", epoch=9),
        Reason.OTHER_MACHINE,
    ),
    "a machine that was served before, to an empty gate": (
        None,
        ("machine-0",),
        build(uid="machine-0"),
        Reason.OTHER_MACHINE,
    ),
}


@pytest.mark.req("D8")
@pytest.mark.parametrize(("current", "retired", "incoming", "reason"), FENCE.values(), ids=FENCE.keys())
def test_fence(current: Snapshot | None, retired: tuple[str, ...], incoming: Snapshot, reason: Reason | None) -> None:
    """A gate never goes back, and never to a machine that it left."""
    assert snapshot.fence(current, retired, incoming) == reason


@pytest.mark.parametrize(
    "moment",
    [
        "2026-03-01T13:00:00",
        "2026-03-01",
        "9999-12-31T23:59:59-12:00",
        "0001-01-01T00:00:00+14:00",
        "1772373600",
        ".2",
        1772373600,
        True,
    ],
)
@pytest.mark.parametrize("field", ["issuedAt", "expiresAt"])
def test_refuses_a_time_that_is_no_moment(field: str, moment: object) -> None:
    """Without a zone, or beyond the calendar in UTC: nothing could be compared with it. A number has no unit."""
    sent = build(line(expiresAt="2026-03-01T13:00:00Z")).to_json()
    holder = sent if field in sent else sent["grants"][0]
    holder[field] = moment
    with pytest.raises(ValidationError):
        Snapshot.model_validate(sent)


def test_grant_refs_are_exact() -> None:
    """A grant is named by namespace, name and uid."""
    assert line().grant == GrantRef(namespace="n", name="g", uid="u1")
