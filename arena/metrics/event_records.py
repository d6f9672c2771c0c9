"""Scalar records of TensorBoard's event files, written without any package.

A record is its length (u64), the masked checksum of the length (u32), an ``Event`` of TensorFlow's
event.proto in protocol buffers, and its masked checksum. The package that encodes events imports
torch, which the controller must not: it would block for seconds and take 200 MB.

Tests: `tests/arena/metrics/test_sinks.py`.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping

_POLYNOMIAL = 0x82F63B78
_MASK = 0xA282EAD8

# Field numbers and wire types of Event, Summary and Summary.Value, as their keys on the wire.
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY = b"\x09", b"\x10", b"\x1a", b"\x2a"
_VALUE = b"\x0a"
_TAG, _SIMPLE_VALUE = b"\x0a", b"\x15"

FILE_VERSION = "brain.Event:2"


def version_record(*, wall_time_s: float) -> bytes:
    """Return the first record of a file."""
    return _record(_time(wall_time_s) + _message(_FILE_VERSION, FILE_VERSION.encode()))


def scalars_record(step: int, scalars: Mapping[str, float], *, wall_time_s: float) -> bytes:
    """Return one point of each curve.

    Args:
        step: Position on the curves, at least 0.
        scalars: Values by tag; a value beyond float32 becomes infinite.
        wall_time_s: Seconds since 1970.
    """
    values = b"".join(
        _message(_VALUE, _message(_TAG, tag.encode()) + _SIMPLE_VALUE + _float32(value))
        for tag, value in scalars.items()
    )
    # Protocol buffers leave out fields of 0.
    counted = _STEP + _varint(step) if step else b""
    return _record(_time(wall_time_s) + counted + _message(_SUMMARY, values))


def masked_crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli), masked so that a checksum over checksums stays useful."""
    crc = 0xFFFFFFFF
    for byte in data:
        # A byte at a time, lowest bit first, from all ones to their complement.
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    # mask(c) = (c rotated right by 15 bits) + 0xA282EAD8, modulo 2^32
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def _record(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    checksums = (struct.pack("<I", masked_crc32c(part)) for part in (length, event))
    return length + next(checksums) + event + next(checksums)


def _time(seconds: float) -> bytes:
    return _WALL_TIME + struct.pack("<d", seconds)


def _message(key: bytes, content: bytes) -> bytes:
    return key + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Encode seven bits to a byte, the lowest first; the highest bit says that more follow."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _float32(value: float) -> bytes:
    # struct alone raises where a value is beyond float32; array makes it infinite.
    return struct.pack("<f", array("f", [value])[0])


def _table_entry(byte: int) -> int:
    crc = byte
    for _ in range(8):
        crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc


_TABLE = tuple(_table_entry(byte) for byte in range(256))
