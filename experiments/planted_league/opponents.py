"""Measure PFSP's draws beside those that it would make if it knew every win rate.

    python -m experiments.planted_league.opponents
    python -m experiments.planted_league.opponents --policies 16 --seeds 1 2 3 --json
    python -m experiments.planted_league.opponents matchmaking.posterior=thompson

Whole leagues with simulated learners of planted skill (`populations.simulation`): the real
controller draws opponents, and each draw in the second half of training is compared with PFSP on
the true win rates. For what is drawn, and for three others on the same requests (`results`: results
alone, without them 1/2; `uniform`; `true`: PFSP on the true win rates), the table has the mean over
seeds of

    losing    the chance that the trainee loses against the ghost that is drawn
    distance  in brackets: the total variation from `true`

and with --json there is a line for each league. Simulated learners train 40,000 agent steps a
second and play 4,900 matches a second, as those of Connect Four do.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Literal

import numpy as np

from arena.types import Digest
from populations.candidates import FloatArray
from populations.config.run_config import load_config
from populations.core import OpponentRequest, Opponents
from populations.league.pairs import JEFFREYS
from populations.matchmaking.drawing import RuleMatchmaker, normalized
from populations.matchmaking.pfsp import PfspRule, Weighting, pfsp_probabilities
from populations.rule_kinds import read_settings
from populations.simulation.environment import simulated_config, simulated_run
from populations.simulation.league import default_model
from populations.simulation.planted import expected_score
from populations.simulation.world import World, make_world, start

Way = Literal["drawn", "results", "uniform", "true"]
WAYS: tuple[Way, ...] = ("drawn", "results", "uniform", "true")

MIN_GHOSTS = 20
"""Number of ghosts below which nearly all have been met."""

COMMON = ("stop.agent_steps_per_policy=6000000", "matchmaking.kind=pfsp", "pbt.share=even")
LEAGUES: dict[int, tuple[str, ...]] = {
    4: ("ghosts.every_agent_steps=500000", "learners=2"),
    8: ("ghosts.every_agent_steps=100000", "learners=4"),
    16: ("ghosts.every_agent_steps=500000", "learners=8"),
}
"""Changes of the configuration by the number of policies; others are like the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One draw beside the truth.

    Attributes:
        num_ghosts: Candidates.
        unmet: Share of them that the trainee has not met since its weights were last replaced.
        unmet_weight: Probability of drawing one of those.
        distance: Total variation from the true distribution.
        losing: Chance to lose against the ghost that is drawn.
    """

    num_ghosts: int
    unmet: float
    unmet_weight: float
    distance: dict[Way, float]
    losing: dict[Way, float]


@dataclass(slots=True, kw_only=True)
class Watched:
    """A matchmaker whose draws are compared with the truth.

    Attributes:
        inner: It.
        world: Knows the truth.
        weighting: PFSP's.
        draws: So far.
    """

    inner: RuleMatchmaker
    world: World
    weighting: Weighting
    draws: list[Draw] = field(default_factory=list)

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Note what is drawn from, and draw."""
        if len(request.ghosts) >= MIN_GHOSTS:
            self.draws.append(self._compared(request))
        return self.inner.draw(request, rng=rng)

    def _compared(self, request: OpponentRequest) -> Draw:
        # Drawn posteriors (thompson) are others each time: its own generator takes none of the run.
        rng = np.random.default_rng(len(self.draws))
        wins, losses = request.record(request.ghosts)
        met = wins + losses > 0.0
        known = (wins + JEFFREYS) / (wins + losses + 2.0 * JEFFREYS)
        true = self._true_win_rates(request)
        ways: dict[Way, FloatArray] = {
            "drawn": normalized(self.inner.rule.weights(request, rng=rng)),
            "results": pfsp_probabilities(known, weighting=self.weighting),
            "uniform": np.full(len(true), 1.0 / len(true)),
            "true": pfsp_probabilities(true, weighting=self.weighting),
        }
        return Draw(
            num_ghosts=len(true),
            unmet=1.0 - float(met.mean()),
            unmet_weight=float(ways["drawn"][~met].sum()),
            distance={
                way: 0.5 * float(np.abs(shares - ways["true"]).sum())
                for way, shares in ways.items()
            },
            losing={way: float(shares @ (1.0 - true)) for way, shares in ways.items()},
        )

    def _true_win_rates(self, request: OpponentRequest) -> FloatArray:
        """Return the planted win rates of the trainee as it is now. float64 [N]."""
        tables, learner = self.world.state.tables, self.world.learner
        checkpoint = tables.policies[request.trainee].checkpoint
        assert checkpoint is not None
        own = learner.weights[tables.checkpoints[checkpoint].weights_digest]
        return np.array(
            [
                expected_score(learner.model.advantage(own, learner.weights[Digest(entrant)]))
                for entrant in request.ghosts.entrants
            ]
        )


def measure(num_policies: int, *, overrides: Sequence[str] = (), seed: int = 1) -> list[Draw]:
    """Simulate one league, and compare the draws of the second half of its training.

    Raises:
        ValueError: If opponents are not drawn by PFSP alone.
    """
    changes = (*COMMON, *LEAGUES.get(num_policies, LEAGUES[16]), *overrides, f"seed={seed}")
    config = simulated_config(load_config("connect_four", changes), num_policies=num_policies)
    world = make_world(
        simulated_run(config),
        default_model(config),
        agent_steps_per_s=40_000.0,
        matches_per_s=4_900.0,
    )
    inner = world.state.matchmaker
    if not isinstance(inner, RuleMatchmaker) or config.matchmaking.kind != "pfsp":
        raise ValueError("matchmaking.kind must be pfsp, and matchmaking.living_ratio 0")
    watched = Watched(
        inner=inner,
        world=world,
        weighting=read_settings(PfspRule, config.matchmaking).weighting,
    )
    world.state.matchmaker = watched
    start(world)
    while world.state.phase == "training" and world.advance():
        pass
    return watched.draws[len(watched.draws) // 2 :]


def facts(draws: Sequence[Draw]) -> dict[str, object]:
    """Return the means over some draws, as plain data."""
    return {
        "draws": len(draws),
        "ghosts": max(draw.num_ghosts for draw in draws),
        "unmet": round(mean(draw.unmet for draw in draws), 3),
        "unmet_weight": round(mean(draw.unmet_weight for draw in draws), 3),
        "distance": averages([draw.distance for draw in draws]),
        "losing": averages([draw.losing for draw in draws]),
    }


def averages(rows: Sequence[dict[Way, float]]) -> dict[str, float]:
    """Return the mean of each way, to three digits."""
    return {way: round(mean(row[way] for row in rows), 3) for way in WAYS}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policies", type=int, nargs="+", default=sorted(LEAGUES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--json", action="store_true", help="print a line of JSON per league")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="configuration changes")
    options = parser.parse_intermixed_args()
    if not options.json:
        say("policies  ghosts  unmet " + "".join(f"{'losing':>9} {way:8}" for way in WAYS))
    for num_policies in options.policies:
        draws: list[Draw] = []
        for seed in options.seeds:
            found = measure(num_policies, overrides=options.overrides, seed=seed)
            draws += found
            if options.json:
                say(json.dumps({"policies": num_policies, "seed": seed, **facts(found)}))
        if not options.json:
            say(_line(num_policies, draws))


def _line(num_policies: int, draws: Sequence[Draw]) -> str:
    """Make a row of the table, of the means over all seeds."""
    unmet = mean(draw.unmet for draw in draws)
    distance = averages([draw.distance for draw in draws])
    losing = averages([draw.losing for draw in draws])
    ghosts = max(draw.num_ghosts for draw in draws)
    return f"{num_policies:8} {ghosts:7} {unmet:6.2f} " + "".join(
        f"{losing[way]:9.2f} ({distance[way]:.2f})  " for way in WAYS
    )


def say(line: str) -> None:
    """Write a line to standard output at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
