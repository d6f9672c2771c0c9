"""Champions of simulated leagues in which somebody learns, or nobody can, and their scores against
the anchor: of their very weights, over all seats.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from arena.matches.pair_scores import wilson
from arena.types import RANDOM_BOT, Digest, Entrant
from populations.config.run_config import validate_config
from populations.config.run_file import new_run_file
from populations.league.standings import champion
from populations.records.rows import TallyRow
from populations.views.league import standings_document
from populations.views.players import champion_document
from populations.views.questions.champions import anchor_score, unproven
from populations.views.questions.inspection import Inspection
from populations.views.run import status_document
from tests.populations.controller.simulated import DUEL, World, duel_spec, make_world
from tests.support import write_run

LEAGUE = {**DUEL, "stop": {"agent_steps_per_policy": 2000}}


def league(learning: float) -> World:
    """Return a finished run in which policies gain so many Elo in 1000 agent steps.

    Untrained policies win against bot:random: they are rated about 400.
    """
    world = make_world(LEAGUE, joined=1, learning=lambda trainee: learning)
    world.run()
    return world


@contextmanager
def inspected(world: World, directory: Path, *, warm_up: int = 1000) -> Iterator[Inspection]:
    """Give the inspection of a run whose PBT compares nobody before so many agent steps."""
    pbt = {**cast("dict[str, object]", DUEL["pbt"]), "warm_up_agent_steps": warm_up}
    config = validate_config({**LEAGUE, "pbt": pbt})
    run_file = new_run_file(config, duel_spec(), name="test", launch_directory=".")
    write_run(directory, run_file, world.committed)
    with closing(Inspection.open(directory)) as run:
        yield run


@pytest.fixture(scope="module")
def idle() -> World:
    return league(0.0)


@pytest.fixture(scope="module")
def learned() -> World:
    return league(200.0)


def test_who_learns_is_proven_and_who_does_not_is_not(
    idle: World, learned: World, tmp_path: Path
) -> None:
    with inspected(learned, tmp_path / "learned") as run:
        assert standings_document(run, None)["unproven"] == {}
        assert cast(Any, status_document(run, None))["champion"]["player"]["unproven"] is None
    with inspected(idle, tmp_path / "idle") as run:
        found = cast(Any, standings_document(run, None))["unproven"]["player"]
        # All policies are far better than random play, and none better than at its start.
        best = next(line for line in run.standings()["player"] if line.champion)
        assert best.rating_low is not None
        assert best.rating_low > 100.0
        assert best.evaluated_agent_steps != 0
        assert found["over"].endswith("@000000000000")
        assert found["lead_low"] <= 0.0
        assert found["lead_low"] < found["lead"] < found["lead_high"]
        assert found["what"].startswith("nobody is surely better than untrained: player/p")
        # All views that show a champion say the same.
        assert cast(Any, status_document(run, None))["champion"]["player"]["unproven"] == found
        (one,) = cast(Any, champion_document(run, None))["champions"]
        assert one["unproven"] == found


def test_weights_of_0_agent_steps_are_not_better_whatever_their_rating(
    idle: World, tmp_path: Path
) -> None:
    with inspected(idle, tmp_path / "run") as run:
        lines = run.standings()["player"]
        first = next(line for line in lines if line.kind == "ghost" and not line.agent_steps)
        strong = first._replace(rating=900.0, rating_low=850.0, rating_high=950.0)
        found = unproven(run, "player", strong)
    assert found is not None
    assert (found["over"], found["lead"]) == (None, None)
    assert str(found["what"]).endswith(f"{first.player} has 0 agent steps")


def test_the_likelier_reason_is_chosen_by_what_the_run_knows(idle: World, tmp_path: Path) -> None:
    def reasons(run: Inspection) -> list[str]:
        best = champion(run.standings()["player"])
        assert best is not None
        found = unproven(run, "player", best)
        assert found is not None
        return [str(reason) for reason in cast("list[object]", found["reasons"])]

    with inspected(idle, tmp_path / "early", warm_up=2001) as run:
        little, cannot = reasons(run)
        assert little.startswith("too little training so far (2,000 agent steps of the policy")
        assert "learned from as configured; arena envs check tests.duel:env" in cannot
        # Results without a win are stronger evidence than a short training.
        for key, record in run.league.tables.records.items():
            draws = record.wins + record.draws + record.losses
            run.league.tables.records[key] = replace(record, wins=0, losses=0, draws=draws)
        cannot, little = reasons(run)
        assert "results were draws)" in cannot
        assert little.startswith("too little training")
        for key, record in run.league.tables.records.items():
            run.league.tables.records[key] = replace(
                record,
                return_sum=-2.0 * record.matches,
                return_sum_of_squares=4.0 * record.matches,
            )
        assert "(every return of" in reasons(run)[0]
        assert "was -2)" in reasons(run)[0]
    with inspected(idle, tmp_path / "late", warm_up=2000) as run:
        cannot, little = reasons(run)
        assert cannot.startswith("an environment or rewards")
        assert little.startswith("too little training")


def test_where_no_untrained_player_is_rated_random_play_takes_its_place(
    idle: World, tmp_path: Path
) -> None:
    with inspected(idle, tmp_path / "run") as run:
        best = champion(run.standings()["player"])
        assert best is not None
        assert best.evaluated_agent_steps != 0
        checkpoints = run.tables.checkpoints
        for key in [key for key, row in checkpoints.items() if row.agent_steps == 0]:
            del checkpoints[key]
        assert unproven(run, "player", best) is None
        weak = best._replace(rating=5.0, rating_low=-42.0, rating_high=53.0)
        found = unproven(run, "player", weak)
    assert found is not None
    assert (found["over"], found["lead"]) == ("bot:random", 5.0)
    # The interval is wider than the champion's own, because another player could have been as
    # lucky.
    assert cast(float, found["lead_low"]) < -42.0
    assert "leads bot:random by 5 Elo, 95% -" in str(found["what"])


def test_a_lead_is_over_the_weights_that_the_champion_began_with(
    learned: World, tmp_path: Path
) -> None:
    with inspected(learned, tmp_path / "run") as run:
        best = champion(run.standings()["player"])
        assert best is not None
        own = [*run.league.ancestors(Digest(best.weights or ""))][-1]
        assert run.league.checkpoints[own].agent_steps == 0
        # The stored fit is made useless: the fit of all checkpoints decides.
        row = run.tables.ratings["player"]
        wide = replace(row, deviations=tuple(1e4 for _ in row.deviations))
        run.tables.ratings["player"] = wide
        assert unproven(run, "player", best) is None


def test_a_score_against_the_anchor_is_what_the_tallies_say_and_the_same_in_every_view(
    learned: World, tmp_path: Path
) -> None:
    with inspected(learned, tmp_path / "run") as run:
        best = champion(run.standings()["player"])
        assert best is not None
        found = cast(Any, anchor_score(run, "player", best))
        own, anchor = Entrant(str(best.weights)), Entrant(RANDOM_BOT)
        won = matches = 0.0
        for row in learned.committed:
            if not isinstance(row, TallyRow) or {*row.tally.entrants} != {own, anchor}:
                continue
            (pair,) = row.tally.pairs
            first = pair.wins + pair.draws / 2.0
            won += first if row.tally.entrants[0] == own else row.tally.matches - first
            matches += row.tally.matches
        assert matches > 100
        assert found["matches"] == matches
        assert found["score"] == pytest.approx(won / matches)
        assert (found["score_low"], found["score_high"]) == wilson(won / matches, int(matches))
        assert found["player"] == best.player
        assert cast(Any, standings_document(run, None))["anchor"]["player"] == found
        assert cast(Any, status_document(run, None))["champion"]["player"]["anchor"] == found
        (one,) = cast(Any, champion_document(run, None))["champions"]
        assert one["anchor"] == found
        # A player that has not played the anchor has no score.
        assert anchor_score(run, "player", best._replace(weights=None)) is None
