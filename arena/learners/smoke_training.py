"""Smoke training: one policy of each population trained briefly, in this process.

The policies are initialized, trained in mirror self-play and evaluated against random play, as a
learner does it for a controller, but without one. `arena envs check` ends with it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from msgspec import structs, to_builtins

from arena.checkpoints.files import read_manifest, resolve_key
from arena.checkpoints.manifest import Manifest
from arena.config import LearnerSetup
from arena.learners.loop import NoProgress
from arena.learners.work.faults import AssignmentFault
from arena.learners.work.worker import Worker
from arena.matches.pair_scores import mean_score, num_scored, points
from arena.matches.seating import seat_teams
from arena.matches.tally import merge_tallies
from arena.types import (
    RANDOM_BOT,
    AssignmentId,
    Digest,
    Hyperparameters,
    Player,
    PlayerId,
    PolicyId,
    Seat,
    Seating,
    WeightsRef,
    canonical_digest,
)
from arena.wire.messages import Evaluate, Failed, Finished, Pairing, Train, Trainee

SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeTraining:
    """The result of a smoke training.

    Attributes:
        agent_steps: Decisions that were trained on, of all policies.
        learner_updates: Optimizer steps, of all policies.
        agent_steps_per_s: Speed of playing and learning together.
        entropy: Mean entropy of each population's actions, in nats.
        matches: Number of matches against random play.
        score: Score of the first team in these, in [0, 1]; None: no match ended.
        mean_return: Mean return of its agents.
        results: Digest of the trained weights, the optimizers' states and the tallies of training:
            equal where the same setup gives the same results bit by bit.
        problem: Reason why the training failed; all other fields are then 0.
    """

    agent_steps: int = 0
    learner_updates: int = 0
    agent_steps_per_s: float = 0.0
    entropy: Mapping[str, float] = field(default_factory=dict)
    matches: int = 0
    score: float | None = None
    mean_return: float | None = None
    results: Digest | None = None
    problem: str = ""


def run_smoke_training(
    setup: LearnerSetup,
    *,
    hyperparameters: Mapping[str, Hyperparameters],
    agent_steps: int,
    matches: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> SmokeTraining:
    """Train each population's policy, then play against random play.

    Args:
        setup: Setup of a learner of the run; its root is not used.
        hyperparameters: Values by population and name; those left out have their defaults.
        agent_steps: Decisions of all policies together; rounded up to whole rollouts.
        matches: Number of matches against random play afterwards.
        should_stop: Function that returns whether to give up, which is reported as a problem.
    """
    # A temporary store keeps these checkpoints out of any run's store.
    with tempfile.TemporaryDirectory(prefix="arena-smoke-") as root:
        there = setup.model_copy(update={"root": root, "cores": 1})
        worker = Worker(there, progress=NoProgress(), should_stop=should_stop)
        try:
            return _SmokeRun(there, worker, hyperparameters=hyperparameters).run(
                agent_steps=agent_steps, matches=matches
            )
        except AssignmentFault as fault:
            return SmokeTraining(problem=fault.reason)
        finally:
            worker.close()


class _SmokeRun:
    """Replaces the controller: carries out the assignments one after the other."""

    def __init__(
        self,
        setup: LearnerSetup,
        worker: Worker,
        *,
        hyperparameters: Mapping[str, Hyperparameters],
    ) -> None:
        self._setup = setup
        self._worker = worker
        self._ids = count(1)
        self._trainees = tuple(
            Trainee(
                policy=PolicyId(f"{name}/p000"),
                generation=0,
                agent_steps=0,
                learner_updates=0,
                checkpoint=None,
                hyperparameters=dict(hyperparameters.get(name, {})),
            )
            for name in setup.populations
        )

    def run(self, *, agent_steps: int, matches: int) -> SmokeTraining:
        """Initialize, train and evaluate the policies.

        Raises:
            AssignmentFault: If an assignment failed.
        """
        # Without steps, an assignment only publishes the first weights.
        born = self._train(self._trainees, seatings=(), agent_steps=0)
        trained = self._train(
            tuple(
                structs.replace(trainee, checkpoint=published.checkpoint)
                for trainee, published in zip(self._trainees, born.checkpoints, strict=True)
            ),
            seatings=(
                # A player without weights is a trainee, so this is mirror self-play.
                _seated(
                    {t.policy: Player(player=PlayerId(t.policy)) for t in self._trainees},
                    seats=self._setup.training_seats,
                ),
            ),
            agent_steps=agent_steps,
        )
        root = Path(self._setup.root)
        manifests = [
            read_manifest(resolve_key(root, p.checkpoint.key)) for p in trained.checkpoints
        ]
        result = _trained(trained, manifests)
        if not matches:
            return result
        return self._measured(result, trained, manifests, matches=matches)

    def _measured(
        self,
        result: SmokeTraining,
        trained: Finished,
        manifests: Sequence[Manifest],
        *,
        matches: int,
    ) -> SmokeTraining:
        frozen = {
            published.policy: Player(
                player=PlayerId(f"{published.policy}@{manifest.agent_steps:012d}"),
                weights=WeightsRef(digest=manifest.weights_digest, key=published.checkpoint.key),
            )
            for published, manifest in zip(trained.checkpoints, manifests, strict=True)
        }
        teams = seat_teams(self._setup.seats)
        seated = _seated(frozen, seats=self._setup.seats)
        seating = Seating(
            players=tuple(
                # The first team plays its own policies, all others are random.
                player if team == teams[0] else Player(player=RANDOM_BOT)
                for player, team in zip(seated.players, teams, strict=True)
            )
        )
        answer = self._carry_out(
            Evaluate(
                assignment_id=AssignmentId(next(self._ids)),
                attempt=1,
                pairings=(Pairing(seating=seating, num_matches=matches),),
                seed=SEED,
            )
        )
        # One seating has one tally. Seat 0 belongs to the first team.
        (tally,) = merge_tallies(answer.tallies)
        first = [pair for pair in tally.pairs if pair.first == 0]
        played, won = sum(map(num_scored, first)), sum(map(points, first))
        return replace(
            result,
            matches=tally.matches,
            score=mean_score(won, played),
            mean_return=tally.return_sum[0] / tally.matches,
        )

    def _train(
        self, trainees: tuple[Trainee, ...], *, seatings: tuple[Seating, ...], agent_steps: int
    ) -> Finished:
        return self._carry_out(
            Train(
                assignment_id=AssignmentId(next(self._ids)),
                attempt=1,
                trainees=trainees,
                opponents=seatings,
                agent_steps=agent_steps,
                seed=SEED,
                may_stop_early=False,
            )
        )

    def _carry_out(self, assignment: Train | Evaluate) -> Finished:
        answer = self._worker.carry_out(assignment)
        if isinstance(answer, Failed):
            raise AssignmentFault(answer.kind, answer.reason)
        return answer


def _seated(players: Mapping[PolicyId, Player], *, seats: Sequence[Seat]) -> Seating:
    return Seating(players=tuple(players[PolicyId(f"{seat.population}/p000")] for seat in seats))


def _trained(trained: Finished, manifests: Sequence[Manifest]) -> SmokeTraining:
    agent_steps = sum(manifest.agent_steps for manifest in manifests)
    spent_s = trained.metrics["time/collect_s"] + trained.metrics["time/update_s"]
    alone = len(manifests) == 1
    entropies = {
        manifest.policy.partition("/")[0]: trained.metrics.get(
            # A single trainee's metrics have no prefix (`train`).
            "policy/entropy" if alone else f"{manifest.policy}/policy/entropy"
        )
        for manifest in manifests
    }
    return SmokeTraining(
        results=_digest(trained, manifests),
        agent_steps=agent_steps,
        learner_updates=sum(manifest.learner_updates for manifest in manifests),
        agent_steps_per_s=agent_steps / spent_s if spent_s else 0.0,
        entropy={name: value for name, value in entropies.items() if value is not None},
    )


def _digest(trained: Finished, manifests: Sequence[Manifest]) -> Digest:
    # Only the files are hashed, because a manifest has the time and the release.
    files = {
        manifest.policy: {name: file.sha256 for name, file in manifest.files.items()}
        for manifest in manifests
    }
    tallies = [to_builtins(tally) for tally in trained.tallies]
    return canonical_digest({"files": files, "tallies": tallies})
