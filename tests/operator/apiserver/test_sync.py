"""Manifests that people edit, while the server runs and while it does not."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

WIDGETS = "/apis/test.example.com/v1/namespaces/default/widgets"
W1 = f"{WIDGETS}/w1"
TEXT = """# mine
apiVersion: test.example.com/v1
kind: Widget
metadata:
  name: w1
spec:
  size: 5
"""


async def health(api: Any) -> dict[str, Any]:
    path = str(api.server.settings.layout.control("apiserver"))
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=path)) as session,
        session.get("http://x/healthz") as answer,
    ):
        body: dict[str, Any] = await answer.json()
    return body


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def has_size(api: Any, size: int | None) -> Any:
    async def check() -> bool:
        answer = await api.client.get(W1)
        return answer.code == 404 if size is None else answer.code == 200 and answer.body["spec"]["size"] == size

    return check


def is_told(api: Any, text: str) -> Any:
    async def check() -> bool:
        return text in (await health(api))["message"]

    return check


@pytest.mark.req("D1")
async def test_a_file_becomes_an_object_changes_it_and_takes_it_away(serve: Any, eventually: Any) -> None:
    async with serve() as api:
        write(api.file("w1"), TEXT)
        await eventually(has_size(api, 5))
        assert api.file("w1").read_text() == TEXT
        write(api.file("w1"), TEXT.replace("5", "6"))
        await eventually(has_size(api, 6))
        assert (await api.client.get(W1)).body["metadata"]["generation"] == 2
        api.file("w1").unlink()
        await eventually(has_size(api, None))


async def test_a_file_holds_nothing_of_the_servers(serve: Any, make_widget: Any) -> None:
    async with serve() as api:
        body = make_widget()
        body["metadata"] |= {
            "labels": {"a": "b"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "example.com/mine": "x"},
            "finalizers": ["example.com/hold"],
        }
        await api.client.post(WIDGETS, body)
        await api.client.merge(f"{W1}/status", {"status": {"observedGeneration": 1}})
        held = yaml.safe_load(api.file("w1").read_text())
    assert held == {
        "apiVersion": "test.example.com/v1",
        "kind": "Widget",
        "metadata": {
            "name": "w1",
            "namespace": "default",
            "labels": {"a": "b"},
            "annotations": {"example.com/mine": "x"},
        },
        "spec": {"size": 3, "colour": "Red"},
    }


async def test_a_status_write_leaves_the_file_alone(serve: Any, eventually: Any) -> None:
    async with serve() as api:
        write(api.file("w1"), TEXT)
        await eventually(has_size(api, 5))
        await api.client.merge(f"{W1}/status", {"status": {"observedGeneration": 1}})
        assert api.file("w1").read_text() == TEXT
        assert (await api.client.get(W1)).body["status"] == {"observedGeneration": 1}


async def test_an_edit_keeps_what_the_server_and_tools_know(serve: Any, make_widget: Any, eventually: Any) -> None:
    async with serve() as api:
        body = make_widget()
        body["metadata"] |= {
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
            "finalizers": ["example.com/hold"],
        }
        made = (await api.client.post(WIDGETS, body)).body
        await api.client.merge(f"{W1}/status", {"status": {"observedGeneration": 1}})
        write(api.file("w1"), TEXT)
        await eventually(has_size(api, 5))
        now = (await api.client.get(W1)).body
    assert now["metadata"]["uid"] == made["metadata"]["uid"]
    assert now["metadata"]["finalizers"] == ["example.com/hold"]
    assert "kubectl.kubernetes.io/last-applied-configuration" in now["metadata"]["annotations"]
    assert now["status"] == {"observedGeneration": 1}


BROKEN = [
    pytest.param(TEXT.replace("  size: 5", " size: [5"), "line 8", id="YAML that ends early"),
    pytest.param("", "the file is empty", id="nothing"),
    pytest.param("# only a comment\n", "the file is empty", id="a comment"),
    pytest.param("just text\n", "holds no object", id="text"),
    pytest.param(TEXT + "  size: 6\n", "stands twice", id="a key twice"),
    pytest.param(TEXT.replace("name: w1", "name: w2"), "metadata.name is 'w2'", id="another name"),
    pytest.param(TEXT.replace("Widget", "Gadget"), "kind is 'Gadget'", id="another kind"),
    pytest.param(TEXT.replace("size: 5", "size: 50"), "less than or equal to 9", id="a value out of range"),
    pytest.param(TEXT + "  wrong: 1\n", 'unknown field "spec.wrong"', id="an unknown field"),
    pytest.param(TEXT + "  fixed: b\n", "fixed can't be changed", id="a changed immutable field"),
]


@pytest.mark.parametrize(("text", "told"), BROKEN)
async def test_a_file_that_cannot_be_taken_takes_nothing_away(
    serve: Any, eventually: Any, text: str, told: str
) -> None:
    async with serve() as api:
        write(api.file("w1"), TEXT + "  fixed: a\n")
        await eventually(has_size(api, 5))
        before = (await api.client.get(W1)).body
        write(api.file("w1"), text)
        await eventually(is_told(api, told))
        assert (await health(api))["ok"] is True
        assert str(api.file("w1")) in (await health(api))["message"]
        assert (await api.client.get(W1)).body == before

        async def evented() -> bool:
            events = (await api.client.get("/api/v1/namespaces/default/events")).body["items"]
            return any(event["reason"] == "SourceInvalid" and told in event["message"] for event in events)

        await eventually(evented)
        write(api.file("w2"), TEXT.replace("w1", "w2"))
        await eventually(lambda: _found(api, f"{WIDGETS}/w2"))
    async with serve() as api:
        assert (await api.client.get(W1)).body == before
        write(api.file("w1"), TEXT.replace("5", "7") + "  fixed: a\n")
        await eventually(has_size(api, 7))
        assert (await health(api))["message"] == "serving"


async def _found(api: Any, path: str) -> bool:
    return bool((await api.client.get(path)).code == 200)


async def test_an_edit_that_was_not_taken_is_kept_beside_a_later_write(
    serve: Any, make_widget: Any, eventually: Any
) -> None:
    async with serve() as api:
        await api.client.post(WIDGETS, make_widget())
        write(api.file("w1"), "broken: [")
        await eventually(is_told(api, "w1.yaml"))
        await api.client.merge(W1, {"spec": {"size": 7}})
        assert yaml.safe_load(api.file("w1").read_text())["spec"]["size"] == 7
        assert api.file("w1").with_suffix(".yaml.replaced").read_text() == "broken: ["


async def test_a_file_at_a_wrong_place_is_named_and_not_read(serve: Any, eventually: Any) -> None:
    async with serve() as api:
        write(api.manifests / "w1.yaml", TEXT)
        await eventually(is_told(api, "objects/<plural>"))
        assert (await api.client.get(W1)).code == 404


async def test_what_people_did_while_the_server_was_down_counts(serve: Any, make_widget: Any, eventually: Any) -> None:
    async with serve() as api:
        for name in ("w1", "w2", "w3"):
            await api.client.post(WIDGETS, make_widget(name))
    write(api.file("w1"), TEXT)
    api.file("w3").unlink()
    write(api.file("w4"), TEXT.replace("w1", "w4"))
    async with serve() as api:
        await eventually(has_size(api, 5))
        assert (await api.client.get(f"{WIDGETS}/w2")).code == 200
        assert (await api.client.get(f"{WIDGETS}/w4")).code == 200
        api.server.manifests.look_again()

        async def gone() -> bool:
            return bool((await api.client.get(f"{WIDGETS}/w3")).code == 404)

        await eventually(gone)


async def test_a_file_deleted_by_hand_honours_finalizers(serve: Any, make_widget: Any, eventually: Any) -> None:
    async with serve() as api:
        body = make_widget()
        body["metadata"]["finalizers"] = ["example.com/hold"]
        await api.client.post(WIDGETS, body)
        api.file("w1").unlink()

        async def marked() -> bool:
            return "deletionTimestamp" in (await api.client.get(W1)).body["metadata"]

        await eventually(marked)
        write(api.file("w1"), TEXT)
        await eventually(is_told(api, "is being deleted"))
        await api.client.merge(W1, {"metadata": {"finalizers": None}})
        await eventually(has_size(api, 5))


async def test_an_editor_that_replaces_a_file_in_two_steps_deletes_nothing(
    serve: Any, make_widget: Any, eventually: Any
) -> None:
    async with serve() as api:
        made = (await api.client.post(WIDGETS, make_widget())).body
        backup = api.file("w1").rename(api.file("w1").with_name("w1.yaml~"))
        write(api.file("w1"), TEXT)
        await eventually(has_size(api, 5))
        backup.unlink()
        assert (await api.client.get(W1)).body["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_folder_that_vanishes_as_a_whole_deletes_nothing(serve: Any, make_widget: Any, eventually: Any) -> None:
    async with serve() as api:
        made = (await api.client.post(WIDGETS, make_widget())).body
    shutil.rmtree(api.manifests)
    async with serve() as api:
        assert (await api.client.get(W1)).body == made
        assert api.file("w1").exists()
        shutil.rmtree(api.manifests)
        await eventually(api.file("w1").exists)
        await api.server.manifests.scan()
        assert (await api.client.get(W1)).body == made


async def test_a_namespace_that_is_nowhere_makes_its_objects_wait(serve: Any, eventually: Any) -> None:
    async with serve() as api:
        write(api.file("w1", namespace="later"), TEXT)
        await eventually(is_told(api, 'namespaces "later" not found'))
        await api.client.post("/api/v1/namespaces", {"metadata": {"name": "later"}})
        await api.server.manifests.scan()
        assert await _found(api, "/apis/test.example.com/v1/namespaces/later/widgets/w1")
        assert (await health(api))["message"] == "serving"


async def test_namespaces_come_before_what_is_in_them(serve: Any) -> None:
    async with serve() as api:
        pass
    write(api.file("w1", namespace="aaa"), TEXT)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "aaa"}}
    write(api.file("aaa", plural="namespaces", namespace="_cluster"), json.dumps(namespace))
    async with serve() as api:
        assert await _found(api, "/apis/test.example.com/v1/namespaces/aaa/widgets/w1")


async def test_the_default_namespace_comes_back_when_its_file_is_removed(serve: Any, eventually: Any) -> None:
    async with serve() as api:
        path = api.file("default", plural="namespaces", namespace="_cluster")
        before = (await api.client.get("/api/v1/namespaces/default")).body
        path.unlink()
        await eventually(path.exists)
        assert (await api.client.get("/api/v1/namespaces/default")).body == before


async def test_a_pipe_or_folder_among_the_manifests_is_no_trouble(serve: Any, eventually: Any) -> None:
    async with serve() as api:
        api.file("dir").mkdir(parents=True)
        os.mkfifo(api.file("w1"))
        await eventually(is_told(api, "no regular file"))
        api.file("w1").unlink()
        write(api.file("w1"), TEXT)
        await eventually(has_size(api, 5))
