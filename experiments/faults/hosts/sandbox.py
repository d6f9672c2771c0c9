"""A place of its own for mounts, processes and network namespaces, which leaves nothing behind.

Whatever ends the program, the kernel ends all processes in the sandbox with it; its mounts and its
network namespaces go with the last of them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

NAMESPACES = Path("/run/netns")
"""Directory in which `ip netns` keeps its names."""

TOOLS = {"ip": "iproute2", "nft": "nftables", "tcpdump": "tcpdump", "unshare": "util-linux"}
"""Commands that are needed, each with the package that has it."""

_INSIDE = "ARENA_HOSTS_SANDBOX"
_UNSHARE = ("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc")


def refusal() -> str | None:
    """Return the reason why this user or kernel cannot have a sandbox; None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"unshare: {tried.stderr.strip()}"


def missing_tools() -> str | None:
    """Return how to install the commands that are missing; None if all are there."""
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    return f"missing: apt-get install {' '.join(missing)}" if missing else None


def enter(module: str, arguments: Sequence[str]) -> None:
    """Become the same module inside a sandbox; inside, return.

    Raises:
        SystemExit: If there can be no sandbox.
    """
    if os.environ.get(_INSIDE) == "1":
        NAMESPACES.mkdir(parents=True, exist_ok=True)
        # `ip netns` leaves names behind when it is killed; this mount hides them from the host.
        subprocess.run(["mount", "-t", "tmpfs", "none", str(NAMESPACES)], check=True)
        return
    if (missing := missing_tools()) is not None:
        sys.exit(missing)
    if (reason := refusal()) is not None:
        sys.exit(reason)
    command = [*_UNSHARE, sys.executable, "-m", module, *arguments]
    os.execvpe(command[0], command, {**os.environ, _INSIDE: "1"})


@contextlib.contextmanager
def mounted_disk(path: Path, *, size_mb: int | None) -> Iterator[None]:
    """Put a small disk at a directory, which is made; with no size it is the machine's disk."""
    path.mkdir(parents=True, exist_ok=True)
    if size_mb is None:
        yield
        return
    options = ("-t", "tmpfs", "-o", f"size={size_mb}m")
    subprocess.run(["mount", *options, "none", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill_disk(path: Path) -> Path:
    """Leave no byte free on a directory's disk; returns the file that takes the room."""
    ballast = path / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 16)):
                pass
        except OSError:
            return ballast
    raise AssertionError("a write of bytes returns their number")
