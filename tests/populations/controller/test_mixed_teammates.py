"""Partners drawn apart: seatings, results, resume, and configurations without partners."""

from __future__ import annotations

from collections import Counter
from typing import cast

import pytest
from msgspec.structs import replace

from arena.environment_spec import EnvironmentSpec
from arena.errors import ConfigError
from arena.matches.teammates import between_rivals
from arena.types import PlayerId, is_trainee
from arena.wire.messages import Evaluate, Train
from populations.audit.tally_checks import refold
from populations.config.run_config import validate_config
from populations.config.run_file import check_resume, new_run_file
from populations.controller.lineups import draw_lineup
from populations.controller.state.state import make_state
from populations.errors import ResumeRefused
from populations.matchmaking.kinds import KINDS
from populations.records.rows import AssignmentRow, GhostRow, TallyRow
from populations.views.questions.results import cross_play
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import (
    DUEL,
    DUET,
    TAG,
    World,
    duel_spec,
    duet_spec,
    make_config,
    make_world,
    tag_spec,
)
from tests.populations.payoffs import met, records
from tests.populations.rows import make_spec

AGENTS = ("red_0", "blue_0", "red_1", "blue_1")


def squads_spec() -> EnvironmentSpec:
    """Two against two, all alike."""
    return make_spec("tests.squads:env", AGENTS, api="parallel")


SQUADS: dict[str, object] = {
    **DUEL,
    "environment": {
        "id": "tests.squads:env",
        "num_envs": 8,
        "sides": {"red": ["red_*"], "blue": ["blue_*"]},
    },
    "populations": {"player": {"agents": ["*"], "size": 4}},
    "matchmaking": {"teammates": "mixed", "opponents": 4},
}


def squads_world(**sections: object) -> World:
    return make_world({**SQUADS, **sections}, squads_spec(), joined=1)


@pytest.fixture(scope="module")
def squads() -> World:
    """A run that has ended; nobody changes it."""
    world = squads_world()
    world.run()
    return world


def messages(world: World) -> list[Train]:
    return [message for message in world.messages(Train, "finished") if message.agent_steps]


def tallies(world: World, kind: str) -> list[TallyRow]:
    return [row for row in world.committed if isinstance(row, TallyRow) and row.kind == kind]


def test_a_trainee_sits_once_on_a_side_beside_frozen_players_of_its_population(
    squads: World,
) -> None:
    places: Counter[int] = Counter()
    partners: Counter[str] = Counter()
    for message in messages(squads):
        trainee = PlayerId(message.trainees[0].policy)
        assert len(message.opponents) == 8, "four opponents, on two sides"
        for seating in message.opponents:
            live = [i for i, one in enumerate(seating.players) if one.weights is None]
            assert {seating.players[i].player for i in live} == {trainee}
            # The trainee sits once on its side, and once on the other at the same place if it is
            # its own rival.
            assert len(live) in (1, 2)
            assert len({i % 2 for i in live}) == 1
            assert len({i // 2 for i in live}) == len(live)
            places.update(i % 2 for i in live)
            partners.update(seating.players[i ^ 1].player.split("@")[0] for i in live)
    # Both places are equally frequent, but for assignments whose first turn was drawn.
    assert abs(places[0] - places[1]) < 0.1 * places.total()
    assert set(partners) == {f"player/p{index:03d}" for index in range(4)}


def test_a_trainee_is_beside_itself_as_often_whether_or_not_it_is_its_rival(squads: World) -> None:
    # Half of the rivals and half of the partners are the trainee, drawn independently.
    beside_itself: dict[bool, list[bool]] = {True: [], False: []}
    for message in messages(squads):
        trainee = PlayerId(message.trainees[0].policy)
        for seating in message.opponents:
            live = [i for i, one in enumerate(seating.players) if one.weights is None]
            partner = seating.players[live[0] ^ 1]
            beside_itself[len(live) == 2].append(partner.player == trainee)
    for found in beside_itself.values():
        assert len(found) > 100
        assert 0.35 < sum(found) / len(found) < 0.65


def test_only_a_beaten_rival_loses_quality_not_a_partner() -> None:
    world = squads_world(
        matchmaking={"teammates": "mixed", "opponents": 4, "kind": "quality", "quality_step": 0.2}
    )
    world.run()
    seats, qualities, num_lowered = world.setup.seats, dict[str, float](), 0
    beaten, lowered = set[str](), set[str]()
    for row in world.committed:
        if isinstance(row, TallyRow) and row.kind == "train":
            between = between_rivals(row.tally, seats=seats)
            for pair in between.pairs:
                first, second = between.entrants[pair.first], between.entrants[pair.second]
                for own, other, wins in ((first, second, pair.wins), (second, first, pair.losses)):
                    if is_trainee(own) and wins:
                        beaten.add(other)
        elif isinstance(row, GhostRow):
            if row.quality < qualities.get(row.player, row.quality):
                lowered.add(row.weights_digest)
            qualities[row.player] = row.quality
        elif isinstance(row, AssignmentRow) and row.status == "finished":
            if isinstance(row.message, Train):
                seated = {
                    player.weights.digest
                    for seating in (*row.message.opponents, *row.message.carried)
                    for player in seating.players
                    if player.weights is not None and player.player in qualities
                }
                assert lowered == beaten & seated
                num_lowered += len(lowered)
            beaten, lowered = set(), set()
    assert num_lowered > 20


def test_ratings_come_from_whole_sides_and_payoffs_from_the_trainee_and_its_rival(
    squads: World,
) -> None:
    assert all(len(row.tally.entrants) == 2 for row in tallies(squads, "evaluate"))
    seats, league = squads.setup.seats, squads.state.league
    known = {
        frozenset(between_rivals(row.tally, seats=seats).entrants)
        for row in tallies(squads, "train")
    }
    found = {frozenset(pair) for pair in records(league.payoff)}
    # A trainee that played against itself has no result against itself.
    assert found == {pair for pair in known if len(pair) == 2}
    # A partner on the trainee's side is not in any result.
    assert all(sum(map(is_trainee, pair)) == 1 for pair in found)


def test_one_match_is_one_result_of_a_side(squads: World) -> None:
    for row in tallies(squads, "train"):
        assert [(pair.first, pair.second) for pair in row.tally.pairs] == [(0, 2)]
    league = squads.state.league
    rows = tallies(squads, "train")
    trainee = max(records(league.payoff))[1]
    played = Counter[frozenset[str]]()
    for row in rows:
        between = between_rivals(row.tally, seats=squads.setup.seats)
        played[frozenset(between.entrants)] += row.tally.matches
    for other, won, lost in met(league.payoff, trainee):
        # The sum is less than all matches, because old results decay with a half-life of 5000
        # matches.
        assert 0.9 * played[frozenset((trainee, other))] < won + lost
        assert won + lost <= played[frozenset((trainee, other))] + 1e-9


def test_refolded_tallies_give_the_same_aggregates_to_the_bit(squads: World) -> None:
    rows = [row for row in squads.committed if isinstance(row, TallyRow)]
    folded = refold(
        rows,
        seats=squads.setup.seats,
        half_life_matches=squads.state.settings.config.payoffs.half_life_matches,
        mixes_teammates=True,
    )
    assert folded.pairs == squads.state.tables.pairs
    assert folded.records == squads.state.tables.records


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "alphastar"])
def test_every_kind_draws_partners_and_a_resumed_run_the_same_ones(kind: str) -> None:
    world = squads_world(matchmaking={"teammates": "mixed", "kind": kind, "opponents": 3})
    world.steps(20)
    resumed = make_state(world.state.settings.config, world.setup, world.state.tables)
    drawn = 0
    for policy in world.state.tables.policies.values():
        if policy.checkpoint is None or policy.state != "active":
            continue
        drawn += 1
        first = draw_lineup(world.state, transaction(world), (policy,)).seatings
        run = world.state.tables.run
        world.state.tables.run = replace(run, decisions=run.decisions - 1)
        assert draw_lineup(resumed, transaction(world), (policy,)).seatings == first
    assert drawn


def decisions(world: World) -> list[tuple[object, ...]]:
    return [
        (message.assignment_id, message.trainees[0].policy, message.opponents)
        for message in world.messages(Train, "finished")
    ]


def test_a_deterministic_run_that_is_killed_seats_the_same_players() -> None:
    plain, killed = (squads_world(deterministic=True) for _ in range(2))
    plain.run()
    killed.run(kill_at=(7, 40, 41, 90))
    assert decisions(killed) == decisions(plain)
    assert killed.state.tables.pairs == plain.state.tables.pairs


def test_cross_play_names_partners_and_sums_the_matches_beside_them(squads: World) -> None:
    state = squads.state
    cells = cross_play(tallies(squads, "train"), league=state.league)
    assert cells
    assert {cell["partner"] for cell in cells} <= set(state.tables.policies)
    wanted = cells[0]
    # The sum is computed by hand for one pair, over the generations since its weights were last
    # replaced.
    matches = points = 0.0
    for row in tallies(squads, "train"):
        entrants = row.tally.entrants
        (pair,) = row.tally.pairs
        for index, entrant in enumerate(entrants):
            policy = entrant.split("#")[0]
            origin = state.league.checkpoints.get(entrants[index ^ 1])  # type: ignore[call-overload]
            if policy != wanted["player"] or origin is None or origin.policy != wanted["partner"]:
                continue
            generation = int(entrant.split("#")[1])
            if generation < first_generation(squads, policy):
                continue
            matches += row.tally.matches
            points += pair.wins if index < 2 else pair.losses
    assert (wanted["matches"], wanted["score"]) == (matches, points / matches)


def first_generation(world: World, policy: str) -> int:
    """The generation in which a policy's weights were last replaced."""
    rows = [row for row in world.state.tables.generations.values() if row.policy == policy]
    return max(row.generation for row in rows if row.cause not in ("explore", "quarantine"))


def test_a_bot_has_its_whole_side_and_is_nobodys_partner() -> None:
    world = squads_world(
        matchmaking={"teammates": "mixed", "opponents": 4, "bots": {"bot:random": 0.5}}
    )
    world.steps(20)
    with_bots: list[list[str]] = [
        [one.player for one in seating.players]
        for message in messages(world)
        for seating in message.opponents
        if any(one.player == "bot:random" for one in seating.players)
    ]
    assert with_bots
    assert all(names.count("bot:random") == 2 for names in with_bots)
    assert all(names[0:2].count("bot:random") in (0, 2) for names in with_bots)


def test_a_population_may_have_the_only_partners() -> None:
    world = make_world({**TAG, "matchmaking": {"teammates": "mixed", "opponents": 3}}, tag_spec())
    for _ in range(2):
        world.join(slot=len(world.state.crew.learners))
    world.run()
    assert [seat.name for seat in world.setup.training_seats] == [
        "predators/adversary_0",
        "predators/adversary_1",
        "prey",
    ]
    seen = Counter[int]()
    for message in messages(world):
        for seating in message.opponents:
            names = [one.player.split("/")[0] for one in seating.players]
            assert names == ["predator", "predator", "prey"]
            seen.update(i for i, one in enumerate(seating.players) if one.weights is None)
    assert set(seen) == {0, 1, 2}


def test_partners_are_drawn_in_cooperation_of_one_population() -> None:
    document = {
        **SQUADS,
        "environment": {"id": "tests.squads:env", "num_envs": 8, "sides": {"all": ["*"]}},
    }
    world = make_world(document, squads_spec(), joined=1)
    world.run()
    for message in messages(world):
        assert len(message.opponents) == 4
        for seating in message.opponents:
            live = [i for i, one in enumerate(seating.players) if one.weights is None]
            assert len(live) == 2
            assert live[1] - live[0] == 4, "home, and away that repeats it"
    assert all(row.tally.pairs == () for row in tallies(world, "train"))
    cells = cross_play(tallies(world, "train"), league=world.state.league)
    assert cells
    assert all(cell["score"] is None for cell in cells)


def test_same_teammates_have_no_seats_of_their_own_and_no_cross_play() -> None:
    same = cast("dict[str, object]", {**SQUADS, "matchmaking": {"opponents": 4}})
    world = make_world(same, squads_spec())
    assert world.setup.agent_seats == ()
    assert world.setup.training_seats == world.setup.seats
    with pytest.raises(ConfigError, match=r"needs a run with matchmaking\.teammates 'mixed'"):
        cross_play([], league=world.state.league)


@pytest.mark.parametrize(
    ("document", "spec", "reason"),
    [
        (DUEL, duel_spec(), "no population has two agents on one side"),
        (DUET, duet_spec(), "several populations cooperate"),
        ({**SQUADS, "roles": {}}, squads_spec(), "matchmaking.kind 'alphastar'"),
    ],
)
def test_mixing_is_refused_where_there_are_no_partners(
    document: dict[str, object], spec: EnvironmentSpec, reason: str
) -> None:
    section = {"teammates": "mixed"}
    if "alphastar" in reason:
        section["kind"] = "alphastar"
    with pytest.raises(ConfigError, match=rf"matchmaking\.teammates must be 'same'.*{reason}"):
        make_config({**document, "matchmaking": section}, spec)


def test_a_resume_cannot_mix_teammates_that_were_the_same() -> None:
    run_file = new_run_file(
        validate_config({**SQUADS, "matchmaking": {}}),
        squads_spec(),
        name="test",
        launch_directory=".",
    )
    with pytest.raises(ResumeRefused, match=r"matchmaking\.teammates is 'same' in this run"):
        check_resume(run_file, config=None, overrides=["matchmaking.teammates=mixed"])


def test_evaluation_seats_no_partners(squads: World) -> None:
    evaluations = squads.messages(Evaluate)
    assert evaluations
    for message in evaluations:
        assert all(len(pairing.seating.players) == 2 for pairing in message.pairings)
