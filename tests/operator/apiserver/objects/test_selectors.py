"""Selectors: what is read, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugrant_operator.apiserver.objects import selectors
from gpugrant_operator.apiserver.objects.resources import EVENTS, NAMESPACES, SECRETS
from gpugrant_operator.apiserver.objects.status import ApiError

LABELS: dict[str, str] = {"tier": "web", "example.com/zone": "a.b_c-1", "empty": ""}

CASES = [
    ("", True),
    ("tier", True),
    ("!tier", False),
    ("other", False),
    ("! other", True),
    ("tier=web", True),
    ("tier == web", True),
    ("tier=db", False),
    ("tier!=db", True),
    ("other!=db", True),
    ("tier in (web, db)", True),
    ("tier in (db)", False),
    ("tier notin (db),other notin (x)", True),
    ("tier=web,empty=", True),
    ("empty in ()", True),
    ("example.com/zone=a.b_c-1", True),
    ("tier=web,!tier", False),
    (",tier", True),
]


@pytest.mark.parametrize(("text", "wanted"), CASES)
def test_label_selectors(text: str, wanted: bool) -> None:
    selector = selectors.parse(NAMESPACES, text, "")
    assert selector.matches({"metadata": {"labels": LABELS}}) is wanted


@pytest.mark.parametrize("text", ["tier in", "tier in (a", "a b", "=x", "tier=a=b", "tier>3", "-a=b", "(a)"])
def test_a_label_selector_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        selectors.parse_labels(text)
    assert refused.value.code == 400


EVENT: dict[str, Any] = {
    "metadata": {"name": "e", "namespace": "default"},
    "involvedObject": {"kind": "Widget", "name": "w1", "uid": "u"},
    "reason": "Why",
    "source": {"component": "operator"},
}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("metadata.name=e", True),
        ("metadata.name==e,metadata.namespace=default", True),
        ("metadata.namespace!=default", False),
        ("involvedObject.kind=Widget,involvedObject.uid=u,involvedObject.name=w1", True),
        ("involvedObject.namespace=", True),
        ("reason!=Why", False),
        ("source=operator", True),
        ("type=Warning", False),
    ],
)
def test_field_selectors(text: str, wanted: bool) -> None:
    assert selectors.parse(EVENTS, "", text).matches(EVENT) is wanted


@pytest.mark.parametrize("text", ["spec.x=1", "metadata.name", "status=1"])
def test_a_field_that_cannot_be_selected_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        selectors.parse_fields(SECRETS, text)
    assert refused.value.code == 400


@given(st.text(max_size=20))
def test_any_text_is_a_selector_or_a_status(text: str) -> None:
    code = 400
    try:
        selectors.parse(EVENTS, text, text)
    except ApiError as error:
        code = error.code
    assert code == 400
