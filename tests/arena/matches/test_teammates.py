from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from arena.core import Actor, ActorInput, ActorOutput
from arena.matches.comparisons import rival_seats
from arena.matches.seating import make_seats
from arena.matches.teammates import (
    Cast,
    between_rivals,
    members,
    seats_per_agent,
    training_seatings,
)
from arena.matches.tournament import ActorMixture, draw_lineups
from arena.types import Entrant, PairScore, Player, PlayerId, Seat, Seating, Tally

TRAINEE = Player(player=PlayerId("player/p000"))


def player(name: str) -> Player:
    return Player(player=PlayerId(name))


def names(seating: Seating) -> list[str]:
    return [one.player for one in seating.players]


def squads() -> tuple[Seat, ...]:
    """Two against two, the agents of a side apart in the environment's order."""
    return make_seats(
        agents=("r0", "b0", "r1", "b1"),
        sides={"red": ("r0", "r1"), "blue": ("b0", "b1")},
        populations={"player": ("r0", "b0", "r1", "b1")},
    )


def hunt() -> tuple[Seat, ...]:
    """Three wolves of one population against a hare of another."""
    wolves = ("w0", "w1", "w2")
    return make_seats(
        agents=(*wolves, "hare"),
        sides={"wolves": wolves, "hares": ("hare",)},
        populations={"wolf": wolves, "hare": ("hare",)},
    )


def choir() -> tuple[Seat, ...]:
    """Three who cooperate."""
    return make_seats(
        agents=("a", "b", "c"), sides={"all": ("a", "b", "c")}, populations={"one": ("a", "b", "c")}
    )


def test_each_agent_has_a_seat_of_its_side_and_a_lone_one_keeps_its_name() -> None:
    assert [(seat.name, seat.side, seat.agents) for seat in seats_per_agent(squads())] == [
        ("red/r0", "red", ("r0",)),
        ("red/r1", "red", ("r1",)),
        ("blue/b0", "blue", ("b0",)),
        ("blue/b1", "blue", ("b1",)),
    ]
    assert [seat.name for seat in seats_per_agent(hunt())][2:] == ["wolves/w2", "hares"]
    assert members(hunt()) == (range(3), range(3, 4))


def test_two_sides_have_one_result_whoever_is_on_them() -> None:
    assert rival_seats(seats_per_agent(squads())) == ((0, 2),)
    assert rival_seats(seats_per_agent(hunt())) == ((0, 3),)
    # The only population plays home and away.
    assert rival_seats(seats_per_agent(choir())) == ((0, 3),)


def test_a_trainee_has_every_place_of_every_side_equally_often_and_faces_its_rival() -> None:
    casts: list[Cast] = [
        (
            (TRAINEE, player(f"beside{n}")),
            {"player": (player(f"rival{n}"), player(f"mate{n}"))},
        )
        for n in range(4)
    ]
    seatings = training_seatings(
        casts, seats=squads(), population="player", is_mixed=True, first_turn=1
    )
    # By hand: the trainee sits at the second place, first on red and then on blue.
    assert names(seatings[0]) == ["beside0", "player/p000", "mate0", "rival0"]
    assert names(seatings[1]) == ["mate0", "rival0", "beside0", "player/p000"]
    assert names(seatings[2]) == ["player/p000", "beside1", "rival1", "mate1"]
    places = Counter(names(seating).index("player/p000") for seating in seatings)
    assert places == {0: 2, 1: 2, 2: 2, 3: 2}


def test_a_side_of_another_size_has_its_rival_and_a_lone_player_all_agents() -> None:
    wolves = (player("wolf"), player("x"), player("y"))
    hare = player("hare/p000")

    def seated(*against: Player, population: str = "hare") -> list[str]:
        cast: Cast = ((hare,), {"wolf": against})
        (seating,) = training_seatings([cast], seats=hunt(), population=population, is_mixed=True)
        return names(seating)

    assert seated(*wolves) == ["wolf", "x", "y", "hare/p000"]
    assert seated(player("bot:random")) == ["bot:random"] * 3 + ["hare/p000"]
    with pytest.raises(ValueError, match="2 players for a side of 3 agents"):
        seated(*wolves[:2])
    with pytest.raises(ValueError, match="no player of population 'wolf' for seat 'wolves'"):
        seated()
    with pytest.raises(ValueError, match="'fox' has no seat"):
        seated(*wolves, population="fox")


def test_in_cooperation_away_repeats_home_and_there_are_no_rivals() -> None:
    cast: Cast = ((TRAINEE, player("x"), player("y")), {})
    seatings = training_seatings([cast] * 3, seats=choir(), population="one", is_mixed=True)
    assert [names(seating)[:3] for seating in seatings] == [
        ["player/p000", "x", "y"],
        ["y", "player/p000", "x"],
        ["x", "y", "player/p000"],
    ]
    assert all(names(seating)[:3] == names(seating)[3:] for seating in seatings)


def tally(*entrants: str, won: int = 3) -> Tally:
    returns = tuple(float(index) for index in range(len(entrants)))
    return Tally(
        entrants=tuple(map(Entrant, entrants)),
        matches=4,
        pairs=(PairScore(first=0, second=len(entrants) // 2, wins=won, draws=0, losses=4 - won),),
        return_sum=returns,
        return_sum_of_squares=tuple(10.0 * value for value in returns),
        length_sum=20,
    )


def test_a_mixed_tally_is_a_result_of_the_trainee_and_its_rival_alone() -> None:
    between = between_rivals(tally("mate", "player/p000#2", "other", "rival"), seats=squads())
    assert between.entrants == ("player/p000#2", "rival")
    assert between.pairs == (PairScore(first=0, second=1, wins=3, draws=0, losses=1),)
    assert (between.return_sum, between.return_sum_of_squares) == ((1.0, 3.0), (10.0, 30.0))
    assert (between.matches, between.length_sum) == (4, 20)


def test_a_trainee_on_both_sides_met_itself_and_a_shorter_side_counts_its_rival() -> None:
    mirror = between_rivals(tally("player/p0#1", "x", "player/p0#1", "y"), seats=squads())
    assert mirror.entrants == ("player/p0#1", "player/p0#1")
    pair = PairScore(first=0, second=3, wins=1, draws=0, losses=3)
    hunted = Tally(
        entrants=(Entrant("x"), Entrant("y"), Entrant("wolf/p0#0"), Entrant("hare")),
        matches=4,
        pairs=(pair,),
        return_sum=(0.0,) * 4,
        return_sum_of_squares=(0.0,) * 4,
        length_sum=4,
    )
    assert between_rivals(hunted, seats=hunt()).entrants == ("wolf/p0#0", "hare")
    assert between_rivals(hunted, seats=hunt()).pairs == (
        PairScore(first=0, second=1, wins=1, draws=0, losses=3),
    )


@dataclass(frozen=True)
class Named(Actor):
    name: str

    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        observation = inputs.observation
        return ActorOutput(action=torch.zeros(len(observation), dtype=torch.int64))


A, B, C = Named("a"), Named("b"), Named("c")
MIXED = ActorMixture(actors=(A, B), probabilities=(0.25, 0.75))


def drawn(
    *players: Actor | ActorMixture, identities: list[str], num_matches: int, seed: int = 1
) -> dict[tuple[Actor, ...], int]:
    lineups = draw_lineups(
        players, identities=identities, num_matches=num_matches, rng=np.random.default_rng(seed)
    )
    assert len({actors for actors, _ in lineups}) == len(lineups)
    assert sum(count for _, count in lineups) == num_matches
    return dict(lineups)


def test_without_a_mixture_the_same_two_play_every_match() -> None:
    assert drawn(A, C, identities=["home", "away"], num_matches=7) == {(A, C): 7}


def test_members_play_in_proportion_and_the_seed_decides() -> None:
    num_matches = 10_000
    counts = drawn(MIXED, C, identities=["home", "away"], num_matches=num_matches)
    deviation = math.sqrt(num_matches * 0.25 * 0.75)
    assert abs(counts[(A, C)] - 0.25 * num_matches) < 5 * deviation
    assert set(counts) == {(A, C), (B, C)}
    again = drawn(MIXED, C, identities=["home", "away"], num_matches=num_matches)
    assert again == counts
    other = drawn(MIXED, C, identities=["home", "away"], num_matches=num_matches, seed=2)
    assert other != counts


def test_two_mixtures_draw_by_themselves_and_one_with_two_seats_draws_once() -> None:
    counts = drawn(MIXED, MIXED, identities=["home", "away"], num_matches=4000)
    assert set(counts) == {(A, A), (A, B), (B, A), (B, B)}
    assert abs(counts[(A, B)] - 4000 * 3 / 16) < 5 * math.sqrt(4000 * 3 / 16 * 13 / 16)
    counts = drawn(C, MIXED, MIXED, identities=["home", "away", "away"], num_matches=100)
    assert set(counts) == {(C, A, A), (C, B, B)}
