"""Environments that raise, or say what cannot be: F21, F22, F23."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arena.environment_spec import EnvironmentRequest
from arena.envs.base import BatchedEnv, Turn
from arena.envs.chance import episode_seed
from arena.envs.checks.check import check_environment
from arena.envs.describe import environment_facts
from arena.envs.one_by_one.envs import FREE_FAULTS
from arena.errors import EnvironmentFault
from arena.learners.work.worker import Worker
from arena.matches.match import Block, play_matches
from arena.matches.seating import make_seats
from arena.rollout.collector import Collector
from arena.types import Entrant, Tally
from arena.wire.messages import Failed, Finished
from populations.controller.state.events import AssignmentFailed
from tests.arena.learners.conftest import evaluate, mirror, train
from tests.arena.samples import Always, make_env
from tests.faults.workers import (
    ASSETS,
    NUM_ENVS,
    RANDOM,
    facts,
    first_checkpoint,
    make_worker,
)
from tests.populations.controller.simulated import DUEL, make_world
from tests.populations.rows import make_failed

RAISES = ("reset_raises", "step_raises")
LIES = (
    "nan_reward",
    "infinite_reward",
    "nan_observation",
    "infinite_observation",
    "wrong_shape",
    "wrong_dtype",
    "empty_mask",
    "agent_missing",
)
IDS = ("faulty:Rounds", "faulty:turns")
SEEDS = (3, 1, 4, 1)
SHARE = 0.15


def make_batch(
    environment: str,
    *,
    faults: list[EnvironmentFault] | None,
    cooperation: bool = False,
    **kwargs: object,
) -> BatchedEnv:
    """Four environments; what breaks is noted, or raised where nobody notes it."""
    spec = facts(environment, kwargs)
    return make_env(
        spec,
        num_envs=NUM_ENVS,
        sides={"all": spec.agents} if cooperation else None,
        populations={"player": spec.agents},
        on_fault=None if faults is None else faults.append,
    )


def is_broken(b: int, episode: int, *, share: float = SHARE) -> bool:
    """Whether an episode's seed is one of those for which the environment breaks."""
    seed = episode_seed(SEEDS[b], episode=episode)
    return bool(np.random.default_rng(seed).random() < share)


def play(env: BatchedEnv, turn: Turn, *, num_steps: int) -> None:
    """Always the first action."""
    for _ in range(num_steps):
        turn = env.step({name: group.new_actions() for name, group in turn.groups.items()})


def check_finite(turn: Turn) -> None:
    """Nothing that cannot be gets through, and every decision can be made."""
    assert turn.reward.isfinite().all()
    for group in turn.groups.values():
        asked = group.agent_index >= 0
        assert group.observation[asked].isfinite().all()
        assert asked.any(dim=1).all()
        if group.action_mask is not None:
            assert group.action_mask[asked].any(dim=1).all()


@pytest.mark.parametrize("environment", IDS)
@pytest.mark.parametrize("fault", [*RAISES, *LIES])
def test_exactly_the_broken_episodes_are_void(environment: str, fault: str) -> None:
    faults: list[EnvironmentFault] = []
    env = make_batch(environment, faults=faults, fault=fault, share=SHARE)
    turn = env.reset(SEEDS)
    assert not turn.episode_over.any()
    assert turn.void is None
    ends: list[list[bool]] = [[] for _ in SEEDS]
    for _ in range(80):
        turn = env.step({name: group.new_actions() for name, group in turn.groups.items()})
        check_finite(turn)
        void = torch.zeros(NUM_ENVS, dtype=torch.bool) if turn.void is None else turn.void
        assert not (void & ~turn.episode_over).any()
        assert not turn.reward[void].any()
        assert not (turn.terminated | turn.truncated)[void].any()
        assert turn.score[void].isnan().all()
        for b in turn.episode_over.nonzero().flatten().tolist():
            ends[b].append(bool(void[b]))
    env.close()
    for b, ended in enumerate(ends):
        # An episode whose reset fails never begins; the next one begins in the same call.
        never_begun = fault == "reset_raises"
        expected = [is_broken(b, episode) and not never_begun for episode in range(len(ended))]
        assert ended == expected
    assert len(faults) >= sum(map(sum, ends))
    assert faults
    assert all(environment in str(found) for found in faults)


@pytest.mark.parametrize("environment", IDS)
@pytest.mark.parametrize("fault", RAISES)
def test_each_end_names_its_episode(environment: str, fault: str) -> None:
    env = make_batch(environment, faults=[], fault=fault, share=SHARE)
    turn = env.reset(SEEDS)
    ends: list[list[int]] = [[] for _ in SEEDS]
    for _ in range(80):
        turn = env.step({name: group.new_actions() for name, group in turn.groups.items()})
        assert turn.episode is not None
        for b in turn.episode_over.nonzero().flatten().tolist():
            ends[b].append(int(turn.episode[b]))
    env.close()
    for b, ended in enumerate(ends):
        # Episodes that never begin are numbered, too.
        never = fault == "reset_raises"
        begun = [k for k in range(100) if not (never and is_broken(b, k))]
        assert ended == begun[: len(ended)]
        assert len(ended) > 5


def compare_in_cooperation(*, num_matches: int, fault: str, share: float) -> Tally:
    """Home chooses 0, away 1, with which the environment may break."""
    faults: list[EnvironmentFault] = []
    env = make_batch("faulty:Together", faults=faults, cooperation=True, fault=fault, share=share)
    sides = {"all": env.agents}
    (tally,) = play_matches(
        env,
        blocks=[
            Block(
                entrants=(Entrant("home"), Entrant("away")),
                actors=(Always(0), Always(1)),
                num_envs=NUM_ENVS,
                num_matches=num_matches,
            )
        ],
        seats=make_seats(agents=env.agents, sides=sides, populations={"player": env.agents}),
        sides=sides,
        seeds=SEEDS,
        generator=torch.Generator().manual_seed(1),
    )
    env.close()
    assert faults
    return tally


@pytest.mark.parametrize("fault", ["step_raises", "reset_raises"])
@pytest.mark.parametrize(("num_matches", "share"), [(1, 0.6), (8, 0.3)])
def test_in_cooperation_what_broke_for_one_team_is_compared_with_nothing(
    fault: str, num_matches: int, share: float
) -> None:
    # The return depends on the seed alone, so both teams have equal returns in the same episode.
    tally = compare_in_cooperation(num_matches=num_matches, fault=fault, share=share)
    (pair,) = tally.pairs
    assert (pair.wins, pair.draws, pair.losses) == (0, NUM_ENVS * num_matches, 0)
    assert tally.matches == NUM_ENVS * num_matches
    assert tally.return_sum[0] == tally.return_sum[1] > 0.0
    assert tally.length_sum == 2 * 4 * tally.matches


@pytest.mark.parametrize("environment", IDS)
def test_faults_that_never_end_are_raised_with_the_last_one(environment: str) -> None:
    faults: list[EnvironmentFault] = []
    env = make_batch(environment, faults=faults, fault="step_raises")
    turn = env.reset(SEEDS)
    with pytest.raises(EnvironmentFault, match=r"17 episodes were void beside 0 .*on fire"):
        play(env, turn, num_steps=100)
    assert len(faults) == FREE_FAULTS
    env.close()


def test_a_reset_that_always_raises_does_not_hang() -> None:
    faults: list[EnvironmentFault] = []
    env = make_batch("faulty:Rounds", faults=faults, fault="reset_raises")
    with pytest.raises(EnvironmentFault, match="no pieces"):
        env.reset(SEEDS)
    assert len(faults) == FREE_FAULTS


def test_where_nobody_wants_them_made_anew_the_first_fault_is_raised() -> None:
    env = make_batch("faulty:Rounds", faults=None, fault="nan_reward", share=SHARE)
    turn = env.reset(SEEDS)
    with pytest.raises(EnvironmentFault, match="'player_0': a reward must be finite"):
        play(env, turn, num_steps=80)


def trained(worker: Worker, *, agent_steps: int = 400) -> Finished | Failed:
    """What comes of some rollouts of mirror self-play."""
    start = first_checkpoint(worker)
    return worker.carry_out(train(start, mirror(), agent_steps=agent_steps))


@pytest.mark.parametrize("environment", IDS)
@pytest.mark.parametrize("fault", ["step_raises", "nan_reward", "wrong_shape"])
def test_training_goes_on_and_counts_what_is_void(
    environment: str, fault: str, tmp_path: Path
) -> None:
    worker = make_worker(tmp_path, environment, fault=fault, share=SHARE)
    finished = trained(worker)
    assert isinstance(finished, Finished), finished
    assert finished.metrics["episode/void"] > 0
    rounds = 8 if environment.endswith("turns") else 4
    (tally,) = finished.tallies
    assert tally.length_sum == rounds * tally.matches
    assert finished.metrics["episode/count"] == tally.matches
    elsewhere = tmp_path / "again"
    elsewhere.mkdir()
    again = trained(make_worker(elsewhere, environment, fault=fault, share=SHARE))
    assert isinstance(again, Finished)
    assert again.tallies == finished.tallies
    assert again.checkpoints[0].checkpoint.digest == finished.checkpoints[0].checkpoint.digest
    worker.close()


def test_nothing_is_learned_from_a_void_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker(tmp_path, "faulty:Rounds", fault="nan_reward", share=0.25)
    collect = Collector.collect
    seen: list[torch.Tensor] = []

    def watched(self: Collector, should_stop: Callable[[], bool]) -> Any:
        rollouts = collect(self, should_stop)
        luck = rollouts[0][1].observation[:, 0]
        # Episodes that will break later may be among the running ones.
        running = self.turn.groups["player"].observation[:, 0, 0]
        assert torch.isin(luck[luck < 0.25], running).all()
        seen.append(luck)
        return rollouts

    monkeypatch.setattr(Collector, "collect", watched)
    finished = trained(worker)
    assert isinstance(finished, Finished), finished
    assert all((luck >= 0.25).any() for luck in seen)
    assert seen
    worker.close()


@pytest.mark.parametrize("environment", IDS)
def test_evaluation_plays_its_matches_beside_the_void_ones(
    environment: str, tmp_path: Path
) -> None:
    worker = make_worker(tmp_path, environment, fault="step_raises", share=SHARE)
    finished = worker.carry_out(evaluate((RANDOM, RANDOM, 25)))
    assert isinstance(finished, Finished), finished
    assert [tally.matches for tally in finished.tallies] == [25]
    assert finished.metrics["episode/void"] > 0
    worker.close()


def test_an_environment_that_never_works_fails_the_assignment_with_its_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make_worker(tmp_path, "faulty:Rounds", fault="step_raises")
    failed = trained(worker)
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.policy) == ("environment", None)
    first, _, rest = failed.reason.partition("\n")
    assert "on turn, raised RuntimeError" in first
    assert rest.endswith('raise RuntimeError("the board is on fire")')
    # Each frame has a location line and a code line, and all are of the environment's file.
    assert all("faulty.py" in place for place in rest.splitlines()[::2])
    assert "arena/envs" not in rest
    assert "Traceback" in caplog.text
    assert "an episode is void" in caplog.text
    worker.close()


def test_an_environment_that_does_not_close_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make_worker(tmp_path, "faulty:Rounds", fault="close_raises")
    assert isinstance(trained(worker, agent_steps=1), Finished)
    worker.close()
    assert "it does not close" in caplog.text


@pytest.mark.parametrize("fault", ["observation", "reward", "mask", "raise"])
def test_a_batched_game_that_breaks_fails_the_assignment(fault: str, tmp_path: Path) -> None:
    worker = make_worker(
        tmp_path,
        "batched_games:Hunt",
        populations={"hunter": ("hunter_0", "hunter_1"), "hare": ("hare_0",)},
        fault=fault,
    )
    failed = worker.carry_out(evaluate((RANDOM, RANDOM, 25)))
    assert isinstance(failed, Failed)
    assert failed.kind in ("environment", "error")


def test_an_environment_that_breaks_now_and_then_does_not_end_the_run() -> None:
    world = make_world({**DUEL, "learners": 1})
    learner = world.join()
    given: set[int] = set()
    for number in range(60):
        queue = world.given[learner]
        if queue and number % 2:
            message = queue.pop(0)
            assert message.assignment_id not in given, "what broke is not done again"
            given.add(message.assignment_id)
            failed = make_failed(message, kind="environment")
            world.handle(AssignmentFailed(learner=learner, failed=failed))
        else:
            world.step()
    assert len(given) > 10
    assert not world.state.phase.failed
    assert world.state.tables.run.agent_steps > 0


def test_an_array_that_is_written_again_misleads_nobody_and_is_reported() -> None:
    spec = environment_facts(
        EnvironmentRequest("environments:AliasingTurns", launch_directory=str(ASSETS))
    )
    turns = []
    for name in ("AliasingTurns", "ScriptedTurns"):
        kwargs: dict[str, Any] = (
            {} if name == "AliasingTurns" else {"script": [{"agent": a} for a in "ab" * 6]}
        )
        env = make_batch(f"environments:{name}", faults=None, **kwargs)
        turn = env.reset(SEEDS)
        kept = []
        for _ in range(15):
            (group,) = turn.groups.values()
            kept.append(group.observation.clone())
            turn = env.step({"player": group.new_actions()})
        turns.append(torch.stack(kept))
        env.close()
    assert torch.equal(turns[0], turns[1])
    report = check_environment(
        EnvironmentRequest(spec.id, launch_directory=str(ASSETS)), seconds=0.01
    )
    assert report.aliased in spec.agents
    assert any("changed later (the same array" in note for note in report.notes)
