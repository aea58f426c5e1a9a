"""Asks NVML and prints what it says as JSON. Run as a program of its own: a driver that hangs hangs in here.

    python -I nvml.py LIBRARY

LIBRARY is the only NVML that is ever loaded: of a recorded tree it is the tree's own. One getter that fails costs one
value, one card that fails costs that card.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

import pynvml

_NO_VALUE = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
)
"""Answers that say nothing about the card's health."""

_WORDS = {
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "Driver/library version mismatch",
    pynvml.NVML_ERROR_RESET_REQUIRED: "GPU requires reset",
}
"""As nvidia-smi says it, where the binding has other words."""

_ACTIONS = {1: "Reset", 2: "Reboot", 3: "Drain P2P", 4: "Drain and Reset"}
"""nvmlDeviceGpuRecoveryAction_t, in nvidia-smi's words."""


def main(library: str) -> int:
    """Prints one document: driver, error or null, cards, remarks."""
    try:
        # else the binding would look for the machine's own library by its bare name
        pynvml.nvmlLib = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except OSError as error:
        return _print({"driver": None, "error": str(error), "cards": [], "remarks": []})
    except pynvml.NVMLError as error:
        return _print({"driver": None, "error": _words(error), "cards": [], "remarks": []})
    remarks: list[str] = []
    cards = [card for index in range(count) if (card := _card(index, remarks)) is not None]
    return _print({"driver": _driver(), "error": None, "cards": cards, "remarks": remarks})


def _print(document: dict[str, Any]) -> int:
    print(json.dumps(document))  # noqa: T201  its output is its result
    return 0


def _driver() -> str | None:
    version: str | None = _Card().value(pynvml.nvmlSystemGetDriverVersion)
    return version


class _Card:
    """Getters of one card; the first that fails in earnest is kept as the card's trouble."""

    def __init__(self) -> None:
        self.trouble: str | None = None

    def value(self, get: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return get(*arguments)
        except pynvml.NVMLError as error:
            if error.value not in _NO_VALUE:
                self.trouble = self.trouble or _words(error)
            return None


def _card(index: int, remarks: list[str]) -> dict[str, Any] | None:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        remarks.append(f"card {index} can't be asked: {_words(error)}")
        return None
    card = _Card()
    place = card.value(pynvml.nvmlDeviceGetPciInfo, handle)
    uuid = card.value(pynvml.nvmlDeviceGetUUID, handle)
    if place is None and uuid is None:
        remarks.append(f"card {index} can't be asked: {card.trouble}")
        return None
    memory = card.value(pynvml.nvmlDeviceGetMemoryInfo, handle)
    mode = card.value(pynvml.nvmlDeviceGetMigMode, handle)
    found = {
        "index": index,
        "uuid": uuid,
        "minor": card.value(pynvml.nvmlDeviceGetMinorNumber, handle),
        "busId": None if place is None else _text(place.busId),
        "name": card.value(pynvml.nvmlDeviceGetName, handle),
        "memory": None if memory is None else memory.total,
        "serial": card.value(pynvml.nvmlDeviceGetSerial, handle),
        "mig": None if mode is None else mode[0],
        "instances": _instances(card, handle) if mode and mode[0] else [],
    }
    action = _recovery_action(card, handle)
    return found | {"trouble": card.trouble or action}


def _instances(card: _Card, handle: Any) -> list[dict[str, Any]]:
    """The card's MIG devices; NVML numbers them with gaps."""
    found = []
    for index in range(card.value(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        device = card.value(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if device is None:
            continue
        gi = card.value(pynvml.nvmlDeviceGetGpuInstanceId, device)
        ci = card.value(pynvml.nvmlDeviceGetComputeInstanceId, device)
        if gi is not None and ci is not None:
            uuid = card.value(pynvml.nvmlDeviceGetUUID, device)
            found.append({"gi": gi, "ci": ci, "uuid": uuid, "name": card.value(pynvml.nvmlDeviceGetName, device)})
    return found


def _recovery_action(card: _Card, handle: Any) -> str | None:
    field = getattr(pynvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
    values = None if field is None else _Card().value(pynvml.nvmlDeviceGetFieldValues, handle, [field])
    if not values or values[0].nvmlReturn != pynvml.NVML_SUCCESS or not values[0].value.uiVal:
        return None
    return f"recovery action: {_ACTIONS.get(values[0].value.uiVal, values[0].value.uiVal)}"


def _words(error: pynvml.NVMLError) -> str:
    return _WORDS.get(error.value) or str(error)


def _text(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
