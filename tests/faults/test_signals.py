"""Signals, closed pipes and closed terminals: F31, F32."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from populations.storage.lock import RunLock
from populations.views.questions.inspection import Inspection
from populations.views.run import status_document
from tests.faults.runs import (
    ASSETS,
    check_left,
    document,
    events,
    finished,
    launch,
    learners_of,
)
from tests.integration.conftest import ARENA
from tests.populations.small_run import SmallRun
from tests.support import exit_code, run_process, wait_until

TIMEOUT_S = 60.0
EVOLVING = {
    "pbt": {
        "ready_agent_steps": 256,
        "warm_up_agent_steps": 256,
        "min_matches": 1,
        "min_rating_gap": 1,
        "reference": False,
    },
    "evaluation": {"share": 0.4},
}
SLOW_PUBLISH = "publish.*=sleep:100"
SLOW_COMMIT = "journal.*=sleep:20"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that each test goes on with and interrupts."""
    run = tmp_path_factory.mktemp("signals") / "run"
    process = launch(run, document(**EVOLVING))
    end(process, run, [signal.SIGINT], code=130)
    return run


def end(process: subprocess.Popen[str], run: Path, numbers: Sequence[int], *, code: int) -> str:
    """Let it do something, send signals, and look at what they leave; standard error."""
    before = finished(run)
    wait_until(lambda: finished(run) > before or process.poll() is not None, timeout_s=TIMEOUT_S)
    for number in numbers:
        process.send_signal(number)
    _, error = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == code, error
    assert "Traceback" not in error
    check_left(run)
    return error


def state_of(run: Path) -> str:
    inspection = Inspection.open(run)
    try:
        return str(status_document(inspection, None)["state"])
    finally:
        inspection.close()


@pytest.mark.parametrize(
    ("number", "code", "failpoints"),
    [
        (signal.SIGINT, 130, ""),
        (signal.SIGINT, 130, SLOW_PUBLISH),
        (signal.SIGTERM, 143, SLOW_PUBLISH),
        (signal.SIGHUP, 143, SLOW_COMMIT),
    ],
)
def test_the_first_signal_saves_everything(
    number: int, code: int, failpoints: str, run: Path
) -> None:
    error = end(launch(run, None, failpoints=failpoints), run, [number], code=code)
    assert state_of(run) == "stopped"
    assert f"interrupted by {signal.Signals(number).name}" in error
    stopped = events(run, "run_stopped")[-1]
    assert signal.Signals(number).name in str(stopped.data["reason"])


@pytest.mark.parametrize(
    ("number", "code", "failpoints"),
    [(signal.SIGINT, 130, SLOW_COMMIT), (signal.SIGTERM, 143, SLOW_PUBLISH)],
)
def test_the_second_one_ends_it_at_once_and_it_is_consistent_all_the_same(
    number: int, code: int, failpoints: str, run: Path
) -> None:
    process = launch(run, None, failpoints=failpoints)
    error = end(process, run, [number, number], code=code)
    if state_of(run) != "stopped":  # the run was not faster than the second signal
        assert state_of(run) == "crashed"
        assert (
            f"once more; from what is saved goes on: arena launch --resume --run-dir {run}" in error
        )


@pytest.mark.parametrize(
    ("number", "times"), [(signal.SIGTERM, 1), (signal.SIGINT, 2), (signal.SIGHUP, 1)]
)
def test_a_signal_to_a_learner_costs_the_run_nothing(number: int, times: int, run: Path) -> None:
    process = launch(run, None)
    before = finished(run)
    wait_until(lambda: finished(run) > before, timeout_s=TIMEOUT_S)
    joined = len(events(run, "learner_joined"))
    (learner,) = learners_of(run)
    for _ in range(times):
        learner.send_signal(number)
    wait_until(lambda: len(events(run, "learner_joined")) > joined, timeout_s=TIMEOUT_S)
    end(process, run, [signal.SIGINT], code=130)
    assert state_of(run) == "stopped"


def test_an_exploit_that_is_interrupted_is_done_or_not(run: Path) -> None:
    process = launch(run, None, failpoints="controller.before_commit=sleep:20")
    seen = len(events(run, "exploited", "kept"))
    wait_until(lambda: len(events(run, "exploited", "kept")) > seen, timeout_s=TIMEOUT_S)
    end(process, run, [signal.SIGINT, signal.SIGINT], code=130)


def test_who_stops_reading_ends_the_run_as_a_hang_up_does(tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(document()))
    arena = f"'{sys.executable}' -m populations.commands.main launch '{config}' --run-dir '{run}'"
    done = run_process(
        ["bash", "-c", f"{arena} 2>&1 | head -1; echo ${{PIPESTATUS[0]}}"],
        cwd=ASSETS,
        timeout_s=TIMEOUT_S,
    )
    first, code = done.stdout.splitlines()
    assert first.startswith("run directory: ")
    assert code == "143"
    assert done.stderr == ""
    assert "SIGHUP" in str(events(run, "run_stopped")[-1].data["reason"])
    assert "Traceback" not in (run / "logs" / "controller.log").read_text()
    check_left(run)


def test_a_terminal_that_is_closed_ends_the_run_as_a_hang_up_does(run: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "populations.commands.main", "launch", "--resume", "--run-dir", run],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=ASSETS,
        start_new_session=True,
        preexec_fn=lambda: os.login_tty(0),
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    before = finished(run)

    def has_moved() -> bool:
        with contextlib.suppress(BlockingIOError):
            while os.read(ours, 65536):  # the pipe must be read, or the run would block
                pass
        return finished(run) > before

    try:
        wait_until(has_moved, timeout_s=TIMEOUT_S)
        os.close(ours)
        assert process.wait(timeout=TIMEOUT_S) == 143
    finally:
        process.kill()
        process.wait()
    assert state_of(run) == "stopped"
    assert "Traceback" not in (run / "logs" / "controller.log").read_text()
    check_left(run)


@pytest.mark.parametrize("view", ["--json", "--csv", None, "--help"])
def test_a_reader_of_results_that_goes_away_is_no_error(view: str | None, run: Path) -> None:
    arena = f"'{sys.executable}' -m populations.commands.main league '{run}' events {view or ''}"
    done = run_process(
        ["bash", "-c", f"{arena} | true; echo ${{PIPESTATUS[0]}}"], timeout_s=TIMEOUT_S
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


Prepare = Callable[[Path, ExitStack], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """One way to end.

    Attributes:
        arguments: Of `arena`; ``{run}`` is a run directory, ``{config}`` a configuration.
        code: It must exit with.
        said: Parts of what must be said on standard error.
        prepare: What is done before, with what is undone after.
        number: A signal that ends it, once it has begun to show something.
    """

    arguments: str
    code: int
    said: tuple[str, ...] = ()
    prepare: Prepare = lambda run, stack: None
    number: int | None = None


def sound(run: Path, stack: ExitStack) -> None:
    """A run that no invariant is broken in."""
    run.mkdir()
    SmallRun(run).journal.close()


def locked(run: Path, stack: ExitStack) -> None:
    """A run that somebody else has."""
    sound(run, stack)
    stack.enter_context(RunLock(run))


def torn(run: Path, stack: ExitStack) -> None:
    """A run whose journal is garbage, and so is its copy."""
    sound(run, stack)
    for path in run.glob("journal*"):
        path.write_bytes(b"no journal" * 1000)


def bent(run: Path, stack: ExitStack) -> None:
    """A run with a checkpoint that does not verify."""
    sound(run, stack)
    weights = next(run.glob("populations/*/*/checkpoints/*/weights.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1])


def configured(fault: str, **sections: object) -> Prepare:
    """A configuration beside the run."""

    def prepare(run: Path, stack: ExitStack) -> None:
        (run.parent / "config.yaml").write_text(json.dumps(document(fault, **sections)))

    return prepare


EXITS = {
    "done": Exit(arguments="verify {run}", code=0, prepare=sound),
    "nothing asked": Exit(arguments="", code=2),
    "no such command": Exit(arguments="lounch", code=2, said=("lounch",)),
    "no such option": Exit(arguments="launch --fast", code=2, said=("--fast",)),
    "no such preset": Exit(arguments="launch conect_four", code=2, said=("'connect_four'",)),
    "no run": Exit(arguments="league {run}", code=2, said=("no run directory",)),
    "no run to go on with": Exit(
        arguments="launch --resume --run-dir {run}", code=2, said=("there is no run in",)
    ),
    "a run is there": Exit(
        arguments="launch rock_paper_scissors --run-dir {run}",
        code=2,
        said=("holds a run already", "--resume", "--force"),
        prepare=sound,
    ),
    "the configuration of another run": Exit(
        arguments="launch --resume --run-dir {run} seed=7", code=2, said=("seed",), prepare=sound
    ),
    "no such player": Exit(
        arguments="evaluate {run}:player/p777 bot:random",
        code=2,
        said=("player/p777",),
        prepare=sound,
    ),
    "an environment that cannot be made": Exit(
        arguments="launch {config} --run-dir {run}",
        code=2,
        said=("faulty:Rounds",),
        prepare=configured("", environment={"id": "faulty:Rounds", "kwargs": {"no": 1}}),
    ),
    "the environment never works": Exit(
        arguments="launch {config} --run-dir {run}",
        code=3,
        said=("the environment breaks: nothing has finished since", "the board is on fire"),
        prepare=configured("step_raises"),
    ),
    "no policy is left": Exit(
        arguments="launch {config} --run-dir {run}",
        code=3,
        said=("no active policy is left",),
        prepare=configured(
            "",
            populations={
                "player": {
                    "size": 1,
                    "network": {"hidden_sizes": [8]},
                    "hyperparameters": {"learning_rate": 1e30, "rollout_length": 8},
                    "search_space": {},
                }
            },
        ),
    ),
    "somebody has the run": Exit(
        arguments="launch --resume --run-dir {run}",
        code=4,
        said=("is in use by process", str(os.getpid())),
        prepare=locked,
    ),
    "the journal is garbage": Exit(
        arguments="launch --resume --run-dir {run}", code=5, said=("journal",), prepare=torn
    ),
    "a journal that cannot be shown": Exit(
        arguments="league {run}", code=5, said=("journal",), prepare=torn
    ),
    "an invariant is broken": Exit(arguments="verify {run}", code=5, prepare=bent),
    "Ctrl-C": Exit(
        arguments="league {run} --watch",
        code=130,
        said=("arena: interrupted by SIGINT",),
        prepare=sound,
        number=signal.SIGINT,
    ),
    "SIGTERM": Exit(
        arguments="league {run} --watch",
        code=143,
        said=("arena: interrupted by SIGTERM",),
        prepare=sound,
        number=signal.SIGTERM,
    ),
    "SIGHUP": Exit(
        arguments="league {run} --watch",
        code=143,
        said=("arena: interrupted by SIGHUP",),
        prepare=sound,
        number=signal.SIGHUP,
    ),
}


@contextmanager
def started(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """`arena`, with its output in pipes."""
    process = subprocess.Popen(
        [*ARENA, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ASSETS,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", EXITS)
def test_a_command_ends_with_its_code_and_one_message(name: str, tmp_path: Path) -> None:
    case, run = EXITS[name], tmp_path / "run"
    with ExitStack() as stack:
        case.prepare(run, stack)
        words = case.arguments.format(run=run, config=tmp_path / "config.yaml").split()
        with started(words) as process:
            if case.number is not None:
                assert process.stdout is not None
                process.stdout.readline()
                process.send_signal(case.number)
            output, error = process.communicate(timeout=100)
    assert process.returncode == case.code, (output, error)
    assert "Traceback" not in output + error
    for part in case.said:
        assert part in error
    # The run's own output comes before the error.
    own = [line for line in error.splitlines() if line.startswith("arena: ")]
    assert len(own) == (1 if case.said and case.code != 2 else len(own))


def test_each_code_of_the_interface_is_shown() -> None:
    assert {case.code for case in EXITS.values()} == {0, 2, 3, 4, 5, 130, 143}


GOOD = "environment: {id: classic/rps-v2}\n"
LAUGHS = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n"
KNOWN = """\
environment: {id: classic/rps-v2}
populations:
  player:
"""


@pytest.mark.parametrize(
    ("document", "said"),
    [
        # These files are invalid YAML, or too large for a configuration.
        (GOOD + "seed: [1", ("config.yaml, line 2",)),
        (GOOD + "seed: 'x", ("config.yaml, line 2",)),
        (GOOD + "pbt:\n\tfraction: 0.2\n", ("config.yaml, line 3",)),
        (GOOD + "seed: 1\nseed: 2\n", ("config.yaml, line 3", "'seed' is there twice")),
        (GOOD + LAUGHS, ("config.yaml, line 2", "anchors and aliases are not allowed")),
        (GOOD + "seed: !!python/object/apply:os.getpid []\n", ("line 2", "tag")),
        (GOOD + "1: 2\n", ("config.yaml, line 2", "a key must be text")),
        (GOOD + f"seed: {'[' * 30}{']' * 30}\n", ("line 2", "nested deeper than 20")),
        (GOOD + "#" * 1_000_000, ("config.yaml", "at most 1000000 bytes")),
        (b"\xff\xfe\x00seed", ("config.yaml",)),
        (GOOD + 'device: "\\ud83d"\n', ("config.yaml, line 2", "half of a character")),
        (b"PK\x03\x04\x00\x00\x00\x00", ("config.yaml",)),
        ("", ("mapping", "None")),
        ("- 1\n- 2\n", ("mapping",)),
        # These keys do not exist.
        (GOOD + "populatons: {}\n", ("populatons", "did you mean 'populations'")),
        (KNOWN + "    sise: 4\n", ("populations.player.sise", "populations.player.size")),
        (GOOD + "pbt: {exploits: none}\n", ("pbt.exploits", "pbt.exploit")),
        (
            KNOWN + "    hyperparameters: {learning_rat: 1e-3}\n",
            ("hyperparameters", "learning_rat", "did you mean 'learning_rate'"),
        ),
        # These values break a rule.
        (GOOD + "seed: soon\n", ("seed:", "whole number", "'soon'")),
        (GOOD + "seed: 99999999999999999999999\n", ("seed:",)),
        (GOOD + "seed: .nan\n", ("seed:",)),
        (GOOD + "stop: {duration_s: -1}\n", ("stop.duration_s:", "-1")),
        (GOOD + "device: tpu\n", ("device must be", "tpu")),
        (GOOD + "launcher: locla\n", ("launcher:", "local")),
        (KNOWN + "    size: 0\n", ("populations.player.size:", "0")),
        ("environment: null\n", ("environment",)),
        ("environment: {id: classic/rpx-v2}\n", ("classic/rps-v2",)),
        ("environment: {id: 'no_such_module:env'}\n", ("no_such_module",)),
        (GOOD + 'device: "\\e[2Jcpu"\n', ("device must be", "\\x1b[2J")),
    ],
)  # fmt: skip
def test_a_corrupt_configuration_is_refused_with_its_place(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    document: str | bytes,
    said: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    data = document.encode() if isinstance(document, str) else document
    (tmp_path / "config.yaml").write_bytes(data)
    ended = exit_code("launch", "config.yaml", "--run-dir", "run")
    error = capsys.readouterr().err
    assert ended == 2, error
    assert error.startswith("arena: ")
    assert error.count("\n") == 1
    assert error[:-1].isprintable()
    for part in said:
        assert part in error
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("sede=1", "did you mean 'seed'"),
        ("populations.player.sise=3", "populations.player.size"),
        ("seed", "KEY=VALUE"),
        ("seed=[1", "seed"),
        ("seed=*x", "seed"),
        ("environment.num_envs=many", "environment.num_envs must be auto or a number"),
    ],
)
def test_so_is_an_override(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    override: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = exit_code("launch", "rock_paper_scissors", override, "--run-dir", "run")
    error = capsys.readouterr().err
    assert ended == 2, error
    assert said in error
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_an_environment_whose_import_fails_ends_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_import.py").write_text("import no_package_of_this_name\n")
    (tmp_path / "config.yaml").write_text("environment: {id: 'broken_import:env'}\n")
    ended = exit_code("launch", "config.yaml", "--run-dir", "run")
    error = capsys.readouterr().err
    assert ended == 2, error
    assert "no_package_of_this_name" in error
    assert not (tmp_path / "run").exists()
