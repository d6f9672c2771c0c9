"""Manifests that no release writes, with the seal that those of this one have."""

from __future__ import annotations

import json
from collections.abc import Mapping

from arena.checkpoints.files import sha256_bytes


def sealed(document: Mapping[str, object]) -> bytes:
    """Return the bytes of a manifest with this content."""
    content = {name: value for name, value in document.items() if name != "sha256"}
    body = json.dumps(content, indent=2).removeprefix("{").encode() + b"\n"
    return b'{\n  "sha256": "%s",' % sha256_bytes(body).encode() + body
