"""A learner process that does nothing right: ``python faulty_learner.py SETUP ENDPOINT KIND``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from arena.config import LearnerSetup
from arena.learners.loop import Progress
from arena.learners.process import serve
from arena.types import Entrant, PairScore, Tally
from arena.wire.messages import Assignment, Evaluate, Failed, Finished, Train

LIES = "lies"
KINDS = ("error", "environment", "non_finite", "checkpoint", "storage", "stopped", LIES)


class Faulty:
    """Fails each assignment at once, or tells of matches that nobody played."""

    device = "cpu"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def carry_out(self, assignment: Assignment) -> Finished | Failed:
        """Do nothing."""
        number, attempt = assignment.assignment_id, assignment.attempt
        if self._kind == LIES and isinstance(assignment, Evaluate):
            players = assignment.pairings[0].seating.players
            names = tuple(
                Entrant(p.weights.digest if p.weights is not None else p.player) for p in players
            )
            score = PairScore(first=0, second=1, wins=2**62, draws=0, losses=0)
            tally = Tally(
                entrants=names,
                matches=2**62,
                pairs=(score,),
                return_sum=(1.7e308, 1.7e308),
                return_sum_of_squares=(1.7e308, 1.7e308),
                length_sum=2**62,
            )
            return Finished(
                assignment_id=number,
                attempt=attempt,
                checkpoints=(),
                tallies=(tally,),
                metrics={},
                duration_s=1.7e308,
            )
        if self._kind == LIES:
            return Finished(
                assignment_id=number,
                attempt=attempt,
                checkpoints=(),
                tallies=(),
                metrics={},
                duration_s=0.0,
            )
        key = policy = None
        if isinstance(assignment, Train):
            (trainee,) = assignment.trainees
            policy = trainee.policy
            key = trainee.checkpoint.key if trainee.checkpoint is not None else None
        else:
            weights = (p.weights for a in assignment.pairings for p in a.seating.players)
            key = next((ref.key for ref in weights if ref is not None), None)
        named = key if self._kind == "checkpoint" else None
        return Failed(
            assignment_id=number,
            attempt=attempt,
            kind=self._kind,
            reason="CUDA error",
            policy=policy,
            key=named,
        )

    def close(self) -> None:
        """Release nothing."""


def make_work(kind: str) -> Callable[..., Faulty]:
    """Make what `serve` makes its worker with."""

    def make(setup: LearnerSetup, *, progress: Progress, should_stop: Callable[[], bool]) -> Faulty:
        del setup, progress, should_stop
        return Faulty(kind)

    return make


if __name__ == "__main__":
    setup = LearnerSetup.model_validate_json(Path(sys.argv[1]).read_bytes())
    sys.exit(serve(setup, endpoint=sys.argv[2], populations=(), make_work=make_work(sys.argv[3])))
