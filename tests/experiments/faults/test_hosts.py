"""Learners on other hosts: the search of what went over the wire, and a run on two of them."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.faults.hosts.capture import FILE_HEADER, FRAME_HEADER, PROBE, search
from experiments.faults.hosts.sandbox import missing_tools, refusal

CURVE = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0")
NULL = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0")
REASON = refusal() or missing_tools()


def frame(text: bytes, *, port: int = 4000) -> bytes:
    """Return a TCP segment over IPv4 in an Ethernet frame, padded as Ethernet does."""
    segment = struct.pack(">HHIIBBHHH", port, 5555, 0, 0, 5 << 4, 0, 0, 0, 0) + text
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0, 64, 6, 0)
    packet = header + bytes([10, 77, 0, 2, 10, 77, 0, 1]) + segment
    return (bytes(12) + b"\x08\x00" + packet).ljust(60, b"\0")


def captured(path: Path, *frames: bytes) -> Path:
    data = FILE_HEADER.pack(0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 1)
    for one in (b"\0" * 12 + b"\x08\x06" + b"arp", *frames):
        data += FRAME_HEADER.pack(0, 0, len(one), len(one)) + one
    path.write_bytes(data)
    return path


def test_words_are_found_also_where_segments_tear_them(tmp_path: Path) -> None:
    frames = (frame(CURVE), frame(b"assign"), frame(b"other", port=1), frame(b"ment_id"))
    probe = frame(PROBE, port=2)
    found = search(captured(tmp_path / "a.pcap", *frames, probe), [b"assignment_id", b"absent"])
    assert found.cleartext == ["b'assignment_id'"]
    assert (found.frames, found.probes, found.mechanisms) == (6, 1, {"CURVE": 1})
    assert not found.is_secret


def test_a_capture_is_secret_only_if_it_could_be_searched_and_all_is_encrypted(
    tmp_path: Path,
) -> None:
    probe = frame(PROBE, port=2)
    path = tmp_path / "a.pcap"
    assert search(captured(path, frame(CURVE), probe), [b"absent"]).is_secret
    assert not search(captured(path, frame(CURVE)), [b"absent"]).is_secret
    assert not search(captured(path, frame(CURVE), frame(NULL, port=3), probe), []).is_secret


@pytest.mark.slow
# Root in a container may lack namespaces; without the tools it fails, and says what to install.
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_learners_of_two_hosts_train_and_nothing_is_lost_readable_or_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments.faults.hosts", "--regimes", "none"]
    ended = subprocess.run(
        [*command, "--minutes", "0.1"], capture_output=True, text=True, check=False, timeout=280
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    figures = json.loads(ended.stdout)
    assert figures["is_sound"]
    assert set(figures["assignments"]) == {"controller", "host1", "host2"}
    assert all(figures["assignments"].values())
    assert figures["traffic"]["fetched_bytes"] > 0 < figures["traffic"]["given_bytes"]
    assert figures["tallies"]["acknowledged"] == figures["tallies"]["in_journal"] > 0
    assert figures["capture"]["mechanisms"].keys() == {"CURVE"}
