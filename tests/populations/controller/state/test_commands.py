"""Commands: plain data, each of which the server carries out with the effect that it names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from arena.types import LearnerId, PolicyId
from arena.wire.messages import FromController, Goodbye, Refuse
from populations.controller.evolution.exploring import answer
from populations.controller.evolution.generations import history
from populations.controller.monitoring.sinks import Sinks
from populations.controller.rating_input import snapshot
from populations.controller.server.server import Server
from populations.controller.state import events
from populations.controller.state.events import (
    CheckpointsRemoved,
    Command,
    EndRun,
    Event,
    ExploreHyperparameters,
    FitRatings,
    GhostsLinked,
    HyperparametersExplored,
    KillLearner,
    LearnerLeft,
    LearnerUnreachable,
    LinkGhosts,
    RatingsFitted,
    RemoveCheckpoints,
    SendMessage,
    StartLearner,
    WriteMetrics,
)
from tests.populations.controller.server.test_server import (
    NoLauncher,
    RecordingJournal,
    ScriptedTransport,
)
from tests.populations.controller.simulated import World, make_world

LEARNER = LearnerId("learner-1")
KINDS = tuple(Command.__subclasses__())


class Launcher(NoLauncher):
    """Notes what it is asked for."""

    def __init__(self, log: list[object]) -> None:
        self.log = log

    def start(self, slot: int, populations: tuple[str, ...]) -> None:
        self.log.append(("start", slot, populations))

    def kill(self, slot: int, *, dump_stacks: bool = False) -> None:
        self.log.append(("kill", slot, dump_stacks))


class Transport(ScriptedTransport):
    """Notes what is sent, to whom, and delivers it or not."""

    is_delivered = True

    def send(self, learner: LearnerId, message: FromController) -> bool:
        self.log.append((learner, message))
        return self.is_delivered


class Sink:
    """Notes what is written."""

    def __init__(self, log: list[object]) -> None:
        self.log = log

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        self.log.append((policy, agent_steps, metrics))

    def flush(self) -> None:
        return

    def close(self) -> None:
        return


@dataclass
class Room:
    """A server of a new run, and what others were asked for."""

    world: World
    server: Server
    transport: Transport
    log: list[object] = field(default_factory=list)

    def carry_out(self, command: Command) -> list[object]:
        """Carry a command out; what was asked for, and the events that answer it."""
        self.server._carry_out(command)
        for threads in (self.server._fitter, self.server._worker, self.server._reader):
            threads.shutdown(wait=True)
        answers: Iterator[Event] = self.server._inbox.drain()
        return [*self.log, *answers]


@pytest.fixture
def room(tmp_path: Path) -> Room:
    world = make_world()
    log: list[object] = []
    transport = Transport(log, world.hello(LEARNER))
    server = Server(
        run_dir=tmp_path,
        state=world.state,
        journal=RecordingJournal([], full_at="never"),
        transport=transport,
        launcher=Launcher(log),
        sinks=Sinks({"test": lambda: Sink(log)}),
    )
    return Room(world=world, server=server, transport=transport, log=log)


def question(world: World) -> ExploreHyperparameters:
    """A question for the first policy's hyperparameters."""
    policy = next(iter(world.state.tables.policies.values()))
    return ExploreHyperparameters(
        policy=policy.policy,
        rule=world.state.settings.explore["player"],
        hyperparameters=policy.hyperparameters,
        search_space=world.state.settings.config.populations["player"].search_space,
        history=history(world.state.settings.config, world.state.fits, policy),
        agent_steps=0,
        seed=(1, 2, 3),
    )


REFUSAL = Refuse(reason="the run is over")
POLICY = PolicyId("player/p000")

EXAMPLES: dict[type[Command], Callable[[World], Command]] = {
    SendMessage: lambda world: SendMessage(learner=LEARNER, message=REFUSAL),
    StartLearner: lambda world: StartLearner(slot=1, populations=("player",)),
    KillLearner: lambda world: KillLearner(slot=1),
    FitRatings: lambda world: FitRatings(known=snapshot(world.state.league)),
    ExploreHyperparameters: question,
    LinkGhosts: lambda world: LinkGhosts(ghosts=()),
    RemoveCheckpoints: lambda world: RemoveCheckpoints(keys=()),
    WriteMetrics: lambda world: WriteMetrics(policy="run", agent_steps=7, metrics={"a/b": 1.0}),
    EndRun: lambda world: EndRun(),
}

ANSWERS: dict[type[Command], type[Event]] = {
    FitRatings: RatingsFitted,
    ExploreHyperparameters: HyperparametersExplored,
    LinkGhosts: GhostsLinked,
    RemoveCheckpoints: CheckpointsRemoved,
}
"""What the docstrings name as answers."""

ASKED: dict[type[Command], object] = {
    SendMessage: (LEARNER, REFUSAL),
    StartLearner: ("start", 1, ("player",)),
    KillLearner: ("kill", 1, False),
    WriteMetrics: ("run", 7, {"a/b": 1.0}),
}


def test_every_class_of_the_module_is_a_command() -> None:
    classes = {
        found
        for _, found in inspect.getmembers(events, inspect.isclass)
        if issubclass(found, Command) and found is not Command
    }
    assert classes == set(KINDS)
    assert set(EXAMPLES) == set(KINDS), "each has an example here"
    assert ANSWERS.keys() | ASKED.keys() | {EndRun} == set(KINDS), "each has an effect here"


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_is_carried_out(kind: type[Command], room: Room) -> None:
    effects = room.carry_out(EXAMPLES[kind](room.world))
    assert room.server._ended == (kind is EndRun)
    if kind in ANSWERS:
        assert [type(effect) for effect in effects] == [ANSWERS[kind]]
    else:
        assert effects == ([] if kind is EndRun else [ASKED[kind]])


def test_a_kill_writes_stacks_where_that_is_asked_for(room: Room) -> None:
    assert room.carry_out(KillLearner(slot=3, dump_stacks=True)) == [("kill", 3, True)]


def test_a_question_is_answered_for_its_policy_and_alike_when_repeated(room: Room) -> None:
    (first,) = room.carry_out(question(room.world))
    assert isinstance(first, HyperparametersExplored)
    assert (first.policy, first.problem) == (POLICY, None)
    assert answer(question(make_world())) == first


def test_only_an_assignment_that_cannot_be_delivered_is_heard_of(room: Room) -> None:
    room.transport.is_delivered = False
    sent: list[Command] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(World, "carry_out", lambda self, command: sent.append(command))
        room.world.join()
    messages = [command for command in sent if isinstance(command, SendMessage)]
    # The messages are a welcome and two assignments.
    assert len(messages) == 3
    for command in messages:
        room.server._carry_out(command)
    assert room.server._inbox.is_empty, "what it said last may be on its way"
    room.transport.script = [(LEARNER, Goodbye(reason="preempted"))]
    room.server._hear()
    left = LearnerLeft(learner=LEARNER, reason="preempted")
    assert list(room.server._inbox.drain()) == [left, LearnerUnreachable(learner=LEARNER)]
    assert len(room.log) == 3, "nothing is sent again"
