"""Tables: JSONPath, ages, cells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_operator.apiserver.objects import jsonpath, table
from gpugrant_operator.apiserver.objects.resources import EVENTS, catalog

NOW = datetime(2026, 3, 1, tzinfo=UTC)
VALUE: dict[str, Any] = {
    "spec": {"a.b/c": 1, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}], "plain": "text"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (".spec.plain", ["text"]),
        ("spec.plain", ["text"]),
        (r".spec.a\.b/c", [1]),
        (".spec['a.b/c']", [1]),
        ('.spec["plain"]', ["text"]),
        (".spec.list[0].n", ["x"]),
        (".spec.list[-1].n", ["y"]),
        (".spec.list[9].n", []),
        (".spec.list[*].v", [1, 2]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Gone')].status", []),
        (".nothing.at.all", []),
        (".spec.plain.deeper", []),
    ],
)
def test_paths(path: str, wanted: list[Any]) -> None:
    assert jsonpath.find(jsonpath.parse(path), VALUE) == wanted


@pytest.mark.parametrize("path", [".spec[", ".spec[?(@.a>1)]", "..spec", ".", ".a[b]"])
def test_a_path_outside_of_the_supported_part_is_refused(path: str) -> None:
    with pytest.raises(jsonpath.BadPathError):
        jsonpath.parse(path)


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        (-5, "<invalid>"),
        (-0.5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (48 * 3600 - 1, "47h"),
        (48 * 3600, "2d"),
        (50 * 3600, "2d2h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (800 * 86400, "2y70d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_durations_as_kubectl_users_know_them(seconds: float, wanted: str) -> None:
    assert table.human_duration(seconds) == wanted


@given(st.text(max_size=30))
def test_any_text_has_an_age(text: str) -> None:
    assert isinstance(table.age(text, NOW), str)


def test_cells_follow_the_type_of_their_column(settings: Any, make_widget: Any) -> None:
    widgets = catalog(settings.crds).by_plural("widgets")
    assert widgets is not None
    made = NOW - timedelta(minutes=3)
    obj = make_widget(size="three", colour=["a", 1])
    obj["metadata"]["creationTimestamp"] = made.isoformat()
    rows = table.table(widgets, [obj], form=table.Format(include="None"), now=NOW, metadata={})["rows"]
    assert rows == [{"cells": ["w1", None, None, '["a",1]', "3m"]}]


def test_events_have_their_own_columns() -> None:
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Widget", "name": "w1"},
        "lastTimestamp": NOW.isoformat(),
        "type": "Warning",
        "reason": "Why",
        "message": "so",
    }
    made = table.table(EVENTS, [event], form=table.Format(), now=NOW, metadata={})
    shown = {
        column["name"]: cell
        for column, cell in zip(made["columnDefinitions"], made["rows"][0]["cells"], strict=True)
        if column["priority"] == 0
    }
    assert shown == {
        "Last Seen": "0s",
        "Type": "Warning",
        "Reason": "Why",
        "Object": "widget/w1",
        "Message": "so",
    }
