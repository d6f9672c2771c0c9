"""A captured conversation, searched for words that nobody on the wire may read.

Source of the format: https://www.ietf.org/archive/id/draft-gharris-opsawg-pcap-01.html.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from arena.checkpoints.manifest import MANIFEST

FILE_HEADER = struct.Struct("<IHHiIII")
FRAME_HEADER = struct.Struct("<IIII")
LITTLE_ENDIAN = 0xA1B2C3D4
ETHERNET, IPV4, TCP = 1, 0x0800, 6
GREETING = b"\x7f\x03"
"""End of ZMTP's signature and the version; the mechanism's name is 20 bytes after them."""

PROBE = b"can this capture be searched?"
"""Words that are sent in the clear, to see that the search would find any."""

SAMPLE_BYTES = 48
MAX_SAMPLES = 64
WORDS = (
    *(b'{"actor', b'"dtype":"F32"', b'"__metadata__"', b"safetensors", b"manifest.json"),
    *(b"assignment_id", b"agent_steps", b"config_digest", b"ARENA"),
)
"""Words of safetensors' headers, of manifests and of messages."""

Flow = tuple[bytes, bytes, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Result of a search.

    Attributes:
        frames: Frames captured.
        wire_bytes: Bytes of these.
        probes: Times that `PROBE` was found: at least 1, or the search is blind.
        mechanisms: Connections by ZMTP's mechanism; all must be CURVE.
        needles: Words that were looked for.
        cleartext: Those that were found; none.
    """

    frames: int
    wire_bytes: int
    probes: int
    mechanisms: dict[str, int]
    needles: int
    cleartext: list[str]

    @property
    def is_secret(self) -> bool:
        """Whether the search could find words, and found none."""
        return bool(self.probes) and not self.cleartext and set(self.mechanisms) == {"CURVE"}


def search(path: Path, needles: Iterable[bytes]) -> Capture:
    """Search all that was sent over TCP, each direction of a connection as one text."""
    frames, wire_bytes, flows = read_flows(path)
    mechanisms: dict[str, int] = defaultdict(int)
    for text in flows.values():
        at = text.find(GREETING, 0, 64)
        if at >= 0:
            name = text[at + 3 : at + 23].split(b"\0")[0]
            mechanisms[name.decode(errors="replace")] += 1
    wanted = sorted(set(needles))
    found = [word for word in wanted if any(word in text for text in flows.values())]
    return Capture(
        frames=frames,
        wire_bytes=wire_bytes,
        probes=sum(PROBE in text for text in flows.values()),
        mechanisms=dict(mechanisms),
        needles=len(wanted),
        cleartext=[repr(word[:40]) for word in found],
    )


def read_flows(path: Path) -> tuple[int, int, Mapping[Flow, bytes]]:
    """Return the numbers of frames and bytes, and what each side of a connection has sent.

    Segments stand in the order in which they came, repetitions too: a word that is torn by a loss
    is whole in the repetition.
    """
    data = path.read_bytes()
    magic, *_, network = FILE_HEADER.unpack_from(data)
    if magic != LITTLE_ENDIAN or network != ETHERNET:
        raise ValueError(f"{path} is not a capture of Ethernet in this machine's byte order")
    flows: dict[Flow, bytearray] = defaultdict(bytearray)
    at, frames, wire_bytes = FILE_HEADER.size, 0, 0
    while at + FRAME_HEADER.size <= len(data):
        _, _, held, size_bytes = FRAME_HEADER.unpack_from(data, at)
        at += FRAME_HEADER.size
        frame = data[at : at + held]
        at += held
        frames += 1
        wire_bytes += size_bytes
        if int.from_bytes(frame[12:14]) == IPV4 and frame[23] == TCP:
            packet = frame[14:]
            header_bytes = 4 * (packet[0] & 15)
            # Ethernet pads short frames, so the length comes from the IP header.
            segment = packet[header_bytes : int.from_bytes(packet[2:4]) or len(packet)]
            source, target = struct.unpack_from(">HH", segment)
            flow = (packet[12:16], packet[16:20], source, target)
            flows[flow] += segment[4 * (segment[12] >> 4) :]
    return frames, wire_bytes, {flow: bytes(text) for flow, text in flows.items()}


def needles_of(roots: Iterable[Path], *, run_id: str, policies: Iterable[str]) -> list[bytes]:
    """Return words and bytes of a run's messages and of checkpoints in some directories."""
    manifests = [manifest for root in roots for manifest in root.rglob(MANIFEST)]
    samples: set[bytes] = set()
    for manifest in manifests[:: max(len(manifests) // MAX_SAMPLES, 1)]:
        for path in manifest.parent.glob("*.safetensors"):
            data = path.read_bytes()
            # The beginning is alike in many files; the middle has numbers of this file only.
            samples |= {data[at : at + SAMPLE_BYTES] for at in (0, len(data) // 2)}
    # Samples of zeros are left out, because packet headers contain zeros too.
    told = [sample for sample in samples if len(set(sample)) > SAMPLE_BYTES // 4]
    return [*WORDS, run_id.encode(), *(policy.encode() for policy in policies), *told]
