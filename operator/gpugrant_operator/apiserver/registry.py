"""The operations on objects: gather facts, decide on the newest state in one step, hand the change to the store.

Routes, hand-edited manifests and the namespace clean-up all come through here, so that one set of rules holds for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from gpugrant_crds import timestamps
from gpugrant_crds.v1alpha1 import GROUP
from gpugrant_operator.apiserver import admission
from gpugrant_operator.apiserver.objects import changes, ownership, patch
from gpugrant_operator.apiserver.objects.changes import Context, Outcome
from gpugrant_operator.apiserver.objects.ownership import Manager, Owners
from gpugrant_operator.apiserver.objects.resources import NAMESPACES, Resource
from gpugrant_operator.apiserver.objects.selectors import Selector
from gpugrant_operator.apiserver.objects.status import (
    ApiError,
    Json,
    Obj,
    already_exists,
    conflict,
    forbidden,
    invalid,
    invalid_value,
    method_not_allowed,
    not_found,
)
from gpugrant_operator.apiserver.objects.validation import Rules
from gpugrant_operator.apiserver.settings import Settings
from gpugrant_operator.apiserver.store import manifests
from gpugrant_operator.apiserver.store.journal import Key, Origin
from gpugrant_operator.apiserver.store.store import Change, Store

FieldValidation = Literal["Strict", "Warn", "Ignore"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a write is meant."""

    dry_run: bool = False
    field_validation: FieldValidation = "Warn"
    manager: str = "gpugrant"
    """In whose name the fields are kept that this write sets."""
    force: bool = False
    """An apply takes the fields of others."""
    file: str | None = None
    """The hash of the manifest that asks for this write; None: a request does."""
    from_file: bool = False
    origin: Origin | None = None
    """The file of a source that asks for this write."""
    guard: Callable[[], None] | None = None
    """Called in the step of the decision; raises where what was gathered no longer holds."""


@dataclass(frozen=True, slots=True)
class Written:
    """The object after a write, and what the client should be told beside it."""

    obj: Obj
    warnings: tuple[str, ...] = ()
    created: bool = False
    removed: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """What was gathered before a decision."""

    live: admission.Live | None = None


Decision = tuple[Outcome, tuple[str, ...]]

Wanted = tuple[Obj, Owners | None]
"""The object that a write asks for, and who owns what after it; None: the writer owns what changed."""


@dataclass
class Registry:
    """The operations of one server."""

    store: Store
    settings: Settings
    rules: Mapping[str, Rules] = field(default_factory=dict)
    reviewer: admission.Reviewer = field(default_factory=admission.Reviewer)

    def __post_init__(self) -> None:
        self.rules = {resource.id: Rules(resource) for resource in self.store.catalog.resources}

    # --- writes -----------------------------------------------------------------------------------------------

    async def create(
        self,
        resource: Resource,
        namespace: str,
        body: Json,
        options: Options,
        duplicates: Sequence[str] = (),
        *,
        applies: bool = False,
    ) -> Written:
        _allow(resource, "create")
        obj = changes.addressed(resource, body, namespace=namespace, name=None)
        obj, warnings = self._pruned(resource, obj, options, duplicates)
        facts = await self._gather(resource)

        # From here to the submission nothing is awaited: the decision and its place in the order are one step.
        if options.guard is not None:
            options.guard()
        self._check_namespace(resource, namespace)
        context = self._context()
        made = changes.create(self.rules[resource.id], obj, namespace=namespace, context=context)
        made = ownership.owned(made, self._first_owners(resource, made, obj, options, applies=applies))
        name = made["metadata"]["name"]
        if self.store.head(resource, made["metadata"].get("namespace", ""), name) is not None:
            raise already_exists(resource.plural, resource.group, name)
        warnings += self._admit(resource, None, made, facts)
        change = Change(
            (resource.id, made["metadata"].get("namespace", ""), made["metadata"]["name"]),
            made,
            file=options.file,
            from_file=options.from_file and options.origin is None,
            origin=options.origin,
        )
        if options.dry_run:
            return Written(made, warnings, created=True)
        return Written(await self._commit(change), warnings, created=True)

    async def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Json,
        options: Options,
        *,
        status: bool = False,
        duplicates: Sequence[str] = (),
    ) -> Written:
        """PUT; a custom resource must carry the resourceVersion that it was read with."""
        _allow(resource, "update")
        obj = changes.addressed(resource, body, namespace=namespace, name=name)
        if resource.custom and not options.from_file and not obj["metadata"].get("resourceVersion"):
            if self.store.get(resource, namespace, name) is None:
                raise not_found(resource.plural, resource.group, name)
            cause = invalid_value("metadata.resourceVersion", "0", "must be specified for an update")
            raise invalid(resource.plural, resource.group, name, [cause])
        obj, warnings = self._pruned(resource, obj, options, duplicates)
        written = await self._change(resource, namespace, name, lambda _: (obj, None), options, status=status)
        return replace(written, warnings=warnings + written.warnings)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        content_type: str,
        body: Json,
        options: Options,
        *,
        status: bool = False,
    ) -> Written:
        _allow(resource, "patch")
        warnings: list[str] = []

        def wanted(old: Obj) -> Wanted:
            patched = patch.apply(content_type, body, old, custom=resource.custom)
            obj = changes.addressed(resource, patched, namespace=namespace, name=name)
            obj, told = self._pruned(resource, obj, options, ())
            warnings[:] = told
            return obj, None

        patch.check_type(content_type, custom=resource.custom)
        written = await self._change(resource, namespace, name, wanted, options, status=status)
        return replace(written, warnings=(*warnings, *written.warnings))

    async def apply(
        self, resource: Resource, namespace: str, name: str, body: Json, options: Options, *, status: bool = False
    ) -> Written:
        """Server-side apply: the object is made where it is not there."""
        _allow(resource, "patch")
        config = changes.addressed(resource, body, namespace=namespace, name=None)
        ownership.check_config(resource, namespace, config)
        if self.store.head(resource, namespace, name) is None:
            if config["metadata"].get("uid"):
                told = f"uid mismatch: the provided object specified uid {config['metadata']['uid']}, and no existing "
                raise conflict(resource.plural, resource.group, name, f"{told}object was found")
            changes.check_name(config["metadata"], name)
            if status:
                raise not_found(resource.plural, resource.group, name)
            try:
                return await self.create(resource, namespace, config, options, applies=True)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise  # somebody else made it meanwhile: it is one to change

        def wanted(old: Obj) -> Wanted:
            merged, owners = ownership.applied(
                resource,
                ownership.bare(old),
                config,
                ownership.owners_of(old),
                _manager(resource, options, "Apply", status=status),
                now=timestamps.write(self.settings.now()),
                force=options.force,
            )
            changes.check_name(merged["metadata"], name)
            return merged, owners

        return await self._change(resource, namespace, name, wanted, options, status=status)

    async def delete(
        self, resource: Resource, namespace: str, name: str, body: Mapping[str, Json], options: Options
    ) -> Written:
        _allow(resource, "delete")

        def decide(old: Obj) -> Decision:
            outcome = changes.delete(resource, old, body, now=self.settings.now())
            if outcome.kind != "Keep":
                self._check_origin(resource, (resource.id, namespace, name), options)
                self._check_origins_within(resource, name)
            return outcome, ()

        return await self._decide(resource, namespace, name, decide, options)

    async def delete_collection(
        self,
        resource: Resource,
        namespace: str | None,
        selector: Selector,
        body: Mapping[str, Json],
        options: Options,
    ) -> list[Obj]:
        """What was asked to be deleted, as it is now."""
        _allow(resource, "deletecollection")
        chosen = [stored.obj for stored in self.store.listed(resource, namespace) if selector.matches(stored.obj)]
        gone: list[Obj] = []
        for obj in chosen:
            metadata = obj["metadata"]
            try:
                written = await self.delete(resource, metadata.get("namespace", ""), metadata["name"], body, options)
            except ApiError as error:
                if error.code != 404:
                    raise
            else:
                gone.append(written.obj)
        return gone

    async def finish_namespace(self, name: str) -> None:
        """Removes a terminating namespace that holds nothing any more."""

        def decide(old: Obj) -> Decision:
            return changes.emptied_namespace(old), ()

        await self._decide(NAMESPACES, "", name, decide, Options())

    # --- the one step -----------------------------------------------------------------------------------------

    async def _change(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        wanted: Callable[[Obj], Wanted],
        options: Options,
        *,
        status: bool,
    ) -> Written:
        facts = Facts() if status else await self._gather(resource)
        rules = self.rules[resource.id]

        def decide(old: Obj) -> Decision:
            body, owners = wanted(old)
            held = ownership.bare(old)
            if status:
                outcome = changes.update_status(rules, held, body)
            else:
                outcome = changes.update(rules, held, body, context=self._context())
                if _declared_part(held) != _declared_part(outcome.obj):
                    self._check_origin(resource, (resource.id, namespace, name), options)
            outcome = self._owned(resource, old, body, outcome, owners, options, status=status)
            if status:
                return outcome, ()
            if outcome.kind != "Put" or outcome.obj["metadata"].get("deletionTimestamp"):
                return outcome, ()
            return outcome, self._admit(resource, old, outcome.obj, facts)

        return await self._decide(resource, namespace, name, decide, options)

    async def _decide(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        decide: Callable[[Obj], Decision],
        options: Options,
    ) -> Written:
        key = (resource.id, namespace, name)
        if options.guard is not None:
            options.guard()
        old = self.store.head(resource, namespace, name)
        if old is None:
            raise not_found(resource.plural, resource.group, name)
        outcome, warnings = decide(old)
        removed = outcome.kind == "Remove"
        if options.dry_run:
            return Written(outcome.obj, warnings, removed=removed)
        if outcome.kind == "Keep":
            await self.store.settled(key)
            return Written(outcome.obj, warnings)
        change = Change(
            key,
            None if removed else outcome.obj,
            last=outcome.obj,
            file=options.file,
            from_file=options.from_file and options.origin is None,
            origin=options.origin,
        )
        return Written(await self._commit(change), warnings, removed=removed)

    async def _commit(self, change: Change) -> Obj:
        return await asyncio.shield(self.store.submit(change))

    # --- who owns what ----------------------------------------------------------------------------------------

    def _first_owners(self, resource: Resource, made: Obj, config: Obj, options: Options, *, applies: bool) -> Owners:
        now = timestamps.write(self.settings.now())
        if applies:
            manager = _manager(resource, options, "Apply")
            return ownership.applied(resource, {}, config, {}, manager, now=now, force=True)[1]
        return ownership.updated(resource, {}, made, {}, _manager(resource, options, "Update"), now=now)

    def _owned(
        self,
        resource: Resource,
        old: Obj,
        body: Obj,
        outcome: Outcome,
        owners: Owners | None,
        options: Options,
        *,
        status: bool,
    ) -> Outcome:
        """The outcome with its managedFields; a change of them alone is a change."""
        if owners is None:
            manager = _manager(resource, options, "Update", status=status)
            before = ownership.base(old, body, subresource=manager.subresource)
            now = timestamps.write(self.settings.now())
            owners = ownership.updated(resource, ownership.bare(old), outcome.obj, before, manager, now=now)
        new = ownership.owned(outcome.obj, owners)
        if outcome.kind == "Keep":
            return Outcome("Keep", old) if new == old else Outcome("Put", new)
        return Outcome(outcome.kind, new)

    # --- what a decision needs --------------------------------------------------------------------------------

    async def _gather(self, resource: Resource) -> Facts:
        if not self.settings.admission or not admission.is_reviewed(resource):
            return Facts()
        socket = self.settings.layout.control("gate")
        return Facts(await admission.ask_gate(socket, self.settings.live_timeout))

    def _admit(self, resource: Resource, old: Obj | None, new: Obj, facts: Facts) -> tuple[str, ...]:
        if not self.settings.admission or not admission.is_reviewed(resource):
            return ()
        machines = self.store.catalog.by_id(admission.MACHINES)
        world = admission.World(
            machines=self.store.head_list(machines) if machines is not None else (),
            stored=self.store.head_list(resource),
            live=facts.live,
            now=self.settings.now(),
        )
        return self.reviewer.review(old, new, world)

    def _context(self) -> Context:
        return Context(self.settings.now(), self.settings.new_uid(), self.settings.new_suffix())

    def _check_namespace(self, resource: Resource, namespace: str) -> None:
        if not resource.namespaced:
            return
        held = self.store.head(NAMESPACES, "", namespace)
        if held is None:
            raise not_found("namespaces", "", namespace)
        if held["metadata"].get("deletionTimestamp"):
            raise forbidden(
                resource.plural,
                resource.group,
                "",
                f"unable to create new content in namespace {namespace} because it is being terminated",
            )

    def _check_origin(self, resource: Resource, key: Key, options: Options) -> None:
        """An object of a source is changed where it is declared, and nowhere else."""
        origin = self.store.origin_of(key)
        if origin is not None and options.origin is None:
            raise forbidden(resource.plural, resource.group, key[2], f"it comes from {origin.file}: change it there")

    def _check_origins_within(self, resource: Resource, name: str) -> None:
        """A namespace takes with it all that is in it."""
        if resource.id != NAMESPACES.id:
            return
        for key, origin in self.store.origins().items():
            if key[1] == name:
                why = f"its {key[0].partition('.')[0]} {key[2]} comes from {origin.file}: take that away first"
                raise forbidden(resource.plural, resource.group, name, why)

    def _pruned(
        self, resource: Resource, obj: Obj, options: Options, duplicates: Sequence[str]
    ) -> tuple[Obj, tuple[str, ...]]:
        """The object without unknown fields; they are an error, a warning or nothing, as the client asked."""
        pruned, unknown = self.rules[resource.id].prune(obj)
        problems = (
            *(f'unknown field "{path}"' for path in sorted(unknown)),
            *(f'duplicate field "{name}"' for name in duplicates),
        )
        if problems and options.field_validation == "Strict":
            raise changes.strict_error(resource, problems)
        return pruned, problems if options.field_validation == "Warn" else ()


OUR_ANNOTATIONS = f"{GROUP}/"


def our_annotations(obj: Mapping[str, Json]) -> dict[str, str]:
    annotations = obj["metadata"].get("annotations") or {}
    return {key: text for key, text in annotations.items() if key.startswith(OUR_ANNOTATIONS)}


def _declared_part(obj: Obj) -> Obj:
    """What a source's file decides; status, finalizers, our annotations and those of tools are everybody's."""
    part = manifests.desired(obj)
    rest = {key: text for key, text in manifests.own_annotations(obj).items() if key not in our_annotations(obj)}
    owners = obj["metadata"].get("ownerReferences") or []
    return {**part, "metadata": {**part["metadata"], "annotations": rest, "ownerReferences": owners}}


def _manager(resource: Resource, options: Options, operation: ownership.Operation, *, status: bool = False) -> Manager:
    return Manager(options.manager, operation, resource.api_version, "status" if status else "")


def _allow(resource: Resource, verb: str) -> None:
    if verb not in resource.verbs:
        raise method_not_allowed(resource.plural, resource.group, verb, resource.read_only_reason)
