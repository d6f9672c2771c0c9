"""Two rivals that learn in one assignment: seatings, results, blame, configurations, resume."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import cast

import numpy as np
import pytest
from msgspec.structs import replace

from arena.errors import ConfigError
from arena.types import Digest, LearnerId, Seating, is_bot, population_of, trainee_entrant
from arena.wire.messages import Evaluate, Train
from populations.audit.tally_checks import refold
from populations.audit.verify import check_evolution
from populations.config.resolve import resolve_config
from populations.config.run_config import validate_config
from populations.config.run_file import check_resume, new_run_file
from populations.controller.indexes.teams import Team
from populations.controller.lineups import draw_lineup, knowledge
from populations.controller.opponents import make_request
from populations.controller.state.events import AssignmentFailed
from populations.controller.state.state import make_state
from populations.matchmaking.kinds import KINDS
from populations.records.rows import AssignmentRow, PolicyRow, TallyRow
from tests.populations.controller.eager import transaction
from tests.populations.controller.rivals import ENVIRONMENT, RIVALS, rivals_world, trained
from tests.populations.controller.simulated import (
    DUEL,
    DUET,
    World,
    by_rate,
    duel_spec,
    duet_spec,
    make_config,
    make_world,
    tag_spec,
)
from tests.populations.payoffs import record
from tests.populations.rows import make_failed


@pytest.fixture(scope="module")
def rivals() -> World:
    """A run that has ended; nobody changes it."""
    world = rivals_world()
    world.learning = by_rate
    world.run()
    return world


def live_in(seating: Seating) -> list[str]:
    return [p.player for p in seating.players if p.weights is None and not is_bot(p.player)]


# --- opponents


def pair_of(world: World) -> Team:
    """The two whose assignment was given out last."""
    message = [m for m in trained(world) if len(m.trainees) == 2][-1]
    return tuple(world.state.tables.policies[t.policy] for t in message.trainees)


def test_both_have_their_opponents_and_meet_in_the_share_of_the_latest_by_hand(
    rivals: World,
) -> None:
    first, second = pair_of(rivals)
    drawn = draw_lineup(rivals.state, transaction(rivals), (first, second)).seatings
    # Of 8 opponents 2 are the latest, which is the rival: 2 seatings of both, and 6 of each.
    assert Counter(tuple(live_in(seating)) for seating in drawn) == {
        (first.policy, second.policy): 2,
        (first.policy,): 6,
        (second.policy,): 6,
    }
    for seating in drawn:
        assert [population_of(player.player) for player in seating.players] == ["predator", "prey"]
        for player in seating.players:
            assert "@" in player.player or player.weights is None, "others are ghosts"


def test_shares_of_all_pairs_are_those_of_the_configuration(rivals: World) -> None:
    met = Counter[bool]()
    for message in trained(rivals):
        if len(message.trainees) == 2:
            for trainee in message.trainees:
                own = [s for s in message.opponents if trainee.policy in live_in(s)]
                if len({p.player for s in own for p in s.players}) > 2:
                    assert len(own) == 8
                    met.update(len(live_in(seating)) == 2 for seating in own)
    assert Fraction(met[True], met.total()) == Fraction(1, 4)


def test_where_shares_are_no_whole_numbers_neither_has_too_few() -> None:
    world = rivals_world(
        matchmaking={"rivals": "learning", "latest_ratio": 0.3, "opponents": 4, "kind": "uniform"}
    )
    world.steps(30)
    pair = pair_of(world)
    num_met = Counter[int]()
    for _ in range(300):
        drawn = [
            live_in(seating)
            for seating in draw_lineup(world.state, transaction(world), pair).seatings
        ]
        num_met[sum(len(live) == 2 for live in drawn)] += 1
        for row in pair:
            assert sum(row.policy in live for live in drawn) in (4, 5)
    # 4 * 0.3 = 1.2: one each, or with a chance of a fifth two; the larger number counts.
    assert num_met[1] + num_met[2] == 300
    assert num_met[2] / 300 == pytest.approx(1 - 0.8**2, abs=0.08)


def test_without_ghosts_and_by_plain_self_play_they_only_meet() -> None:
    for section in ({"latest_ratio": 1.0}, {"kind": "latest"}):
        world = rivals_world(matchmaking={"rivals": "learning", **section})
        world.steps(30)
        first, second = pair_of(world)
        drawn = draw_lineup(world.state, transaction(world), (first, second)).seatings
        assert [live_in(seating) for seating in drawn] == [[first.policy, second.policy]] * 8


def test_they_never_meet_where_no_opponent_is_the_latest() -> None:
    world = rivals_world(matchmaking={"rivals": "learning", "latest_ratio": 0.0})
    world.steps(30)
    first, second = pair_of(world)
    drawn = draw_lineup(world.state, transaction(world), (first, second)).seatings
    expected = {(first.policy,): 8, (second.policy,): 8}
    assert Counter(tuple(live_in(seating)) for seating in drawn) == expected


def test_each_seating_has_an_environment() -> None:
    small = {**ENVIRONMENT, "num_envs": 5}
    section = {"rivals": "learning", "latest_ratio": 0.0}
    world = rivals_world(environment=small, matchmaking=section)
    world.steps(30)
    first, second = pair_of(world)
    drawn = draw_lineup(world.state, transaction(world), (first, second)).seatings
    assert Counter(live_in(seating)[0] for seating in drawn) == {first.policy: 2, second.policy: 2}
    # A policy without a rival has as many seatings as ever, of which the learner draws five.
    assert len(draw_lineup(world.state, transaction(world), (second,)).seatings) == 8


def test_bots_keep_their_share_and_never_learn() -> None:
    section = {
        "rivals": "learning",
        "kind": "uniform",
        "latest_ratio": 0.5,
        "opponents": 4,
        "bots": {"bot:random": 0.5},
    }
    world = rivals_world(matchmaking=section)
    world.steps(40)
    first, second = pair_of(world)
    drawn = draw_lineup(world.state, transaction(world), (first, second)).seatings
    # Of 4 opponents 2 are bots, and one of the 2 others is the rival.
    assert Counter(
        (len(live_in(seating)), any(is_bot(player.player) for player in seating.players))
        for seating in drawn
    ) == {(2, False): 1, (1, True): 4, (1, False): 2}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow) if kind == "psro" else kind
        for kind in KINDS
        if kind != "alphastar"
    ],
)
def test_every_kind_pairs_rivals_and_a_resumed_run_draws_the_same(kind: str) -> None:
    world = rivals_world(matchmaking={"rivals": "learning", "kind": kind, "opponents": 3})
    world.steps(25)
    resumed = make_state(world.state.settings.config, world.setup, world.state.tables)
    pair = pair_of(world)
    first = draw_lineup(world.state, transaction(world), pair).seatings
    run = world.state.tables.run
    world.state.tables.run = replace(run, decisions=run.decisions - 2)
    assert draw_lineup(resumed, transaction(world), pair).seatings == first
    assert any(len(live_in(seating)) == 2 for seating in first)


def test_the_event_tells_what_each_thinks_of_its_own_opponents(rivals: World) -> None:
    state = rivals.state
    pair = pair_of(rivals)
    lineup = draw_lineup(state, transaction(rivals), pair)
    drawn = lineup.seatings
    given = next(m for m in reversed(trained(rivals)) if len(m.trainees) == 2)
    told = knowledge(
        state.settings, state.indexes, replace(given, opponents=drawn), lineup.requests
    )
    found = cast("dict[str, float]", told["win_rates"])
    expected: dict[str, float] = {}
    for row, other in (pair, pair[::-1]):
        request = make_request(state.settings, state.indexes, row, other.population)
        rates = dict(zip(request.ghosts.players, request.win_rates(request.ghosts), strict=True))
        frozen = {p.player for s in drawn for p in s.players if p.weights is not None}
        expected |= {name: round(float(rates[name]), 3) for name in frozen & rates.keys()}
    assert found == expected
    assert {population_of(name) for name in found} == {"predator", "prey"}


# --- results


def test_a_match_of_two_trainees_is_there_once_and_names_both_as_living(rivals: World) -> None:
    known = {
        tuple(trainee_entrant(t.policy, generation=t.generation) for t in message.trainees): message
        for message in trained(rivals)
        if len(message.trainees) == 2
    }
    rows = [row for row in rivals.committed if isinstance(row, TallyRow) and row.kind == "train"]
    between = [row for row in rows if row.tally.entrants in known]
    assert len(between) > 20
    assert len({(row.assignment_id, row.tally.entrants) for row in rows}) == len(rows)
    assert all([(p.first, p.second) for p in row.tally.pairs] == [(0, 1)] for row in between)
    assert rivals.state.tables.run.matches == sum(
        row.tally.matches for row in rivals.committed if isinstance(row, TallyRow)
    )
    # With one generation each, the payoff is the sum of these tallies, but for fading.
    for first, second in known:
        played = sum(r.tally.matches for r in between if r.tally.entrants == (first, second))
        found = record(rivals.state.league.payoff, first, second)
        assert 0.95 * played < found.matches <= played + 1e-9


def test_a_rival_that_learned_beside_counts_as_its_latest_by_hand() -> None:
    world = rivals_world(1, payoffs={"half_life_matches": 1e12})
    world.learning = by_rate
    world.steps(60)
    state, num_met = world.state, 0
    for row in state.tables.policies.values():
        other = "prey" if row.population == "predator" else "predator"
        request = make_request(state.settings, state.indexes, row, other)
        wins, losses = request.record(request.latest)
        resumed = make_state(state.settings.config, world.setup, state.tables)
        again = make_request(resumed.settings, resumed.indexes, row, other)
        assert np.array_equal(again.record(again.latest), (wins, losses)), "to the bit"
        for rival, won, lost in zip(request.latest.policies, wins, losses, strict=True):
            expected = against(world, row, state.tables.policies[rival])
            assert (won, lost) == pytest.approx(expected, abs=1e-6)
            num_met += expected != (0.0, 0.0)
    assert num_met > 3


def against(world: World, row: PolicyRow, rival: PolicyRow) -> tuple[float, float]:
    """Results of a policy against another one's latest, from tallies.

    That is the other one as it learned, and its checkpoints since about its last ghost; all since
    the weights of either were last replaced.
    """
    won = lost = 0.0
    seat = 0 if row.population == "predator" else 1
    tallies = [r.tally for r in world.committed if isinstance(r, TallyRow) and r.kind == "train"]
    for tally in tallies:
        name, _, generation = tally.entrants[seat].partition("#")
        if name != row.policy or int(generation) < first_generation(world, row):
            continue
        entrant = tally.entrants[1 - seat]
        other, _, other_generation = entrant.partition("#")
        counts = other == rival.policy
        if not other_generation:
            made = world.state.league.checkpoints[Digest(entrant)]
            other_generation = str(made.generation)
            counts = made.policy == rival.policy and made.agent_steps >= rival.agent_steps - 1000
        if counts and int(other_generation) >= first_generation(world, rival):
            (pair,) = tally.pairs
            ends = (pair.wins + pair.draws / 2, pair.losses + pair.draws / 2)
            won, lost = won + ends[seat], lost + ends[1 - seat]
    return won, lost


def first_generation(world: World, row: PolicyRow) -> int:
    """The generation in which a policy's weights were last replaced."""
    rows = [r for r in world.state.tables.generations.values() if r.policy == row.policy]
    return max(r.generation for r in rows if r.cause not in ("explore", "quarantine"))


def test_ratings_pbt_and_ghosts_are_each_ones_own(rivals: World) -> None:
    tables = rivals.state.tables
    for row in rivals.committed:
        if isinstance(row, AssignmentRow) and isinstance(row.message, Evaluate):
            for pairing in row.message.pairings:
                assert not live_in(pairing.seating)
    copied = rivals.events("exploited")
    assert copied
    for event in copied:
        assert population_of(event.subject) == population_of(str(event.data["donor"]))
    generations = {row.policy: row.generation for row in tables.policies.values()}
    assert len(set(generations.values())) > 1
    assert list(check_evolution(tables)) == []
    made = Counter(row.assignment_id for row in tables.checkpoints.values())
    assert set(made.values()) == {1, 2}
    folded = refold(
        [row for row in rivals.committed if isinstance(row, TallyRow)],
        seats=rivals.setup.seats,
        half_life_matches=rivals.state.settings.config.payoffs.half_life_matches,
    )
    assert (folded.pairs, folded.records) == (tables.pairs, tables.records)


def decisions(world: World) -> list[tuple[object, ...]]:
    return [(message.trainees, message.opponents, message.seed) for message in trained(world)]


def test_a_deterministic_run_that_is_killed_pairs_and_seats_the_same() -> None:
    plain, killed = (rivals_world(1, deterministic=True) for _ in range(2))
    plain.run()
    killed.run(kill_at=(7, 20, 21, 50))
    assert decisions(killed) == decisions(plain)
    assert {len(message.trainees) for message in trained(plain)} == {1, 2}
    assert killed.state.tables.pairs == plain.state.tables.pairs


# --- failures


def fail_pair(world: World, *, kind: str, named: int | None) -> Train:
    """Let the next training of two rivals fail, on the only learner."""
    for _ in range(200):
        for learner, queue in world.given.items():
            message = queue[0] if queue else None
            if not isinstance(message, Train) or len(message.trainees) < 2:
                continue
            fail(world, learner, kind=kind, named=named)
            return message
        world.step()
    raise AssertionError("no two rivals train")


def fail(world: World, learner: LearnerId, *, kind: str, named: int | None) -> None:
    message = world.given[learner].pop(0)
    assert isinstance(message, Train)
    failed = make_failed(
        message, kind=kind, policy=None if named is None else message.trainees[named].policy
    )
    world.handle(AssignmentFailed(learner=learner, failed=failed))


@pytest.mark.parametrize(("named", "counts"), [(0, (1, 0)), (1, (0, 1)), (None, (1, 1))])
def test_a_failure_is_held_against_the_one_that_it_names(
    named: int | None, counts: tuple[int, int]
) -> None:
    world = rivals_world(1)
    message = fail_pair(world, kind="error", named=named)
    assert failures_of(world, message) == counts
    # A success clears both failures.
    world.steps(6)
    assert failures_of(world, message) == (0, 0)


def failures_of(world: World, message: Train) -> tuple[int, ...]:
    names = (trainee_entrant(t.policy, generation=t.generation) for t in message.trainees)
    return tuple(
        len(world.state.blame.ledger.in_a_row(name, is_evaluation=False)) for name in names
    )


def rows_of(world: World, message: Train) -> list[PolicyRow]:
    return [world.state.tables.policies[t.policy] for t in message.trainees]


@pytest.mark.parametrize("named", [0, 1, None])
def test_broken_numbers_quarantine_the_named_one_and_free_its_rival(named: int | None) -> None:
    world = rivals_world(1, pbt={"exploit": "none"})
    message = fail_pair(world, kind="non_finite", named=named)
    expected = message.trainees if named is None else message.trainees[named : named + 1]
    quarantined = [event.subject for event in world.events("quarantined")]
    assert sorted(quarantined) == sorted(trainee.policy for trainee in expected)
    assert message.assignment_id not in world.state.tables.assignments
    before = [row.agent_steps for row in rows_of(world, message)]
    world.steps(8)
    assert all(
        row.agent_steps > steps for row, steps in zip(rows_of(world, message), before, strict=True)
    )


# --- configurations


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"matchmaking": {"kind": "alphastar"}}, r"'frozen' with matchmaking\.kind 'alphastar'"),
        (
            {"matchmaking": {"learning_side_turns": {"every_agent_steps": 100}}},
            r"'frozen' with matchmaking\.learning_side_turns",
        ),
        (
            {"matchmaking": {"teammates": "mixed"}},
            r"'frozen' with matchmaking\.teammates 'mixed'",
        ),
        ({"learners": {"predator": 1, "prey": 1}}, r"learners must be a number where"),
        (
            {"environment": {**ENVIRONMENT, "num_envs": 1}},
            r"environment\.num_envs must be at least 2 where matchmaking\.rivals is 'learning'",
        ),
        (
            {"environment": {**ENVIRONMENT, "sides": None}},
            r"unless two populations that learn have a side each, got 'learning' with "
            r"populations predator, prey and sides adversary_0, adversary_1, agent_0",
        ),
        (
            {"environment": {**ENVIRONMENT, "sides": {"a": ["*_0"], "b": ["adversary_1"]}}},
            r"unless two populations that learn have a side each",
        ),
    ],
)
def test_rivals_need_a_side_each_and_nothing_else_that_says_who_learns(
    changes: dict[str, object], reason: str
) -> None:
    section = {"rivals": "learning", **cast("dict[str, object]", changes.get("matchmaking", {}))}
    with pytest.raises(ConfigError, match=reason):
        make_config({**RIVALS, **changes, "matchmaking": section}, tag_spec())


def test_one_population_and_cooperation_have_no_rivals() -> None:
    for document, spec in ((DUEL, duel_spec()), (DUET, duet_spec())):
        with pytest.raises(ConfigError, match="unless two populations that learn have a side each"):
            make_config({**document, "matchmaking": {"rivals": "learning"}}, spec)


@pytest.mark.parametrize(
    ("sizes", "rivals", "expected"),
    [
        ((3, 3), "learning", 3),
        ((1, 4), "learning", 4),
        ((9, 9), "learning", 8),
        ((3, 3), "frozen", 6),
    ],
)
def test_there_are_learners_for_all_pairs_by_default(
    sizes: tuple[int, int], rivals: str, expected: int
) -> None:
    populations = {
        "predator": {"agents": ["adversary_*"], "size": sizes[0]},
        "prey": {"agents": ["agent_*"], "size": sizes[1]},
    }
    document = {
        **RIVALS,
        "populations": populations,
        "learners": None,
        "matchmaking": {"rivals": rivals},
    }
    config = resolve_config(validate_config(document), tag_spec(), num_cores=8)
    assert config.learners == expected


@pytest.mark.parametrize("after", ["frozen", "learning"])
def test_a_resume_may_change_it_and_what_is_open_is_done_as_it_was(after: str) -> None:
    before = {"frozen": "learning", "learning": "frozen"}[after]
    document = {**RIVALS, "matchmaking": {"rivals": before, "kind": "uniform"}, "learners": 1}
    run_file = new_run_file(
        validate_config(document), tag_spec(), name="test", launch_directory="."
    )
    config, changes = check_resume(run_file, config=None, overrides=[f"matchmaking.rivals={after}"])
    assert [change.key for change in changes] == ["matchmaking.rivals"]
    world = make_world(document, tag_spec(), joined=1, steps=15)
    left_open = [
        len(row.message.trainees)
        for row in world.state.tables.assignments.values()
        if isinstance(row.message, Train)
    ]
    assert left_open
    num_before = len(trained(world))
    world.state.settings.config = config
    world.kill()
    world.run()
    sizes = [len(message.trainees) for message in trained(world)]
    assert (2 in sizes[num_before + len(left_open) :]) == (after == "learning")
    assert 2 in sizes[:num_before] or before == "frozen"
    assert {row.agent_steps for row in world.state.tables.policies.values()} == {6000}
