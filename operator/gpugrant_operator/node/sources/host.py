"""The machine itself: its name, boot, kernel and platform, and which device nodes it has."""

from __future__ import annotations

import re
import socket
from typing import Literal

from gpugrant_operator.node.observed import Tegra
from gpugrant_operator.node.sources import values
from gpugrant_operator.node.tree import Tree

DRM_NODE = re.compile(r"(?:card|renderD)[0-9]+")
_GPU_NODE = re.compile(r"nvidia[a-z0-9-]*|kfd|dxg")
_FOLDERS = frozenset(("nvidia-caps", "nvidia-caps-imex-channels"))
_TEGRA_NODE = re.compile(r"nvhost-.*|nvmap")
_CAP_NODE = re.compile(r"nvidia-cap[0-9]+")
_BOOT_ID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_TEGRA_GPU = re.compile(r"[0-9a-f]+\.(?:gpu|gk20a|gp10b|gv11b|ga10b|gb10b)")


def hostname(tree: Tree) -> str:
    if tree.is_live:
        return socket.gethostname()
    text = tree.text("etc/hostname")
    lines = [line.strip() for line in (text or "").splitlines()]
    name = next((line for line in lines if line and not line.startswith("#")), None)
    if name is None and text is not None:
        tree.remark("etc/hostname", "holds no name")
    return name[: values.TEXT_LENGTH] if name else "localhost"


def boot_id(tree: Tree) -> str | None:
    """As the kernel gives it; a recorded tree may have none."""
    return values.read(
        tree,
        "proc/sys/kernel/random/boot_id",
        lambda text: text if _BOOT_ID.fullmatch(text) else None,
        "a boot id",
    )


def kernel(tree: Tree) -> str | None:
    return values.read(
        tree,
        "proc/sys/kernel/osrelease",
        lambda text: text if re.fullmatch(r"[0-9][!-~]{0,127}", text) else None,
        "a kernel's release",
    )


def platform(tree: Tree) -> Literal["native", "wsl"]:
    # both: /dev/dxg alone is also there on Hyper-V guests with a shared GPU
    return "wsl" if tree.exists("dev/dxg") and tree.exists("usr/lib/wsl/lib") else "native"


def wsl_fault(tree: Tree, release: str | None) -> str | None:
    """Why a WSL machine reaches no GPU; None: it does, or is none. Its kernels are called …-microsoft-standard-WSL2."""
    if "microsoft" not in (release or "").lower() or not tree.exists("usr/lib/wsl/lib") or tree.exists("dev/dxg"):
        return None
    return "this is WSL, and /dev/dxg is not there, so no GPU is reached: in Windows, update the GPU's driver and WSL"


def wsl_driver(tree: Tree) -> bool:
    """Whether the Windows driver store holds NVIDIA's libcuda (reference cdi-gpu 3.7)."""
    stores = tree.names("usr/lib/wsl/drivers")
    return any(tree.exists(f"usr/lib/wsl/drivers/{store}/libcuda.so.1.1") for store in stores)


def tegra(tree: Tree) -> Tegra | None:
    """The Jetson that this machine is; None: it is none."""
    compatible = _device_tree(tree, "compatible", r"[^\n ]+,[^\n ]+") or ""
    released = tree.text("etc/nv_tegra_release")
    if "nvidia,tegra" not in compatible and released is None:
        return None
    gpus = [name for name in tree.names("sys/bus/platform/devices") if _TEGRA_GPU.fullmatch(name)]
    match = re.match(r"# R([0-9]+) \(release\), REVISION: ([0-9.]+)", released or "")
    if released is not None and match is None:
        tree.remark("etc/nv_tegra_release", "names no release of Jetson Linux")
    return Tegra(
        gpu=gpus[0] if gpus else "gpu",
        model=_device_tree(tree, "model", r"[^\n]+"),
        release=None if match is None else f"{match[1]}.{match[2]}",
    )


def _device_tree(tree: Tree, name: str, pattern: str) -> str | None:
    return values.read(
        tree,
        f"proc/device-tree/{name}",
        lambda text: text[: values.TEXT_LENGTH] if re.fullmatch(pattern, text) else None,
        f"the board's {name}",
    )


def device_nodes(tree: Tree) -> frozenset[str]:
    """Paths below dev/ that are device nodes of GPUs, or stand for them in a recorded tree."""
    wanted = [f"dri/{name}" for name in tree.names("dev/dri") if DRM_NODE.fullmatch(name)]
    here = tree.names("dev")
    wanted += [name for name in here if _GPU_NODE.fullmatch(name) and name not in _FOLDERS]
    if "nvmap" in here:
        wanted += [name for name in here if _TEGRA_NODE.fullmatch(name)]
    if "nvidia-caps" in here:
        wanted += [f"nvidia-caps/{name}" for name in tree.names("dev/nvidia-caps") if _CAP_NODE.fullmatch(name)]
    return frozenset(path for path in wanted if tree.is_node(f"dev/{path}"))
