"""What an NVIDIA machine has besides its cards: a package manager, systemd, WSL's driver store, as stand-in programs
that do what the real ones would and note how they were called.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from machines import EXAMPLES, Machine

STAND_IN_TOOLKIT = EXAMPLES / "workstation/usr/bin/nvidia-ctk"

OS_RELEASES = {
    "apt-get": "ID=ubuntu\nID_LIKE=debian\n",
    "dnf": 'ID="rocky"\nID_LIKE="rhel centos fedora"\n',
    "yum": 'ID="amzn"\nID_LIKE="centos rhel fedora"\n',
    "zypper": 'ID="opensuse-leap"\nID_LIKE="suse opensuse"\n',
    "pacman": "ID=arch\n",
}

MANAGER = """\
echo "${0##*/} $*" >>"$GPUGRANT_HARDWARE/calls"
tree=$GPUGRANT_HARDWARE
case " $* " in
*" install "* | *" -S "*) cp "$tree/usr/share/toolkit/nvidia-ctk" "$tree/usr/bin/nvidia-ctk" ;;
esac
"""

OFFLINE = """\
echo "${0##*/} $*" >>"$GPUGRANT_HARDWARE/calls"
case " $* " in
*" update "*)
    echo "E: Failed to fetch https://example.invalid/InRelease  Could not resolve 'example.invalid'" >&2
    exit 100 ;;
*) echo "E: Unable to locate package nvidia-container-toolkit-base" >&2; exit 100 ;;
esac
"""


def package_manager(machine: Machine, name: str, body: str = MANAGER) -> None:
    """The machine has no toolkit; an installation brings the stand-in one."""
    machine.write("etc/os-release", OS_RELEASES[name])
    machine.write("usr/share/toolkit/nvidia-ctk", STAND_IN_TOOLKIT.read_text()).chmod(0o755)
    if (machine.tree / "usr/bin/nvidia-ctk").exists():
        machine.remove("usr/bin/nvidia-ctk")
    for program in {name, "rpm"} if name == "zypper" else {name}:
        machine.script(f"usr/bin/{program}", body)


def calls(machine: Machine) -> list[str]:
    """How the stand-ins were called so far, one line a call; forgotten with that."""
    path = machine.tree / "calls"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


SYSTEMCTL = """\
echo "systemctl $*" >>"$GPUGRANT_HARDWARE/calls"
env_file="$GPUGRANT_ROOT/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
case "$*" in
"restart nvidia-cdi-refresh.service")
    # as the unit: the default, then the file, then the command
    NVIDIA_CTK_CDI_OUTPUT_FILE_PATH="$GPUGRANT_ROOT/var/run/cdi/nvidia.yaml"
    [ ! -e "$env_file" ] || . "$env_file"
    export NVIDIA_CTK_CDI_OUTPUT_FILE_PATH
    mkdir -p "$(dirname "$NVIDIA_CTK_CDI_OUTPUT_FILE_PATH")"
    exec "$GPUGRANT_HARDWARE/usr/bin/nvidia-ctk" cdi generate ;;
"restart gpugrant-nvidia-cdi-refresh.service")
    line=$(grep '^ExecStart=' "$GPUGRANT_ROOT/etc/systemd/system/gpugrant-nvidia-cdi-refresh.service")
    exec "$GPUGRANT_HARDWARE${line#ExecStart=}" ;;
list-units*) cat "$GPUGRANT_HARDWARE/units" 2>/dev/null ;;
show*) echo "${UNIT_PID:-4711}" ;;
esac
"""


def systemd(machine: Machine, *, refresh_unit: bool = True) -> None:
    """systemd runs; the toolkit has its refresh unit (since 1.18) or not."""
    script = SYSTEMCTL.replace(
        'exec "$GPUGRANT_HARDWARE${line#ExecStart=}"', 'eval "$GPUGRANT_HARDWARE${line#ExecStart=}"'
    )
    machine.script("usr/bin/systemctl", script)
    if refresh_unit:
        machine.write("usr/lib/systemd/system/nvidia-cdi-refresh.service", "[Service]\nType=oneshot\n")
        machine.write("etc/nvidia-container-toolkit/nvidia-cdi-refresh.env", "# by the package\n# NVIDIA_DEV_ROOT=/\n")


STORE = "nvlti.inf_amd64_4bd2a3580753f54d"
WSL = EXAMPLES / "wsl-gpu"


def wsl(machine: Machine, *, driver: str = "581.57", store: str = STORE) -> None:
    """The recorded WSL2 machine in place of the tree's own; called again, the Windows driver was updated."""
    shutil.copytree(WSL, machine.tree, symlinks=True, dirs_exist_ok=True)
    stores = machine.tree / "usr/lib/wsl/drivers"
    for old in [path for path in stores.iterdir() if path.name not in (store, STORE)]:
        shutil.rmtree(old)
    if store != STORE:
        (stores / STORE).rename(stores / store)
    windows = machine.tree / "usr/share/nvidia-stand-in/windows"
    windows.write_text(windows.read_text().replace("driver 581.57", f"driver {driver}"))


def content(path: Path) -> str:
    """A file's text; empty when there is none."""
    return path.read_text() if path.exists() else ""
