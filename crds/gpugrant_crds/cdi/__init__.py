"""CDI spec files: read as the Go library reads them, merged, cut down to what is granted, written back.

Pure: text in, values out; what is wrong is a value too (`Problem`), never an exception. A file that two releases of
the library read differently is kept apart (`AmbiguousSpec`): what is judged here must be what a daemon injects.
"""

from __future__ import annotations

from gpugrant_crds.cdi import decode, validate, yaml11
from gpugrant_crds.cdi.folder import Conflict, Devices, is_spec_file, merge, natural
from gpugrant_crds.cdi.spec import (
    Device,
    DeviceNode,
    Edits,
    Hook,
    IntelRdt,
    Mount,
    NetDevice,
    Problem,
    ProblemReason,
    Spec,
)
from gpugrant_crds.cdi.validate import minimum_version
from gpugrant_crds.cdi.write import dump, restrict, to_dict

__all__ = [
    "Conflict",
    "Device",
    "DeviceNode",
    "Devices",
    "Edits",
    "Hook",
    "IntelRdt",
    "Mount",
    "NetDevice",
    "Problem",
    "ProblemReason",
    "Spec",
    "dump",
    "is_spec_file",
    "merge",
    "minimum_version",
    "natural",
    "read_spec",
    "restrict",
    "to_dict",
]


def read_spec(text: str | bytes, filename: str) -> Spec | Problem:
    """The spec that the file holds, or what the CDI library would refuse it for."""
    try:
        spec = decode.decode(yaml11.read(text), filename)
    except yaml11.NotYaml as error:
        return Problem(ProblemReason.SPEC_INVALID, str(error), filename, error.line)
    except decode.Malformed as error:
        return error.problem
    return validate.first_fault(spec) or spec
