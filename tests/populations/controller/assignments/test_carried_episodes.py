"""Episodes that learners hold: who goes on with them, and what the controller believes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from msgspec import structs

from arena.types import Entrant, LearnerId, PolicyId, Seating
from arena.wire.messages import InFlight, Train
from populations.controller.assignments.jobs import holder_of
from populations.controller.assignments.validation import entrants_of
from populations.controller.state.events import AssignmentFinished, LearnerLeft, Ticked
from populations.records.rows import AssignmentRow, CheckpointRow
from tests.populations.controller.simulated import (
    DUEL,
    DUET,
    TAG,
    World,
    duel_spec,
    duet_spec,
    make_world,
    tag_spec,
)

POLICIES = 4
Names = tuple[PolicyId, ...]


@dataclass
class Holding:
    """What simulated learners hold: every seating of a policy's last assignment, some policies."""

    world: World
    capacity: int
    lacks_memory: bool = True
    held: dict[LearnerId, dict[Names, tuple[tuple[str, ...], frozenset[Seating]]]] = field(
        default_factory=dict
    )
    dropped: Counter[PolicyId] = field(default_factory=Counter)
    trained: list[tuple[LearnerId, Train, bool]] = field(default_factory=list)

    def step(self) -> bool:
        """Let every learner finish what it has."""
        self.world.now_s += 1.0
        moved = False
        for learner in list(self.world.given):
            queue = self.world.given[learner]
            message = queue[0] if queue else None
            event = self.world.work(learner)
            if event is None:
                if learner in self.world.stops:
                    self.world.stops.discard(learner)
                    self.world.handle(LearnerLeft(learner=learner, reason="stopped"))
                continue
            moved = True
            if isinstance(message, Train) and message.agent_steps:
                event = self.held_by(learner, message, event)
            self.world.handle(event)
        self.world.fit()
        self.world.explore()
        self.world.handle(Ticked())
        return moved

    def held_by(
        self, learner: LearnerId, message: Train, event: AssignmentFinished
    ) -> AssignmentFinished:
        """The result with what the learner holds after it; checks what it was told to go on."""
        team = tuple(trainee.policy for trainee in message.trainees)
        own = self.held.setdefault(learner, {})
        starts = tuple(t.checkpoint.key for t in message.trainees if t.checkpoint is not None)
        checkpoints, seatings = own.pop(team, ((), frozenset()))
        for other in [other for other in own if not set(team).isdisjoint(other)]:
            del own[other]  # `Environments.take` removes it, too
        if message.carried and checkpoints:
            # The learner continues episodes only with exactly these weights; it may have dropped
            # them.
            assert (checkpoints, seatings) == (starts, frozenset(message.carried))
        self.trained.append((learner, message, bool(message.carried and checkpoints)))
        named = entrants_of(message).items()
        by_entrants = dict(list(named)[: self.world.setup.num_envs])
        published = {p.policy: p.checkpoint.key for p in event.finished.checkpoints}
        own[team] = (
            tuple(published[t.policy] for t in message.trainees),
            frozenset(by_entrants.values()),
        )
        gone = list(own)[: max(len(own) - self.capacity, 0)]
        for names in gone:
            del own[names]
        dropped = [policy for names in gone for policy in names]
        self.dropped.update(dropped)
        finished = structs.replace(
            event.finished,
            in_flight=tuple(InFlight(entrants=names, num_envs=1) for names in by_entrants),
            dropped=tuple(dropped),
            metrics={
                **event.finished.metrics,
                "episode/dropped": float(len(dropped) if self.lacks_memory else 0),
            },
        )
        return structs.replace(event, finished=finished)

    def run(self) -> None:
        """Go on until the run is over."""
        for learner in list(self.world.state.crew.learners):
            self.world.given.setdefault(learner, [])
            self.world.beat(learner)
        for _ in range(2000):
            if self.world.over:
                return
            self.world.hear()
            self.step()
        raise AssertionError("the run is not over")


@dataclass
class LongEpisodes(Holding):
    """Episodes of 3,000 agent steps of their policy."""

    ended: list[tuple[PolicyId, int]] = field(default_factory=list)
    begun: Counter[PolicyId] = field(default_factory=Counter)

    def held_by(
        self, learner: LearnerId, message: Train, event: AssignmentFinished
    ) -> AssignmentFinished:
        event = super().held_by(learner, message, event)
        leader = message.trainees[0].policy
        _, _, goes_on = self.trained[-1]
        played = self.begun[leader] * goes_on + message.agent_steps
        num_ended, self.begun[leader] = divmod(played, 3000)
        self.ended.append((leader, num_ended))
        metrics = {**event.finished.metrics, "episode/count": float(num_ended)}
        return structs.replace(event, finished=structs.replace(event.finished, metrics=metrics))


RIVALS: dict[str, object] = {
    **TAG,
    "matchmaking": {"rivals": "learning", "opponents": 4},
    "learners": 2,
}
GAMES = {
    "duel": (DUEL, duel_spec),
    "duet": (DUET, duet_spec),
    "tag": (TAG, tag_spec),
    "rivals": (RIVALS, tag_spec),
}


def finished(
    capacity: int = 100,
    num_learners: int = 2,
    game: str = "duel",
    lacks_memory: bool = True,
    **changes: object,
) -> Holding:
    document, make_spec = GAMES[game]
    world = make_world({**document, **changes}, make_spec())
    for _ in range(num_learners):
        world.join()
    holding = Holding(world, capacity, lacks_memory)
    holding.run()
    return holding


def own_training(holding: Holding) -> Iterator[tuple[bool, bool]]:
    """Of each training: whether its weights were the learner's own last ones, and if it went on."""
    last: dict[PolicyId, tuple[LearnerId, str]] = {}
    made = {
        row.assignment_id: row
        for row in holding.world.committed
        if isinstance(row, CheckpointRow) and row.state == "present"
    }
    for learner, message, went_on in holding.trained:
        (trainee,) = message.trainees
        key = "" if trainee.checkpoint is None else trainee.checkpoint.key
        yield last.get(trainee.policy) == (learner, key), went_on
        last[trainee.policy] = learner, made[message.assignment_id].key


def num_trained_copies(holding: Holding) -> int:
    """Count generations that began with copied weights and were trained; the last may not be."""
    generations = {
        (trainee.policy, trainee.generation)
        for _, message, _ in holding.trained
        for trainee in message.trainees
    }
    exploited = holding.world.events("exploited")
    copied = {(event.subject, event.data["generation"]) for event in exploited}
    return len(generations & copied)


@pytest.mark.parametrize("num_learners", [1, 2, 3, 4])
@pytest.mark.slow
def test_a_policy_goes_on_where_it_trained_last_with_the_same_weights(num_learners: int) -> None:
    holding = finished(num_learners=num_learners)
    found = Counter(own_training(holding))
    assert found[True, False] == 0
    assert found[False, True] == 0
    # First assignments, copied weights and policies that fell behind begin new episodes.
    copies = num_trained_copies(holding)
    anew = found[False, False]
    assert POLICIES + copies <= anew <= POLICIES + copies + 8, found
    steps = [row.agent_steps for row in holding.world.state.tables.policies.values()]
    assert min(steps) >= 6000


@pytest.mark.slow
def test_explored_hyperparameters_go_on_and_copied_weights_begin_anew() -> None:
    # The policy that is ahead is copied.
    holding = finished(pbt={**DUEL["pbt"], "confidence": 0.0})  # type: ignore[dict-item]
    by_policy: dict[PolicyId, Train] = {}
    new_generation = Counter[tuple[str, bool]]()
    for _, message, went_on in holding.trained:
        (trainee,) = message.trainees
        before = by_policy.get(trainee.policy)
        if before is not None and before.trainees[0].generation != trainee.generation:
            new_generation["copied" if trainee.donor else "explored", went_on] += 1
        by_policy[trainee.policy] = message
    assert new_generation["copied", True] == 0
    assert new_generation["copied", False] > 0
    assert new_generation["explored", True] > 0


@pytest.mark.slow
def test_teams_go_on_together() -> None:
    holding = finished(game="duet")
    assert not holding.world.events("assignment_failed")
    went_on = sum(on for _, _, on in holding.trained)
    assert went_on > 0.7 * len(holding.trained)


@pytest.mark.parametrize("num_learners", [1, 2, 4])
def test_rivals_go_on_together_and_only_with_the_same_rival(num_learners: int) -> None:
    holding = finished(game="rivals", num_learners=num_learners)
    assert not holding.world.events("assignment_failed")
    last: dict[PolicyId, tuple[Names, LearnerId]] = {}
    found = Counter[tuple[bool, bool]]()
    for learner, message, went_on in holding.trained:
        names = tuple(trainee.policy for trainee in message.trainees)
        # The episodes continue if all players in them are the same and unchanged.
        is_as_left = {last.get(name) for name in names} == {(names, learner)}
        copied = any(trainee.donor is not None for trainee in message.trainees)
        found[is_as_left and not copied, went_on] += 1
        last |= dict.fromkeys(names, (names, learner))
    assert found[False, True] == 0
    assert found[True, True] > 0
    assert found[True, False] == 0
    # All members of a team share one record.
    known = holding.world.state.crew.episodes
    for policy, episodes in known.items():
        assert policy in episodes.team
        assert all(known[mate] is episodes for mate in episodes.team)


@pytest.mark.slow
def test_dropped_episodes_are_told_and_not_named_again() -> None:
    holding = finished(capacity=1, num_learners=2)
    events = holding.world.events("episodes_dropped")
    told = Counter(policy for event in events for policy in event.data["policies"])  # type: ignore[union-attr]
    assert told == holding.dropped
    assert told.total() > 10
    assert sum(event.data["episodes"] for event in events) == told.total()  # type: ignore[misc]
    assert not holding.world.events("assignment_failed")


@pytest.mark.slow
def test_episodes_that_are_gone_for_another_reason_are_no_lack_of_memory() -> None:
    holding = finished(capacity=1, num_learners=2, lacks_memory=False)
    assert holding.dropped.total() > 10
    assert not holding.world.events("episodes_dropped")


@pytest.mark.slow
def test_weights_of_episodes_in_flight_stay_on_disk() -> None:
    """Opponents are the latest checkpoints of others, which retention would remove."""
    holding = finished(
        game="tag",
        checkpoints={"keep": 1},
        matchmaking={"kind": "latest"},
        ghosts={"every_agent_steps": 10**6},
        pbt={"exploit": "none", "explore": "none"},
    )
    removed: dict[str, int] = {}
    named: Counter[str] = Counter()
    for at, row in enumerate(holding.world.committed):
        if isinstance(row, CheckpointRow) and row.state != "present":
            removed.setdefault(row.key, at)
        if isinstance(row, AssignmentRow) and isinstance(row.message, Train):
            for seating in row.message.carried if row.status == "queued" else ():
                for player in seating.players:
                    if player.weights is not None:
                        assert player.weights.key not in removed
                        named[player.weights.key] += 1
    assert removed
    assert len(named) > 20


def test_a_learner_that_is_lost_holds_nothing_any_more() -> None:
    world = make_world({**DUEL, "pbt": {"exploit": "none", "explore": "none"}})
    first = world.join()
    world.given.setdefault(first, [])
    world.beat(first)
    holding = Holding(world, capacity=100)
    for _ in range(30):
        holding.step()
    assert {episodes.learner for episodes in world.state.crew.episodes.values()} == {first}
    world.handle(LearnerLeft(learner=first, reason="stopped"))
    assert world.state.crew.episodes == {}
    second = world.join()
    world.given.setdefault(second, [])
    world.beat(second)
    message = next(m for m in world.given[second] if isinstance(m, Train))
    leader = world.state.tables.policies[message.trainees[0].policy]
    assert (
        holder_of(world.state.settings.config, world.state.tables, world.state.crew, (leader,))
        is None
    )
    # The first attempt's carried episodes are in the journal; the second attempt begins new ones.
    assert message.attempt == 2 or message.carried == ()


def lie(event: AssignmentFinished, *told: InFlight) -> AssignmentFinished:
    return structs.replace(event, finished=structs.replace(event.finished, in_flight=told))


@pytest.mark.parametrize("told", ["others", "twice", "none"])
def test_episodes_of_players_that_were_not_seated_are_not_believed(told: str) -> None:
    world = make_world()
    learner = world.join()
    world.given.setdefault(learner, [])
    world.beat(learner)
    while True:
        message = world.given[learner][0]
        event = world.work(learner)
        assert event is not None
        if isinstance(message, Train) and message.agent_steps:
            break
        world.handle(event)
    names = next(iter(entrants_of(message)))
    strangers = (Entrant("a" * 64), Entrant("b" * 64))
    said = {
        "others": (InFlight(entrants=strangers, num_envs=3),),
        "twice": (InFlight(entrants=names, num_envs=1),) * 2,
        "none": (InFlight(entrants=names, num_envs=0),),
    }[told]
    world.handle(lie(event, *said))
    (failed,) = world.events("assignment_failed")
    assert "in flight" in str(failed.data["reason"])
    assert world.state.crew.episodes == {}


def test_a_policy_held_elsewhere_is_moved_when_it_falls_behind() -> None:
    """One learner holds all and is slow; the other one takes over what waits too long."""
    world = make_world({**DUEL, "pbt": {"exploit": "none", "explore": "none"}})
    slow = world.join()
    world.given.setdefault(slow, [])
    world.beat(slow)
    holding = Holding(world, capacity=100)
    for _ in range(20):
        holding.step()
    fast = world.join()
    world.given.setdefault(fast, [])
    world.beat(fast)
    kept, world.given[slow] = world.given[slow], []
    for _ in range(40):
        world.state.crew.learners[slow].last_heard_s = world.now_s
        world.state.crew.learners[slow].progress_at_s = world.now_s
        holding.step()
    world.given[slow] = kept
    leased = {t.policy for m in kept if isinstance(m, Train) for t in m.trainees}
    moved = {row.policy: row.agent_steps for row in world.state.tables.policies.values()}
    free = [steps for policy, steps in moved.items() if policy not in leased]
    assert max(free) - min(free) <= 6 * 500


def test_doublings_are_counted_by_what_learners_say() -> None:
    world = make_world({**DUEL, "learners": 1})
    learner = world.join()
    world.given.setdefault(learner, [])
    world.beat(learner)
    counts: list[int] = []
    budgets: list[int] = []
    for _ in range(200):
        message = world.given[learner][0]
        event = world.work(learner)
        assert event is not None
        if isinstance(message, Train) and message.agent_steps:
            ended = 1.0 if len(counts) == 12 else 0.0
            metrics = {**event.finished.metrics, "episode/count": ended}
            event = structs.replace(
                event, finished=structs.replace(event.finished, metrics=metrics)
            )
            budgets.append(message.agent_steps)
        world.handle(event)
        if isinstance(message, Train) and message.agent_steps:
            counts.append(world.state.blame.doublings[message.trainees[0].policy])
        if len(counts) > 12:
            break
    assert counts[:4] == [1, 1, 1, 1]
    # The learner began new episodes, so the next assignment needs as many steps.
    assert counts[12] == max(counts) == 3
    assert budgets[:4] == [500] * 4
    assert {500, 1000} < set(budgets)


@pytest.mark.parametrize("capacity", [1, 2, 100])
@pytest.mark.slow
def test_every_assignment_ends_episodes_once_one_has(capacity: int) -> None:
    """Episodes of 3,000 agent steps, budgets of 300; what learners cannot hold begins anew."""
    changes = {
        "assignment": {"agent_steps": 300},
        "learners": 1,
        "pbt": {"exploit": "none", "explore": "none"},
        "stop": {"agent_steps_per_policy": 15_000},
    }
    world = make_world({**DUEL, **changes}, joined=1)
    holding = LongEpisodes(world, capacity)
    holding.run()
    for policy in world.state.tables.policies.values():
        ended = [num for name, num in holding.ended if name == policy.policy]
        first = next(index for index, num in enumerate(ended) if num)
        late = ended[first:]
        if capacity == 100:
            assert sum(late) >= (policy.agent_steps // 3000) - 1
        else:
            # The last assignment ends with the policy's training.
            assert all(late[:-1])


def test_length_is_known_from_matches_before_any_episode_ends_in_training() -> None:
    """The simulated learners' matches take five steps."""
    world = make_world({**DUEL, "evaluation": {"share": 0.9}})
    learner = world.join()
    world.given.setdefault(learner, [])
    world.beat(learner)
    is_evaluated = False
    while not is_evaluated:
        is_evaluated = not isinstance(world.given[learner][0], Train)
        event = world.work(learner)
        assert event is not None
        # No training episode has ended yet.
        world.handle(structs.replace(event, finished=structs.replace(event.finished, metrics={})))
    lengths = [row.episode_length for row in world.state.tables.policies.values()]
    assert 5.0 in lengths
    assert set(lengths) <= {0.0, 5.0}
