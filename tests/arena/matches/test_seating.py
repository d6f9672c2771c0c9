from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import ConfigError
from arena.matches.comparisons import result_weights, rival_seats
from arena.matches.seating import (
    SIDES_ALONE,
    make_seats,
    pair_seatings,
    plays_of,
    seat_teams,
    seats_in_turn,
)
from arena.matches.teammates import Cast, training_seatings
from arena.types import Player, PlayerId, Seat, Seating
from experiments.ratings.many_sides import seats_of

TRAINEE = Player(player=PlayerId("player/p000"))


def players(*names: str) -> tuple[Player, ...]:
    return tuple(Player(player=PlayerId(name)) for name in names)


def teams(*names: str) -> list[dict[str, Player]]:
    return [dict.fromkeys(("p", "p0", "player"), player) for player in players(*names)]


def names(seating: Seating) -> list[str]:
    return [player.player for player in seating.players]


def duel_seats() -> tuple[Seat, ...]:
    return make_seats(
        agents=("x", "o"),
        sides={"x": ("x",), "o": ("o",)},
        populations={"player": ("x", "o")},
    )


def tag_seats() -> tuple[Seat, ...]:
    return make_seats(
        agents=("wolf_0", "wolf_1", "hare"),
        sides={"wolves": ("wolf_0", "wolf_1"), "hares": ("hare",)},
        populations={"wolf": ("wolf_0", "wolf_1"), "hare": ("hare",)},
    )


def test_each_side_of_one_population_is_a_seat() -> None:
    assert duel_seats() == (
        Seat(name="x", side="x", population="player", agents=("x",)),
        Seat(name="o", side="o", population="player", agents=("o",)),
    )


def test_teammates_share_a_seat_in_the_environments_order() -> None:
    seats = make_seats(
        agents=("a1", "b1", "a2", "b2"),
        sides={"a": ("a2", "a1"), "b": ("b1", "b2")},
        populations={"all": ("a1", "b1", "a2", "b2")},
    )
    assert [(seat.name, seat.agents) for seat in seats] == [
        ("a", ("a1", "a2")),
        ("b", ("b1", "b2")),
    ]


def test_a_side_of_two_populations_has_two_seats_named_after_both() -> None:
    seats = make_seats(
        agents=("tank", "healer", "boss"),
        sides={"heroes": ("tank", "healer"), "foes": ("boss",)},
        populations={"front": ("tank", "boss"), "back": ("healer",)},
    )
    assert [(seat.name, seat.side, seat.population) for seat in seats] == [
        ("heroes/front", "heroes", "front"),
        ("heroes/back", "heroes", "back"),
        ("foes", "foes", "front"),
    ]


def test_cooperation_has_home_and_away_with_the_same_agents() -> None:
    sides = {"all": ("a", "b")}
    seats = make_seats(agents=("a", "b"), sides=sides, populations={"team": ("a", "b")})
    assert [(seat.name, seat.side, seat.agents) for seat in seats] == [
        ("home", "all", ("a", "b")),
        ("away", "all", ("a", "b")),
    ]


def duet_seats() -> tuple[Seat, ...]:
    return make_seats(
        agents=("a1", "b", "a2"),
        sides={"all": ("a1", "b", "a2")},
        populations={"p": ("a2", "a1"), "q": ("b",)},
    )


def test_two_populations_that_cooperate_have_a_seat_each_at_home_and_away() -> None:
    assert duet_seats() == (
        Seat(name="home/p", side="all", population="p", agents=("a1", "a2")),
        Seat(name="home/q", side="all", population="q", agents=("b",)),
        Seat(name="away/p", side="all", population="p", agents=("a1", "a2")),
        Seat(name="away/q", side="all", population="q", agents=("b",)),
    )
    assert plays_of(duet_seats()) == ((0, 1), (2, 3))
    assert seat_teams(duet_seats()) == ((0, "all"), (0, "all"), (1, "all"), (1, "all"))
    assert rival_seats(duet_seats()) == ((0, 2), (1, 3))


def test_on_several_sides_a_team_is_a_side_and_all_others_are_rivals() -> None:
    seats = make_seats(
        agents=("tank", "healer", "boss", "imp"),
        sides={"heroes": ("tank", "healer"), "foes": ("boss",), "imps": ("imp",)},
        populations={"front": ("tank", "boss", "imp"), "back": ("healer",)},
    )
    assert plays_of(seats) == ((0, 1, 2, 3),)
    assert [side for _, side in seat_teams(seats)] == ["heroes", "heroes", "foes", "imps"]
    assert rival_seats(seats) == ((0, 2), (0, 3), (1, 2), (1, 3), (2, 3))


def test_who_cooperates_learns_beside_its_mate() -> None:
    p, q = players("p/p001", "q/p001")
    (seating,) = training_seatings([((p,), {"q": (q,)})], seats=duet_seats(), population="p")
    assert names(seating) == ["p/p001", "q/p001", "p/p001", "q/p001"]
    with pytest.raises(ValueError, match="no player of population 'q'"):
        training_seatings([((p,), {})], seats=duet_seats(), population="p")


def test_two_teams_play_one_after_the_other() -> None:
    one, other, bot = players("p/p001", "q/p001", "bot:random")
    home, away = {"p": one, "q": other}, {"p": bot, "q": bot}
    (seating,) = pair_seatings(home, away, seats=duet_seats())
    assert names(seating) == ["p/p001", "q/p001", "bot:random", "bot:random"]


@pytest.mark.parametrize(
    ("sides", "text"),
    [
        ({"a": ("a",)}, "'b' must be in exactly one of them, is in none"),
        ({"a": ("a", "b"), "b": ("b",)}, "'b' must be in exactly one of them, is in 'a' and 'b'"),
        ({"a": ("a",), "b": ("b", "c")}, "no agent 'c'"),
    ],
)
def test_sides_must_partition_the_agents(sides: dict[str, tuple[str, ...]], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_seats(agents=("a", "b"), sides=sides, populations={"p": ("a", "b")})


def test_mirror_gives_the_trainee_every_seat_of_its_population() -> None:
    mirror: Cast = ((TRAINEE,), {"player": (TRAINEE,)})
    seatings = training_seatings([mirror], seats=duel_seats(), population="player")
    # There is one seating for each of the trainee's seats, as with any other opponent.
    assert [names(seating) for seating in seatings] == [["player/p000"] * 2] * 2


@given(num_opponents=st.integers(0, 6), num_sides=st.integers(2, 5), num_mirrors=st.integers(0, 3))
def test_trainee_meets_each_opponent_in_each_seat_once(
    num_opponents: int, num_sides: int, num_mirrors: int
) -> None:
    agents = tuple(f"a{index}" for index in range(num_sides))
    seats = make_seats(
        agents=agents, sides={agent: (agent,) for agent in agents}, populations={"player": agents}
    )
    rivals = players(*(f"player/p{index:03d}@0" for index in range(1, num_opponents + 1)))
    casts: list[Cast] = [
        ((TRAINEE,), {"player": (rival,)}) for rival in (*[TRAINEE] * num_mirrors, *rivals)
    ]
    seatings = training_seatings(casts, seats=seats, population="player")
    played = Counter(
        (next(name for name in seated if name != TRAINEE.player), seated.index(TRAINEE.player))
        for seated in map(names, seatings)
        if set(seated) != {TRAINEE.player}
    )
    assert played == {(rival.player, seat): 1 for rival in rivals for seat in range(num_sides)}
    assert len(seatings) == (num_mirrors + num_opponents) * num_sides


def test_other_populations_are_filled_by_their_players() -> None:
    wolf = Player(player=PlayerId("wolf/p000"))
    casts: list[Cast] = [
        ((wolf,), {"hare": (hare,)}) for hare in players("hare/p000@0", "hare/p001@0", "bot:random")
    ]
    seatings = training_seatings(casts, seats=tag_seats(), population="wolf")
    assert [names(seating) for seating in seatings] == [
        ["wolf/p000", "hare/p000@0"],
        ["wolf/p000", "hare/p001@0"],
        ["wolf/p000", "bot:random"],
    ]


def test_a_seat_of_another_population_without_players_is_refused() -> None:
    with pytest.raises(ValueError, match="no player of population 'hare'"):
        training_seatings([((TRAINEE,), {})], seats=tag_seats(), population="wolf")


def test_in_cooperation_the_trainee_has_all_agents() -> None:
    seats = make_seats(agents=("a",), sides={"all": ("a",)}, populations={"player": ("a",)})
    seatings = training_seatings([((TRAINEE,), {})], seats=seats, population="player")
    assert [names(seating) for seating in seatings] == [["player/p000", "player/p000"]]


def test_two_players_swap_seats() -> None:
    home, away = teams("A", "B")
    assert [names(s) for s in pair_seatings(home, away, seats=duel_seats())] == [
        ["A", "B"],
        ["B", "A"],
    ]


def test_two_players_on_three_sides_have_every_seat_alone_and_with_themselves() -> None:
    agents = ("a", "b", "c")
    seats = make_seats(
        agents=agents, sides={agent: (agent,) for agent in agents}, populations={"p": agents}
    )
    home, away = teams("A", "B")
    seatings = ["".join(names(s)) for s in pair_seatings(home, away, seats=seats)]
    assert seatings == ["ABB", "BAB", "BBA", "BAA", "ABA", "AAB"]


@pytest.mark.parametrize("num_sides", [10, 22, 300])
def test_two_players_on_many_sides_have_every_seat_equally_often_and_alone_in_turn(
    num_sides: int,
) -> None:
    seats = seats_of((num_sides, 1))
    home, away = teams("A", "B")
    alone: Counter[int] = Counter()
    for turn in range(num_sides):
        seatings = [names(one) for one in pair_seatings(home, away, seats=seats, turn=turn)]
        assert len(seatings) == 2 * SIDES_ALONE
        for seat in range(num_sides):
            assert sum(one[seat] == "A" for one in seatings) == SIDES_ALONE
        alone.update(one.index("A") for one in seatings if one.count("A") == 1)
    assert alone == dict.fromkeys(range(num_sides), SIDES_ALONE)


def test_the_trainee_has_its_seats_in_turn_where_not_all_can_be_played() -> None:
    few, many = seats_of((9, 1)), seats_of((22, 1))
    arguments: dict[str, Any] = {"population": "p0", "num_opponents": 4, "start": 20}
    # Nine sides have all seatings, even if learners leave some out.
    assert seats_in_turn(few, num_seatings=16, **arguments) == ()
    assert seats_in_turn(many, num_seatings=88, **arguments) == ()
    turns = seats_in_turn(many, num_seatings=14, **arguments)
    assert turns == ((20, 21, 0), (1, 2, 3), (4, 5, 6), (7, 8, 9))
    casts: list[Cast] = [((TRAINEE,), {"p0": (rival,)}) for rival in players("w", "x", "y", "z")]
    seatings = training_seatings(casts, seats=many, population="p0", turns=turns)
    assert [
        (names(one).index("player/p000"), names(one)[10], names(one).count("player/p000"))
        for one in seatings
    ] == [(place, rival, 1) for own, rival in zip(turns, "wxyz", strict=True) for place in own]
    # With fewer environments than opponents each opponent has one seating.
    assert seats_in_turn(many, num_seatings=2, **arguments) == ((20,), (21,), (0,), (1,))


@pytest.mark.parametrize(
    ("num_sides", "populations", "entrants", "expected"),
    [
        # With two sides of one agent a match has the weight 1.
        (2, 1, "AB", {(0, 1): 1.0}),
        # With two populations per side, a player that is rated alone has its team's result twice,
        (2, 2, "ABCD", dict.fromkeys([(0, 2), (0, 3), (1, 2), (1, 3)], 0.5)),
        # and a player with all seats of a team has it four times.
        (2, 2, "AABB", dict.fromkeys([(0, 2), (0, 3), (1, 2), (1, 3)], 0.25)),
        # With four sides each player has three opponents, or the same one three times.
        (4, 1, "ABCD", {(i, j): 1 / 3 for i in range(4) for j in range(i + 1, 4)}),
        (4, 1, "BABB", {(0, 1): 1 / 3, (1, 2): 1 / 3, (1, 3): 1 / 3}),
        (4, 1, "AABB", dict.fromkeys([(0, 2), (0, 3), (1, 2), (1, 3)], 0.25)),
        # In the cooperation of two populations each has the same comparison once.
        (1, 2, "ABCD", {(0, 2): 1.0, (1, 3): 1.0}),
        (1, 2, "AABB", {(0, 2): 0.5, (1, 3): 0.5}),
        (1, 2, "ABAC", {(1, 3): 1.0}),
        (2, 1, "AA", {}),
    ],
)
def test_a_match_is_one_result_for_whoever_plays_it(
    num_sides: int, populations: int, entrants: str, expected: dict[tuple[int, int], float]
) -> None:
    seats = seats_of((num_sides, populations))
    weights = result_weights(dict.fromkeys(rival_seats(seats), 1), entrants=entrants)
    assert weights == pytest.approx(expected)
    for entrant in set(entrants):
        own = [w for pair, w in weights.items() if entrant in {entrants[seat] for seat in pair}]
        assert sum(own) == pytest.approx(1.0 if own else 0.0)
