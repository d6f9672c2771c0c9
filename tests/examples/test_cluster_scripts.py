"""Scripts of examples/cluster, run with stand-ins for arena, Slurm and ssh, and with real ones."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from experiments.faults.hosts import over_ssh
from experiments.faults.killing import processes_of
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from tests.docs.command_lines import problem_of
from tests.integration.conftest import ARENA, SMALL, Command, arena  # noqa: F401
from tests.support import run_process, wait_until

CLUSTER = Path(__file__).parents[2] / "examples" / "cluster"
AGAIN = CLUSTER / "again.sh"
REASON = over_ssh.refusal()

STAND_IN = """#!/bin/sh
# Writes down its arguments, and ends with the next code of a file; without one it waits.
printf '%s\\n' "$*" >> {calls}
code=$(sed -n "$(wc -l < {calls})p" {codes})
[ -z "$code" ] || exit "$code"
exec {python} -c '
import signal
awaited = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
open("{ready}", "a").write("ready\\n")
number = signal.sigwait(awaited)
open("{signals}", "a").write(signal.Signals(number).name + "\\n")
'
"""


@dataclass(frozen=True)
class Bench:
    """A directory with commands that stand in for real ones."""

    directory: Path

    def stand_in(self, name: str, *codes: int) -> None:
        """Make a command that ends with these codes, one after the other, and then waits."""
        files = {
            one: self.directory / f"{name}.{one}" for one in ("calls", "codes", "signals", "ready")
        }
        files["calls"].touch()
        files["codes"].write_text("".join(f"{code}\n" for code in codes))
        path = self.directory / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(STAND_IN.format(python=shlex.quote(sys.executable), **files))
        path.chmod(0o755)

    def lines(self, name: str) -> list[str]:
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []

    @contextmanager
    def started(self, *command: str | Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start a command where the scripts are, in a process group of its own."""
        path = f"{self.directory / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "AGAIN_S": "0", **variables}
        with (self.directory / "stderr").open("ab") as said:
            process = subprocess.Popen(
                [str(word) for word in command], cwd=CLUSTER, env=environment, stderr=said,
                start_new_session=True,
            )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def await_said(self, words: str) -> None:
        """Wait until a command has said something on standard error."""
        wait_until(lambda: words in (self.directory / "stderr").read_text(), timeout_s=20.0)

    def run(self, *command: str | Path, **variables: str) -> int:
        with self.started(*command, **variables) as process:
            return process.wait(90)

    def await_ready(self, name: str) -> None:
        wait_until(lambda: self.lines(f"{name}.ready"), timeout_s=20.0)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    made.stand_in("arena")
    return made


@pytest.mark.parametrize("code", [0, 2, 3, 5, 127, 143])
def test_a_code_that_says_so_is_the_end(bench: Bench, code: int) -> None:
    bench.stand_in("arena", 75, 1, 137, code, 0)
    assert bench.run("sh", AGAIN, "arena", "learner", "a  b") == code
    assert bench.lines("arena.calls") == ["learner a  b"] * 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_is_passed_on_once_and_waited_for(bench: Bench, number: int) -> None:
    with bench.started("sh", AGAIN, "arena", "learner") as process:
        bench.await_ready("arena")
        # The signal goes to the whole process group, as from a terminal.
        os.killpg(process.pid, number)
        assert process.wait(20) == 143
    assert bench.lines("arena.signals") == ["SIGTERM"]
    assert bench.lines("arena.calls") == ["learner"]


def test_a_signal_ends_the_pause_before_the_next_start(bench: Bench) -> None:
    bench.stand_in("arena", 75)
    with bench.started("sh", AGAIN, "arena", AGAIN_S="1000") as process:
        bench.await_said("ended with 75")
        process.terminate()
        assert process.wait(20) == 143
    assert len(bench.lines("arena.calls")) == 1


def test_it_stays_until_it_is_told_to_end(bench: Bench) -> None:
    bench.stand_in("arena", 0, 0)
    with bench.started("sh", AGAIN, "--stay", "arena", "launch") as process:
        bench.await_said("waiting")
        process.terminate()
        assert process.wait(20) == 143
    assert bench.lines("arena.calls") == ["launch"]


def test_a_controller_starts_a_run_or_goes_on_with_it(bench: Bench) -> None:
    bench.stand_in("arena", 0, 0, 0)
    run = bench.directory / "run"
    command = ("sh", CLUSTER / "controller.sh", run, "tictactoe", "remote_learners=2")
    assert bench.run(*command, ADDRESS="10.0.0.7") == 0
    run.mkdir()
    (run / "run.yaml").touch()
    assert bench.run(*command, ADDRESS="10.0.0.7", PORT="6000") == 0
    assert bench.run(*command) == 0
    first, second, third = bench.lines("arena.calls")
    keys = "tictactoe remote_learners=2 endpoint=tcp://10.0.0.7"
    assert first == f"launch {keys}:5555 --run-dir {run}"
    assert second == f"launch --resume {keys}:6000 --run-dir {run}"
    for line in (first, second, third):
        assert problem_of(f"arena {line}") == ""


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.xdist_group("processes")
@pytest.mark.timeout(240)
def test_a_controller_is_stopped_goes_on_and_is_over(
    bench: Bench,
    arena: Command,  # noqa: F811
) -> None:
    run = bench.directory / "run"
    (bench.directory / "bin" / "arena").write_text(f'#!/bin/sh\nexec {shlex.join(ARENA)} "$@"\n')
    settings = (*SMALL, "stop.duration_s=null", "learners=1", "remote_learners=1")
    command = ("sh", AGAIN, "sh", CLUSTER / "controller.sh", run, "tictactoe", *settings)
    place = {"ADDRESS": "127.0.0.1", "PORT": "*"}
    with bench.started(*command, "stop.agent_steps_per_policy=100000000", **place) as process:
        wait_until(lambda: trained(run), timeout_s=90.0)
        process.terminate()
        assert process.wait(60) == 143
    arena("verify", run)
    goal = f"stop.agent_steps_per_policy={trained(run)}"
    assert bench.run(*command, goal, **place) == 0
    status = json.loads(arena("league", run, "status", "--json").stdout)
    assert status["state"] == "finished"
    arena("verify", run)


def trained(run: Path) -> int:
    """Agent steps of a run's policies; 0 as long as there are none."""
    if not (run / JOURNAL).exists():
        return 0
    with JournalReader(run / JOURNAL) as reader:
        return reader.load(pairs=()).run.agent_steps


SLURM = {"SLURM_ARRAY_JOB_ID": "71", "SLURM_JOB_ID": "73", "SLURM_ARRAY_TASK_ID": "2"}
LEARNERS = CLUSTER / "slurm" / "learners.sbatch"
CONTROLLER = CLUSTER / "slurm" / "controller.sbatch"
ENDPOINT = "tcp://10.0.0.7:5555"


def notify(job: subprocess.Popen[bytes], number: int) -> None:
    """Signal a job as Slurm does, and wait for its end."""
    if number == signal.SIGUSR1:
        job.send_signal(number)  # B: signals the batch shell alone
    else:
        os.killpg(job.pid, number)
    job.wait(20)


@pytest.mark.parametrize(
    ("number", "requeues"), [(signal.SIGUSR1, ["requeue 71_2"]), (signal.SIGTERM, [])]
)
def test_a_learner_leaves_and_its_job_is_queued_again_on_notice(
    bench: Bench, number: int, requeues: list[str]
) -> None:
    bench.stand_in("scontrol", 0)
    with bench.started("bash", LEARNERS, "/runs/a", ENDPOINT, **SLURM) as process:
        bench.await_ready("arena")
        notify(process, number)
    assert bench.lines("arena.signals") == ["SIGTERM"]
    assert bench.lines("scontrol.calls") == requeues
    (line,) = bench.lines("arena.calls")
    assert problem_of(f"arena {line}") == ""
    assert f"learner /runs/a/run.yaml --connect {ENDPOINT} --keys /runs/a/keys/remote-2.key" in line


@pytest.mark.parametrize("code", [0, 2])
def test_a_learner_that_is_done_is_not_queued_again(bench: Bench, code: int) -> None:
    bench.stand_in("scontrol", 0)
    bench.stand_in("arena", 75, code)
    assert bench.run("bash", LEARNERS, "/runs/a", ENDPOINT, **SLURM) == code
    assert len(bench.lines("arena.calls")) == 2
    assert bench.lines("scontrol.calls") == []


@pytest.mark.parametrize(
    ("number", "requeues"), [(signal.SIGUSR1, ["requeue 73"]), (signal.SIGTERM, [])]
)
def test_learners_begin_and_end_with_the_controllers_job(
    bench: Bench, number: int, requeues: list[str]
) -> None:
    for name in ("sbatch", "scancel", "scontrol"):
        bench.stand_in(name, 0, 0)
    run = bench.directory / "league"
    (run / "keys").mkdir(parents=True)
    (run / "keys" / "remote-1.pub").touch()
    variables = {**SLURM, "LEARNERS": "2", "ADDRESS": "10.0.0.7"}
    with bench.started("bash", CONTROLLER, run, "tictactoe", **variables) as process:
        bench.await_ready("arena")
        wait_until(lambda: bench.lines("sbatch.calls"), timeout_s=20.0)
        notify(process, number)
    assert bench.lines("arena.signals") == ["SIGTERM"]
    (line,) = bench.lines("arena.calls")
    assert "remote_learners=2" in line
    assert problem_of(f"arena {line}") == ""
    job = "--job-name=arena-learners-league --array=0-1"
    assert bench.lines("sbatch.calls") == [f"{job} slurm/learners.sbatch {run} {ENDPOINT}"]
    assert bench.lines("scancel.calls") == ["--quiet --name=arena-learners-league"] * 2
    assert bench.lines("scontrol.calls") == requeues


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.xdist_group("processes")
@pytest.mark.timeout(240)
def test_a_preempted_learner_hands_its_work_back_and_comes_again(
    bench: Bench,
    arena: Command,  # noqa: F811
) -> None:
    """With a real learner, which sees the run's directory, and a real controller."""
    bench.stand_in("scontrol", 0, 0)
    run = bench.directory / "run"
    command = shlex.join(ARENA)
    (bench.directory / "bin" / "arena").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    settings = (*SMALL, "stop.duration_s=null", "stop.agent_steps_per_policy=100000000")
    more = (*settings, "learners=1", "remote_learners=1", "endpoint=tcp://127.0.0.1:*")
    with bench.started(*ARENA, "launch", "tictactoe", *more, "--run-dir", run) as controller:
        wait_until(lambda: (run / "status.json").exists(), timeout_s=90.0)
        endpoint = json.loads((run / "status.json").read_text())["endpoint"]
        variables = {**SLURM, "SLURM_ARRAY_TASK_ID": "0"}
        batch = ("bash", LEARNERS, run, endpoint)
        with bench.started(*batch, **variables) as job:
            wait_until(lambda: of_remote(run), timeout_s=90.0)
            job.send_signal(signal.SIGUSR1)
            job.wait(60)
        assert bench.lines("scontrol.calls") == ["requeue 71_0"]
        before = of_remote(run)
        with bench.started(*batch, **variables) as job:
            wait_until(lambda: of_remote(run) > before, timeout_s=90.0)
            controller.send_signal(signal.SIGINT)
            # The end of the run is the end of the job, which is not queued again.
            assert job.wait(60) == 0
        assert controller.wait(60) == 130
    assert len(bench.lines("scontrol.calls")) == 1
    arena("verify", run)
    events = json.loads(arena("league", run, "events", "--json").stdout)["events"]
    kinds = [event["kind"] for event in events]
    assert kinds.count("learner_left") >= 1
    failed = [e for e in events if e["kind"] in ("learner_lost", "assignment_failed")]
    assert not failed, [event["sentence"] for event in failed]
    wait_until(lambda: not processes_of(run), timeout_s=2.0)


def of_remote(run: Path) -> int:
    """Finished assignments of the learner with the key remote-0."""
    with JournalReader(run / JOURNAL) as reader:
        rows = reader.assignments(statuses=("finished",))
    return sum((row.learner or "").startswith("remote-0.") for row in rows)


def test_a_pod_takes_the_key_of_its_number_and_reads_it_alone(bench: Bench) -> None:
    documents = yaml.safe_load_all((CLUSTER / "kubernetes" / "learners.yaml").read_text())
    (pods,) = [one["spec"]["template"]["spec"] for one in documents if one["kind"] == "StatefulSet"]
    *shell, script = pods["containers"][0]["command"]
    # Files of a Kubernetes secret are links that others may read.
    secret, own = bench.directory / "secret", bench.directory / "own"
    (secret / "..data").mkdir(parents=True)
    own.mkdir()
    (secret / "..data" / "remote-12.key").write_text("secret 12\n")
    (secret / "remote-12.key").symlink_to("..data/remote-12.key")
    script = script.replace("/tmp/", f"{own}/").replace("/run/league", str(secret))
    bench.stand_in("arena", 0)
    assert bench.run(*shell, script, HOSTNAME="arena-learner-12") == 0
    (line,) = bench.lines("arena.calls")
    assert f"learner {secret}/run.yaml" in line
    assert line.endswith(f"--keys {own}/learner.key --cache /cache")
    assert (own / "learner.key").read_text() == "secret 12\n"
    assert stat.S_IMODE((own / "learner.key").stat().st_mode) == 0o600


HERE = """#!/bin/sh
# Stands in for ssh: the host is a home on this machine.
export HOME={homes}/$1
cd "$HOME" && exec sh -c "$2"
"""


def test_each_host_gets_a_key_of_its_own_that_only_its_owner_reads(bench: Bench) -> None:
    run, homes = bench.directory / "run", bench.directory / "homes"
    (run / "keys").mkdir(parents=True)
    (run / "run.yaml").write_text("run: x\n")
    for number in range(3):
        key = run / "keys" / f"remote-{number}.key"
        key.write_text(f"secret {number}\n")
        key.chmod(0o600)
    for name in ("one", "two"):
        (homes / name).mkdir(parents=True)
    (bench.directory / "bin" / "ssh").write_text(HERE.format(homes=homes))
    (bench.directory / "bin" / "ssh").chmod(0o755)
    script = CLUSTER / "ssh" / "learners.sh"
    assert bench.run("sh", script, run, ENDPOINT, "one", "two") == 0
    for number, name in enumerate(("one", "two")):
        place = homes / name / "arena-learner"
        (key,) = (place / "keys").iterdir()
        assert key.read_text() == f"secret {number}\n"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        assert (place / "run.yaml").read_text() == "run: x\n"
    wait_until(lambda: len(bench.lines("arena.ready")) == 2, timeout_s=20.0)
    said = sorted(bench.lines("arena.calls"))
    assert said == [
        f"learner run.yaml --connect {ENDPOINT} --keys keys/remote-{number}.key"
        for number in range(2)
    ]
    assert [problem_of(f"arena {line}") for line in said] == ["", ""]
    # The loops continue without the script; a learner's process is asked to end by its pid file.
    for name in ("one", "two"):
        os.kill(int((homes / name / "arena-learner" / "learner.pid").read_text()), signal.SIGTERM)
    wait_until(lambda: bench.lines("arena.signals") == ["SIGTERM"] * 2, timeout_s=20.0)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_learners_are_started_over_ssh_on_two_hosts() -> None:
    command = [sys.executable, "-m", over_ssh.MODULE]
    ended = run_process(command, timeout_s=280)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    figures = json.loads(ended.stdout)
    assert min(figures["assignments"][f"remote-{number}"] for number in range(2)) >= 2
    assert figures["modes_of_keys"] == ["0o600"]
    assert figures["learners_left"] >= 1
    assert (figures["learners_lost"], figures["assignments_failed"]) == (0, 0)
