"""Training with a seat per agent, in a real worker on a game of two against two."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.checkpoints.manifest import Manifest
from arena.checkpoints.tensors import load_checkpoint
from arena.learners.work.worker import Worker
from arena.matches.teammates import seats_per_agent
from arena.types import CheckpointRef, Entrant, Player, PlayerId, Seating
from arena.wire.messages import Finished
from tests.arena.learners.conftest import finished, frozen
from tests.arena.learners.work.test_worker_on_pettingzoo import (
    HYPERPARAMETERS,
    make_setup,
    start,
    train,
)
from tests.arena.samples import Counted

GAME = "tests.assets.teammates:parallel_env"
ROOT = Path(__file__).parents[4]
NUM_ENVS, ROLLOUT_LENGTH = 6, int(HYPERPARAMETERS["rollout_length"])
POLICY = "player/p000"
TRAINEE = Player(player=PlayerId(POLICY))


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    setup = make_setup(
        tmp_path,
        GAME,
        num_envs=NUM_ENVS,
        sides={"red": ("red_0", "red_1"), "blue": ("blue_0", "blue_1")},
        launch_directory=str(ROOT),
    )
    setup = setup.model_copy(update={"agent_seats": seats_per_agent(setup.seats)})
    return Worker(setup, progress=Counted(), should_stop=lambda: False)


def manifest(root: Path, checkpoint: CheckpointRef) -> Manifest:
    return load_checkpoint(root, checkpoint)[0]


def partner_of(root: Path, worker: Worker, policy: str) -> Player:
    return frozen(root, start(worker, policy), f"{policy}@000000000000")


def steps(root: Path, answer: Finished) -> int:
    return manifest(root, answer.checkpoints[0].checkpoint).agent_steps


@pytest.mark.slow
def test_only_the_trainees_own_seat_trains_and_counts(worker: Worker, tmp_path: Path) -> None:
    partner = partner_of(tmp_path, worker, "player/p001")
    rival = partner_of(tmp_path, worker, "player/p002")
    first = start(worker, POLICY)
    # One decision of the trainee, of four, in each step of each environment.
    seatings = [(TRAINEE, partner, rival, partner), (rival, partner, TRAINEE, partner)]
    answer = finished(worker.carry_out(train((POLICY, first), seatings=seatings, agent_steps=1)))
    assert steps(tmp_path, answer) == NUM_ENVS * ROLLOUT_LENGTH
    assert answer.metrics["rollout/trained_share"] == pytest.approx(1 / 4)
    me = Entrant("player/p000#0")
    beside, against = (Entrant(one.weights.digest) for one in (partner, rival) if one.weights)
    assert {tally.entrants for tally in answer.tallies} == {
        (me, beside, against, beside),
        (against, beside, me, beside),
    }
    for tally in answer.tallies:
        assert [(pair.first, pair.second) for pair in tally.pairs] == [(0, 2)]
        # Partners share their points, and so their returns.
        assert tally.return_sum[0] == tally.return_sum[1]


@pytest.mark.slow
def test_a_trainee_that_is_its_own_rival_learns_on_both_sides(
    worker: Worker, tmp_path: Path
) -> None:
    partner = partner_of(tmp_path, worker, "player/p001")
    first = start(worker, POLICY)
    itself = frozen(tmp_path, first, POLICY)
    # Beside its own latest checkpoint, which is frozen: that seat does not learn.
    seatings = [(partner, TRAINEE, itself, TRAINEE)]
    answer = finished(worker.carry_out(train((POLICY, first), seatings=seatings, agent_steps=1)))
    assert steps(tmp_path, answer) == 2 * NUM_ENVS * ROLLOUT_LENGTH
    assert answer.metrics["rollout/trained_share"] == pytest.approx(2 / 4)


@pytest.mark.slow
def test_episodes_in_flight_keep_their_partners_in_the_next_assignment(
    worker: Worker, tmp_path: Path
) -> None:
    one, other = (partner_of(tmp_path, worker, f"player/p00{index}") for index in (1, 2))
    first = start(worker, POLICY)
    # Rollouts of 10 steps end within the episodes of 16.
    message = train((POLICY, first), seatings=[(TRAINEE, one, other, one)], agent_steps=1)
    (trainee,) = message.trainees
    trainee = replace(trainee, hyperparameters={**HYPERPARAMETERS, "rollout_length": 10})
    message = replace(message, trainees=(trainee,))
    answer = finished(worker.carry_out(message))
    assert answer.tallies == ()
    assert sum(held.num_envs for held in answer.in_flight) == NUM_ENVS
    second = answer.checkpoints[0].checkpoint
    trainee = replace(trainee, checkpoint=second, agent_steps=steps(tmp_path, answer))
    again = replace(
        message,
        trainees=(trainee,),
        opponents=(Seating(players=(other, TRAINEE, one, one)),),
        carried=message.opponents,
    )
    answer = finished(worker.carry_out(again))
    (tally,) = answer.tallies
    # All ended as they began, though new partners were drawn meanwhile.
    held = [player.weights.digest for player in (one, other, one) if player.weights]
    assert tally.entrants == ("player/p000#0", *held)
    assert (tally.matches, tally.length_sum) == (NUM_ENVS, 16 * NUM_ENVS)
