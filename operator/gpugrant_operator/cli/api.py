"""Our resources in whatever Kubernetes API `rdc` is pointed at, over the `kubernetes` package.

That package is loaded when the first question is asked: it takes half a second, and `--help` must not. Every answer is
a model of `gpugrant_crds`; everything else becomes one ApiProblem with one sentence.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from gpugrant_crds import timestamps
from gpugrant_crds.v1alpha1 import API_VERSION, GROUP, VERSION, GpuMachine, GpuMachineStatus, RepoGpuGrant
from gpugrant_operator.cli.console import Failure
from gpugrant_operator.reconcile.transitions import Occurrence

MACHINES = "gpumachines"
GRANTS = "repogpugrants"
MERGE_PATCH = "application/merge-patch+json"
# The package labels a patch by the type of its body and takes a merge patch for something else (operator.md 2.3).

TIMEOUT = (5.0, 30.0)
"""Seconds to connect and to read one answer."""

PAGE = 500
"""Objects a request, as kubectl's --chunk-size."""

_PREFIXES = (
    r'admission webhook "[^"]*" denied the request: ',
    r'[a-z0-9.]+ "[^"]*" is forbidden: ',
    r"Internal error occurred: ",
)
"""What the API puts before the sentence that matters."""

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class ApiProblem(Failure):
    """The API refused or did not answer; the message is one sentence, without the API's own prefixes."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        """HTTP's; 0: no answer."""
        self.reason = reason


class Gone(ApiProblem):
    """There is no such object."""


class Changed(ApiProblem):
    """Somebody else wrote the object in between."""


class Exists(ApiProblem):
    """There is one of that name already."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which kubeconfig is used."""

    kubeconfig: str
    """Several files are separated by `:`, as in KUBECONFIG."""
    note: str | None = None
    """What a person should know of the choice."""


def choose(variable: str | None, standalone: Path, *, exists: bool) -> Chosen:
    """KUBECONFIG wins over the standalone instance's own file; raises Failure where there is neither. Pure."""
    if not variable:
        if not exists:
            raise Failure(
                f"no API is known: there is no {standalone}; start one with gpugrant up, or set KUBECONFIG "
                "(or GPUGRANT_ROOT, where the instance lies elsewhere)"
            )
        return Chosen(str(standalone))
    if exists and variable != str(standalone):
        return Chosen(variable, f"note: using the API of KUBECONFIG={variable}, not the one of {standalone}")
    return Chosen(variable)


def sentence(message: str) -> str:
    """The message of a Status for a person: one line, without the prefixes."""
    said = " ".join(message.split())
    for prefix in _PREFIXES:
        said = re.sub(rf"^{prefix}", "", said)
    return said


class Api:
    """One API, as the current context of a kubeconfig says."""

    def __init__(self, kubeconfig: str) -> None:
        """Raises Failure when no access can be read from the file."""
        from kubernetes import client, config

        # Its retries are warnings on stderr; whoever asks here decides what a failure means.
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        try:
            _, current = config.list_kube_config_contexts(config_file=kubeconfig)  # type: ignore[no-untyped-call]
            settings = client.Configuration()
            config.load_kube_config(  # type: ignore[no-untyped-call]  # the package's hand-written half has no types
                config_file=kubeconfig, client_configuration=settings, persist_config=False
            )
        except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, LookupError) as error:
            raise Failure(f"{kubeconfig} can't be used: {' '.join(str(error).split())}") from error
        settings.retries = False
        self.server = str(settings.host)
        self.namespace = str((current or {}).get("context", {}).get("namespace") or "default")
        """Where grants are written when nothing else is said."""
        self._client = client.ApiClient(settings)
        self._objects = client.CustomObjectsApi(self._client)

    def close(self) -> None:
        """Closes the connections."""
        self._client.rest_client.pool_manager.clear()

    def machines(self) -> tuple[GpuMachine, ...]:
        return self._list(GpuMachine, self._objects.list_cluster_custom_object, MACHINES)

    def machine(self, name: str) -> GpuMachine:
        """Raises Gone."""
        return _read(GpuMachine, self._ask(self._objects.get_cluster_custom_object, GROUP, VERSION, MACHINES, name))

    def create_machine(self, name: str) -> None:
        body = {"apiVersion": API_VERSION, "kind": "GpuMachine", "metadata": {"name": name}, "spec": {}}
        self._ask(self._objects.create_cluster_custom_object, GROUP, VERSION, MACHINES, body)

    def annotate_machine(self, name: str, key: str, value: str) -> None:
        body = {"metadata": {"annotations": {key: value}}}
        change = self._objects.patch_cluster_custom_object
        self._ask(change, GROUP, VERSION, MACHINES, name, body, _content_type=MERGE_PATCH)

    def put_machine_status(self, machine: GpuMachine, status: GpuMachineStatus) -> None:
        """Replaces the status of this very version of the object; raises Changed when somebody else was first."""
        meta = machine.metadata
        body = {
            "apiVersion": API_VERSION,
            "kind": "GpuMachine",
            "metadata": {"name": meta.name, "uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": status.to_json(),
        }
        replace = self._objects.replace_cluster_custom_object_status
        self._ask(replace, GROUP, VERSION, MACHINES, meta.name, body)

    def record(self, occurrence: Occurrence, now: datetime) -> None:
        """Posts an Event; each is one of its own."""
        from kubernetes import client

        from gpugrant_operator.controller.api import event

        body = event(occurrence, timestamps.write(now))
        body["metadata"]["name"] += f".{int(now.timestamp() * 1000):x}"
        core = client.CoreV1Api(self._client)
        self._ask(core.create_namespaced_event, body["metadata"]["namespace"], body)

    def grants(self) -> tuple[RepoGpuGrant, ...]:
        """Of all namespaces."""
        return self._list(RepoGpuGrant, self._objects.list_cluster_custom_object, GRANTS)

    def grant(self, namespace: str, name: str) -> RepoGpuGrant:
        """Raises Gone."""
        read = self._objects.get_namespaced_custom_object
        return _read(RepoGpuGrant, self._ask(read, GROUP, VERSION, namespace, GRANTS, name))

    def create_grant(self, namespace: str, name: str, spec: Mapping[str, Any]) -> RepoGpuGrant:
        """Raises Exists."""
        body = {
            "apiVersion": API_VERSION,
            "kind": "RepoGpuGrant",
            "metadata": {"name": name, "namespace": namespace},
            "spec": dict(spec),
        }
        create = self._objects.create_namespaced_custom_object
        return _read(RepoGpuGrant, self._ask(create, GROUP, VERSION, namespace, GRANTS, body))

    def change_grant(self, namespace: str, name: str, uid: str, spec: Mapping[str, Any]) -> RepoGpuGrant:
        """A merge patch of the spec: null takes a field away. The uid is a precondition."""
        body = {"metadata": {"uid": uid}, "spec": dict(spec)}
        change = self._objects.patch_namespaced_custom_object
        answer = self._ask(change, GROUP, VERSION, namespace, GRANTS, name, body, _content_type=MERGE_PATCH)
        return _read(RepoGpuGrant, answer)

    def delete_grant(self, namespace: str, name: str, uid: str) -> None:
        """Asks for the deletion of this very object; one that is not there any more is fine."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        delete = self._objects.delete_namespaced_custom_object
        try:
            self._ask(delete, GROUP, VERSION, namespace, GRANTS, name, body=body)
        except Gone:
            return
        except ApiProblem as problem:
            if problem.reason != "Conflict":
                raise

    def _list(self, model: type[M], listed: Callable[..., Any], plural: str) -> tuple[M, ...]:
        found: list[M] = []
        token: str | None = None
        while True:
            extra = {} if token is None else {"_continue": token}
            page = self._ask(listed, GROUP, VERSION, plural, limit=PAGE, **extra)
            found += (_read(model, item) for item in page.get("items") or ())
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return tuple(found)

    def _ask(self, question: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return question(*args, **kwargs, _request_timeout=TIMEOUT)
        except ApiException as error:
            raise problem(error.status or 0, error.body, str(error.reason)) from error
        except HTTPError as error:
            why = " ".join(str(getattr(error, "reason", None) or error).split())
            raise ApiProblem(0, "Unreachable", f"the API at {self.server} does not answer: {why}") from error


def problem(status: int, body: Any, reason: str) -> ApiProblem:
    """The problem that an HTTP answer tells; `reason` counts when its body is no Status."""
    try:
        told = json.loads(body)
        message, word = str(told["message"]), str(told.get("reason", ""))
    except (TypeError, ValueError, KeyError, AttributeError):
        message, word = f"the API answered {status} {reason}".strip(), reason
    kinds: dict[str, type[ApiProblem]] = {"AlreadyExists": Exists, "Conflict": Changed}
    kind = Gone if status == 404 else kinds.get(word, ApiProblem)
    return kind(status, word, sentence(message))


def _read(model: type[M], item: Any) -> M:
    try:
        return model.model_validate(item)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = item.get("metadata", {}).get("name", "") if isinstance(item, dict) else ""
        field = ".".join(str(part) for part in first["loc"])
        raise Failure(f"{model.__name__} {name} can't be read: {field}: {first['msg']}") from error
