"""One client of the race: connects over TLS, waits for the start, asks for one exclusive grant.

Run as `contender.py KUBECONFIG REPO MACHINE DEVICE`; prints `ready`, starts when its stdin ends, prints the HTTP status
and the message of the answer. A process of its own, with nothing of ours imported.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import sys
from urllib.parse import urlsplit

import yaml


def main(kubeconfig: str, repo: str, machine: str, device: str) -> None:
    with open(kubeconfig) as file:  # noqa: PTH123  # no import that the start doesn't need
        config = yaml.safe_load(file)
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    address = urlsplit(cluster["server"])
    context = ssl.create_default_context(cadata=authority)
    client = http.client.HTTPSConnection(address.hostname or "", address.port, context=context, timeout=60)
    client.connect()
    print("ready", flush=True)
    sys.stdin.read()
    grant = {
        "apiVersion": "gpu.rediacc.io/v1alpha1",
        "kind": "RepoGpuGrant",
        "metadata": {"name": f"race-{repo}"},
        "spec": {"machine": machine, "repo": repo, "device": device, "exclusive": True},
    }
    headers = {"Authorization": f"Bearer {user['token']}", "Content-Type": "application/json"}
    path = "/apis/gpu.rediacc.io/v1alpha1/namespaces/default/repogpugrants"
    client.request("POST", path, json.dumps(grant), headers)
    answer = client.getresponse()
    body = json.loads(answer.read())
    print(answer.status, body.get("message", ""), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
