"""Git checkouts as desired state: a real server over real folders, changed by real git commands."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest

WIDGETS = "/apis/test.example.com/v1/namespaces/default/widgets"
AWAY = 1.5
"""Seconds: more than the removal delay of these tests and several looks."""

pytestmark = pytest.mark.req("D11")


def widget(name: str, size: int = 5, more: str = "", namespace: str = "") -> str:
    where = f"  namespace: {namespace}\n" if namespace else ""
    head = f"apiVersion: test.example.com/v1\nkind: Widget\nmetadata:\n  name: {name}\n{where}"
    return f"{head}spec:\n  size: {size}\n{more}"


class Checkout:
    """A real clone, and the repository that it pulls from."""

    def __init__(self, folder: Path) -> None:
        self.upstream, self.root = folder / "upstream", folder / "checkout"
        self.upstream.mkdir()
        self.git("init", "-q", "-b", "main", where=self.upstream)

    def git(self, *words: str, where: Path | None = None) -> None:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root.parent),
            **{
                f"GIT_{who}_{what}": f"{who}@example.com"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            },
        }
        subprocess.run(["git", *words], cwd=where or self.root, env=environ, check=True, capture_output=True)

    def commit(self, files: dict[str, str | None]) -> None:
        """In the upstream; None takes a file away."""
        for name, text in files.items():
            path = self.upstream / name
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        self.git("add", "-A", where=self.upstream)
        self.git("commit", "-q", "-m", "a change", where=self.upstream)

    def clone(self) -> None:
        self.git("clone", "-q", str(self.upstream), str(self.root), where=self.root.parent)

    def pull(self) -> None:
        self.git("pull", "-q")


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    folder = tmp_path / "git"
    folder.mkdir()
    return Checkout(folder)


async def sizes(api: Any, namespace: str = "default") -> dict[str, int]:
    answer = await api.client.get(WIDGETS.replace("default", namespace))
    return {item["metadata"]["name"]: item["spec"]["size"] for item in answer.body["items"]}


async def uids(api: Any) -> dict[str, str]:
    items = (await api.client.get(WIDGETS)).body["items"]
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}


def are(api: Any, **wanted: int) -> Any:
    async def check() -> bool:
        return await sizes(api) == wanted

    return check


async def message(api: Any) -> str:
    path = str(api.server.settings.layout.control("apiserver"))
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=path)) as session,
        session.get("http://x/healthz") as answer,
    ):
        body = await answer.json()
    assert body["ok"] is True
    return str(body["message"])


def is_told(api: Any, text: str) -> Any:
    async def check() -> bool:
        return text in await message(api)

    return check


async def evented(api: Any, text: str) -> bool:
    events = (await api.client.get("/api/v1/events")).body["items"]
    return any(event["reason"] == "SourceInvalid" and text in event["message"] for event in events)


async def test_commits_become_objects_change_them_and_take_them_away(
    serve: Any, checkout: Checkout, eventually: Any
) -> None:
    files: dict[str, str | None] = {
        "a.yaml": f"{widget('a1')}---\n{widget('a2')}",
        "team/deep/b.yml": widget("b"),
        "c.json": json.dumps(
            {"apiVersion": "test.example.com/v1", "kind": "Widget", "metadata": {"name": "c"}, "spec": {"size": 1}}
        ),
        "kustomization.yaml": "resources: [a.yaml]\nkind: Kustomization\napiVersion: kustomize.config.k8s.io/v1beta1\n",
        "chart/templates/x.yaml": "{{- if .Values.on }}\nkind: Deployment\n",
        "deployment.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n",
        "README.md": "words",
    }
    checkout.commit(files)
    checkout.clone()
    async with serve(sources=(checkout.root,)) as api:
        await eventually(are(api, a1=5, a2=5, b=5, c=1))
        before = await uids(api)
        assert not api.file("a1").exists()
        assert await message(api) == "serving"
        checkout.commit(
            {"a.yaml": f"{widget('a1', 6)}---\n{widget('a2')}", "new/sub/d.yaml": widget("d"), "c.json": None}
        )
        checkout.pull()
        await eventually(are(api, a1=6, a2=5, b=5, d=5))
        checkout.commit({"team/deep/b.yml": None, "moved/b.yaml": "# a comment\n" + widget("b")})
        checkout.pull()

        async def from_the_new_place() -> bool:
            refused = await api.client.delete(f"{WIDGETS}/b")
            return bool(refused.message.endswith(f"{checkout.root}/moved/b.yaml: change it there"))

        await eventually(from_the_new_place)
        assert await sizes(api) == {"a1": 6, "a2": 5, "b": 5, "d": 5}
        now = await uids(api)
        assert {name: now[name] for name in ("a1", "a2", "b")} == {name: before[name] for name in ("a1", "a2", "b")}
        checkout.commit({"a.yaml": widget("a2")})
        checkout.pull()
        await eventually(are(api, a2=5, b=5, d=5))
        assert await message(api) == "serving"
    checkout.git("diff-index", "--quiet", "HEAD")


async def test_what_changed_while_the_server_was_down_counts(serve: Any, checkout: Checkout, eventually: Any) -> None:
    checkout.commit({"a.yaml": widget("a"), "b.yaml": widget("b")})
    checkout.clone()
    async with serve(sources=(checkout.root,)) as api:
        await eventually(are(api, a=5, b=5))
        before = await uids(api)
    checkout.commit({"a.yaml": None, "b.yaml": widget("b", 7)})
    checkout.pull()
    async with serve(sources=(checkout.root,)) as api:
        assert set(await sizes(api)) == {"a", "b"}
        await eventually(are(api, b=7))
        assert (await uids(api))["b"] == before["b"]


async def test_another_branch_is_checked_out_while_it_is_watched(
    serve: Any, checkout: Checkout, eventually: Any
) -> None:
    checkout.commit({f"w{n}.yaml": widget(f"w{n}") for n in range(8)})
    checkout.git("checkout", "-q", "-b", "other", where=checkout.upstream)
    checkout.commit({"w0.yaml": widget("w0", 8), "w1.yaml": None, "x.yaml": widget("x")})
    checkout.clone()
    async with serve(sources=(checkout.root,)) as api:
        kept = {f"w{n}": 5 for n in range(2, 8)}
        await eventually(are(api, w0=8, x=5, **kept))
        before = await uids(api)
        for _ in range(4):  # there and back, quicker than a removal counts
            checkout.git("checkout", "-q", "main")
            await asyncio.sleep(0.1)
            checkout.git("checkout", "-q", "other")
            await asyncio.sleep(0.1)
        assert (await uids(api)).items() >= before.items()
        checkout.git("checkout", "-q", "main")
        await eventually(are(api, w0=5, w1=5, **kept))
        now = await uids(api)
        assert {name: now[name] for name in kept} == {name: before[name] for name in kept}


async def test_nothing_goes_while_git_is_at_work(serve: Any, checkout: Checkout, eventually: Any) -> None:
    checkout.commit({"sub/a.yaml": widget("a"), "sub/b.yaml": widget("b")})
    checkout.clone()
    async with serve(sources=(checkout.root / "sub",), source_lock_patience=0.5) as api:
        await eventually(are(api, a=5, b=5))
        lock = checkout.root / ".git/index.lock"
        lock.touch()
        (checkout.root / "sub/a.yaml").unlink()
        await asyncio.sleep(AWAY)
        assert await sizes(api) == {"a": 5, "b": 5}
        await eventually(is_told(api, "1 objects stay while .git/index.lock is there"))
        lock.unlink()
        await eventually(are(api, b=5))


BROKEN = [
    pytest.param("", "the file is empty", id="nothing"),
    pytest.param("# only a comment\n", "the file is empty", id="a comment"),
    pytest.param(widget("a").replace("  size: 5", " size: [5"), "line", id="YAML that ends early"),
    pytest.param("just text\n", "no object with apiVersion", id="text"),
    pytest.param(widget("a") + "  size: 6\n", "stands twice", id="a key twice"),
    pytest.param(widget("a").replace("Widget", "Gadget"), "there is no kind 'Gadget'", id="an unknown kind"),
    pytest.param(widget("a", 50), "less than or equal to 9", id="a value out of range"),
    pytest.param(widget("a", more="  wrong: 1\n"), 'unknown field "spec.wrong"', id="an unknown field"),
    pytest.param(widget("a", more="  fixed: y\n"), "fixed can't be changed", id="a changed immutable field"),
]


@pytest.mark.parametrize(("text", "told"), BROKEN)
async def test_a_file_that_cannot_be_taken_takes_nothing_away(
    serve: Any, tmp_path: Path, eventually: Any, text: str, told: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    file = source / "a.yaml"
    file.write_text(widget("a", more="  fixed: x\n"))
    async with serve(sources=(source,)) as api:
        await eventually(are(api, a=5))
        before = (await api.client.get(f"{WIDGETS}/a")).body
        file.write_text(text)
        await eventually(is_told(api, told))
        assert str(file) in await message(api)
        await eventually(lambda: evented(api, told))
        await asyncio.sleep(AWAY)
        assert (await api.client.get(f"{WIDGETS}/a")).body == before
    async with serve(sources=(source,)) as api:
        await asyncio.sleep(AWAY)
        assert (await api.client.get(f"{WIDGETS}/a")).body == before
        file.write_text(widget("a", 7, more="  fixed: x\n"))
        await eventually(are(api, a=7))
        await eventually(is_told(api, "serving"))


async def test_a_file_that_is_written_in_steps_or_renamed_into_place(
    serve: Any, tmp_path: Path, eventually: Any
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    text = widget("a", more="  label: abc\n")
    (source / "two.yaml").write_text(f"{widget('b')}---\n{widget('c')}")
    async with serve(sources=(source,), source_interval=0.8) as api:
        await eventually(are(api, b=5, c=5))
        before = await uids(api)
        with (source / "a.yaml").open("w") as file, (source / "two.yaml").open("w") as two:
            for step in range(0, len(text), 4):
                file.write(text[step : step + 4])
                file.flush()
                two.write("# still writing\n")
                two.flush()
                await asyncio.sleep(0.02)
                assert "a" not in await sizes(api)
            two.write(f"{widget('b')}---\n{widget('c', 6)}")
        await eventually(are(api, a=5, b=5, c=6))
        assert (await uids(api)).items() >= before.items()
        assert (await api.client.get(f"{WIDGETS}/a")).body["spec"]["label"] == "abc"
        (source / ".new").write_text(widget("a", 9))
        (source / ".new").rename(source / "a.yaml")
        await eventually(are(api, a=9, b=5, c=6))


async def test_most_of_a_source_that_vanishes_at_once_needs_a_word(
    serve: Any, checkout: Checkout, eventually: Any
) -> None:
    checkout.commit({f"w{n}.yaml": widget(f"w{n}") for n in range(6)})
    checkout.clone()
    async with serve(sources=(checkout.root,)) as api:
        everything = {f"w{n}": 5 for n in range(6)}
        await eventually(are(api, **everything))
        before = await uids(api)
        for n in range(4):
            (checkout.root / f"w{n}.yaml").unlink()
        await eventually(is_told(api, "4 of the 6 objects"))
        await eventually(lambda: evented(api, "gpugrant store accept-deletes"))
        await asyncio.sleep(AWAY)
        assert await sizes(api) == everything
        checkout.git("checkout", "-q", ".")
        await eventually(is_told(api, "serving"))
        assert await uids(api) == before
        for n in range(4):
            (checkout.root / f"w{n}.yaml").unlink()
        await eventually(is_told(api, "4 of the 6 objects"))
        accepted = (await accept(api))["accepted"]
        assert [len(source["objects"]) for source in accepted] == [4]
        await eventually(are(api, w4=5, w5=5))
        assert (await accept(api))["accepted"] == []


async def accept(api: Any) -> dict[str, Any]:
    path = str(api.server.settings.layout.control("apiserver"))
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=path)) as session,
        session.post("http://x/accept-deletes") as answer,
    ):
        body: dict[str, Any] = await answer.json()
    return body


async def test_a_folder_that_is_gone_takes_nothing_away(serve: Any, checkout: Checkout, eventually: Any) -> None:
    checkout.commit({"a.yaml": widget("a")})
    checkout.clone()
    async with serve(sources=(checkout.root,)) as api:
        await eventually(are(api, a=5))
        before = await uids(api)
        aside = checkout.root.rename(checkout.root.with_name("aside"))
        await eventually(is_told(api, f"the folder {checkout.root} is gone: its 1 objects stay"))
        await asyncio.sleep(AWAY)
        assert await uids(api) == before
        aside.rename(checkout.root)
        await eventually(is_told(api, "serving"))
        assert await uids(api) == before
    shutil.rmtree(checkout.root)
    async with serve(sources=(checkout.root,)) as api:
        await eventually(is_told(api, "is gone"))
        await asyncio.sleep(AWAY)
        assert await uids(api) == before
        await accept(api)
        await eventually(are(api))
        await eventually(is_told(api, "there is no folder"))


async def test_a_link_that_is_swapped_is_the_new_folder(serve: Any, tmp_path: Path, eventually: Any) -> None:
    """As git-sync does it."""
    for name, size in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text(widget("a", size))
    link = tmp_path / "current"
    link.symlink_to("one")
    async with serve(sources=(link,)) as api:
        await eventually(are(api, a=1))
        before = await uids(api)
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").rename(link)
        await eventually(are(api, a=2))
        assert await uids(api) == before


async def test_a_mounted_config_map_is_taken_through_its_links(serve: Any, tmp_path: Path, eventually: Any) -> None:
    """As the kubelet writes it (k8s.io/kubernetes/pkg/volume/util/atomic_writer.go)."""
    source = tmp_path / "source"
    source.mkdir()

    def publish(revision: str, **sizes: int) -> None:
        (source / revision).mkdir()
        for name, size in sizes.items():
            (source / revision / f"{name}.yaml").write_text(widget(name, size))
        (source / "..data_tmp").symlink_to(revision)
        (source / "..data_tmp").rename(source / "..data")
        for name in sizes:
            if not (source / f"{name}.yaml").is_symlink():
                (source / f"{name}.yaml").symlink_to(f"..data/{name}.yaml")

    publish("..1", a=1, b=1)
    async with serve(sources=(source,)) as api:
        await eventually(are(api, a=1, b=1))
        before = await uids(api)
        publish("..2", a=2, b=2)
        shutil.rmtree(source / "..1")
        await eventually(are(api, a=2, b=2))
        assert await uids(api) == before
        publish("..3", a=3)  # and the link of b dangles until the kubelet takes it away
        await eventually(are(api, a=3, b=2))
        await eventually(is_told(api, "b.yaml: passed over: the link leads nowhere"))
        (source / "..data").rename(source / "..gone")
        await asyncio.sleep(AWAY)
        assert await uids(api) == before
        (source / "..gone").rename(source / "..data")
        (source / "b.yaml").unlink()
        await eventually(are(api, a=3))


async def test_new_folders_in_new_folders_are_looked_into_and_nothing_is_written(
    serve: Any, tmp_path: Path, eventually: Any
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    async with serve(sources=(source,)) as api:
        await eventually(is_told(api, "serving"))
        (source / "one/two/three").mkdir(parents=True)
        (source / "one/two/three/a.yaml").write_text(widget("a"))
        (source / "one/b.yml").write_text(widget("b"))
        (source / "one/c.json").write_text(
            json.dumps(
                {"apiVersion": "test.example.com/v1", "kind": "Widget", "metadata": {"name": "c"}, "spec": {"size": 5}}
            )
        )
        (source / "one/two/a.yaml").touch(0o400)
        await eventually(are(api, a=5, b=5, c=5))
        tree = {path: path.stat().st_mtime_ns for path in (source, *source.rglob("*"))}
        await api.client.merge(f"{WIDGETS}/a", {"metadata": {"finalizers": ["example.com/hold"]}})
        await api.client.merge(f"{WIDGETS}/a/status", {"status": {"observedGeneration": 1}})
        (source / "one").rename(source / "other")
        await asyncio.sleep(AWAY)
        assert await sizes(api) == {"a": 5, "b": 5, "c": 5}
        (source / "other").rename(source / "one")
        assert {path: path.stat().st_mtime_ns for path in source.rglob("*")}.items() <= tree.items()


async def test_an_object_of_a_file_is_changed_there_alone(serve: Any, tmp_path: Path, eventually: Any) -> None:
    source = tmp_path / "source"
    source.mkdir()
    file = source / "a.yaml"
    file.write_text(widget("a"))
    path = f"{WIDGETS}/a"
    async with serve(sources=(source,)) as api:
        await eventually(are(api, a=5))
        for answer in (
            await api.client.merge(path, {"spec": {"size": 6}}),
            await api.client.merge(path, {"metadata": {"labels": {"x": "y"}}}),
            await api.client.merge(path, {"metadata": {"annotations": {"example.com/x": "y"}}}),
            await api.client.delete(path),
            await api.client.delete("/api/v1/namespaces/default"),
        ):
            assert answer.code == 403, answer.body
        assert str(file) in (await api.client.delete(path)).message
        for change in (
            {"metadata": {"annotations": {"gpu.rediacc.io/detect": "now"}}},
            {"metadata": {"finalizers": ["example.com/hold"]}},
            {"spec": {"size": 5}},
        ):
            assert (await api.client.merge(path, change)).code == 200
        assert (await api.client.merge(f"{path}/status", {"status": {"observedGeneration": 1}})).code == 200
        assert not api.file("a").exists()
        file.write_text(widget("a", 6))
        await eventually(are(api, a=6))
        now = (await api.client.get(path)).body
        assert now["metadata"]["annotations"] == {"gpu.rediacc.io/detect": "now"}
        assert now["status"] == {"observedGeneration": 1}
        api.file("a").parent.mkdir(parents=True, exist_ok=True)
        api.file("a").write_text(widget("a", 7))
        await eventually(is_told(api, f"it comes from {file}"))
        api.file("a").unlink()
        file.unlink()

        async def marked() -> bool:
            return "deletionTimestamp" in (await api.client.get(path)).body["metadata"]

        await eventually(marked)
        file.write_text(widget("a", 2))
        await eventually(is_told(api, "is being deleted"))
        assert (await api.client.merge(path, {"metadata": {"finalizers": None}})).code == 200
        await eventually(are(api, a=2))


async def test_an_annotation_that_the_file_gave_goes_with_it(serve: Any, tmp_path: Path, eventually: Any) -> None:
    source = tmp_path / "source"
    source.mkdir()
    text = widget("a")
    (source / "a.yaml").write_text(text.replace("spec:", "  annotations: {gpu.rediacc.io/mine: x}\nspec:"))
    async with serve(sources=(source,)) as api:
        await eventually(are(api, a=5))
        assert (await api.client.get(f"{WIDGETS}/a")).body["metadata"]["annotations"] == {"gpu.rediacc.io/mine": "x"}
        (source / "a.yaml").write_text(text)

        async def gone() -> bool:
            return "annotations" not in (await api.client.get(f"{WIDGETS}/a")).body["metadata"]

        await eventually(gone)


async def test_an_object_of_a_request_becomes_the_files(
    serve: Any, tmp_path: Path, make_widget: Any, eventually: Any
) -> None:
    """And an ordinary one again when its folder is a source no more."""
    source = tmp_path / "source"
    source.mkdir()
    async with serve(sources=(source,)) as api:
        await api.client.post(WIDGETS, make_widget("a"))
        before = await uids(api)
        (source / "a.yaml").write_text(widget("a", 6))
        await eventually(are(api, a=6))
        assert await uids(api) == before
        assert not api.file("a").exists()
    async with serve() as api:
        assert await uids(api) == before
        assert (await api.client.merge(f"{WIDGETS}/a", {"spec": {"size": 7}})).code == 200
        assert api.file("a").exists()


async def test_a_namespace_that_is_nowhere_makes_its_objects_wait(serve: Any, tmp_path: Path, eventually: Any) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.yaml").write_text(widget("a", namespace="team"))
    async with serve(sources=(source,)) as api:
        await eventually(is_told(api, 'namespaces "team" not found'))
        (source / "z.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n")

        async def there() -> bool:
            return await sizes(api, "team") == {"a": 5}

        await eventually(there)
        await eventually(is_told(api, "serving"))
        (source / "z.yaml").unlink()
        await eventually(is_told(api, "take that away first"))
        (source / "a.yaml").unlink()

        async def gone() -> bool:
            return bool((await api.client.get("/api/v1/namespaces/team")).code == 404)

        await eventually(gone)


async def test_of_two_files_the_first_counts(serve: Any, tmp_path: Path, eventually: Any) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, size in ((one, 1), (two, 2)):
        folder.mkdir()
        (folder / "a.yaml").write_text(widget("a", size))
    async with serve(sources=(one, two)) as api:
        await eventually(are(api, a=1))
        await eventually(is_told(api, f"{two}/a.yaml: widgets default/a stands already in {one}/a.yaml"))
        before = await uids(api)
        (one / "a.yaml").write_text("broken: [")
        await eventually(is_told(api, f"{one}/a.yaml"))
        await asyncio.sleep(AWAY)
        assert await sizes(api) == {"a": 1}
        (one / "a.yaml").unlink()
        await eventually(are(api, a=2))
        assert await uids(api) == before
        await eventually(is_told(api, "serving"))


async def test_what_everybody_may_write_grants_nothing(serve: Any, tmp_path: Path, eventually: Any) -> None:
    source = tmp_path / "source"
    for name in ("open", "shut"):
        (source / name).mkdir(parents=True)
        (source / name / f"{name}.yaml").write_text(widget(name))
    (source / "shut/file.yaml").write_text(widget("file"))
    (source / "open").chmod(0o757)
    (source / "shut/file.yaml").chmod(0o646)
    async with serve(sources=(source,)) as api:
        await eventually(are(api, shut=5))
        await eventually(is_told(api, f"{source}/open: passed over: everybody may write"))
        await eventually(is_told(api, f"{source}/shut/file.yaml: everybody may write"))
        assert await sizes(api) == {"shut": 5}
        (source / "open").chmod(0o755)
        (source / "shut/file.yaml").chmod(0o644)
        await eventually(are(api, shut=5, open=5, file=5))
        (source / "open").chmod(0o757)
        (source / "open/open.yaml").unlink()
        await eventually(is_told(api, "passed over"))
        await asyncio.sleep(AWAY)
        assert set(await sizes(api)) == {"shut", "open", "file"}


async def test_strange_things_in_a_source_are_no_trouble(serve: Any, tmp_path: Path, eventually: Any) -> None:
    source, outside = tmp_path / "source", tmp_path / "outside.yaml"
    source.mkdir()
    outside.write_text(widget("outside"))
    os.mkfifo(source / "pipe.yaml")
    (source / "dir.yaml").mkdir()
    (source / "link.yaml").symlink_to(outside)
    (source / "dangling.yaml").symlink_to("nowhere")
    (source / "loop").symlink_to(source)
    Path(os.fsdecode(bytes(source) + b"/\xff.yaml")).write_text(widget("bytes"))
    (source / ".hidden.yaml").write_text(widget("hidden"))
    (source / "dir.yaml" / "a.yaml").write_text(widget("a"))
    async with serve(sources=(source,)) as api:
        await eventually(are(api, a=5))
        await eventually(is_told(api, "leads out of the folder"))
        await eventually(is_told(api, "its name is no UTF-8"))
        await eventually(is_told(api, "dangling.yaml: passed over: the link leads nowhere"))
        await eventually(is_told(api, "no regular file"))
