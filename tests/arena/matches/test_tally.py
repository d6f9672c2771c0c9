import torch
from hypothesis import given
from hypothesis import strategies as st

from arena.envs.base import Turn
from arena.matches.seating import make_seats
from arena.matches.tally import OpenEpisodes, TallyBook, merge_tallies
from arena.types import Entrant, PairScore, Tally
from tests.arena.samples import make_turn

DUEL = make_seats(
    agents=("x", "o"), sides={"x": ("x",), "o": ("o",)}, populations={"player": ("x", "o")}
)
TEAMS = make_seats(
    agents=("a1", "b1", "a2", "b2"),
    sides={"a": ("a1", "a2"), "b": ("b1", "b2")},
    populations={"player": ("a1", "b1", "a2", "b2")},
)


def turn(
    *, reward: list[list[float]], over: list[bool], score: list[list[float]] | None = None
) -> Turn:
    return make_turn(
        torch.tensor(reward),
        episode_over=torch.tensor(over),
        score=torch.full((len(reward), 2), torch.nan) if score is None else torch.tensor(score),
    )


def duel_book(*entrants: tuple[str, str], block_of_env: list[int]) -> TallyBook:
    return TallyBook(
        [(Entrant(home), Entrant(away)) for home, away in entrants],
        block_of_env=torch.tensor(block_of_env),
        agents=("x", "o"),
        sides=("x", "o"),
        seats=DUEL,
    )


def record(book: TallyBook, *turns: Turn, void: tuple[int, ...] = ()) -> None:
    num_envs, num_agents = turns[0].reward.shape
    episodes = OpenEpisodes(num_envs=num_envs, num_agents=num_agents, device=torch.device("cpu"))
    episodes.void[list(void)] = True
    for one in turns:
        episodes.add(one)
        book.add(one, episodes)
        episodes.forget(one.episode_over)


NAN = float("nan")


def test_returns_lengths_and_results_are_summed_per_entrants() -> None:
    book = duel_book(("A", "B"), ("B", "A"), block_of_env=[0, 0, 1])
    record(
        book,
        turn(reward=[[1, 0], [0, 2], [5, 0]], over=[False] * 3),
        turn(
            reward=[[1, -1], [0, 1], [0, 0]],
            over=[True, True, False],
            score=[[1, 0], [0.5, 0.5], [NAN, NAN]],
        ),
        turn(
            reward=[[4, 4], [0, 0], [1, 1]],
            over=[True, False, True],
            score=[[0, 1], [NAN, NAN], [0, 1]],
        ),
    )
    assert book.tallies() == (
        # Seat x has returns 2, 0 and 4; seat o has -1, 3 and 4. The lengths are 2, 2 and 1.
        Tally(
            entrants=(Entrant("A"), Entrant("B")),
            matches=3,
            pairs=(PairScore(first=0, second=1, wins=1, draws=1, losses=1),),
            return_sum=(6.0, 6.0),
            return_sum_of_squares=(20.0, 26.0),
            length_sum=5,
        ),
        Tally(
            entrants=(Entrant("B"), Entrant("A")),
            matches=1,
            pairs=(PairScore(first=0, second=1, wins=0, draws=0, losses=1),),
            return_sum=(6.0, 1.0),
            return_sum_of_squares=(36.0, 1.0),
            length_sum=3,
        ),
    )


def test_scores_between_win_and_draw_are_summed_beside_them() -> None:
    book = duel_book(("A", "B"), block_of_env=[0, 0, 0])
    # The points are 1/2 + u / 8 for returns of 1, -2 and 0 in a game of at most 4.
    score = [[0.625, 0.375], [0.25, 0.75], [0.5, 0.5]]
    record(book, turn(reward=[[1, -1], [-2, 2], [0, 0]], over=[True] * 3, score=score))
    (tally,) = book.tallies()
    scores = (0.625, 0.25, 0.5)
    expected = PairScore(
        first=0,
        second=1,
        wins=1,
        draws=1,
        losses=1,
        score_sum=sum(scores),
        square_sum=sum(s * s for s in scores),
    )
    assert tally.pairs == (expected,)
    (both,) = merge_tallies([tally, tally])[0].pairs
    assert (both.score_sum, both.square_sum) == (2.75, 2 * 0.703125)


def test_a_seats_return_is_the_mean_over_its_agents() -> None:
    book = TallyBook(
        [(Entrant("A"), Entrant("B"))],
        block_of_env=torch.tensor([0]),
        agents=("a1", "b1", "a2", "b2"),
        sides=("a", "b"),
        seats=TEAMS,
    )
    record(book, turn(reward=[[1, 10, 3, 30]], over=[True], score=[[0, 1]]))
    assert book.tallies()[0].return_sum == (2.0, 20.0)


def test_blocks_with_equal_entrants_are_one_tally_and_idle_ones_are_left_out() -> None:
    book = duel_book(("A", "B"), ("C", "D"), ("A", "B"), block_of_env=[0, 1, 2])
    record(
        book,
        turn(reward=[[0, 0]] * 3, over=[True, False, True], score=[[1, 0], [NAN, NAN], [1, 0]]),
    )
    assert [(tally.entrants, tally.matches) for tally in book.tallies()] == [(("A", "B"), 2)]


def test_a_void_episode_is_no_match_but_the_next_one_is() -> None:
    book = duel_book(("A", "B"), block_of_env=[0, 0])
    record(
        book,
        turn(reward=[[7, 0], [1, 0]], over=[True, True], score=[[1, 0], [1, 0]]),
        turn(reward=[[2, 0], [3, 0]], over=[True, False], score=[[1, 0], [NAN, NAN]]),
        void=(0,),
    )
    (tally,) = book.tallies()
    assert (tally.matches, tally.return_sum, tally.length_sum) == (2, (3.0, 0.0), 2)
    (episodes,) = book.episodes()
    assert (episodes.matches, episodes.return_sum, episodes.length_sum) == (3, (10.0, 0.0), 3)


def test_cooperation_while_training_compares_nobody() -> None:
    seats = make_seats(agents=("a",), sides={"all": ("a",)}, populations={"p": ("a",)})
    book = TallyBook(
        [(Entrant("A"), Entrant("A"))],
        block_of_env=torch.tensor([0]),
        agents=("a",),
        sides=("all",),
        seats=seats,
    )
    over = turn(reward=[[2.0]], over=[True])
    over.score = torch.tensor([[NAN]])
    record(book, over)
    (tally,) = book.tallies()
    assert (tally.pairs, tally.return_sum) == ((), (2.0, 2.0))


@given(
    steps=st.lists(
        st.lists(
            st.tuples(st.booleans(), st.sampled_from([0.0, 0.5, 1.0]), st.integers(-3, 3)),
            min_size=4,
            max_size=4,
        ),
        min_size=1,
        max_size=12,
    )
)
def test_every_finished_episode_is_counted_once(
    steps: list[list[tuple[bool, float, int]]],
) -> None:
    book = duel_book(("A", "B"), ("B", "A"), block_of_env=[0, 0, 1, 1])
    open_returns = [0.0] * 4
    expected = {0: [0, 0.0, 0], 1: [0, 0.0, 0]}
    turns = []
    for step in steps:
        turns.append(
            turn(
                reward=[[float(reward), 0.0] for _, _, reward in step],
                over=[over for over, _, _ in step],
                score=[[s, 1 - s] if over else [NAN, NAN] for over, s, _ in step],
            )
        )
        for env, (over, score, reward) in enumerate(step):
            open_returns[env] += reward
            if over:
                sums = expected[env // 2]
                sums[0] += 1
                sums[1] += open_returns[env]
                sums[2] += score == 1.0
                open_returns[env] = 0.0
    record(book, *turns)
    tallies = {tally.entrants: tally for tally in book.tallies()}
    for block, entrants in enumerate([("A", "B"), ("B", "A")]):
        matches, return_sum, wins = expected[block]
        if matches == 0:
            assert entrants not in tallies
            continue
        tally = tallies[Entrant(entrants[0]), Entrant(entrants[1])]
        (pair,) = tally.pairs
        assert pair.wins + pair.draws + pair.losses == tally.matches == matches
        assert (tally.return_sum[0], pair.wins) == (return_sum, wins)


def test_merging_adds_up() -> None:
    book = duel_book(("A", "B"), block_of_env=[0])
    record(book, turn(reward=[[3, 1]], over=[True], score=[[1, 0]]))
    once = book.tallies()
    record(book, turn(reward=[[3, 1]], over=[True], score=[[1, 0]]))
    assert merge_tallies([*once, *once]) == book.tallies()
