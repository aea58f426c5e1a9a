"""What `<root>/env` gives a shell: the tools, the API and the two repos of one started system."""

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpugrant_hack.places import Root

SCRIPTS = ("gpugrant", "rdc", "renet", "kubectl-gpugrant")


def write(root: Root, *, programs: Mapping[str, Path], plugins: Mapping[str, Path], repos: Iterable[str]) -> None:
    """Writes `<root>/env` with the folders that it names; the same input leaves them as they are."""
    for name, target in programs.items():
        _link(root.bin / name, target)
    for name, target in plugins.items():
        _link(root.docker_config / "cli-plugins" / name, target)
    for repo in repos:
        _context(root, repo)
    _put(root.env, env_text(root))


def env_text(root: Root) -> str:
    """The file for `.`, in sh or bash; reading it twice changes nothing."""
    folder = shlex.quote(str(root.bin))
    return "\n".join(
        [
            "# To be read by sh or bash: . " + shlex.quote(str(root.env)),
            f"export GPUGRANT_ROOT={shlex.quote(str(root.path))}",
            f"export KUBECONFIG={shlex.quote(str(root.kubeconfig))}",
            f"export DOCKER_CONFIG={shlex.quote(str(root.docker_config))}",
            "unset DOCKER_HOST DOCKER_CONTEXT DOCKER_TLS_VERIFY DOCKER_CERT_PATH",
            f'case ":$PATH:" in *:{folder}:*) ;; *) export PATH={folder}:"$PATH" ;; esac',
            "",
        ]
    )


def _context(root: Root, repo: str) -> None:
    """A docker context, as `docker context create` stores it: `docker --context REPO` speaks with the repo's gate."""
    folder = root.docker_config / "contexts/meta" / hashlib.sha256(repo.encode()).hexdigest()
    meta = {
        "Name": repo,
        "Metadata": {"Description": f"repo {repo}, behind its gate"},
        "Endpoints": {"docker": {"Host": f"unix://{root.gate_socket(repo)}", "SkipTLSVerify": False}},
    }
    _put(folder / "meta.json", json.dumps(meta) + "\n")


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
