"""How long a matchmaking decision takes in a large league.

    python -m experiments.speed.matchmaking [--policies 1000] [--ghosts 20000] [--met 500]

A decision is all that the controller does for the opponents of one assignment: the request, the
draw of 8 opponents and their seatings. Prints median and 95th percentile per kind, in CPU time, so
that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import numpy as np
from msgspec.structs import replace

from arena.types import (
    AssignmentId,
    Digest,
    Entrant,
    PairScore,
    PolicyId,
    Tally,
    canonical_digest,
    ghost_id,
    trainee_entrant,
)
from populations.controller.lineups import draw_lineup
from populations.controller.state.events import Now
from populations.controller.state.state import ControllerState
from populations.matchmaking.make import make_matchmaker
from populations.matchmaking.settings import MatchmakingConfig
from populations.records.rows import CheckpointRow, GhostRow, RatingsRow
from tests.populations.controller.simulated import DUEL, make_world

ROLES = ("main", "main_exploiter", "league_exploiter")
VARIANTS: dict[str, dict[str, object]] = {
    "latest": {},
    "uniform": {},
    "delta_uniform": {},
    "window": {},
    "pfsp": {},
    "pfsp, thompson": {"posterior": "thompson"},
    "quality": {},
    "rating_proximate": {},
    "psro": {},
    "alphastar": {},
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", type=int, default=1000)
    parser.add_argument("--ghosts", type=int, default=20_000)
    parser.add_argument("--met", type=int, default=500)
    parser.add_argument("--decisions", type=int, default=200)
    arguments = parser.parse_args()
    state = make_league(arguments.policies, num_ghosts=arguments.ghosts, num_met=arguments.met)
    for name, values in VARIANTS.items():
        section = MatchmakingConfig.model_validate({"kind": name.split(",")[0], **values})
        state.matchmaker = make_matchmaker(section, window=32, launch_directory=".")
        first_s, durations = measure(state, num_decisions=arguments.decisions)
        median, tail = statistics.median(durations), sorted(durations)[-len(durations) // 20]
        sys.stdout.write(
            f"{name:18} median {1e3 * median:6.3f} ms   95% {1e3 * tail:6.3f} ms   "
            f"first {1e3 * first_s:8.3f} ms\n"
        )


def measure(state: ControllerState, *, num_decisions: int) -> tuple[float, list[float]]:
    """Measure CPU seconds of the first decision, and of each of the following ones."""
    policies = list(state.tables.policies.values())
    durations = []
    for number in range(num_decisions + 1):
        tx = state.begin(Now(monotonic_s=0.0, utc=""))
        start = time.thread_time()
        draw_lineup(state, tx, (policies[number % 30],))
        durations.append(time.thread_time() - start)
    return durations[0], durations[1:]


def make_league(num_policies: int, *, num_ghosts: int, num_met: int) -> ControllerState:
    """Make a league of which the first 30 policies have met some ghosts each, and all are rated."""
    rng = np.random.default_rng(0)
    document = {**DUEL, "populations": {"player": {"size": num_policies}}}
    state = make_world(document).state
    tables = state.tables
    for index, policy in enumerate(list(tables.policies.values())):
        checkpoint = make_checkpoint(policy.policy, agent_steps=10_000_000)
        tables.checkpoints[checkpoint.key] = checkpoint
        state.league.add_checkpoint(checkpoint)
        tables.policies[policy.policy] = replace(
            policy,
            checkpoint=checkpoint.key,
            agent_steps=checkpoint.agent_steps,
            role=ROLES[index % 10] if index % 10 < len(ROLES) else "main",
        )
    policies = list(tables.policies.values())
    for number in range(num_ghosts):
        policy = policies[number % num_policies]
        checkpoint = make_checkpoint(policy.policy, agent_steps=1000 * (number // num_policies))
        state.league.add_checkpoint(checkpoint)
        player = ghost_id(policy.policy, agent_steps=checkpoint.agent_steps)
        tables.ghosts[player] = GhostRow(
            player=player,
            policy=policy.policy,
            population="player",
            agent_steps=checkpoint.agent_steps,
            generation=0,
            weights_digest=checkpoint.weights_digest,
            key=checkpoint.key,
            checkpoint=checkpoint.key,
            role=policy.role,
            quality=float(-rng.random()),
        )
    entrants = tuple(Entrant(ghost.weights_digest) for ghost in tables.ghosts.values())
    tables.ratings["player"] = RatingsRow(
        population="player",
        entrants=entrants,
        ratings=tuple(rng.normal(0.0, 200.0, len(entrants)).tolist()),
        deviations=(30.0,) * len(entrants),
        cyclicity=0.0,
        num_tallies=0,
    )
    for policy in policies[:30]:
        for number in rng.permutation(len(entrants))[:num_met]:
            wins = int(rng.integers(9))
            own = trainee_entrant(policy.policy, generation=policy.generation)
            state.league.payoff.add(make_tally(own, entrants[number], wins=wins, losses=8 - wins))
    return state


def make_checkpoint(policy: PolicyId, *, agent_steps: int) -> CheckpointRow:
    """Make a policy's checkpoint; its digest follows from its arguments."""
    digest: Digest = canonical_digest([policy, agent_steps])
    return CheckpointRow(
        key=f"populations/{policy}/checkpoints/{agent_steps:012d}-{digest[:8]}",
        digest=digest,
        weights_digest=digest,
        policy=policy,
        generation=0,
        agent_steps=agent_steps,
        learner_updates=0,
        parent=None,
        assignment_id=AssignmentId(1),
    )


def make_tally(own: Entrant, other: Entrant, *, wins: int, losses: int) -> Tally:
    """Return matches of two, the first in the first seat."""
    return Tally(
        entrants=(own, other),
        matches=wins + losses,
        pairs=(PairScore(first=0, second=1, wins=wins, draws=0, losses=losses),),
        return_sum=(0.0, 0.0),
        return_sum_of_squares=(0.0, 0.0),
        length_sum=1,
    )


if __name__ == "__main__":
    main()
