"""Server-side apply: the words of kube-apiserver, the sets of structured-merge-diff, and the laws of an apply.

`ownership.jsonl` holds random sequences of applies and updates with what structured-merge-diff v6.3.0 made of each. It
leaves a null where an apply emptied an undeclared container; we leave nothing, so steps from and to a null are passed
over.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_operator.apiserver.objects import fields, ownership
from gpugrant_operator.apiserver.objects.ownership import Manager, Owned
from gpugrant_operator.apiserver.objects.resources import Resource
from gpugrant_operator.apiserver.objects.status import ApiError

INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
LIMITS = {"type": "object", "additionalProperties": INTEGER}
PART = {"type": "object", "properties": {"name": TEXT, "weight": INTEGER, "limits": LIMITS}}
SPEC = {
    "type": "object",
    "properties": {
        "size": INTEGER,
        "word": TEXT,
        "tags": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
        "parts": {
            "type": "array",
            "items": PART,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "limits": LIMITS,
        "inner": {"type": "object", "properties": {"a": INTEGER, "limits": LIMITS}},
        "whole": {**LIMITS, "x-kubernetes-map-type": "atomic"},
        "row": {"type": "array", "items": INTEGER},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
THINGS = Resource(
    group="test.example.com",
    version="v1",
    kind="Thing",
    plural="things",
    singular="thing",
    namespaced=True,
    schema={"type": "object", "properties": {"keep": INTEGER, "spec": SPEC, "status": {"type": "object"}}},
    has_status=True,
    custom=True,
)
SCHEMA = fields.schema_of(THINGS)
A, B = Manager("a", "Apply", "v1"), Manager("b", "Apply", "v1")
RECORDED = Path(__file__).with_name("ownership.jsonl").read_text().splitlines()


def sets(owners: ownership.Owners) -> dict[str, Any]:
    return {manager.name: fields.tree(held.fields) for manager, held in owners.items()}


def has_null(value: Any) -> bool:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is None or any(has_null(child) for child in children)


def manager_named(name: str) -> Manager:
    return Manager(name, "Apply" if name in ("a", "b") else "Update", "v1")


@pytest.mark.req("D3", "D10", "D11")
@pytest.mark.parametrize("line", RECORDED, ids=range(len(RECORDED)))
def test_every_step_is_that_of_structured_merge_diff(line: str) -> None:
    live: dict[str, Any] = {}
    owners: dict[Manager, Owned] = {}
    for step in json.loads(line):
        manager, config = manager_named(step["manager"]), step["config"]
        wanted = {name: fields.tree(fields.paths_of(tree)) for name, tree in step["owners"].items()}
        if not has_null(live) and not has_null(step["object"]):
            conflicts = None
            new, after = live, owners
            if manager.operation == "Update":
                new, after = config, ownership.updated(THINGS, live, config, owners, manager, now="t")
            else:
                try:
                    new, after = ownership.applied(THINGS, live, config, owners, manager, now="t", force=step["force"])
                except ApiError as error:
                    causes = (error.details or {})["causes"]
                    conflicts = sorted(f"{cause['message'].split(chr(34))[1]} {cause['field']}" for cause in causes)
            assert conflicts == step.get("conflicts")
            assert new == step["object"]
            assert sets(after) == wanted
        live = step["object"]
        owners = {manager_named(name): Owned(fields.paths_of(tree)) for name, tree in step["owners"].items()}


names = st.sampled_from("pqrs")
numbers = st.integers(0, 2)
limits = st.dictionaries(names, numbers, min_size=1, max_size=2)
parts = st.lists(
    st.fixed_dictionaries({"name": names}, optional={"weight": numbers, "limits": limits}),
    min_size=1,
    max_size=3,
    unique_by=lambda part: str(part["name"]),
)
optional: dict[str, st.SearchStrategy[Any]] = {
    "size": numbers,
    "tags": st.lists(names, min_size=1, unique=True),
    "parts": parts,
    "limits": limits,
    "whole": limits,
    "row": st.lists(numbers, min_size=1, max_size=2),
}
configs = st.builds(lambda spec: {"keep": 1, "spec": spec}, st.fixed_dictionaries({}, optional=optional))


def applied(old: Any, config: Any, owners: ownership.Owners, manager: Manager) -> tuple[Any, dict[Manager, Owned]]:
    return ownership.applied(THINGS, old, config, owners, manager, now="t", force=True)


@given(configs, configs)
def test_an_apply_twice_is_an_apply_once(first: Any, second: Any) -> None:
    live, owners = applied(*applied({}, first, {}, A)[:1], second, applied({}, first, {}, A)[1], B)

    assert applied(live, second, owners, B) == (live, owners)


@given(configs, configs)
def test_disjoint_fields_of_two_managers_both_stay(first: Any, second: Any) -> None:
    mine = {"keep": 1, "spec": {k: v for k, v in first["spec"].items() if k in ("size", "tags", "whole")}}
    theirs = {"keep": 1, "spec": {k: v for k, v in second["spec"].items() if k in ("parts", "limits", "row")}}
    live, owners = ownership.applied(THINGS, {}, mine, {}, A, now="t", force=False)
    live, owners = ownership.applied(THINGS, live, theirs, owners, B, now="t", force=False)

    assert live["spec"] == {**mine["spec"], **theirs["spec"]}


@given(configs, configs, st.data())
def test_a_field_goes_with_its_last_owner(first: Any, other: Any, data: st.DataObject) -> None:
    """Taken out of one's own apply it goes, unless somebody else owns it."""
    live, owners = applied({}, other, {}, B)
    live, owners = applied(live, first, owners, A)
    left = {k: v for k, v in first["spec"].items() if data.draw(st.booleans(), label=k)}
    live, owners = applied(live, {"keep": 1, "spec": left}, owners, A)

    everybodys = frozenset().union(*(held.fields for held in owners.values()))
    for path in fields.fields_in(live, SCHEMA):
        assert path in fields.named(everybodys, SCHEMA)


@given(configs)
def test_a_set_is_its_fields_v1(config: Any) -> None:
    paths = fields.fields_in(config, SCHEMA)

    assert fields.paths_of(json.loads(json.dumps(fields.tree(paths)))) == paths


def test_a_conflict_in_the_words_of_the_api_server() -> None:
    live, owners = applied({}, {"spec": {"size": 1, "parts": [{"name": "p", "weight": 1}]}}, {}, A)
    updater = Manager("kubectl-edit", "Update", "test.example.com/v1", "scale")
    owners |= ownership.updated(THINGS, {}, {"spec": {"tags": ["x"]}}, {}, updater, now="t")
    owners[updater] = Owned(frozenset({("f:spec", "f:size")}))
    wanted = {"spec": {"size": 2, "parts": [{"name": "p", "weight": 2}]}}

    with pytest.raises(ApiError) as refused:
        ownership.applied(THINGS, live, wanted, owners, B, now="t", force=False)

    assert refused.value.code == 409
    assert refused.value.message == (
        "Apply failed with 3 conflicts: "
        'conflicts with "a":\n- .spec.parts[name="p"].weight\n- .spec.size\n'
        'conflicts with "kubectl-edit" with subresource "scale" using test.example.com/v1:\n- .spec.size'
    )
    assert (refused.value.details or {})["causes"][0] == {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "a"',
        "field": '.spec.parts[name="p"].weight',
    }


@pytest.mark.parametrize(
    ("config", "told"),
    [
        pytest.param({"spec": {"no": 1}}, ".spec.no: field not declared in schema", id="an unknown field"),
        pytest.param({"spec": {"tags": ["x", "x"]}}, '.spec.tags: duplicate entries for key [="x"]', id="a double"),
        pytest.param({"metadata": {"managedFields": []}}, "metadata.managedFields must be nil", id="own managers"),
        pytest.param({"spec": {"no": 1, "nor": 1}}, "errors:\n  .spec.no: ", id="two faults"),
    ],
)
def test_what_cannot_be_applied(config: Any, told: str) -> None:
    with pytest.raises(ApiError) as refused:
        ownership.check_config(THINGS, "default", {"metadata": {"name": "t"}, **config})

    assert refused.value.code == 400
    assert told in refused.value.message


def test_who_updates_owns_what_changed_and_the_oldest_are_put_together() -> None:
    live: dict[str, Any] = {"spec": {}}
    owners: dict[Manager, Owned] = ownership.updated(
        THINGS, {}, live, {}, Manager("maker", "Update", "v1"), now="2026-01-01T00:00:00Z"
    )
    for number in range(14):
        new = {"spec": {**live["spec"], "limits": {**live["spec"].get("limits", {}), f"n{number}": number}}}
        manager = Manager(f"m{number}", "Update", "v1")
        owners = ownership.updated(THINGS, live, new, owners, manager, now=f"2026-01-01T00:00:{number + 1:02}Z")
        live = new

    assert len(owners) == ownership.MAX_UPDATERS
    assert ("f:spec", "f:limits", "f:n0") in owners[Manager("ancient-changes", "Update", "v1")].fields
    assert owners[Manager("m13", "Update", "v1")].fields == {("f:spec", "f:limits", "f:n13")}


def test_entries_are_read_back_as_they_were_written() -> None:
    _, owners = applied({}, {"spec": {"size": 1}}, {}, A)
    obj = ownership.owned({"metadata": {"name": "t"}}, owners)

    assert ownership.owners_of(obj) == owners
    assert ownership.bare(obj) == {"metadata": {"name": "t"}}
    assert ownership.shared(json.loads(json.dumps(obj))) == obj


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([{"operation": "Other"}], id="an operation"),
        pytest.param(3, id="a number"),
        pytest.param([3], id="a list of numbers"),
        pytest.param([{"operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"x:a": {}}}], id="an element"),
        pytest.param([{"operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": [1]}], id="a list of fields"),
        pytest.param([{"operation": "Apply", "fieldsType": "FieldsV1", "manager": 3}], id="a name"),
        pytest.param([{"operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"k:{": {}}}], id="a broken key"),
    ],
)
def test_entries_that_cannot_be_read_leave_the_stored_ones(entries: Any) -> None:
    _, owners = applied({}, {"spec": {"size": 1}}, {}, A)
    held = ownership.owned({"metadata": {}}, owners)

    assert ownership.base(held, {"metadata": {"managedFields": entries}}, subresource="") == owners
    assert ownership.base(held, {"metadata": {"managedFields": [{}]}}, subresource="") == {}
