"""Protobuf bodies of typed clients (kubectl since 1.32, client-go) into the JSON that they stand for.

A body is `k8s\\0` and a runtime.Unknown (k8s.io/apimachinery/pkg/runtime/generated.proto) around the object. The fields
are those of `protobuf_fields`, so only kinds that are named there can be read; any bytes are an object or one ApiError.
The wire format is read here (protobuf.dev/programming-guides/encoding), since a library would still leave to us what
makes it JSON (which zero is left out, times, FieldsV1), and would stay in the memory of a server that should be small.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from gpugrant_operator.apiserver.objects.protobuf_fields import MESSAGES, ROOTS
from gpugrant_operator.apiserver.objects.status import Json, Obj, bad_request, unsupported_media

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"

_VARINT = 0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Wire = int | bytes


class _DamagedError(ValueError):
    """Bytes that are no protobuf of the kind that they say they are."""


def body(data: bytes) -> Obj:
    """The object of a request's body; raises ApiError 400 for damaged bytes and 415 for a kind that has no protobuf."""
    if not data.startswith(MAGIC):
        raise bad_request("the protobuf body can't be read: it does not start with the prefix of Kubernetes, k8s\\0")
    try:
        unknown = _collected(data[len(MAGIC) :])
        meta = _collected(_joined(unknown.get(1, [])))
        version, kind = _text(_joined(meta.get(1, []))), _text(_joined(meta.get(2, [])))
        root = ROOTS.get(f"{version}/{kind}") or ROOTS.get(kind)
        if root is None:
            raise unsupported_media(
                f"this API server reads no protobuf of kind {kind!r} in version {version!r}: send application/json"
            )
        return {"kind": kind, "apiVersion": version, **_message(_joined(unknown.get(2, [])), root)}
    except _DamagedError as error:
        raise bad_request(f"the protobuf body can't be read: {error}") from error


# --- the wire -------------------------------------------------------------------------------------------------


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            raise _DamagedError("it ends within a number")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise _DamagedError("a number has more than 64 bits")


def _fields(data: bytes) -> Iterator[tuple[int, Wire]]:
    """Number and value of each field, in the order of the bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        match wire:
            case 1:  # fixed64
                size = 8
            case 5:  # fixed32
                size = 4
            case 2:
                size, at = _varint(data, at)
            case _:
                raise _DamagedError(f"field {number} has the wire type {wire}")
        if size > len(data) - at:
            raise _DamagedError(f"it ends within field {number}")
        yield number, data[at : at + size]
        at += size


def _collected(data: bytes) -> dict[int, list[Wire]]:
    found: dict[int, list[Wire]] = {}
    for number, value in _fields(data):
        found.setdefault(number, []).append(value)
    return found


def _joined(values: list[Wire]) -> bytes:
    """A message that stands in pieces is the message of their bytes one behind the other."""
    return b"".join(_bytes(value) for value in values)


def _bytes(value: Wire) -> bytes:
    if isinstance(value, int):
        raise _DamagedError("a number stands where text or an object must")
    return value


def _number(value: Wire) -> int:
    if isinstance(value, bytes):
        raise _DamagedError("text stands where a number must")
    return value


# --- values ---------------------------------------------------------------------------------------------------


def _message(data: bytes, name: str) -> Obj:
    found, made = _collected(data), {}
    for field in MESSAGES[name]:
        if field.number in found:
            value = _value(found[field.number], field.type)
            # Go writes every field that is no pointer; its zero means that nobody set it.
            if value or field.keeps_zero:
                made[field.name] = value
    return made


def _value(values: list[Wire], kind: str) -> Json:
    if kind.startswith("[]"):
        return [_value([value], kind[2:]) for value in values]
    if kind.startswith("{}"):
        return dict(_entry(_bytes(value), kind[2:]) for value in values)
    if kind in MESSAGES:
        return _message(_joined(values), kind)
    return _SCALARS[kind](values[-1])


def _entry(data: bytes, kind: str) -> tuple[str, Json]:
    """An entry of a map: field 1 is the key, 2 the value."""
    entry = _collected(data)
    return _text(_joined(entry.get(1, [])[-1:])), _value(entry.get(2) or [b""], kind)


def _text(value: Wire) -> str:
    try:
        return _bytes(value).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _DamagedError("a text is not UTF-8") from error


def _signed(value: Wire) -> int:
    number = _number(value)
    return number - (1 << 64) if number >> 63 else number


def _int32(value: Wire) -> int:
    number = _number(value) & 0xFFFF_FFFF
    return number - (1 << 32) if number >> 31 else number


def _encoded(value: Wire) -> str:
    return base64.b64encode(_bytes(value)).decode("ascii")


def _moment(value: Wire) -> datetime | None:
    """A Timestamp (1: seconds, 2: nanoseconds); None for the zero time, which is an empty message."""
    parts = _collected(_bytes(value))
    if not parts:
        return None
    seconds, nanos = (_signed(parts.get(number, [0])[-1]) for number in (1, 2))
    try:
        return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError as error:
        raise _DamagedError("a time is out of range") from error


def _time(value: Wire) -> str | None:
    moment = _moment(value)
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(value: Wire) -> str | None:
    moment = _moment(value)
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _embedded(value: Wire) -> Json:
    """FieldsV1: JSON within a message."""
    raw = _joined(_collected(_bytes(value)).get(1, []))
    try:
        return json.loads(raw) if raw else {}
    except (ValueError, RecursionError) as error:
        raise _DamagedError("the fields of a manager are no JSON") from error


def _items(value: Wire) -> list[str]:
    """A message around a list of texts, as ExtraValue."""
    return [_text(item) for item in _collected(_bytes(value)).get(1, [])]


_SCALARS: dict[str, Callable[[Wire], Json]] = {
    "string": _text,
    "bytes": _encoded,
    "bool": lambda value: bool(_number(value)),
    "int32": _int32,
    "int64": _signed,
    "time": _time,
    "microtime": _micro_time,
    "json": _embedded,
    "items": _items,
}
