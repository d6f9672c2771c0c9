from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from msgspec import structs

from arena.types import (
    Digest,
    Player,
    PlayerId,
    PolicyId,
    Seating,
    Tally,
    WeightsRef,
    trainee_entrant,
)
from arena.wire.messages import Train
from populations.candidates import Candidates
from populations.controller.assignments.failures import set_aside
from populations.controller.lineups import draw_lineup, knowledge
from populations.controller.opponents import make_request, update_qualities
from populations.controller.state.events import Now
from populations.controller.state.state import make_state
from populations.controller.state.transaction import Transaction
from populations.core import OpponentRequest, Opponents
from populations.matchmaking.external_players import ExternalPlayer, external_player_id
from populations.matchmaking.kinds import KINDS as MATCHMAKING_KINDS
from populations.matchmaking.quality import lowered_quality
from populations.records.rows import EventRow, GhostRow, PolicyRow, TallyRow
from populations.records.tables import Tables
from tests.populations.controller.simulated import DUEL, TAG, World, made_once, make_world, tag_spec
from tests.populations.rows import make_tally

ROLES = ("main", "main", "main_exploiter", "league_exploiter")
SHORT: dict[str, object] = {**DUEL, "stop": {"agent_steps_per_policy": 3000}}


@made_once
def played(document: dict[str, object], *, steps: int = 40) -> World:
    """A world in the middle of its run, with every role."""
    world = make_world(document, tag_spec() if "predator" in str(document) else None)
    for row in list(world.state.tables.policies.values()):
        changed = structs.replace(row, role=ROLES[row.index % 4])
        world.state.tables.policies[row.policy] = changed
        world.committed.append(changed)
    world.join()
    world.join()
    world.steps(steps)
    return world


def rows(candidates: Candidates) -> list[object]:
    return [candidates[index] for index in range(len(candidates))]


def transaction(world: World) -> Transaction:
    return world.state.begin(Now(monotonic_s=0.0, utc=""))


def any_policy(tables: Tables) -> PolicyRow:
    return max(tables.policies.values(), key=lambda row: (row.agent_steps, row.policy))


@pytest.mark.parametrize("kind", MATCHMAKING_KINDS)
@pytest.mark.slow
def test_every_kind_carries_a_run_and_a_resumed_one_decides_the_same(kind: str) -> None:
    world = played({**SHORT, "matchmaking": {"kind": kind, "opponents": 4}})
    resumed = make_state(world.state.settings.config, world.setup, world.state.tables)
    assert len(world.state.tables.ghosts) > 4
    for policy in world.state.tables.policies.values():
        if policy.checkpoint is None or policy.state != "active":
            continue
        first = draw_lineup(world.state, transaction(world), (policy,)).seatings
        world.state.tables.run = structs.replace(
            world.state.tables.run, decisions=world.state.tables.run.decisions - 1
        )
        assert draw_lineup(resumed, transaction(world), (policy,)).seatings == first
        # There are two seats and four opponents, each of which plays in both seats.
        assert len(first) == 8


def test_a_corrupt_ghost_and_a_quarantined_policy_are_no_candidates() -> None:
    world = played(SHORT)
    tables = world.state.tables
    pool = world.state.indexes.opponent_pools.pool("player")
    ghost = next(iter(tables.ghosts.values()))
    policy = any_policy(tables)
    tx = transaction(world)
    set_aside(world.state, tx, ghost.key, reason="bytes do not match")
    tx.put(structs.replace(tables.policies[policy.policy], state="quarantined"))
    pool = world.state.indexes.opponent_pools.pool("player")
    assert ghost.player not in pool.ghosts.candidates.players
    assert len(pool.ghosts.candidates) == len(tables.ghosts) - 1
    assert policy.policy not in pool.latest(without=PolicyId("nobody")).policies
    trainee = next(row for row in tables.policies.values() if row.policy != policy.policy)
    request = make_request(world.state.settings, world.state.indexes, trainee, "player")
    assert trainee.policy not in request.latest.policies
    assert policy.policy not in request.latest.policies


def test_a_beaten_ghost_loses_quality_and_a_new_one_enters_with_the_highest() -> None:
    world = played({**DUEL, "matchmaking": {"kind": "quality", "quality_step": 0.2}}, steps=60)
    assert world.state.settings.config.matchmaking.latest_ratio == 0.8
    qualities: dict[str, float] = {}
    num_lowered = 0
    for row in world.committed:
        if not isinstance(row, GhostRow):
            continue
        old = qualities.get(row.player)
        if old is None:
            assert row.quality == max(qualities.values(), default=0.0)
        else:
            assert row.quality <= old
            num_lowered += row.quality < old
        qualities[row.player] = row.quality
    assert num_lowered > 10


def test_qualities_fall_by_the_formula_once_for_each_win() -> None:
    world = played({**SHORT, "matchmaking": {"kind": "quality"}})
    state = world.state
    before = {row.player: row.quality for row in state.tables.ghosts.values()}
    ghosts = list(state.tables.ghosts.values())[:2]
    given = world.messages(Train)[-1]
    own = trainee_entrant(given.trainees[0].policy, generation=given.trainees[0].generation)
    live = Player(player=PlayerId(given.trainees[0].policy))
    seatings = tuple(
        Seating(players=(live, Player(player=ghost.player, weights=ghost.weights)))
        for ghost in ghosts
    )
    message = structs.replace(given, opponents=seatings)
    tallies = [
        training_tally(own, ghosts[0].weights_digest, wins=3, losses=2),
        training_tally(own, ghosts[1].weights_digest, wins=0, losses=4),
    ]
    expected = lowered_quality(np.array(list(before.values())), 0, num_wins=3, quality_step=0.01)
    tx = transaction(world)
    update_qualities(state, tx, message, tallies)
    assert state.tables.ghosts[ghosts[0].player].quality == expected
    after = {row.player: row.quality for row in state.tables.ghosts.values()}
    assert {p for p in after if after[p] != before[p]} == {ghosts[0].player}


def test_a_ghost_of_an_episode_that_went_on_loses_quality_too() -> None:
    """Of long episodes most end in a later assignment than that which drew the opponent."""
    world = played({**SHORT, "matchmaking": {"kind": "quality"}})
    state = world.state
    ghost = next(iter(state.tables.ghosts.values()))
    given = world.messages(Train)[-1]
    own = trainee_entrant(given.trainees[0].policy, generation=given.trainees[0].generation)
    live = Player(player=PlayerId(given.trainees[0].policy))
    carried = Seating(players=(live, Player(player=ghost.player, weights=ghost.weights)))
    message = structs.replace(given, opponents=(Seating(players=(live, live)),), carried=(carried,))
    before = ghost.quality
    update_qualities(
        state,
        transaction(world),
        message,
        [training_tally(own, ghost.weights_digest, wins=3, losses=2)],
    )
    assert state.tables.ghosts[ghost.player].quality < before


def test_the_event_of_a_draw_says_how_much_was_predicted() -> None:
    world = played({**SHORT, "matchmaking": {"opponents": 4, "latest_ratio": 0.25}})
    state = world.state
    policy = any_policy(state.tables)
    lineup = draw_lineup(state, transaction(world), (policy,))
    given = world.messages(Train)[-1]
    trainee = structs.replace(given.trainees[0], policy=policy.policy, generation=policy.generation)
    message = structs.replace(given, trainees=(trainee,), opponents=lineup.seatings)
    found = knowledge(state.settings, state.indexes, message, lineup.requests)
    # An assignment that is given out again draws nothing.
    assert knowledge(state.settings, state.indexes, message, {}) == found
    request = make_request(state.settings, state.indexes, policy, "player")
    wins, losses = request.record(request.ghosts)
    rates = request.win_rates(request.ghosts)
    frozen = {
        p.player for seating in lineup.seatings for p in seating.players if p.weights is not None
    }
    expected = {
        player: (pytest.approx(rate, abs=6e-4), pytest.approx(8 / (8 + won + lost), abs=6e-4))
        for player, rate, won, lost in zip(request.ghosts.players, rates, wins, losses, strict=True)
        if player in frozen
    }
    assert len(expected) >= 1
    assert set(expected) == frozen
    win_rates = cast("dict[str, float]", found["win_rates"])
    predicted = cast("dict[str, float]", found["predicted"])
    assert win_rates == {player: rate for player, (rate, _) in expected.items()}
    assert predicted == {player: share for player, (_, share) in expected.items()}
    # The knowledge is committed with every draw; some opponents were known and some were not.
    shares = [
        share
        for event in world.events("train_assigned")
        for share in cast("dict[str, float]", event.data["predicted"]).values()
    ]
    assert 0.0 < min(shares) < max(shares) == 1.0


def training_tally(own: str, digest: str, *, wins: int, losses: int) -> Tally:
    return make_tally((own, digest), (0, 1, wins, 0, losses))


def test_bots_have_their_share_of_training() -> None:
    bots = {"bot:random": 0.25, "bot:arena.bots.connect_four:Tactical": 0.25}
    world = played({**SHORT, "matchmaking": {"bots": bots, "opponents": 4}})
    counts: Counter[str] = Counter()
    trained = 0
    for event in world.events("train_assigned"):
        trained += 1
        seatings = cast("list[list[str]]", event.data["opponents"])
        counts.update(player for players in seatings for player in players if "bot:" in player)
    assert trained > 5
    # One of four opponents is each bot, in both seats.
    assert counts == {bot: 2 * trained for bot in bots}
    entrants = {
        entrant
        for row in world.committed
        if isinstance(row, TallyRow) and row.kind == "train"
        for entrant in row.tally.entrants
    }
    assert set(bots) <= entrants


def test_an_imported_player_plays_with_its_weights_until_they_are_corrupt() -> None:
    world = played({**SHORT, "matchmaking": {"kind": "uniform", "opponents": 4}})
    state = world.state
    weights = WeightsRef(digest=Digest("f" * 64), key="outsiders/000/player")
    outsider = ExternalPlayer(
        player=external_player_id("my exports/champion"), share=0.5, weights=weights
    )
    assert outsider.player == "outsider:my_exports/champion"
    state.settings.external_players = {"player": (outsider,)}
    policy = any_policy(state.tables)
    champion = Player(player=outsider.player, weights=weights)
    seatings = draw_lineup(state, transaction(world), (policy,)).seatings
    assert sum(champion in seating.players for seating in seatings) == 4
    tx = transaction(world)
    set_aside(state, tx, weights.key, reason="bytes do not match")
    assert [row.kind for row in tx.rows if isinstance(row, EventRow)] == ["outsider_corrupt"]
    seatings = draw_lineup(state, transaction(world), (policy,)).seatings
    assert len(seatings) == 8
    assert not any(champion in seating.players for seating in seatings)


class Wrong:
    """A user's own matchmaker that answers whatever it was told to."""

    def __init__(self, answer: Opponents) -> None:
        self.answer = answer

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        del request, rng
        return self.answer


@pytest.mark.slow
def test_a_users_own_matchmaker_must_draw_what_was_asked() -> None:
    world = played({**SHORT, "matchmaking": {"opponents": 4}})
    policy = any_policy(world.state.tables)
    request = make_request(world.state.settings, world.state.indexes, policy, "player")
    stranger = replace(request.ghosts[0], player=PlayerId("player/p777@000000000001"))
    known = {*request.ghosts.players, *request.latest.players, policy.policy}
    for answer, message in (
        (Opponents(num_mirrors=1, players=()), "must draw 4 opponents, got 1"),
        (Opponents(num_mirrors=-1, players=(request.ghosts[0],) * 5), "must draw 4 opponents"),
        (Opponents(num_mirrors=3, players=(stranger,)), "ghosts and latest, got 'player/p777@"),
    ):
        world.state.settings.matchmaker = Wrong(answer)
        drawn, failed = drawn_instead(world, policy)
        assert message in failed
        # There are still four opponents, each in both seats.
        assert len(drawn) == 8
        assert {one.player for seating in drawn for one in seating.players} <= known
    tag = played({**TAG, "matchmaking": {"opponents": 2}})
    tag.state.settings.matchmaker = Wrong(Opponents(num_mirrors=2, players=()))
    _, failed = drawn_instead(tag, any_policy(tag.state.tables))
    assert "which is not its own" in failed


def drawn_instead(world: World, policy: PolicyRow) -> tuple[tuple[Seating, ...], str]:
    """Return the seatings that another matchmaker drew, and why it did."""
    tx = transaction(world)
    seatings = draw_lineup(world.state, tx, (policy,)).seatings
    (event,) = (r for r in tx.rows if isinstance(r, EventRow) and r.kind == "matchmaking_failed")
    assert event.data["instead"] == "uniform"
    return seatings, str(event.data["reason"])


class Failing:
    """A user's own matchmaker that raises a number of times before it works."""

    def __init__(self, times: int) -> None:
        self.left = times

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        self.left -= 1
        if self.left >= 0:
            raise ZeroDivisionError("no rivals")
        return Opponents(num_mirrors=request.num_opponents, players=())


def test_where_a_users_matchmaker_raises_the_run_goes_on_and_says_so() -> None:
    world = make_world(SHORT, joined=1)
    world.state.settings.matchmaker = Failing(times=3)
    while not world.events("alert_cleared"):
        world.step()
    failed = world.events("matchmaking_failed")
    assert [event.subject for event in failed] == ["player"] * 3
    assert "ZeroDivisionError: no rivals" in str(failed[0].data["reason"])
    (alert,), (cleared,) = world.events("alert"), world.events("alert_cleared")
    assert alert.data["name"] == cleared.data["name"] == "matchmaking_fell_back"


def test_a_run_may_end_where_a_users_matchmaker_raises() -> None:
    world = make_world({**SHORT, "alerts": {"fail": ["matchmaking_fell_back"]}}, joined=1)
    world.state.settings.matchmaker = Failing(times=1)
    world.run()
    assert "matchmaking_fell_back" in world.state.phase.reason
