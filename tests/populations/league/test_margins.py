"""Whole leagues in which somebody wins seldom, but much: the outcome decides who leads."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import pytest
from msgspec.structs import replace

from arena.checkpoints.manifest import Manifest
from arena.types import Entrant, PairScore, Tally
from arena.wire.messages import Evaluate, Finished, Train
from populations.audit.tally_checks import differences, refold
from populations.league.standings import champion, standings
from populations.records.rows import AssignmentRow, TallyRow
from tests.populations.controller.simulated import DUEL, SimpleLearner, World, make_world

HUSTLER = Entrant("bot:scripted:Hustler")
SCALE = 10.0
LITTLE, MUCH = 0.5 + 1.0 / (2 * SCALE), 0.5 + 4.0 / (2 * SCALE)


@dataclass(slots=True, kw_only=True)
class StakesLearner(SimpleLearner):
    """Players win and lose 1; the hustler wins 4 and loses 1.

    It wins 4 of 10 games of a policy, so 1.0 a game, and half of those of bot:random. A policy
    takes less from bot:random than the hustler does, whatever its skill.
    """

    has_margins: bool

    def carry_out(self, message: Train | Evaluate) -> tuple[Finished, dict[str, Manifest]]:
        finished, manifests = SimpleLearner.carry_out(self, message)
        rng = np.random.default_rng((message.seed, 1))
        tallies = tuple(self.staked(tally, rng) for tally in finished.tallies)
        return replace(finished, tallies=tallies), manifests

    def staked(self, tally: Tally, rng: np.random.Generator) -> Tally:
        """The same matches, with the stakes."""
        (pair,) = tally.pairs
        wins, won, lost = pair.wins, LITTLE, 1.0 - LITTLE
        if HUSTLER in tally.entrants and tally.entrants[0] != tally.entrants[1]:
            rate = 0.5 if "bot:random" in tally.entrants else 0.4
            wins = int(rng.binomial(tally.matches, rate))
            won = MUCH
            if tally.entrants[1] == HUSTLER:
                wins, won, lost = tally.matches - wins, LITTLE, 1.0 - MUCH
        losses = tally.matches - wins
        staked = PairScore(first=0, second=1, wins=wins, draws=0, losses=losses)
        if self.has_margins:
            staked = replace(
                staked,
                score_sum=wins * won + losses * lost,
                square_sum=wins * won**2 + losses * lost**2,
            )
        return replace(tally, pairs=(staked,))


def played(*, has_margins: bool) -> World:
    """A league of two policies and two bots, trained and evaluated to its end."""
    outcome = {"margin": SCALE} if has_margins else "return"
    world = make_world(
        {
            **DUEL,
            "environment": {"id": "tests.duel:env", "num_envs": 8, "outcome": outcome},
            "populations": {"player": {"size": 2}},
            "stop": {"agent_steps_per_policy": 2000},
            "evaluation": {"share": 0.5, "bots": ["bot:random", HUSTLER]},
        }
    )
    assert isinstance(world.learner, SimpleLearner)
    known = {
        field.name: getattr(world.learner, field.name)
        for field in fields(SimpleLearner)
        if field.init
    }
    world.learner = StakesLearner(has_margins=has_margins, **known)
    world.join()
    world.run()
    return world


@pytest.mark.parametrize("has_margins", [True, False])
def test_who_wins_seldom_but_much_leads_where_margins_count(has_margins: bool) -> None:
    world = played(has_margins=has_margins)
    tables, league = world.state.tables, world.state.league
    failed = [
        row for row in world.committed if isinstance(row, AssignmentRow) and row.status == "failed"
    ]
    assert failed == []
    lines = standings(league)["player"]
    best = champion(lines)
    (hustler,) = (line for line in lines if line.player == str(HUSTLER))
    assert best is not None
    assert best.rating is not None
    assert hustler.rating is not None
    # It loses more games than it wins, whatever counts.
    assert hustler.wins < hustler.losses
    assert (hustler.rating > best.rating) == has_margins
    record = league.record("player", HUSTLER)
    assert record.matches > 100
    # 0.4 x 0.7 + 0.6 x 0.45 = 0.55, and a little more of bot:random.
    expected = 0.555 if has_margins else 0.42
    assert record.points / record.matches == pytest.approx(expected, abs=0.04)
    # Standings show the score by which it is rated, also where that is not of wins and draws.
    assert hustler.score == record.points / record.matches
    tallies = [row for row in world.committed if isinstance(row, TallyRow)]
    half_life = world.state.settings.config.payoffs.half_life_matches
    folded = refold(tallies, seats=world.state.settings.setup.seats, half_life_matches=half_life)
    assert list(differences(tables, folded)) == []
    assert all((row.score_sum is not None) == has_margins for row in tables.pairs.values())
