"""Simulated learners who hold a conversation that is recorded: strengths are planted, time is not.

Used where a conversation is made, never where it is compared.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from arena.checkpoints.files import file_records
from arena.checkpoints.manifest import Manifest
from arena.types import SeatOpenings, Tally, trainee_entrant
from arena.wire.messages import (
    Evaluate,
    Failed,
    Finished,
    Goodbye,
    Heartbeat,
    InFlight,
    Refuse,
    Stop,
    Train,
    Trainee,
    Welcome,
)
from populations.config.run_file import learner_setup
from populations.simulation.learner import SimulatedLearner
from populations.simulation.planted import PlantedModel, Weights, make_landscape
from tests.goldens.conversations.rule import files_of
from tests.goldens.conversations.today import plain, run_file_of
from tests.goldens.forms import Document

START_S = 1.0
BEAT_S = 4.0
ANSWER_S = {"fit": 0.7, "exploration": 0.3, "check": 0.05, "removal": 0.1}
"""Seconds that a worker thread takes for an answer."""


class _Learner(SimulatedLearner):
    """Simulated training whose checkpoints are those of the rule."""

    def _publish(self, message: Train, trainee: Trainee, weights: Weights) -> Manifest:
        simulated = SimulatedLearner._publish(self, message, trainee, weights)
        files = files_of(message.assignment_id, trainee.policy)
        manifest = replace(simulated, files=file_records(files))
        self.weights[manifest.weights_digest] = weights
        self.origins[manifest.digest] = manifest.weights_digest
        return manifest


@dataclass(slots=True, eq=False)
class _Member:
    """A learner process. `queue` holds its assignments, the running one first."""

    name: str
    slot: int | None
    speed: float
    queue: list[Train | Evaluate] = field(default_factory=list)
    taken: set[tuple[int, int]] = field(default_factory=set)
    progress: int = 0
    begun_s: float = 0.0
    is_gone: bool = False
    is_silent: bool = False


class Crew:
    """The learners of a run, and the lines of the conversation so far."""

    def __init__(self, setting: Document) -> None:
        run_file = run_file_of(setting)
        about = setting["crew"]
        model = PlantedModel(**about.get("model", {}))
        populations = run_file.config.populations
        self._learner = _Learner(
            setup=learner_setup(run_file, root=Path("golden")),
            model=model,
            landscapes={
                name: make_landscape(one.search_space, start=one.start_values, width=model.width)
                for name, one in populations.items()
            },
            agent_steps_per_s=about["agent_steps_per_s"],
            matches_per_s=about["matches_per_s"],
            episode_length=about.get("episode_length", 20),
        )
        self._troubles: Mapping[int, str] = about.get("troubles", {})
        self._lies: Mapping[str, list[Document]] = about.get("lies", {})
        self._broken: Mapping[str, tuple[float, float, str]] = about.get("broken", {})
        self._holds_episodes: bool = about.get("holds_episodes", False)
        self._longest_s: float = setting["longest_s"]
        self.lines: list[Document] = []
        self._agenda: list[tuple[float, int, Callable[[], Document | None]]] = []
        self._planned = self._begun = 0
        self._now_s = 0.0
        self._members: dict[str, _Member] = {}
        for line in setting.get("says", ()):
            self._plan(line["at"], partial(dict, line))

    def next(self, *, before_s: float) -> Document | None:
        """See `Cast`."""
        assert before_s < self._longest_s, "the run does not end"
        while self._agenda and self._agenda[0][0] <= before_s:
            self._now_s, _, happen = heapq.heappop(self._agenda)
            if (line := happen()) is not None:
                self.lines.append({**line, "at": self._now_s})
                return self.lines[-1]
        self._now_s = before_s
        return None

    def _plan(self, after_s: float, happen: Callable[[], Document | None]) -> None:
        self._planned += 1
        # The time is rounded, so that the stored time is exact.
        at_s = round(self._now_s + after_s, 3)
        heapq.heappush(self._agenda, (at_s, self._planned, happen))

    def hear(self, line: Document, message: Any) -> None:
        """See `Cast`."""
        self.lines.append(line)
        self._now_s = line["at"]
        match line:
            case {"asks": word}:
                self._plan(ANSWER_S[word], lambda: {"answer": word})
            case {"start": slot, "populations": populations}:
                self._plan(START_S, lambda: self._join(slot, populations))
            case {"kill": slot}:
                for member in self._members.values():
                    member.is_gone = member.is_gone or member.slot == slot
            case {"to": learner} if learner in self._members:
                self._told(self._members[learner], message)

    def _told(self, member: _Member, message: Any) -> None:
        match message:
            case Train() | Evaluate():
                lease = message.assignment_id, message.attempt
                if lease not in member.taken:
                    member.taken.add(lease)
                    member.queue.append(message)
                    if len(member.queue) == 1:
                        self._begin(member)
            case Stop():
                self._plan(0.2, lambda: self._stop(member))
                self._plan(0.4, lambda: self._say(member, Goodbye(reason="stopped")))
                self._plan(0.6, lambda: self._end(member, 0))
            case Refuse():
                self._plan(0.2, lambda: self._end(member, 0))
            case Welcome():
                self._plan(0.0, lambda: self._beat(member))

    def _say(self, member: _Member, message: Any, **made: Any) -> Document | None:
        if member.is_gone or member.is_silent:
            return None
        return {"at": 0.0, "from": member.name, type(message).__name__: {**plain(message), **made}}

    def _join(self, slot: int, populations: list[str]) -> Document | None:
        number = len(self._members) + 1
        # Every second learner is slower.
        member = _Member(f"host-{number}", slot, 1.0 if slot % 2 == 0 else 0.8)
        self._members[member.name] = member
        about = {
            "pid": 1000 + number,
            "host": "host",
            "arena_version": "0.1.0",
            "device": "cpu",
            "slots": 1,
            "populations": populations,
        }
        return {"at": 0.0, "from": member.name, "slot": slot, "Hello": about}

    def _end(self, member: _Member, code: int) -> Document | None:
        if member.is_gone or member.slot is None:
            return None
        member.is_gone = True
        return {"at": 0.0, "ends": member.slot, "code": code}

    def _stop(self, member: _Member) -> Document | None:
        if not member.queue:
            return None
        first = member.queue[0]
        member.queue.clear()
        return self._say(
            member,
            Failed(
                assignment_id=first.assignment_id,
                attempt=first.attempt,
                kind="stopped",
                reason="told to stop",
            ),
        )

    def _beat(self, member: _Member) -> Document | None:
        if member.is_gone or member.is_silent:
            return None
        self._plan(BEAT_S, lambda: self._beat(member))
        return self._heartbeat(member)

    def _heartbeat(self, member: _Member) -> Document | None:
        member.progress += 1
        first = member.queue[0] if member.queue else None
        steps = 0
        if isinstance(first, Train):
            speed = self._learner.agent_steps_per_s * member.speed
            steps = min(int(speed * (self._now_s - member.begun_s)), first.agent_steps)
        return self._say(
            member,
            Heartbeat(
                assignment_id=None if first is None else first.assignment_id,
                attempt=0 if first is None else first.attempt,
                progress=member.progress,
                agent_steps=steps,
                rss_bytes=10**8,
            ),
        )

    def _begin(self, member: _Member) -> None:
        message = member.queue[0]
        member.begun_s = self._now_s
        self._begun += 1
        trouble = self._troubles.get(self._begun) or self._trouble_of_policies(message)
        lies = self._next_lies(message)
        finished, manifests = self._learner.carry_out(message)
        duration_s = round(finished.duration_s / member.speed, 3)
        finished = self._with_details(replace(finished, duration_s=duration_s), message)
        self._plan(0.1, lambda: self._heartbeat(member) if message in member.queue else None)
        fails_s = 0.5 * duration_s
        match trouble:
            case "silent":
                member.is_silent = True
            case "ends":
                self._plan(fails_s, lambda: self._end(member, -11))
            case None | "twice" | "forged":
                forged = 1 if trouble == "forged" else lies.get("manifest")
                made = [
                    {
                        "policy": manifest.policy,
                        "agent_steps": manifest.agent_steps,
                        "learner_updates": manifest.learner_updates,
                        **({"forged": forged} if forged else {}),
                    }
                    for manifest in manifests.values()
                ]
                said = {"checkpoints": made, **lies.get("finished", {})}
                if "tally" in lies and finished.tallies:
                    first, *others = plain(finished.tallies)
                    lie = {**first, **lies["tally"]}
                    said["tallies"] = [lie, *([lie] if "twice" in lies else []), *others]
                say = partial(self._say, member, finished, **said)
                self._plan(duration_s + 0.1, lambda: self._done(member, message) and say())
                if trouble == "twice":
                    self._plan(duration_s + 3.0, say)
            case kind:
                failed = Failed(
                    assignment_id=message.assignment_id,
                    attempt=message.attempt,
                    kind=kind,
                    reason=f"planted: {kind}",
                    policy=message.trainees[0].policy if isinstance(message, Train) else None,
                )
                self._plan(
                    fails_s, lambda: self._done(member, message) and self._say(member, failed)
                )

    def _next_lies(self, message: Train | Evaluate) -> Document:
        """What a result says wrongly: after each one that is right, of births none."""
        lies = self._lies.get(type(message).__name__, [])
        if not lies or (isinstance(message, Train) and not message.agent_steps):
            return {}
        return lies.pop(0)

    def _trouble_of_policies(self, message: Train | Evaluate) -> str | None:
        """The failure of a policy that fails between two moments."""
        trainees = message.trainees if isinstance(message, Train) else ()
        for trainee in trainees:
            begin_s, end_s, kind = self._broken.get(trainee.policy, (0.0, 0.0, ""))
            if begin_s <= self._now_s < end_s:
                return kind
        return None

    def _done(self, member: _Member, message: Train | Evaluate) -> Any:
        """Whether it had this assignment; it begins its next one."""
        if member.is_gone or member.is_silent or message not in member.queue:
            return None
        member.queue.remove(message)
        if member.queue:
            self._begin(member)
        return True

    def _with_details(self, finished: Finished, message: Train | Evaluate) -> Finished:
        """Add what simulated learners leave out: openings, and episodes that go on."""
        if isinstance(message, Evaluate):
            tallies = tuple(_with_openings(tally) for tally in finished.tallies)
            return replace(finished, tallies=tallies)
        if not (self._holds_episodes and finished.tallies):
            return finished
        entrants = finished.tallies[0].entrants
        mine = {trainee_entrant(one.policy, generation=one.generation) for one in message.trainees}
        if not mine.issubset(entrants):
            return finished
        return replace(finished, in_flight=(InFlight(entrants=entrants, num_envs=2),))


def _with_openings(tally: Tally) -> Tally:
    """Half of the matches begin with the first action, the others with the last."""
    if len(tally.pairs) != 1 or len(tally.entrants) != 2:
        return tally
    (pair,) = tally.pairs
    first, rest = tally.matches - tally.matches // 2, tally.matches // 2
    openings = []
    for wins in (pair.wins, pair.losses):
        points = wins + 0.5 * pair.draws
        # The matches with the first action get as many of the points as possible.
        own = min(points, float(first))
        actions, matches, scores = [0], [first], [own]
        if rest:
            actions, matches, scores = [0, 2], [first, rest], [own, points - own]
        openings.append(
            SeatOpenings(actions=tuple(actions), matches=tuple(matches), points=tuple(scores))
        )
    return replace(tally, distinct=tally.matches - tally.matches // 4, openings=tuple(openings))
