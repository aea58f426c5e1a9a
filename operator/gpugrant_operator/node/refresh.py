"""What keeps the specs current between two setups (R42, R43): the toolkit's refresh service, pointed at /etc/cdi, and
units of our own for boot, driver changes and cards that come and go.

Where systemd does not run, or what is written is not what it reads (another root), the units are left out and a line
says so. With `--install-nvidia-toolkit false` the refresh service is left alone (R13).
"""

from __future__ import annotations

from pathlib import Path

from gpugrant_crds import cdi
from gpugrant_crds.cdi import Problem
from gpugrant_operator.node import folder, generation, nvidia_spec, programs, units
from gpugrant_operator.node.cards import Cards
from gpugrant_operator.node.run import Run
from gpugrant_operator.node.specs import NVIDIA_FILE, NVIDIA_KIND
from gpugrant_operator.node.vendors import nvidia

_EQUAL_UNITS = (f"{units.EQUAL}.service", f"{units.EQUAL}.path")
_OUR_UNITS = (f"{units.OURS}.service", f"{units.OURS}.path")
_TOOLKITS_DEFAULT = ("run/cdi", "var/run/cdi")
"""Where the refresh service writes until it is pointed elsewhere."""


def systemctl(run: Run) -> Path | None:
    """The machine's systemctl where its systemd reads what this run writes; else None, and a line says why."""
    program = run.tree.program("systemctl")
    if run.tree.is_live and not run.is_here:
        run.progress("no units are set up: systemd does not look below --root")
        return None
    if program is None or (run.tree.is_live and not run.tree.exists("run/systemd/system")):
        run.progress("no units are set up: systemd does not run here")
        return None
    return program


def pointed(run: Run) -> str | None:
    """The refresh service that setup has told to write nvidia.yaml; None: none was."""
    services = {units.REFRESH_ENV: units.REFRESH, units.path_of(f"{units.EQUAL}.service"): units.EQUAL}
    return next((f"{name}.service" for path, name in services.items() if path in run.state.files), None)


def point(run: Run, program: Path, found: Cards) -> None:
    """Makes the toolkit's service, or its equal for an older toolkit, write nvidia.yaml; then reads back what it
    wrote and takes away what it wrote elsewhere before."""
    output = str(run.root / generation.FILE)
    flags = nvidia_spec.ENVIRONMENT[units.FLAGS]
    if _toolkit_has_it(run, program):
        _remove_units(run, program, _EQUAL_UNITS)
        wanted = units.environment(_text(run, units.REFRESH_ENV), {units.OUTPUT: output, units.FLAGS: flags})
        texts = {units.REFRESH_ENV: wanted, units.REFRESH_DROP_IN: units.refresh_drop_in()}
        names = (f"{units.REFRESH}.service", f"{units.REFRESH}.path")
    else:
        watch = units.path_unit("Refresh the NVIDIA CDI specification after a driver change", units.DRIVER_FILES)
        texts = dict(zip(map(units.path_of, _EQUAL_UNITS), (units.equal_service(output, flags), watch), strict=True))
        names = _EQUAL_UNITS
    for path, text in texts.items():
        run.put(path, text.encode())
    run.take_up("refresh", (*names, *texts.values()), lambda: _begin(run, program, found, names))


def _begin(run: Run, program: Path, found: Cards, names: tuple[str, str]) -> bool:
    """systemd reads the files anew; where there is a card the service runs once, so that one that can't is noticed."""
    service, path = names
    at_once = [("restart", service)] if found.nvidia_present else []
    done = _calls(run, program, ("daemon-reload",), ("enable", *names), *at_once, ("start", path))
    generation.read_back(run, found, refreshed=True)
    _remove_default_output(run)
    return done


def _toolkit_has_it(run: Run, program: Path) -> bool:
    """By its file where packages put it, else by what systemd knows; a toolkit before 1.18 has none."""
    name = f"{units.REFRESH}.service"
    if any(run.tree.exists(f"{place}/{name}") for place in units.UNIT_FOLDERS):
        return True
    ctk = run.tree.program("nvidia-ctk")
    if ctk is None or nvidia_spec.release(toolkit_version(run, ctk)) < units.SINCE:
        return False
    return programs.run(program, ("cat", name), timeout=run.options.limits.smi, env=run.env).ok


def toolkit_version(run: Run, program: Path) -> str | None:
    """What nvidia-ctk says of itself; None: nothing that is a version."""
    ended = programs.run(program, ("--version",), timeout=run.options.limits.smi, env=run.env)
    return nvidia.parse_toolkit_version(ended.stdout) if ended.ok else None


def _calls(run: Run, program: Path, *commands: tuple[str, ...]) -> bool:
    """Each of them, also after one that failed; whether all went well."""
    went_well = [_call(run, program, *words) for words in commands]
    return all(went_well)


def _call(run: Run, program: Path, *words: str) -> bool:
    ended = run.act(program, words, timeout=run.options.limits.systemctl)
    if not ended.ok:
        clause = ended.why or ended.last_line or f"exit code {ended.code}"
        run.fail("RefreshFailed", f"systemctl {' '.join(words)} failed: {clause.rstrip('.')}")
    return ended.ok


def _remove_default_output(run: Run) -> None:
    """The toolkit's spec in its default folder: for podman, containerd and a Docker with default settings it would
    outrank /etc/cdi. Another's file is no `nvidia.yaml` of that kind and stays."""
    for place in _TOOLKITS_DEFAULT:
        relative = f"{place}/{NVIDIA_FILE}"
        data = folder.read_file(run.root / relative)
        spec = cdi.read_spec(data, NVIDIA_FILE) if isinstance(data, bytes) else None
        if spec is not None and not isinstance(spec, Problem) and spec.kind == NVIDIA_KIND:
            run.put(relative, None)


def set_up_own(run: Run, program: Path, *, wsl: bool) -> None:
    """Our units: at boot before the repo daemons, after a driver change, when a card comes or goes, and when the
    refresh service has written a spec that is to be read back."""
    # on WSL nvidia-ctk writes the spec anew in every run: watched, it would start the next one
    watched = "/usr/lib/wsl/drivers" if wsl else str(run.root / generation.FILE)
    text = units.path_unit("Refresh the GPU inventory after a driver change", (*units.DRIVER_FILES, watched))
    elsewhere = () if run.root == Path("/") else ("--root", str(run.root))
    tree = () if run.tree.is_live else ("--hardware", str(run.tree.root))
    texts = {
        units.path_of(_OUR_UNITS[0]): units.our_service((*run.options.command, *elsewhere, *tree)),
        units.path_of(_OUR_UNITS[1]): text,
        units.UDEV_RULES: units.udev_rules("/usr/bin/systemctl"),
    }
    for pattern in run.daemon_units:
        folder_name = units.drop_in_folder(pattern)
        if folder_name is not None:
            texts[units.path_of(f"{folder_name}/50-gpugrant.conf")] = units.daemon_drop_in()
    for path, content in texts.items():
        run.put(path, content.encode())
    run.take_up("own", texts.values(), lambda: _begin_own(run, program))


def _begin_own(run: Run, program: Path) -> bool:
    # not the service: it is this very run
    done = _calls(run, program, ("daemon-reload",), ("enable", *_OUR_UNITS), ("start", _OUR_UNITS[1]))
    udevadm = run.tree.program("udevadm")
    if udevadm is not None:
        run.act(udevadm, ("control", "--reload"), timeout=run.options.limits.systemctl)
    return done


def _remove_units(run: Run, program: Path, names: tuple[str, ...]) -> None:
    """Takes units of ours away, if they are there."""
    there = [name for name in names if units.path_of(name) in run.state.files]
    if there:
        _call(run, program, "disable", "--now", *there)
    for name in there:
        run.put(units.path_of(name), None)


def _text(run: Run, relative: str) -> str:
    """The file below the root, else the recorded machine's own."""
    data = run.read(relative)
    return data.decode("utf-8", "replace") if data is not None else run.tree.text(relative) or ""
