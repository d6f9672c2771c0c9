"""Effects of keys that a resume may change and of which the controller's decisions know nothing.

Each entry of `EFFECTS` opens one run as a resume does, with the old value and with the new one.
`tests/populations/controller/test_resumed_keys.py` has the other keys, and the list of all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from arena.errors import ConfigError
from arena.wire.keys import KEYS
from arena.wire.messages import Train
from populations.config.run_config import validate_config
from populations.config.run_file import (
    RUN_FILE,
    RunFile,
    check_resume,
    new_run_file,
    with_config,
)
from populations.controller.server.journal_upkeep import JournalUpkeep
from populations.controller.server.run_directory import (
    SETUP,
    OpenRun,
    create_run,
    make_run_directory,
)
from populations.controller.state.events import ControllerStarted
from populations.hooks.make import make_hook_processes
from populations.hooks.process import HookSettings
from populations.launchers import local, make, ray_launcher
from populations.launchers.local import LocalLauncher
from populations.launchers.make import make_launcher
from populations.launchers.ray_session import check_ray
from populations.records.rows import EventRow
from tests.populations.controller.simulated import (
    DUEL,
    SimpleLearner,
    SimpleTruth,
    World,
    duel_spec,
)


@contextmanager
def reopened(run_dir: Path, *changes: str) -> Iterator[OpenRun]:
    """Open a run as a resume with these changes does."""
    old = RunFile.load(run_dir / RUN_FILE)
    new, found = check_resume(old, config=None, overrides=changes)
    assert bool(found) == bool(changes)
    with OpenRun(run_dir, changed=with_config(old, new) if found else None) as run:
        run.reconfigure(found, utc="now")
        yield run


class Boundary:
    """What Arena asks other programs for: learner processes, Ray, the store's process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: dict[str, object] = {}
        ray = SimpleNamespace(remote=lambda **_: lambda actor: SimpleNamespace(options=self._ray))
        monkeypatch.setattr(local, "spawn_learner", self._spawn)
        monkeypatch.setattr(make, "StoreKeeper", self._store)
        monkeypatch.setattr(make, "ray_session", self._session)
        monkeypatch.setattr(ray_launcher, "import_module", lambda _: ray)

    def _spawn(self, *_: object, **asked: object) -> object:
        self.asked |= asked
        return SimpleNamespace(kill_group=lambda: None, known_pid=1)

    @contextmanager
    def _store(self, **asked: object) -> Iterator[object]:
        self.asked |= asked
        yield SimpleNamespace(endpoint="tcp://127.0.0.1:1", admit_only=lambda _: None)

    @contextmanager
    def _session(self, *_: object) -> Iterator[tuple[str, bool]]:
        yield "127.0.0.1", True

    def _ray(self, **asked: object) -> object:
        self.asked |= asked
        return SimpleNamespace(remote=self._start)

    def _start(self, **asked: object) -> Any:
        self.asked |= asked
        raise KeyboardInterrupt  # no actor is needed any more


Observe = Callable[[OpenRun, Boundary], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A change, and what is seen of it.

    Attributes:
        change: ``KEY=VALUE`` of the resume.
        context: Changes without which nothing reads the key, before and after.
        observe: Function of the run as it was opened.
        expected: What it returns without the change and with it.
    """

    change: str
    context: tuple[str, ...] = ()
    observe: Observe
    expected: tuple[object, object]


def launched(run: OpenRun, boundary: Boundary, name: str) -> object:
    """Return what a launcher asks for when a learner is to be started."""
    with make_launcher(run) as (_, launcher, _), suppress(KeyboardInterrupt):
        launcher.start(0, ())
    return boundary.asked[name]


def asked(name: str) -> Observe:
    return lambda run, boundary: launched(run, boundary, name)


def kind_of_launcher(run: OpenRun, boundary: Boundary) -> object:
    with make_launcher(run) as (_, launcher, _):
        return type(launcher).__name__


def kind_of_address(run: OpenRun, boundary: Boundary) -> object:
    with make_launcher(run) as (transport, _, _):
        return transport.endpoint.partition(":")[0]


def remote_keys(run: OpenRun, _: Boundary) -> object:
    with make_launcher(run):
        return sorted(path.name for path in (run.run_dir / KEYS).glob("remote-*.key"))


def ray_answers(run: OpenRun, _: Boundary) -> object:
    try:
        check_ray(run.run_file.config.ray)
    except ConfigError as error:
        return "no Ray answers at 127.0.0.1:1" in str(error)
    return False


def env_workers(run: OpenRun, _: Boundary) -> object:
    """Return what learners are told; `tests/faults/test_orphans.py` has their processes."""
    return json.loads((run.run_dir / SETUP).read_text())["environment"]["num_env_workers"]


def upkeep(run: OpenRun, *, hours: int, seconds: float) -> None:
    """Let a run go on for some hours, an event in each, and as many seconds between them."""
    clock = SimpleNamespace(now_s=0.0)
    care = JournalUpkeep(
        run.run_dir,
        run.journal,
        run.state.settings.config.journal,
        clock=lambda: float(clock.now_s),
    )
    first = run.state.tables.num_events
    for hour in range(1, hours + 1):
        event = EventRow(sequence=first + hour, time="", kind="k", subject="", data={})
        row = replace(run.state.tables.run, elapsed_s=3600.0 * hour)
        run.journal.commit([event, row])
        clock.now_s += seconds
        care.turn(run.journal.load())
        care.wait()
    care.abandon()


def num_archived(run: OpenRun, _: Boundary) -> object:
    upkeep(run, hours=8, seconds=60.0)
    return any(row.file for row in run.journal.archives())


def is_backed_up(run: OpenRun, _: Boundary) -> object:
    backup = run.run_dir / "journal.backup.db"
    backup.unlink()
    upkeep(run, hours=1, seconds=60.0)
    return backup.exists()


def curves(run: OpenRun, _: Boundary) -> object:
    """Return what the sinks write of 2.4 MB, in files of the run."""
    for steps in range(800):
        run.sinks.write("player/p000", steps, {f"loss/{'x' * 1000}{n}": 0.5 for n in range(3)})
    run.sinks.flush()
    found = {path.name for path in run.run_dir.glob("metrics*")}
    found |= {"tensorboard"} & {path.name for path in run.run_dir.iterdir()}
    return sorted(found)


def hooks(run: OpenRun) -> HookSettings:
    (process,) = make_hook_processes(
        run.run_file.config,
        run.run_dir,
        launch_directory=".",
        command=("arena",),
        num_events=0,
        is_new=False,
    )
    assert isinstance(process.settings, HookSettings)
    return process.settings


def of_hooks(name: str) -> Observe:
    return lambda run, _: getattr(hooks(run), name)


def trains_with(run: OpenRun, _: Boundary) -> object:
    """Return the learning rate of the first assignments after the resume."""
    learner = SimpleLearner(
        setup=run.setup, model=SimpleTruth(), landscapes={}, agent_steps_per_s=1000.0
    )
    world = World(state=run.state, setup=run.setup, learner=learner)
    world.handle(ControllerStarted())
    given = world.given[world.join()]
    messages = [message for message in given if isinstance(message, Train)]
    assert messages
    return {
        trainee.hyperparameters["learning_rate"]
        for message in messages
        for trainee in message.trainees
    }


TCP = "endpoint='tcp://127.0.0.1:*'"
ON_RAY = "launcher=ray"
ROTATED = ["metrics.0001.jsonl", "metrics.0002.jsonl", "metrics.jsonl"]
ON_EVENT = ("hooks.on_event=[['a']]",)
JSONL = "metrics.sinks=[jsonl]"
RATE = "populations.player.hyperparameters.learning_rate"

EFFECTS = [
    Case(
        change="launcher=inline",
        context=("learners=1",),
        observe=kind_of_launcher,
        expected=("LocalLauncher", "InlineLauncher"),
    ),
    Case(change=TCP, observe=kind_of_address, expected=("ipc", "tcp")),
    Case(
        change="remote_learners=2",
        context=(TCP,),
        observe=remote_keys,
        expected=([], ["remote-0.key", "remote-1.key"]),
    ),
    Case(
        change="store_endpoint='tcp://127.0.0.1:5999'",
        context=(TCP, "remote_learners=1"),
        observe=asked("bind"),
        expected=("tcp://127.0.0.1:*", "tcp://127.0.0.1:5999"),
    ),
    Case(change="device=cpu", observe=asked("device"), expected=("auto", "cpu")),
    Case(
        change="learner_cores=2",
        context=("learners=1",),
        observe=lambda run, _: run.setup.cores,
        expected=(1, 2),
    ),
    Case(change="learner_nice=5", observe=asked("nice"), expected=(0, 5)),
    Case(
        change="stop.success_return=2.5",
        context=("stop.success_rate=0.5",),
        observe=lambda run, _: run.setup.success_return,
        expected=(None, 2.5),
    ),
    Case(change="environment.num_env_workers=2", observe=env_workers, expected=(0, 2)),
    Case(
        change="ray.num_cpus=3", context=(ON_RAY,), observe=asked("num_cpus"), expected=(1.0, 3.0)
    ),
    Case(
        change="ray.num_gpus=0.5", context=(ON_RAY,), observe=asked("num_gpus"), expected=(0, 0.5)
    ),
    Case(
        change="ray.custom={a: 2}",
        context=(ON_RAY,),
        observe=asked("resources"),
        expected=({}, {"a": 2.0}),
    ),
    Case(
        change="ray.cache_mb=7",
        context=(ON_RAY,),
        observe=asked("cache_mb"),
        expected=("2048", "7"),
    ),
    Case(change="ray.address='127.0.0.1:1'", observe=ray_answers, expected=(False, True)),
    Case(change="journal.keep_detail_hours=2", observe=num_archived, expected=(False, True)),
    Case(change="journal.backup_every_s=30", observe=is_backed_up, expected=(False, True)),
    Case(
        change=JSONL,
        observe=curves,
        expected=(["metrics.jsonl", "tensorboard"], ["metrics.jsonl"]),
    ),
    Case(
        change="metrics.rotate_mb=1",
        context=(JSONL,),
        observe=curves,
        expected=(["metrics.jsonl"], ROTATED),
    ),
    Case(
        change="metrics.keep_mb=0",
        context=(JSONL, "metrics.rotate_mb=1"),
        observe=curves,
        expected=(ROTATED, ["metrics.jsonl"]),
    ),
    *(
        Case(
            change=f"hooks.{kind}=[['b']]",
            # The value itself is observed: the old value is another hook.
            context=(f"hooks.{kind}=[['a']]",),
            observe=of_hooks("hooks"),
            expected=({kind: (("a",),)}, {kind: (("b",),)}),
        )
        for kind in ("on_ghost", "on_champion", "on_exploit", "on_evaluation", "on_end", "on_event")
    ),
    Case(
        change="hooks.time_limit_s=5",
        context=ON_EVENT,
        observe=of_hooks("time_limit_s"),
        expected=(60.0, 5.0),
    ),
    Case(change="hooks.queue=5", context=ON_EVENT, observe=of_hooks("limit"), expected=(1000, 5)),
    Case(change=f"{RATE}=0.125", observe=trains_with, expected=({3e-4}, {0.125})),
]


def key_of(case: Case) -> str:
    return case.change.partition("=")[0]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new run, in which all policies start alike."""
    run_dir = tmp_path_factory.mktemp("made") / "run"
    document = {**DUEL, "populations": {"player": {"size": 4, "search_space": {}}}}
    config = validate_config(document)
    make_run_directory(run_dir)
    run_file = new_run_file(config, duel_spec(), name="test", launch_directory=".")
    create_run(run_dir, run_file, initial_weights={}, utc="now")
    return run_dir


@pytest.mark.parametrize("case", EFFECTS, ids=key_of)
def test_a_changed_key_changes_what_is_asked_for(
    case: Case, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case.observe is ray_answers:
        pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    found = []
    for number, changes in enumerate((case.context, (*case.context, case.change))):
        run_dir = shutil.copytree(made, tmp_path / str(number))
        with reopened(run_dir, *changes) as run:
            found.append(case.observe(run, Boundary(monkeypatch)))
    assert tuple(found) == case.expected


class Spawned:
    """A process that was asked for."""

    pid = 1

    def kill_group(self) -> None:
        """There is nothing to end."""


@pytest.mark.parametrize(
    ("devices", "dealt"),
    [
        (("cuda:0", "cuda:1"), ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0", "cuda:1"]),
        (("auto",), ["auto", "auto", "auto", "auto", "auto", "auto"]),
        (("cpu",) * 9, ["cpu", "cpu", "cpu", "cpu", "cpu", "cpu"]),
    ],
)
def test_devices_are_dealt_to_the_slots_in_turn_and_stay_there(
    devices: tuple[str, ...], dealt: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []

    def spawn(*_: object, device: str, nice: int, **__: object) -> Spawned:
        given.append(device)
        assert nice == 3
        return Spawned()

    monkeypatch.setattr(local, "spawn_learner", spawn)
    launcher = LocalLauncher(
        setup_path=tmp_path / "setup.json",
        endpoint="ipc://x",
        logs=tmp_path,
        devices=devices,
        nice=3,
    )
    # The fourth and the first learner end and are replaced.
    for slot in (0, 1, 2, 3, 3, 0):
        launcher.start(slot, ())
    assert given == [dealt[slot] for slot in (0, 1, 2, 3, 3, 0)]
