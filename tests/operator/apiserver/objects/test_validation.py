"""Structural schemas: prune, default, check."""

from __future__ import annotations

from typing import Any

import pytest

from gpugrant_operator.apiserver.objects.resources import catalog
from gpugrant_operator.apiserver.objects.validation import Rules


@pytest.fixture
def rules(settings: Any) -> Rules:
    widgets = catalog(settings.crds).by_plural("widgets")
    assert widgets is not None
    return Rules(widgets)


def test_unknown_fields_are_pruned_and_named(rules: Rules, make_widget: Any) -> None:
    body = make_widget(foo=1, free={"any": {"thing": 1}}, limits={"cpu": 1}, parts=[{"name": "a", "odd": 1}])
    body["extra"] = {}
    body["metadata"]["nonsense"] = 1
    pruned, unknown = rules.prune(body)
    assert set(unknown) == {"spec.foo", "spec.parts[0].odd", "extra", "metadata.nonsense"}
    assert pruned["spec"] == {
        "size": 3,
        "free": {"any": {"thing": 1}},
        "limits": {"cpu": 1},
        "parts": [{"name": "a"}],
    }
    assert body["spec"]["foo"] == 1


def test_defaults_fill_what_is_absent_and_replace_null(rules: Rules, make_widget: Any) -> None:
    filled = rules.default(make_widget(colour=None, maybe=None, label=None))
    assert filled["spec"] == {"size": 3, "colour": "Red", "maybe": None}
    assert filled["status"] == {"observedGeneration": -1}


SPECS = [
    pytest.param({}, "", id="sound"),
    pytest.param(
        {"size": "3"}, 'spec.size: Invalid value: "string": spec.size in body must be of type integer', id="type"
    ),
    pytest.param({"size": 10}, "spec.size in body should be less than or equal to 9", id="maximum"),
    pytest.param({"colour": "Pink"}, 'Unsupported value: "Pink": supported values: "Red", "Blue"', id="enum"),
    pytest.param({"label": "abcdef"}, "spec.label: Too long: may not be more than 5 bytes", id="length"),
    pytest.param({"label": "ab\n"}, "spec.label in body should match '^[a-z]+$'", id="a newline behind a pattern"),
    pytest.param({"when": "yesterday"}, "spec.when in body must be of type date-time", id="format"),
    pytest.param({"when": "2026-03-01T12:00:00Z"}, "", id="a time"),
    pytest.param({"maybe": None}, "", id="a null that may be"),
    pytest.param({"port": 80}, "", id="a number as int-or-string"),
    pytest.param({"port": "http"}, "", id="a text as int-or-string"),
    pytest.param({"port": []}, "spec.port", id="a list as int-or-string"),
    pytest.param({"tags": ["a", "a"]}, 'spec.tags[1]: Duplicate value: "a"', id="a set with a double"),
    pytest.param({"parts": [{"name": "a"}, {"name": "a"}]}, 'Duplicate value: {"name":"a"}', id="a key that is double"),
    pytest.param({"parts": [{}]}, "spec.parts[0].name: Required value", id="a missing field in a list"),
    pytest.param({"limits": {"cpu": "x"}}, "spec.limits.cpu", id="a value of a map"),
    pytest.param({"size": 1, "label": "ab"}, "a labelled widget of size 1 is too small", id="a rule over two fields"),
]


@pytest.mark.parametrize(("spec", "told"), SPECS)
def test_check(rules: Rules, make_widget: Any, spec: dict[str, Any], told: str) -> None:
    lines = [cause.line for cause in rules.check(make_widget(**spec), None)]
    assert bool(lines) is bool(told)
    assert told in "; ".join(lines)


def test_a_missing_spec_is_required(rules: Rules, make_widget: Any) -> None:
    body = make_widget()
    del body["spec"]
    missing, unchecked = rules.check(body, None)
    assert missing.line == "spec: Required value"
    assert "some validation rules were not checked because the object was invalid" in unchecked.line


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        pytest.param({"fixed": "a"}, {"fixed": "a"}, False, id="unchanged"),
        pytest.param({"fixed": "a"}, {"fixed": "b"}, True, id="changed"),
        pytest.param({}, {"fixed": "b"}, False, id="a field rule does not see an addition"),
        pytest.param({"fixed": "a"}, {}, False, id="nor a removal"),
    ],
)
def test_transition_rules(rules: Rules, make_widget: Any, old: Any, new: Any, told: bool) -> None:
    causes = rules.check(make_widget(**new), make_widget(**old))
    assert [cause.line for cause in causes] == (
        ['spec.fixed: Invalid value: "b": fixed can\'t be changed'] if told else []
    )


def test_a_rule_that_cannot_be_evaluated_refuses(settings: Any, make_widget: Any) -> None:
    crd = settings.crds[0]
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["x-kubernetes-validations"] = [{"rule": "self.nothing > 1"}]
    widgets = catalog([crd]).by_plural("widgets")
    assert widgets is not None
    causes = Rules(widgets).check(make_widget(), None)
    assert "rule evaluation error" in causes[0].line
