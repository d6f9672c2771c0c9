"""Start learners on other hosts as examples/cluster/ssh does, by a real sshd on each host.

    python -m experiments.faults.hosts.over_ssh                       # two hosts of learners

Hosts are network namespaces (root); `apt-get install openssh-server openssh-client`, beside what
`experiments.faults.hosts` needs. Each host has a home of its own and sees nothing of the run. One
learner is asked to leave and started again, then the run is stopped as Ctrl-C does. One line of
JSON: finished assignments by key, faults by `arena verify`, and what was left behind. Exit code 1
if anything was.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pwd import getpwall

from experiments.commands import COMMAND
from experiments.faults.hosts import sandbox
from experiments.faults.hosts.network import CONTROLLER, Network, within
from experiments.faults.hosts.world import OVERRIDES, PORT
from experiments.faults.killing import KilledRun, end_on_signals, killed_run
from experiments.harness import parser_of, say
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader

MODULE = "experiments.faults.hosts.over_ssh"
SCRIPT = Path(__file__).parents[3] / "examples" / "cluster" / "ssh" / "learners.sh"
SSHD = "/usr/sbin/sshd"
PLACE = "arena-learner"
"""Directory of a learner in the home of its host."""

POLL_S = 0.2
START_S = 240.0
END_S = 90.0


@dataclass(frozen=True, slots=True)
class Host:
    """A host with an sshd.

    Attributes:
        name: Name, also of its namespace.
        home: Home of its user.
    """

    name: str
    home: Path

    @property
    def place(self) -> Path:
        """Return the directory that the recipe makes."""
        return self.home / PLACE


def refusal() -> str | None:
    """Return the reason why this machine cannot try it; None if it can."""
    missing = [one for one in (SSHD, "ssh", "ssh-keygen") if shutil.which(one) is None]
    return f"missing: {', '.join(missing)}" if missing else sandbox.refusal()


def write_ssh(directory: Path, network: Network, hosts: Sequence[str]) -> Path:
    """Make keys and configurations for sshd on each host, and a directory with a command `ssh`."""
    commands = directory / "bin"
    commands.mkdir()
    _keygen(directory / "user")
    known = []
    for host in hosts:
        _keygen(directory / f"{host}.key")
        public = (directory / f"{host}.key.pub").read_text()
        known.append(f"{network.address(host)} {public}")
        lines = (
            f"ListenAddress {network.address(host)}",
            f"HostKey {directory / f'{host}.key'}",
            f"AuthorizedKeysFile {directory / 'user.pub'}",
            *("PasswordAuthentication no", "StrictModes no", "PidFile none", "UsePAM no"),
            f"SetEnv PATH={os.environ['PATH']} OMP_NUM_THREADS=1",
        )
        (directory / f"{host}.conf").write_text("\n".join(lines) + "\n")
    (directory / "known_hosts").write_text("".join(known))
    blocks = [f"Host {host}\n  HostName {network.address(host)}" for host in hosts]
    blocks.append(
        f"Host *\n  IdentityFile {directory / 'user'}\n  IdentitiesOnly yes\n  BatchMode yes\n"
        f"  UserKnownHostsFile {directory / 'known_hosts'}"
    )
    (directory / "ssh_config").write_text("\n".join(blocks) + "\n")
    command = shlex.join([str(shutil.which("ssh")), "-F", str(directory / "ssh_config")])
    (commands / "ssh").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    (commands / "ssh").chmod(0o700)
    return commands


def _keygen(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True)


@contextlib.contextmanager
def serving(host: Host, directory: Path, *, hidden: Path) -> Iterator[None]:
    """Run sshd on a host whose user has a home of its own, and to whom a directory is empty."""
    host.home.mkdir(parents=True)
    users = directory / f"{host.name}.passwd"
    with users.open("w") as file:
        for name, password, uid, gid, remark, home, shell in getpwall():
            own = host.home if uid == os.getuid() else home
            file.write(f"{name}:{password}:{uid}:{gid}:{remark}:{own}:{shell}\n")
    script = (
        f"set -e; mount --bind {shlex.quote(str(users))} /etc/passwd; "
        f"mount -t tmpfs none {shlex.quote(str(hidden))}; "
        f"exec {SSHD} -D -e -f {shlex.quote(str(directory / f'{host.name}.conf'))}"
    )
    # sshd requires this directory for its privilege separation.
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    log_path = directory / f"{host.name}.log"
    with log_path.open("wb") as log:
        command = [*within(host.name), "unshare", "--mount", "sh", "-c", script]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        await_that(lambda: b"listening" in log_path.read_bytes(), timeout_s=30.0, what=host.name)
        yield
    finally:
        process.terminate()
        process.wait()


def await_that(holds: Callable[[], object], *, timeout_s: float, what: str) -> None:
    """Wait until something holds.

    Raises:
        TimeoutError: If it does not within the time.
    """
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(POLL_S)


def finished(run: Path) -> Counter[str]:
    """Return the numbers of finished assignments by name of the learner's key."""
    if not (run / JOURNAL).exists():
        return Counter()
    with JournalReader(run / JOURNAL) as reader:
        rows = reader.assignments(statuses=("finished",))
    return Counter((row.learner or "").partition(".")[0] for row in rows)


def train(directory: Path, names: Sequence[str]) -> dict[str, object]:
    """Start a run and its learners, let one leave and come back, stop, and count."""
    hosts = [Host(name, directory / "homes" / name) for name in names]
    keys = [f"remote-{number}" for number in range(len(names))]
    disk = directory / "controller"
    disk.mkdir()
    network = Network(names, log=directory / "network.log")
    endpoint = f"tcp://{network.address(CONTROLLER)}:{PORT}"
    with contextlib.ExitStack() as stack:
        stack.enter_context(network)
        commands = write_ssh(directory, network, names)
        for host in hosts:
            stack.enter_context(serving(host, directory, hidden=disk))
        own = {"OMP_NUM_THREADS": "1"}
        run = stack.enter_context(killed_run(disk, environment=own, prefix=within(CONTROLLER)))
        more = (f"endpoint={endpoint}", f"remote_learners={len(names)}", "learners=1")
        run.start("connect_four", *more, *OVERRIDES)
        last = run.run / "keys" / f"{keys[-1]}.pub"
        await_that(last.exists, timeout_s=START_S, what="keys")

        def on_controller(*words: str | Path) -> None:
            path = f"{commands}{os.pathsep}{os.environ['PATH']}"
            environment = {**os.environ, "PATH": path, "ARENA": shlex.join(COMMAND)}
            command = [*within(CONTROLLER), *map(str, words)]
            subprocess.run(command, check=True, env=environment, stdout=sys.stderr, timeout=60.0)

        try:
            on_controller("sh", SCRIPT, run.run, endpoint, *names)
            _await_work(run, keys)
            copies = [path for host in hosts for path in (host.place / "keys").iterdir()]
            modes = {oct(path.stat().st_mode & 0o777) for path in copies}
            on_controller("ssh", names[0], f"kill $(cat {PLACE}/learner.pid)")
            await_that(partial(_is_free, network, names[0]), timeout_s=END_S, what="leaving")
            on_controller("sh", SCRIPT, run.run, endpoint, names[0])
            _await_work(run, keys)
            left = _stop(run, network, names)
        except BaseException:
            for path in (run.log, *(host.place / "learner.log" for host in hosts)):
                if path.exists():
                    sys.stderr.write(f"{path}:\n{path.read_text()[-3000:]}\n")
            raise
        counts = finished(run.run)
    with JournalReader(run.run / JOURNAL) as reader:
        events = Counter(event.kind for event in reader.events())
    return {
        "assignments": dict(counts),
        "modes_of_keys": sorted(modes),
        "learners_left": events["learner_left"],
        "learners_lost": events["learner_lost"],
        "assignments_failed": events["assignment_failed"],
        "faults": run.faults,
        "left": left,
    }


def _await_work(run: KilledRun, keys: Sequence[str]) -> None:
    """Wait until each key's learner has finished something more."""
    before = finished(run.run)

    def have_worked() -> bool:
        if run.is_over():
            raise RuntimeError(f"the run ended by itself: {run.log.read_text()[-3000:]}")
        now = finished(run.run)
        return all(now[key] > before[key] for key in keys)

    await_that(have_worked, timeout_s=START_S, what="work of all hosts")


def _learners(network: Network, host: str) -> list[str]:
    """Return the command lines of a host's learners and of the loops around them."""
    lines = [" ".join(process.cmdline()) for process in network.processes(host)]
    return [line for line in lines if "again.sh" in line or "run.yaml" in line]


def _is_free(network: Network, host: str) -> bool:
    return not _learners(network, host)


def _stop(run: KilledRun, network: Network, names: Sequence[str]) -> list[str]:
    """Stop a run as Ctrl-C does; returns what is still alive or lies about."""
    assert run.process is not None, "it was started"
    run.process.send_signal(signal.SIGINT)
    code = run.wait(timeout_s=END_S)
    left = [f"the controller's exit code is {code}"] if code != 130 else []
    for name in names:
        try:
            await_that(partial(_is_free, network, name), timeout_s=END_S, what=name)
        except TimeoutError:
            left += [f"{name}: {line}" for line in _learners(network, name)]
    run.await_nobody()
    run.verify()
    return left + [str(path) for path in run.run.rglob(".tmp-*")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the recipe, and print a line."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = parser_of(__doc__)
    parser.add_argument("--hosts", type=int, default=2, help="hosts of learners")
    options = parser.parse_args(given)
    if (reason := refusal()) is not None:
        sys.exit(f"{reason}: apt-get install openssh-server openssh-client")
    sandbox.enter(MODULE, given)
    end_on_signals()
    names = [f"host{number}" for number in range(1, options.hosts + 1)]
    with tempfile.TemporaryDirectory(prefix="arena-ssh-") as directory:
        figures = train(Path(directory), names)
    say({"schema": 1, **figures})
    return int(bool(figures["faults"] or figures["left"] or figures["learners_lost"]))


if __name__ == "__main__":
    sys.exit(main())
