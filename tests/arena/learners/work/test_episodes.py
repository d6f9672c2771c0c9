"""Episodes that a learner holds between assignments."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from arena.learners.work.environments import Environments, HeldEpisodes, default_max_bytes
from arena.learning.ppo import Ppo
from arena.rollout.recorder import Learning
from arena.types import Player, PlayerId, PolicyId, Seating, Tally
from arena.wire.messages import Finished, Train
from tests.arena.learners.conftest import trainee

if TYPE_CHECKING:
    from arena.learners.work.worker import Worker
    from tests.arena.learners.conftest import Bench

POLICY = PolicyId("player/p000")
OTHER = PolicyId("player/p001")
RANDOM = Player(player=PlayerId("bot:random"))
LENGTH = 100
NUM_ENVS = 6
STEPS = 48
"""Decisions of a rollout: 8 calls of step, 6 environments, one decision each."""


@pytest.fixture
def long(bench: Bench) -> Bench:
    """A bench whose episodes take 100 steps, two thousand rollouts for all that are short."""
    make = bench.env

    def env() -> Any:
        made = make()
        made.length = lambda seed, episode: LENGTH
        return made

    bench.env = env
    return bench


def begin(bench: Bench, worker: Worker, *seatings: Seating, **changes: Any) -> Finished:
    start = bench.start(worker)
    message = bench.train(start, *(seatings or (bench.mirror(),)), agent_steps=STEPS, **changes)
    return bench.finished(worker.carry_out(message))


def next_train(
    bench: Bench,
    before: Finished,
    *seatings: Seating,
    carried: tuple[Seating, ...],
    agent_steps: int = STEPS,
    **changes: Any,
) -> Train:
    checkpoint = before.checkpoints[0].checkpoint
    updates = bench.manifest(checkpoint).learner_updates
    message = bench.train(
        checkpoint,
        *(seatings or (bench.mirror(),)),
        agent_steps=agent_steps,
        **{"learner_updates": updates, **changes},
    )
    return replace(message, carried=carried)


def lengths(answer: Finished) -> dict[str, tuple[int, int]]:
    return {str(tally.entrants[0]): (tally.matches, tally.length_sum) for tally in answer.tallies}


@pytest.mark.slow
def test_episodes_longer_than_assignments_end(long: Bench) -> None:
    worker = long.worker()
    answer = begin(long, worker)
    tallies: list[Tally] = []
    for _ in range(2 * LENGTH // 8 + 2):
        (in_flight,) = answer.in_flight
        assert in_flight.entrants == (f"{POLICY}#0", f"{POLICY}#0")
        # If all episodes end in one step, some environments wait so that later ends spread.
        assert in_flight.num_envs == NUM_ENVS or tallies
        message = next_train(long, answer, carried=(long.mirror(),))
        answer = long.finished(worker.carry_out(message))
        tallies += answer.tallies
    assert sum(tally.matches for tally in tallies) >= NUM_ENVS
    assert {tally.length_sum // tally.matches for tally in tallies} == {LENGTH}
    assert long.num_made == 1


def test_with_other_hyperparameters_they_go_on_and_count_for_the_new_generation(
    long: Bench,
) -> None:
    worker = long.worker()
    answer = begin(long, worker)
    hyperparameters = {"rollout_length": 8, "num_epochs": 1, "num_minibatches": 1}
    message = next_train(
        long,
        answer,
        carried=(long.mirror(),),
        agent_steps=NUM_ENVS * LENGTH,
        generation=4,
        hyperparameters=hyperparameters,
    )
    after = long.finished(worker.carry_out(message))
    assert {tally.entrants[0] for tally in after.tallies} == {f"{POLICY}#4"}
    # Eight steps of each episode were played before: all end, and no step is lost.
    assert sum(tally.matches for tally in after.tallies) == NUM_ENVS
    assert {tally.length_sum for tally in after.tallies} == {NUM_ENVS * LENGTH}


def test_copied_weights_begin_anew(long: Bench) -> None:
    worker = long.worker()
    answer = begin(long, worker)
    copy = long.start(worker, policy=OTHER, seed=6)
    message = replace(
        long.train(copy, long.mirror(), agent_steps=STEPS, donor=OTHER, generation=1),
        carried=(long.mirror(),),
    )
    after = long.finished(worker.carry_out(message))
    alone = long.worker()
    expected = long.finished(alone.carry_out(replace(message, carried=())))
    assert (after.checkpoints, after.tallies) == (expected.checkpoints, expected.tallies)
    assert answer.checkpoints != after.checkpoints


def test_episodes_beside_a_rival_are_over_once_one_of_both_learned_elsewhere(long: Bench) -> None:
    """They go on with both policies' very weights only, so nothing keeps them."""
    worker = long.worker()
    both = Seating(players=(long.me(), long.me(OTHER)))
    starts = [
        long.start(worker, policy=policy, seed=seed)
        for policy, seed in (
            (POLICY, 5),
            (OTHER, 6),
        )
    ]
    trainees = tuple(
        trainee(start, policy=policy) for start, policy in zip(starts, (POLICY, OTHER), strict=True)
    )
    message = long.train(None, both, agent_steps=STEPS, trainees=trainees)
    answer = long.finished(worker.carry_out(message))
    assert [held.entrants for held in answer.in_flight] == [(f"{POLICY}#0", f"{OTHER}#0")]
    assert {published.policy for published in answer.checkpoints} == {POLICY, OTHER}
    again = tuple(
        replace(
            trainees[index],
            checkpoint=published.checkpoint,
            learner_updates=long.manifest(published.checkpoint).learner_updates,
        )
        for index, published in enumerate(answer.checkpoints)
    )
    message = replace(message, trainees=again, carried=(both,))
    answer = long.finished(worker.carry_out(message))
    assert long.num_made == 1, "the same environments go on"
    environments = worker._environments
    assert set(environments._held) == {(POLICY, OTHER)}
    alone = Seating(players=(RANDOM, long.me(OTHER)))
    checkpoint = answer.checkpoints[1].checkpoint
    updates = long.manifest(checkpoint).learner_updates
    message = long.train(
        checkpoint, alone, agent_steps=STEPS // 2, policy=OTHER, learner_updates=updates
    )
    long.finished(worker.carry_out(message))
    assert set(environments._held) == {(OTHER,)}
    assert long.num_made == 1, "they were taken over"


def test_it_goes_on_only_with_what_it_is_told(long: Bench) -> None:
    """Other seatings than those that it holds, or none: as on another learner."""
    other = Seating(players=(long.me(), RANDOM))
    for carried in ((), (other,), (long.mirror(), other)):
        worker = long.worker()
        answer = begin(long, worker)
        message = next_train(long, answer, other, carried=carried)
        num_made = long.num_made
        after = long.finished(worker.carry_out(message))
        assert long.num_made == num_made, "the same environments begin anew"
        expected = long.finished(long.worker().carry_out(message))
        assert (after.checkpoints, after.tallies, after.in_flight) == (
            expected.checkpoints,
            expected.tallies,
            expected.in_flight,
        )


@pytest.mark.slow
def test_opponents_stay_until_the_end_though_their_files_are_gone(long: Bench) -> None:
    worker = long.worker()
    opponent = long.frozen(long.start(worker, policy=OTHER, seed=6), f"{OTHER}@000000000000")
    seating = Seating(players=(opponent, long.me()))
    answer = begin(long, worker, seating)
    assert opponent.weights is not None
    for path in sorted((long.root / opponent.weights.key).iterdir()):
        path.unlink()
    worker._equipment.players._frozen._values.clear()
    message = next_train(long, answer, carried=(seating,), agent_steps=3 * NUM_ENVS * LENGTH)
    after = long.finished(worker.carry_out(message))
    entrants = {tally.entrants: tally.matches for tally in after.tallies}
    assert entrants[opponent.weights.digest, f"{POLICY}#0"] == NUM_ENVS  # type: ignore[index]
    assert entrants[f"{POLICY}#0", f"{POLICY}#0"] > 0  # type: ignore[index]


def test_players_of_equal_weights_are_one_opponent(long: Bench) -> None:
    worker = long.worker()
    frozen = long.start(worker, policy=OTHER, seed=6)
    twins = [long.frozen(frozen, f"player/p{index:03d}@000000000000") for index in (1, 2)]
    seatings = [Seating(players=(twin, long.me())) for twin in twins]
    answer = begin(long, worker, *seatings)
    (in_flight,) = answer.in_flight
    assert in_flight.num_envs == NUM_ENVS
    after = worker.carry_out(
        next_train(long, answer, carried=(seatings[1],), agent_steps=NUM_ENVS * LENGTH // 2 - STEPS)
    )
    assert sum(tally.matches for tally in long.finished(after).tallies) == NUM_ENVS


def test_evaluation_in_between_disturbs_nothing(long: Bench) -> None:
    worker = long.worker()
    answer = begin(long, worker)
    message = next_train(long, answer, carried=(long.mirror(),))
    other = long.worker()
    begin(long, other)
    worker.carry_out(long.evaluate((RANDOM, RANDOM, 8)))
    one, two = (long.finished(w.carry_out(message)) for w in (worker, other))
    assert (one.checkpoints, one.in_flight) == (two.checkpoints, two.in_flight)


@pytest.mark.slow
def test_whole_episodes_are_a_function_of_the_message(long: Bench) -> None:
    message = long.train(
        long.start(long.worker()), long.mirror(), Seating(players=(RANDOM, long.me()))
    )
    message = replace(message, episodes=2, agent_steps=2**48, episode_length=float(LENGTH))
    worker = long.worker()
    answers = [long.finished(worker.carry_out(message)) for _ in range(2)]
    answers.append(long.finished(long.worker().carry_out(message)))
    for answer in answers:
        assert (answer.checkpoints, answer.tallies) == (
            answers[0].checkpoints,
            answers[0].tallies,
        )
        assert answer.in_flight == ()
        assert sum(tally.matches for tally in answer.tallies) == 2 * NUM_ENVS
        assert sum(tally.length_sum for tally in answer.tallies) == 2 * NUM_ENVS * LENGTH


@pytest.mark.parametrize(
    ("agent_steps", "episodes", "after"),
    [
        (STEPS, None, " in 16 rollouts"),
        # In deterministic mode the assignment ends long before any deadline.
        (2**48, 3, ""),
    ],
)
def test_who_never_decides_ends_its_assignment_with_a_fault(
    long: Bench, agent_steps: int, episodes: int | None, after: str
) -> None:
    """A trainee whose agents are never asked (review A4)."""
    make = long.env

    def env() -> Any:
        made = make()
        made.length = lambda seed, episode: 2
        made.reward = lambda seed, episode, step, agent: 0.0
        decide = made._deciding
        made._deciding = lambda b, population: [0 if i == 0 else -1 for i in decide(b, population)]
        return made

    long.env = env
    worker = long.worker()
    start = long.start(worker)
    seating = Seating(players=(RANDOM, long.me()))
    message = replace(long.train(start, seating, agent_steps=agent_steps), episodes=episodes)
    answer = long.failed(worker.carry_out(message))
    assert answer.kind == "environment"
    assert f"{POLICY} made no decision{after}" in answer.reason


class Counting:
    """A bot that remembers how many decisions it has made in each game."""

    made: ClassVar[list[Counting]] = []

    def __init__(self) -> None:
        self.made.append(self)
        self.counts: dict[tuple[int, str], int] = {}
        self.finished: list[int] = []

    def reset(self, game: int, *, seat: str, agents: tuple[str, ...], seed: int) -> None:
        if (game, seat) in self.counts:
            self.finished.append(self.counts[game, seat])
        self.counts[game, seat] = 0

    def act(
        self,
        observation: Any,
        action_mask: Any,
        *,
        agent: str,
        rng: Any,
        games: Any,
    ) -> Any:
        for game in games.tolist():
            self.counts[game, agent] += 1
        return np.ones(len(games), dtype=np.int64)


@pytest.mark.slow
def test_a_bots_game_goes_on_though_others_play_with_it_in_between(long: Bench) -> None:
    bot = Player(player=PlayerId(f"bot:{__name__}:Counting"))
    worker = long.worker(bots=(bot.player,))
    Counting.made.clear()
    seating = {policy: Seating(players=(long.me(policy), bot)) for policy in (POLICY, OTHER)}
    answers = {}
    for policy, seed in ((POLICY, 5), (OTHER, 6)):
        start = long.start(worker, policy=policy, seed=seed)
        message = long.train(start, seating[policy], agent_steps=STEPS // 2, policy=policy)
        answers[policy] = long.finished(worker.carry_out(message))
    for _ in range(LENGTH // 8 + 1):
        for policy, before in answers.items():
            message = next_train(
                long,
                before,
                seating[policy],
                carried=(seating[policy],),
                agent_steps=STEPS // 2,
                policy=policy,
            )
            answers[policy] = long.finished(worker.carry_out(message))
    finished = [count for made in Counting.made for count in made.finished]
    assert finished
    assert set(finished) == {LENGTH // 2}, "it was told of a new game in the middle of one"


@pytest.mark.slow
def test_episodes_that_wait_keep_no_algorithms(long: Bench) -> None:
    """Algorithms in memory are bounded by `Players`, however many policies' episodes are held."""
    worker = long.worker()
    begin(long, worker)
    (waiting,) = worker._environments._held.values()
    gc.collect()
    seen: set[int] = set()
    todo: list[Any] = [waiting]
    while todo:
        value = todo.pop()
        if id(value) in seen or isinstance(value, type | ModuleType | FunctionType):
            continue
        seen.add(id(value))
        assert not isinstance(value, Learning | Ppo)
        if not isinstance(value, torch.Tensor | str):
            todo += gc.get_referents(value)


def test_a_stop_ends_a_rollout_of_slow_environments(long: Bench) -> None:
    worker = long.worker()
    start = long.start(worker)
    asked: list[None] = []

    def should_stop() -> bool:
        asked.append(None)
        return len(asked) > 3

    long.should_stop = should_stop
    message = long.train(start, long.mirror(), agent_steps=10**9, may_stop_early=True)
    assert long.failed(worker.carry_out(message)).kind == "stopped"
    assert len(asked) == 4


def test_every_step_of_an_optimizer_is_progress(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    before = bench.progress.turns
    answer = worker.carry_out(bench.train(start, bench.mirror(), agent_steps=STEPS))
    updates = bench.manifest(bench.published(answer)).learner_updates
    # The progress is eight calls of step, four minibatches, and the update itself.
    assert bench.progress.turns - before == 8 + updates + 1
    worker.close()
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1).step()
    assert bench.progress.turns - before == 8 + updates + 1


class Batch:
    """A batch of environments that takes memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        memory.batches += 1

    def close(self) -> None:
        self.memory.batches -= 1
        self.memory.closed += 1


class Memory:
    """A process that took 100 bytes before it made any batch, and takes 10 for each."""

    def __init__(self) -> None:
        self.batches = self.closed = 0

    def resident(self) -> int:
        return 100 + 10 * self.batches


def held(env: Any, num_envs: int = 4) -> HeldEpisodes:
    collector: Any = SimpleNamespace(in_flight=lambda: {0: num_envs})
    seating = Seating(players=(RANDOM,))
    return HeldEpisodes(
        env=env, collector=collector, seatings=(seating,), actors={}, checkpoints=()
    )


def environments(memory: Memory, *, max_bytes: int) -> Environments:
    make: Any = lambda lesson: Batch(memory)  # noqa: E731
    return Environments(make, max_bytes=max_bytes, resident_bytes=memory.resident)


def team(index: int) -> tuple[PolicyId, ...]:
    return (PolicyId(f"player/p{index:03d}"),)


def test_memory_is_bounded_and_the_longest_unused_go_first() -> None:
    memory = Memory()
    some = environments(memory, max_bytes=150)
    some.matches()
    some.release()
    for index in range(20):
        assert some.take(team(index)) is None
        some.hold(team(index), held(some.begin()))
        assert memory.resident() <= 150
    assert memory.batches == 5
    assert memory.closed == 0, "a batch is taken over, not made anew"
    dropped, num_episodes = some.take_dropped()
    assert dropped == tuple(policy for index in range(16) for policy in team(index))
    assert num_episodes == 4 * 16
    assert some.take_dropped() == ((), 0)
    assert [index for index in range(20) if some.take(team(index)) is not None] == [16, 17, 18, 19]
    some.close()


def test_a_container_bounds_what_learners_may_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr("arena.processes.machine_memory.CGROUP_LIMIT", limit)
    limit.write_text("max\n")
    unbounded = default_max_bytes()
    limit.write_text(f"{2**20}\n")
    assert default_max_bytes() == 2**19 // (os.cpu_count() or 1) < unbounded


def test_what_was_taken_is_used_last() -> None:
    memory = Memory()
    some = environments(memory, max_bytes=130)
    for index in (0, 1, 2):
        some.hold(team(index), held(some.begin()))
    again = some.take(team(0))
    assert again is not None
    some.hold(team(0), again)
    some.hold(team(3), held(some.begin()))
    assert some.take_dropped()[0] == team(1)


def test_memory_that_a_process_keeps_costs_no_more_episodes() -> None:
    memory = Memory()
    some = environments(memory, max_bytes=150)
    for index in range(4):
        some.hold(team(index), held(some.begin()))
    resident = 200
    some._resident_bytes = lambda: resident
    for _ in range(3):
        for index in (1, 2, 3):
            again = some.take(team(index))
            assert again is not None
            some.hold(team(index), again)
    assert some.take_dropped()[0] == team(0)
    resident = 210
    again = some.take(team(3))
    assert again is not None
    some.hold(team(3), again)
    assert some.take_dropped()[0] == team(1)


def test_a_batch_that_broke_is_closed_and_one_that_is_free_is_used_again() -> None:
    memory = Memory()
    some = environments(memory, max_bytes=1000)
    first = some.begin()
    some.release()
    assert some.begin() is first
    some.discard()
    assert (memory.batches, memory.closed) == (0, 1)
    matches = some.matches()
    some.discard()
    assert some.matches() is not matches
    some.close()
    assert memory.batches == 0


def test_a_new_lesson_has_new_batches_and_drops_nothing_that_is_counted() -> None:
    memory = Memory()
    made: list[int | None] = []

    def make(lesson: int | None) -> Any:
        made.append(lesson)
        return Batch(memory)

    some = Environments(make, max_bytes=10**9, resident_bytes=memory.resident)
    matches = some.matches()
    some.release()
    some.hold(team(0), held(some.begin()))
    some.begin()
    some.release()
    some.enter(0)
    assert (made, memory.closed) == ([None, 0, 0], 0)
    some.enter(1)
    # The previous lesson's held and spare environments are closed; that of matches is the same in
    # all lessons.
    assert memory.closed == 2
    assert some.take(team(0)) is None
    some.begin()
    some.release()
    assert made == [None, 0, 0, 1]
    assert some.matches() is matches
    assert some.take_dropped() == ((), 0)


def test_the_batch_for_matches_is_never_spare_though_other_processes_were_lost() -> None:
    memory, made = Memory(), []

    def make(lesson: int | None) -> Any:
        made.append(lesson)
        return Batch(memory)

    some = Environments(make, max_bytes=10**9, resident_bytes=memory.resident)
    some.enter(0)
    matches = some.matches()
    # Training fails at its begin: the batch in use was that for matches, which spans all ranks.
    some.lose()
    some.release()
    assert some.begin() is not matches
    assert made == [None, 0]
    assert some.matches() is matches
    assert memory.closed == 0
