"""Which of many games stay, and which are a player's worst, by hand and by properties."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from arena.matches.seating import make_seats
from arena.types import Digest, Entrant, Player, PlayerId, WeightsRef
from populations.records.games import defeats, kept_games, margin, played_as, worst_games
from populations.records.rows import GameRow
from tests.populations.rows import make_checkpoint

DUEL = make_seats(
    agents=("a", "b"), sides={"a": ("a",), "b": ("b",)}, populations={"player": ("a", "b")}
)
DUET = make_seats(agents=("a", "b"), sides={"all": ("a", "b")}, populations={"player": ("a", "b")})


def game(
    number: int,
    players: str = "01",
    points: tuple[float, ...] = (1.0, 0.0),
    *,
    steps: int = 10,
    returns: tuple[float, ...] = (0.0, 0.0),
    seats: tuple[int, ...] = (0, 1),
) -> GameRow:
    """Return a game of players p000, p001, ...; weights are named by digits, too."""
    return GameRow(
        game=f"{number}.0",
        time="",
        seats=seats,
        players=tuple(PlayerId(f"player/p00{name}@{number:012d}") for name in players),
        entrants=tuple(Entrant(name * 64) for name in players),
        keys=("k",) * len(players),
        pairing=0,
        seed=number,
        steps=steps,
        points=points,
        returns=returns,
        actions=b"",
        shown=b"",
    )


def weights(name: str) -> Entrant:
    return Entrant(name * 64)


def ids(games: list[GameRow]) -> list[str]:
    return [one.game for one in games]


def test_a_margin_is_that_to_the_best_other_side() -> None:
    three = make_seats(
        agents=("a", "b", "c"),
        sides={"a": ("a",), "b": ("b",), "c": ("c",)},
        populations={"player": ("a", "b", "c")},
    )
    one = game(1, "012", (0.5, 0.9, 0.1), seats=(0, 1, 2), returns=(3.0, 4.0, 5.0))
    margins = [margin(one, place, seats=three) for place in range(3)]
    assert margins == [0.5 - 0.9, 0.9 - 0.5, 0.1 - 0.9]
    alone = game(1, "0", (), seats=(0,), returns=(-2.5,))
    assert margin(alone, 0, seats=DUET) == -2.5


def test_the_worst_defeat_comes_first() -> None:
    games = [
        game(1, "01", (1.0, 0.0)),
        game(2, "01", (0.0, 1.0), steps=20),
        game(3, "10", (1.0, 0.0), steps=8),
        game(4, "12", (0.0, 1.0)),
        game(5, "01", (0.5, 0.5)),
        game(6, "10", (1.0, 0.0), steps=8),
        game(7, "01", (0.3, 0.7)),
    ]
    # The order is: lost in 8 steps, newer first; lost in 20; lost by less; drawn; won. Game 4 is of
    # others.
    expected = ["6.0", "3.0", "2.0", "7.0", "5.0", "1.0"]
    assert ids(worst_games(games, ["player/p000"], seats=DUEL)) == expected
    assert ids(worst_games(games, [weights("0")], seats=DUEL)) == expected
    assert ids(worst_games(games, ["player/p002@000000000004"], seats=DUEL)) == ["4.0"]
    assert ids(worst_games(games, ["bot:random"], seats=DUEL)) == []
    together = [game(1, "0", (), seats=(0,), returns=(n,)) for n in (3.0, -1.0, 2.0)]
    found = worst_games(together, ["player/p000"], seats=DUET)
    assert [one.returns for one in found] == [(-1.0,), (2.0,), (3.0,)]


def test_defeats_are_of_weights_and_not_of_a_policy() -> None:
    games = [
        game(1, "01", (0.0, 1.0)),
        game(2, "10", (0.0, 1.0)),
        game(3, "10", (0.5, 0.5)),
        game(4, "21", (0.0, 1.0)),
        # In a game against itself one side always loses.
        game(5, "00", (0.0, 1.0)),
    ]
    assert ids(defeats(games, weights("0"), seats=DUEL)) == ["1.0", "5.0"]
    assert ids(defeats(games, weights("1"), seats=DUEL)) == ["2.0"]
    assert defeats([game(1, "0", (), seats=(0,), returns=(-9.0,))], weights("0"), seats=DUET) == []


def test_defeats_newest_longest_and_closest_stay() -> None:
    games = [
        game(1, "01", (0.0, 1.0)),  # a defeat of the champion
        game(2, "12", steps=99),  # the longest of its pair
        game(3, "21", (0.6, 0.4)),  # the closest of it
        game(4, "12"),
        game(5, "12"),  # the newest of it
        game(6, "01"),
        game(7, "01"),  # the newest of this pair, the longest and the closest, too
    ]
    stay = kept_games(games, keep=5, champion=weights("0"), seats=DUEL)
    assert stay == {"1.0", "7.0", "5.0", "3.0", "2.0"}
    # Without a champion the first game has no claim, and the newest of the others stays.
    assert kept_games(games, keep=5, champion=None, seats=DUEL) == {
        *("7.0", "5.0", "3.0", "2.0", "6.0")
    }
    assert kept_games(games, keep=1, champion=weights("0"), seats=DUEL) == {"1.0"}


def test_defeats_leave_half_of_the_places_to_other_games() -> None:
    games = [game(0, "12"), *(game(number, "01", (0.0, 1.0)) for number in range(1, 9))]
    # Two of the champion's eight stay, the newest of the other pair, and the newest one of all
    # others.
    stay = kept_games(games, keep=4, champion=weights("0"), seats=DUEL)
    assert stay == {"8.0", "7.0", "6.0", "0.0"}
    # The larger half of an odd number goes to the champion.
    assert kept_games(games, keep=1, champion=weights("0"), seats=DUEL) == {"8.0"}


GAMES = st.lists(
    st.tuples(
        st.sampled_from(["01", "10", "02", "20", "12", "21", "00"]),
        st.sampled_from([(1.0, 0.0), (0.0, 1.0), (0.5, 0.5)]),
        st.integers(1, 50),
    ),
    max_size=40,
)


@given(games=GAMES, keep=st.integers(1, 30))
def test_as_many_stay_as_may_and_none_goes_before_one_of_a_lesser_claim(
    games: list[tuple[str, tuple[float, float], int]], keep: int
) -> None:
    rows = [
        game(number, players, points, steps=steps)
        for number, (players, points, steps) in enumerate(games)
    ]
    stay = kept_games(rows, keep=keep, champion=weights("0"), seats=DUEL)
    assert len(stay) == min(keep, len(rows))
    assert stay <= set(ids(rows))
    lost = set(ids(defeats(rows, weights("0"), seats=DUEL)))
    # Half of the places belong to the newest defeats, as far as there are enough.
    ranked = [one for one in ids(rows) if one in lost]
    assert set(ranked[-((keep + 1) // 2) :]) <= stay
    # Keeping more games removes none that would stay otherwise.
    assert stay <= kept_games(rows, keep=keep + 1, champion=weights("0"), seats=DUEL)


def test_a_policy_is_named_with_the_steps_of_its_weights() -> None:
    digest = Digest("a" * 64)
    row = make_checkpoint(digest, key="k", policy="player/p003", agent_steps=4200)
    known = {digest: row}
    ref = WeightsRef(digest=digest, key="k")

    def name(player: str, weights: WeightsRef | None = ref) -> str:
        return played_as(Player(player=PlayerId(player), weights=weights), known)

    assert name("player/p003") == "player/p003@000000004200"
    assert name("player/p003@000000000007") == "player/p003@000000000007"
    assert name("outsider:other/p000") == "outsider:other/p000"
    assert name("bot:random", None) == "bot:random"
