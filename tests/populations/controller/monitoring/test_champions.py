"""Events of the champion: told when another player leads, by what standings say, and once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from arena.types import PlayerId
from populations.controller.monitoring.champions import CHAMPION, announce
from populations.controller.state.events import RatingsFitted
from populations.league.ratings import Ratings
from populations.league.standings import champion, standings
from populations.records.rows import EventRow
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import DUEL, TAG, World, make_world, tag_spec


@pytest.fixture(scope="module")
def world() -> World:
    """A run that is over."""
    world = make_world(
        {**DUEL, "evaluation": {"share": 0.5}},
        joined=1,
        learning=lambda trainee: 30.0 + 40.0 * int(trainee.policy[-1]),
    )
    world.run()
    return world


def test_an_event_is_another_player_than_the_one_before(world: World) -> None:
    changes = world.events("champion")
    assert len(changes) >= 2
    assert changes[0].data["previous"] is None
    for before, after in pairwise(changes):
        assert after.data["previous"] == before.subject != after.subject
        assert after.data["weights"] != before.data["weights"]


def test_another_name_of_the_same_weights_is_no_other_champion(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ratings = world.state.tables.ratings
    row = replace(ratings["player"], champion_player=PlayerId("player/p009"))
    monkeypatch.setitem(ratings, "player", row)

    def announced() -> list[str]:
        tx = transaction(world)
        announce(world.state.fits, world.state.phase, tx)
        return [row.subject for row in tx.rows if isinstance(row, EventRow) if row.kind == CHAMPION]

    best = champion(standings(world.state.league)["player"])
    assert best is not None
    assert announced() == []
    # The title is set to other weights.
    monkeypatch.setitem(ratings, "player", replace(row, champion=None))
    assert announced() == [best.player]


def test_the_last_one_is_the_champion_of_the_standings(world: World) -> None:
    state = world.state
    best = champion(standings(state.league)["player"])
    last = world.events("champion")[-1]
    assert best is not None
    assert last.subject == best.player == state.tables.ratings["player"].champion_player
    # A later fit may have moved the rating since the change of the champion.
    fitted = world.events("ratings_fitted")[-1].data["champions"]
    assert isinstance(fitted, dict)
    assert fitted["player"]["champion"] == best.player
    assert fitted["player"]["rating"] == pytest.approx(best.rating)
    assert fitted["player"]["rating_low"] == pytest.approx(best.rating_low)


def test_the_player_of_an_event_names_the_rated_weights(world: World) -> None:
    checkpoints = world.state.tables.checkpoints.values()
    for event in world.events("champion"):
        policy, _, steps = str(event.data["player"]).partition("@")
        assert event.data["weights"] in {
            row.weights_digest
            for row in checkpoints
            if (row.policy, row.agent_steps) == (policy, int(steps))
        }


def test_a_fit_is_told_once_for_the_matches_that_it_covers(world: World) -> None:
    covered = [event.data["tallies"] for event in world.events("ratings_fitted")]
    assert len(covered) > 5
    assert covered == sorted(set(covered))  # type: ignore[type-var]


def test_another_fit_of_the_same_results_takes_the_title_from_nobody(world: World) -> None:
    before = world.state.tables.ratings["player"]
    assert before.champion is not None
    # A fit itself knows no champion.
    fitted = replace(before, champion=None, champion_agent_steps=0, champion_player=None)
    world.handle(RatingsFitted(ratings={"player": Ratings(fitted)}))
    after = world.state.tables.ratings["player"]
    assert after.champion == before.champion
    assert after.champion_agent_steps == before.champion_agent_steps
    assert after.champion_player == before.champion_player is not None


def test_each_population_has_its_own() -> None:
    world = make_world(TAG, tag_spec())
    world.join(populations=("predator",))
    world.join(populations=("prey",))
    world.steps(30)
    populations = {event.data["population"] for event in world.events("champion")}
    assert populations == {"predator", "prey"}
    for name, row in world.state.tables.ratings.items():
        last = [one for one in world.events("champion") if one.data["population"] == name][-1]
        assert last.subject == row.champion_player
