"""Carry out the steps of a container file in a clean root, and a compose file's services in it.

    python -m experiments.faults.container                      # root; apt-get install debootstrap
    python -m experiments.faults.container --seconds 60 --root /var/tmp/arena-root
    python -m experiments.faults.container --env PIP_INDEX_URL=https://mirror/simple

No container engine is needed: the base is made by debootstrap, as the images of that name are, and
a step is a shell in a chroot. Then the services of compose.yaml run in it as they would in
containers: without root, with nothing writable but /tmp and the volume, on a network of their own;
the controller has `stop.duration_s` set. `arena verify` must find nothing. One line of JSON:
seconds and MB by step, exit codes, figures of the run. Exit code 1 if anything failed.

`--bind` shows the steps a file or directory of this machine, `--env` sets a variable for them, and
`--build-arg` an ARG: a mirror of packages needs these.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples" / "cluster"
CONTAINERFILE = EXAMPLE / "container" / "Containerfile"
COMPOSE = EXAMPLE / "compose" / "compose.yaml"
USER = "10001"
IN_ORDER = ("controller", "learner-0", "learner-1")
READY_S = 300.0
POLL_S = 0.5


def instructions(text: str) -> list[tuple[str, str]]:
    """Return a container file's instructions, each with its arguments, in order."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


@dataclass(slots=True)
class Image:
    """A root in which steps are carried out.

    Attributes:
        root: Its directory.
        binds: Files and directories of this machine that steps see.
        variables: Variables of its processes.
        steps: Seconds and MB of each step.
    """

    root: Path
    binds: Sequence[Path]
    variables: dict[str, str]
    steps: list[dict[str, object]] = field(default_factory=list)

    def carry_out(self, word: str, rest: str, *, build_arguments: Mapping[str, str]) -> None:
        """Carry out an instruction; those about the start of a container change nothing here."""
        began_s = time.monotonic()
        match word:
            case "FROM":
                suite = re.fullmatch(r"docker\.io/library/debian:(\w+)-slim", rest)
                assert suite is not None, f"no base that debootstrap makes: {rest}"
                command = ["debootstrap", "--variant=minbase", suite[1], str(self.root)]
                subprocess.run(command, check=True, stdout=sys.stderr)
                _link_security(self.root, suite[1])
            case "RUN":
                self.run(rest)
            case "ENV" | "ARG":
                name, _, value = rest.partition("=")
                chosen = build_arguments.get(name, value) if word == "ARG" else value
                known = self.variables.get
                self.variables[name] = re.sub(r"\$(\w+)", lambda m: known(m[1], ""), chosen)
            case "COPY":
                *sources, target = rest.split()
                for source in sources:
                    _copy(REPOSITORY / source, self.root, target)
            case "USER" | "WORKDIR" | "ENTRYPOINT":
                return
            case _:
                raise ValueError(f"unknown instruction {word}")
        seconds = round(time.monotonic() - began_s, 1)
        step = f"{word} {rest}"[:60]
        self.steps.append({"step": step, "seconds": seconds, "mb": size_mb(self.root)})
        sys.stderr.write(f"{self.steps[-1]}\n")

    def run(self, command: str) -> None:
        """Run a shell's command as root."""
        shell = ["chroot", str(self.root), "sh", "-ec", command]
        script = f"set -e; {_mounts(self.root, self.binds)}; exec {shlex.join(shell)}"
        unshared = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]
        subprocess.run(unshared, check=True, stdout=sys.stderr, env=self.variables)


def _link_security(root: Path, suite: str) -> None:
    """Add the updates that images have and a bare debootstrap lacks."""
    lines = "".join(
        f"deb http://deb.debian.org/{archive} {name} main\n"
        for archive, name in (
            ("debian", suite), ("debian", f"{suite}-updates"),
            ("debian-security", f"{suite}-security"),
        )
    )  # fmt: skip
    (root / "etc" / "apt" / "sources.list").write_text(lines)


def _mounts(root: Path, binds: Sequence[Path]) -> str:
    """Return a shell's commands that show a root what steps need of this machine."""
    commands = [f"mount -t proc proc {root}/proc"]
    devices = [f"/dev/{name}" for name in ("null", "zero", "urandom", "random")]
    commands += [f"touch {root}{path}; mount --bind {path} {root}{path}" for path in devices]
    commands += [_shown(root, path) for path in (Path("/etc/resolv.conf"), *binds)]
    return "; ".join(commands)


def _shown(root: Path, path: Path) -> str:
    inside = root / path.relative_to("/")
    made = f"mkdir -p {inside if path.is_dir() else inside.parent}"
    made += "" if path.is_dir() else f"; touch {inside}"
    return f"{made}; mount --bind -o ro {path.resolve()} {inside}"


def _copy(source: Path, root: Path, target: str) -> None:
    """Copy as COPY does: the content of a directory, or a file into a directory."""
    place = root / target.lstrip("/")
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, place, dirs_exist_ok=True, ignore=ignored)
    else:
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)


def size_mb(root: Path) -> int:
    """Return what a directory takes on the disk, in MB."""
    command = ["du", "--summarize", "--one-file-system", "--block-size=1M", str(root)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout.split()[0])


# Services.


def command_of(service: Mapping[str, Any]) -> list[str]:
    """Return the words that a service's container begins with."""
    return [*service["entrypoint"], *service["command"]]


@contextlib.contextmanager
def _contained(root: Path, runs: Path, *, variables: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the words before a command inside: no rights, a root that cannot be written.

    Services share one network, in which the controller's name is an address of loopback.
    """
    hosts = runs.parent / "hosts"
    hosts.write_text("127.0.0.1 localhost\n127.0.0.2 controller\n")
    script = (
        f"set -e; hostname controller; ip link set lo up; "
        f"mount --bind {root} {root}; mount --bind {runs} {root}/runs; "
        f"touch {root}/etc/hosts; mount --bind -o ro {hosts} {root}/etc/hosts; "
        f"{_mounts(root, ())}; mount -o remount,bind,ro {root}; "
        f"mount -t tmpfs -o mode=1777 none {root}/tmp; "
        f"touch {runs.parent}/ready; exec sleep infinity"
    )
    unshare = ["unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child"]
    holder = subprocess.Popen([*unshare, "sh", "-c", script], env=os.environ)
    try:
        while not (runs.parent / "ready").exists():
            assert holder.poll() is None, "the sandbox was not made"
            time.sleep(POLL_S)
        # The child of unshare is in the new namespace of processes.
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        enter = ["nsenter", "--target", children[0], "--mount", "--net", "--uts", "--pid"]
        settings = [f"{name}={value}" for name, value in variables.items()]
        user = ["chroot", f"--userspec={USER}:{USER}", str(root), "env", "-i", *settings]
        yield [*enter, *user]
    finally:
        holder.kill()
        holder.wait()


def serve(image: Image, directory: Path, *, seconds: float) -> dict[str, object]:
    """Run the services until the run is over, and verify it."""
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    runs = directory / "runs"
    runs.mkdir()
    # As Kubernetes makes a volume with fsGroup; one of compose belongs to the user.
    os.chown(runs, 0, int(USER))
    runs.chmod(0o2775)
    variables = {**image.variables, "HOME": "/home/arena", "OMP_NUM_THREADS": "1"}
    with _contained(image.root, runs, variables=variables) as inside:

        def arena(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*inside, "arena", *words], stdout=subprocess.PIPE, text=True, check=False
            )

        more = ["stop.agent_steps_per_policy=null", f"stop.duration_s={seconds:g}"]
        started = {}
        began_s = time.monotonic()
        for name in IN_ORDER:
            extra = more if name == "controller" else []
            started[name] = subprocess.Popen(
                [*inside, *command_of(services[name]), *extra], stdout=sys.stderr
            )
            healthy = services[name].get("healthcheck", {}).get("test", ["CMD", "true"])[1:]
            while subprocess.run([*inside, *healthy], check=False).returncode:
                assert time.monotonic() < began_s + READY_S, "the controller is not ready"
                assert started[name].poll() is None, "the controller ended"
                time.sleep(POLL_S)
        codes = {name: one.wait(seconds + READY_S) for name, one in started.items()}
        verified = arena("verify", "/runs/league")
        status = json.loads(arena("league", "/runs/league", "status", "--json").stdout)
        events = json.loads(arena("league", "/runs/league", "events", "--json").stdout)["events"]
    joined = {
        event["subject"].split(".")[0] for event in events if event["kind"] == "learner_joined"
    }
    return {
        "seconds": round(time.monotonic() - began_s, 1),
        "exit_codes": codes,
        "state": status["state"],
        "agent_steps": status["agent_steps"],
        "joined": sorted(joined),
        "verify": verified.stdout.strip().splitlines()[-1:],
        "users": sorted({path.stat().st_uid for path in runs.rglob("*")}),
        "is_sound": set(codes.values()) == {0} and verified.returncode == 0,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, run and verify; print a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root", type=Path, help="directory to make, and to keep; default: a new one"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the run")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--bind", action="append", default=[], type=Path, metavar="PATH")
    options = parser.parse_args(arguments)
    if os.geteuid() or shutil.which("debootstrap") is None:
        sys.exit("needs root, and debootstrap: apt-get install debootstrap")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    given = dict(one.split("=", 1) for one in options.env)
    build_arguments = dict(one.split("=", 1) for one in options.build_arg)
    with tempfile.TemporaryDirectory(prefix="arena-container-") as made:
        directory = Path(made)
        image = Image(options.root or directory / "root", options.bind, {"PATH": path, **given})
        for word, rest in instructions(CONTAINERFILE.read_text()):
            image.carry_out(word, rest, build_arguments=build_arguments)
        image.variables = {k: v for k, v in image.variables.items() if k not in given}
        run = serve(image, directory, seconds=options.seconds)
    sys.stdout.write(json.dumps({"schema": 1, "steps": image.steps, "run": run}) + "\n")
    return int(not run["is_sound"])


if __name__ == "__main__":
    sys.exit(main())
