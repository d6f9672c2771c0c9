"""Hosts as network namespaces on a switch of their own, whose links can be slowed and cut."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

SWITCH = "switch"
CONTROLLER = "controller"
SUBNET = "10.77.0"
RULES = "faults"
# The buffer has 64 MiB, each frame is written at once, and the file belongs to root.
TCPDUMP = ("tcpdump", "-B", "65536", "-U", "-Z", "root")


class Network:
    """A switch and hosts, the first of which is the controller's.

    With a delay the controller is on a bridge of its own, and frames to the others' go through a
    relay in user space (`experiments.faults.hosts.relay`).
    """

    def __init__(self, hosts: Sequence[str], *, delay_ms: float = 0.0, log: Path) -> None:
        """Store the arguments.

        Args:
            hosts: Names of learners' hosts.
            delay_ms: Delay of each frame between the controller and the others, each way.
            log: File for what the tools say.
        """
        self._hosts = (CONTROLLER, *hosts)
        self._delay_ms = delay_ms
        self._log = log
        self._relay: subprocess.Popen[str] | None = None
        self._capture: subprocess.Popen[bytes] | None = None

    def address(self, host: str) -> str:
        """Return a host's address."""
        return f"{SUBNET}.{1 + self._hosts.index(host)}"

    def __enter__(self) -> Self:
        """Make it all."""
        for name in (SWITCH, *self._hosts):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        for bridge in ("near", "far"):
            _ip("-n", SWITCH, "link", "add", bridge, "type", "bridge")
            _ip("-n", SWITCH, "link", "set", bridge, "up")
        for name in self._hosts:
            peer = ("type", "veth", "peer", "name", name, "netns", SWITCH)
            _ip("-n", name, "link", "add", "eth0", *peer)
            self._plug(name, "near" if name == CONTROLLER or not self._delay_ms else "far")
            _ip("-n", name, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
        if self._delay_ms:
            self._start_relay()
        return self

    def _plug(self, port: str, bridge: str) -> None:
        _ip("-n", SWITCH, "link", "set", port, "master", bridge, "up")

    def _start_relay(self) -> None:
        module = "experiments.faults.hosts.relay"
        self._relay = subprocess.Popen(
            [*within(SWITCH), sys.executable, "-m", module, str(self._delay_ms)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._relay.stdout is not None, "it was started with a pipe"
        names = self._relay.stdout.readline().split()
        for port, bridge in zip(names, ("near", "far"), strict=True):
            self._plug(port, bridge)

    def start_capture(self, path: Path) -> None:
        """Write all that passes the controller's port to a file."""
        with self._log.open("ab") as log:
            self._capture = subprocess.Popen(
                [*within(SWITCH), *TCPDUMP, "-i", CONTROLLER, "-w", str(path)],
                stderr=log,
            )
        # The capture has started once its file has a header.
        while not (path.exists() and path.stat().st_size):
            if self._capture.poll() is not None:
                raise RuntimeError(self._log.read_text())

    def stop_capture(self) -> None:
        """End the capture; its file is whole then."""
        assert self._capture is not None, "it was started"
        self._capture.send_signal(signal.SIGINT)
        self._capture.wait()

    def drop(self, *, at: str, source: str, percent: int = 100, port: int | None = None) -> None:
        """Let frames from a host be lost on their way to another, or to one of its ports."""
        share = f"numgen random mod 100 < {percent} " if percent < 100 else ""
        where = f"tcp dport {port} " if port is not None else ""
        rule = f"ip saddr {self.address(source)} {where}{share}counter drop"
        chain = f"chain input {{\ntype filter hook input priority 0\n{rule}\n}}\n"
        rules = f"table inet {RULES}_{source} {{\n{chain}}}\n"
        subprocess.run([*within(at), "nft", "-f", "-"], input=rules.encode(), check=True)

    def cut(self, host: str) -> None:
        """Cut a host off from the controller, both ways."""
        self.drop(at=host, source=CONTROLLER)
        self.drop(at=CONTROLLER, source=host)

    def heal(self) -> None:
        """End all losses."""
        for name in self._hosts:
            subprocess.run([*within(name), "nft", "flush", "ruleset"], check=True)

    def limit(self, host: str, *, kbit: int) -> None:
        """Bound the rate of a host's link, both ways."""
        shape = ("root", "tbf", "rate", f"{kbit}kbit", "burst", "16kb", "latency", "400ms")
        for namespace, device in ((host, "eth0"), (SWITCH, host)):
            command = [*within(namespace), "tc", "qdisc", "replace", "dev", device, *shape]
            subprocess.run(command, check=True)

    def processes(self, host: str) -> list[psutil.Process]:
        """Return the processes of a host."""
        found = []
        for line in _ip("netns", "pids", host).split():
            try:
                process = psutil.Process(int(line))
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    def kill_all(self, host: str) -> int:
        """Kill every process of a host at once; returns how many."""
        processes = self.processes(host)
        for process in processes:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return len(processes)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Kill what is left, and remove all namespaces."""
        for name in (SWITCH, *self._hosts):
            self.kill_all(name)
        for process in (self._relay, self._capture):
            if process is not None:
                process.wait()
        for name in (SWITCH, *self._hosts):
            _ip("netns", "del", name)


def within(host: str) -> tuple[str, ...]:
    """Return the words before a command that is to run on a host."""
    return ("ip", "netns", "exec", host)


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout
