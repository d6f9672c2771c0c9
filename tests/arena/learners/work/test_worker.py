from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch

from arena.checkpoints.tensors import load_weights
from arena.config import NetworkConfig, RandomOpenings
from arena.learning.hyperparameters import PpoHyperparameters
from arena.networks.frozen import FrozenPolicy
from arena.types import Entrant, Player, PlayerId, PolicyId, Seating
from tests.layouts import flat_observation

if TYPE_CHECKING:
    from tests.arena.learners.conftest import Bench

NETWORK = NetworkConfig(hidden_sizes=(8,))
HYPERPARAMETERS: dict[str, float] = {"rollout_length": 8, "num_epochs": 2, "num_minibatches": 2}
POLICY = PolicyId("player/p000")
RANDOM = Player(player=PlayerId("bot:random"))
NUM_ENVS = 6


def test_no_steps_publishes_first_weights_that_the_seed_decides(bench: Bench) -> None:
    worker = bench.worker()
    first = bench.start(worker, seed=5)
    assert bench.start(bench.worker(), seed=5) == first
    assert bench.start(worker, seed=6).digest != first.digest
    manifest = bench.manifest(first)
    assert (manifest.policy, manifest.agent_steps, manifest.learner_updates) == (POLICY, 0, 0)
    assert (manifest.parent, manifest.donor) == (None, None)
    assert bench.num_made == 0


def test_initial_weights_come_from_another_player(bench: Bench) -> None:
    worker = bench.worker()
    other = bench.frozen(bench.start(worker, seed=5), "player/p009")
    checkpoint = bench.published(
        worker.carry_out(bench.train(None, agent_steps=0, seed=99, initial_weights=other.weights))
    )
    assert bench.manifest(checkpoint).weights_digest == other.weights.digest  # type: ignore[union-attr]


def test_training_does_whole_rollouts_until_the_budget_is_reached(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    answer = bench.finished(
        worker.carry_out(bench.train(start, bench.mirror(), agent_steps=100, generation=3))
    )
    assert (answer.assignment_id, answer.attempt) == (1, 2)
    checkpoint = answer.checkpoints[0].checkpoint
    manifest = bench.manifest(checkpoint)
    # A rollout is 8 steps of 6 environments with one decision each: three of them exceed 100.
    assert manifest.agent_steps == 3 * 48
    assert bench.progress.agent_steps == 3 * 48
    assert (manifest.parent, manifest.generation) == (start.digest, 3)
    # Each of three updates has two epochs of two minibatches.
    assert manifest.learner_updates == 12
    assert {t.entrants for t in answer.tallies} == {("player/p000#3", "player/p000#3")}
    assert checkpoint.digest != start.digest


def test_counters_go_on_from_the_policys_own(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    policy = bench.trainee(start, agent_steps=5000, learner_updates=700)
    answer = worker.carry_out(bench.train(None, bench.mirror(), agent_steps=1, trainees=(policy,)))
    manifest = bench.manifest(bench.published(answer))
    assert (manifest.agent_steps, manifest.learner_updates) == (5048, 704)


@pytest.mark.parametrize("is_foreign", [False, True])
def test_a_policy_that_begins_anew_keeps_its_counters(bench: Bench, is_foreign: bool) -> None:
    worker = bench.worker()
    source = bench.frozen(bench.start(worker, seed=5 if not is_foreign else 6), "player/p009")
    anew = bench.trainee(
        None,
        generation=2,
        agent_steps=5000,
        learner_updates=700,
        initial_weights=source.weights if is_foreign else None,
    )
    first = bench.published(
        worker.carry_out(bench.train(None, agent_steps=0, seed=5, trainees=(anew,)))
    )
    manifest = bench.manifest(first)
    counters = (manifest.agent_steps, manifest.learner_updates, manifest.generation)
    assert counters == (5000, 700, 2)
    assert manifest.parent is None
    assert manifest.weights_digest == source.weights.digest  # type: ignore[union-attr]
    policy = bench.trainee(first, generation=2, agent_steps=5000, learner_updates=700)
    answer = worker.carry_out(bench.train(None, bench.mirror(), agent_steps=1, trainees=(policy,)))
    manifest = bench.manifest(bench.published(answer))
    assert (manifest.agent_steps, manifest.learner_updates) == (5048, 704)


def test_a_donors_weights_come_first_and_hyperparameters_after(bench: Bench) -> None:
    worker = bench.worker()
    donor = PolicyId("player/p001")
    donor_checkpoint = bench.published(
        worker.carry_out(
            bench.train(
                bench.start(worker, policy=donor),
                bench.mirror(donor),
                policy=donor,
                hyperparameters={**HYPERPARAMETERS, "learning_rate": 1e-3},
            )
        )
    )
    answer = bench.finished(
        worker.carry_out(
            bench.train(
                donor_checkpoint,
                bench.mirror(),
                donor=donor,
                generation=1,
                hyperparameters={**HYPERPARAMETERS, "learning_rate": 2e-3},
            )
        )
    )
    manifest = bench.manifest(answer.checkpoints[0].checkpoint)
    assert (manifest.policy, manifest.donor) == (POLICY, donor)
    assert manifest.parent == donor_checkpoint.digest
    assert manifest.hyperparameters["learning_rate"] == 2e-3
    assert answer.metrics["optimizer/learning_rate"] == pytest.approx(2e-3)


@pytest.mark.slow
def test_an_assignment_is_a_function_of_its_message_and_checkpoints(
    make_bench: Callable[..., Bench],
) -> None:
    def chain(bench: Bench, *, keep_worker: bool) -> tuple[Any, ...]:
        worker = bench.worker()
        checkpoint = bench.start(worker)
        ghost = bench.frozen(checkpoint, "player/p000@000000000000")
        answers = []
        updates = 0
        for seed in (1, 2, 3):
            if not keep_worker:
                worker = bench.worker()
            seatings = (
                bench.mirror(),
                Seating(players=(bench.me(), ghost)),
                Seating(players=(RANDOM, bench.me())),
            )
            message = bench.train(checkpoint, *seatings, seed=seed, learner_updates=updates)
            answer = bench.finished(worker.carry_out(message))
            checkpoint = answer.checkpoints[0].checkpoint
            updates = bench.manifest(checkpoint).learner_updates
            answers.append((answer.checkpoints, answer.tallies))
        return tuple(answers)

    kept = chain(make_bench("kept"), keep_worker=True)
    assert chain(make_bench("fresh"), keep_worker=False) == kept
    assert len({answer[0] for answer in kept}) == 3


EFFECTS: list[tuple[dict[str, float], dict[str, float]]] = [
    (
        {},
        {
            "learning_rate": 0.01,
            "entropy_coef": 1.0,
            "value_coef": 50.0,
            "gamma": 0.1,
            "gae_lambda": 0.0,
            "max_grad_norm": 1e-3,
            "num_epochs": 1,
            "num_minibatches": 1,
            "rollout_length": 16,
            "adam_beta1": 0.0,
            "adam_beta2": 0.5,
            "adam_eps": 1.0,
            "magnet_coef": 1.0,
            "ema_decay": 0.9,
        },
    ),
    (
        {"learning_rate": 0.05, "num_epochs": 4},
        {
            "clip_coef": 0.01,
            "target_kl": 1e-9,
            "desired_kl": 1e-9,
            "value_clip": 1e-4,
            "kl_coef": 10.0,
        },
    ),
    ({"magnet_coef": 1.0, "magnet_rate": 0.0}, {"magnet_rate": 1.0}),
    ({}, {"rho_bar": 0.01, "c_bar": 0.0}),
]
"""Another value of each hyperparameter, beside others without which it does nothing."""


def test_every_hyperparameter_has_an_effect_below() -> None:
    names = sorted(name for _, values in EFFECTS for name in values)
    assert names == sorted(PpoHyperparameters.model_fields)


@pytest.mark.parametrize(("others", "values"), EFFECTS)
def test_each_hyperparameter_of_an_assignment_changes_what_is_learned(
    bench: Bench, others: dict[str, float], values: dict[str, float]
) -> None:
    """As after a resume with another start value, or a decision of PBT."""
    worker = bench.worker(
        algorithm_settings={"advantages": "vtrace"} if "rho_bar" in values else {}
    )
    start = bench.start(worker)

    def learned(**hyperparameters: float) -> str:
        given = {**HYPERPARAMETERS, **others, **hyperparameters}
        message = bench.train(start, bench.mirror(), agent_steps=150, hyperparameters=given)
        return bench.weights_sha256(bench.published(worker.carry_out(message)))

    before = learned()
    assert learned() == before
    assert [name for name, value in values.items() if learned(**{name: value}) == before] == []


@pytest.mark.slow
def test_a_ghosts_logits_survive_a_thousand_updates_of_its_policy(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    ghost = bench.frozen(start, "player/p000@000000000000")
    assert ghost.weights is not None
    observation = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))

    def logits() -> torch.Tensor:
        assert ghost.weights is not None
        cached = worker._equipment.players.frozen(ghost, population="player")
        assert isinstance(cached, FrozenPolicy)
        loaded = FrozenPolicy.from_weights(
            NETWORK,
            load_weights(bench.root, ghost.weights)[1],
            observation=flat_observation(4),
            action=cached.network.action,
            device=torch.device("cpu"),
        )
        assert torch.equal(cached.logits(observation), loaded.logits(observation))
        return cached.logits(observation)

    before = logits()
    answer = worker.carry_out(
        bench.train(
            start,
            Seating(players=(bench.me(), ghost)),
            Seating(players=(ghost, bench.me())),
            agent_steps=24 * 10,
            hyperparameters={**HYPERPARAMETERS, "num_epochs": 50, "learning_rate": 1e-2},
        )
    )
    manifest = bench.manifest(bench.published(answer))
    assert manifest.learner_updates >= 1000
    assert manifest.weights_digest != ghost.weights.digest
    assert torch.equal(logits(), before)


def test_evaluation_plays_exactly_its_matches_and_names_what_played(bench: Bench) -> None:
    worker = bench.worker()
    one = bench.frozen(bench.start(worker, seed=1), "player/p000")
    other = bench.frozen(bench.start(worker, seed=2), "player/p000@000000000000")
    assert one.weights is not None
    assert other.weights is not None
    message = bench.evaluate((one, other, 13), (other, one, 13), (one, RANDOM, 7), (one, one, 1))
    answer = bench.finished(worker.carry_out(message))
    a, b = Entrant(one.weights.digest), Entrant(other.weights.digest)
    assert {t.entrants: t.matches for t in answer.tallies} == {
        (a, b): 13,
        (b, a): 13,
        (a, Entrant("bot:random")): 7,
        (a, a): 1,
    }
    for tally in answer.tallies:
        (pair,) = tally.pairs
        assert pair.wins + pair.draws + pair.losses == tally.matches
    assert answer.checkpoints == ()
    assert bench.finished(bench.worker().carry_out(message)).tallies == answer.tallies


def test_greedy_matches_are_greedy_and_training_beside_them_samples(bench: Bench) -> None:
    sampling, greedy = bench.worker(), bench.worker(greedy_matches=True)
    openings = RandomOpenings(share=1.0, max_decisions=2)
    opened = bench.worker(greedy_matches=True, match_openings=openings)
    start = bench.start(sampling, seed=1)
    one = bench.frozen(start, "player/p000")
    other = bench.frozen(bench.start(sampling, seed=2), "player/p001@000000000000")
    message = bench.evaluate((one, other, 60))
    distinct, first_decisions = [], []
    for worker in (sampling, greedy, opened):
        (tally,) = bench.finished(worker.carry_out(message)).tallies
        assert tally.matches == 60
        distinct.append(tally.distinct or 0)
        first_decisions.append(sum(sum(seat.matches) for seat in tally.openings))
    # Games differ only by their length, which has three values. With random openings they also
    # differ by these one or two decisions, which tell nothing about a player's openings.
    assert distinct[1] <= 3 < min(distinct[0], distinct[2])
    assert first_decisions[0] == first_decisions[1] > first_decisions[2] == 0
    # The ghost that played greedily samples again in training, where its mode never changes.
    seating = Seating(players=(bench.me(), other))
    first, second = (
        bench.published(worker.carry_out(bench.train(start, seating)))
        for worker in (sampling, opened)
    )
    assert first == second


def test_more_pairings_than_environments_are_played_in_waves(bench: Bench) -> None:
    worker = bench.worker()
    one = bench.frozen(bench.start(worker), "player/p000")
    pairings = [(one, RANDOM, 2)] * (2 * NUM_ENVS + 1)
    (tally,) = bench.finished(worker.carry_out(bench.evaluate(*pairings))).tallies
    assert tally.matches == 2 * len(pairings)


def test_two_policies_train_together(bench: Bench) -> None:
    worker = bench.worker()
    other = PolicyId("player/p001")
    trainees = (
        bench.trainee(bench.start(worker)),
        bench.trainee(bench.start(worker, policy=other, seed=6), policy=other),
    )
    answer = bench.finished(
        worker.carry_out(
            bench.train(
                None,
                Seating(players=(bench.me(), bench.me(other))),
                Seating(players=(bench.me(other), bench.me())),
                trainees=trainees,
            )
        )
    )
    steps = {p.policy: bench.manifest(p.checkpoint).agent_steps for p in answer.checkpoints}
    assert set(steps) == {POLICY, other}
    # The agent on turn differs by environment, but every decision belongs to one policy.
    assert sum(steps.values()) == 3 * 48
    assert min(steps.values()) > 0
    assert f"{other}/loss/policy" in answer.metrics


def test_metrics_are_finite_and_say_what_happened(bench: Bench) -> None:
    worker = bench.worker()
    answer = bench.finished(worker.carry_out(bench.train(bench.start(worker), bench.mirror())))
    assert all(math.isfinite(value) for value in answer.metrics.values())
    assert {
        "loss/policy",
        "optimizer/learning_rate",
        "episode/return_mean",
        "episode/length_mean",
        "episode/count",
        "throughput/agent_steps_per_s",
        "time/collect_s",
        "time/update_s",
        "time/publish_s",
    } <= set(answer.metrics)
    # Self-play trains on every decision but the last ones of agents in open episodes.
    assert 0.5 < answer.metrics["rollout/trained_share"] <= 1.0
    assert answer.metrics["advantage/min"] < 0.0 < answer.metrics["advantage/max"]
    assert answer.metrics["policy/ratio_min"] <= 1.0 <= answer.metrics["policy/ratio_max"]
    matches = sum(tally.matches for tally in answer.tallies)
    assert answer.metrics["episode/count"] == matches
    length_sum = sum(tally.length_sum for tally in answer.tallies)
    assert answer.metrics["episode/length_mean"] == pytest.approx(length_sum / matches)


def test_more_seatings_than_environments_are_drawn_from(bench: Bench) -> None:
    worker = bench.worker()
    ghost = bench.frozen(bench.start(worker, seed=9), "player/p001")
    seatings = [
        Seating(players=(bench.me(), ghost)),
        Seating(players=(ghost, bench.me())),
    ] * NUM_ENVS
    answer = bench.finished(worker.carry_out(bench.train(bench.start(worker), *seatings)))
    assert {len(set(t.entrants)) for t in answer.tallies} == {2}
