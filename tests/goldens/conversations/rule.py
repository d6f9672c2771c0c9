"""Tiny networks that follow from an assignment and a policy: the weights of all conversations.

Written out byte by byte, so that no library's release changes a digest.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from typing import Any


def tensors(text: str, shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    """The bytes of a safetensors file with numbers in [-1, 1) that follow from a text alone."""
    header: dict[str, Any] = {}
    data = b""
    for name, shape in shapes.items():
        count = math.prod(shape)
        words = [hashlib.sha256(f"{text} {name} {i}".encode()).digest() for i in range(count)]
        numbers = [int.from_bytes(word[:2]) / 2**15 - 1.0 for word in words]
        end = len(data) + 4 * count
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), end]}
        data += struct.pack(f"<{count}f", *numbers)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + data


def files_of(assignment_id: int, policy: str) -> dict[str, bytes]:
    """The files of the checkpoint that a policy has after an assignment: a tiny network's."""
    text = f"{assignment_id} {policy}"
    shapes = {"policy.weight": (3, 4), "policy.bias": (3,)}
    return {
        "weights.safetensors": tensors(text, shapes),
        "optimizer.safetensors": tensors(f"{text} moments", {"policy.bias": (3,)}),
    }
