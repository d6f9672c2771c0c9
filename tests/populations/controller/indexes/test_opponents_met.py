"""Whom a trainee has met: by hand, and against one that is made anew from the same payoffs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.types import Digest, Entrant
from populations.controller.indexes.opponent_pool import LATEST, OpponentColumns
from populations.league.payoff import Payoff
from tests.populations.controller.test_lineups import training_tally
from tests.populations.payoffs import met
from tests.populations.rows import make_checkpoint

LINE = [Entrant(f"player/p000#{generation}") for generation in range(4)]
NEVER = 1e12
"""A half-life in which nothing fades."""


ORIGINS = {
    Digest(name): make_checkpoint(
        name, policy=policy, generation=generation, agent_steps=agent_steps
    )
    for name, policy, generation, agent_steps in (
        ("a", "player/p001", 2, 500),
        ("b", "player/p002", 0, 900),
        ("c", "player/p009", 1, 100),
    )
}
POLICIES = {"player/p000": 0, "player/p001": 1, "player/p002": 2}


class League:
    """Payoffs that grow, ghosts that come, and a trainee whose generations follow one another."""

    def __init__(self, *, half_life: float = NEVER) -> None:
        self.payoff = Payoff(half_life_matches=half_life)
        self.ghosts: dict[str, int] = {}
        self.oldest = [0, 0]
        """Of p001 and p002: agent steps from which on their checkpoints matter."""
        self.met = OpponentColumns()

    def play(self, generation: int, other: str, wins: int, losses: int) -> None:
        self.payoff.add(training_tally(LINE[generation], other, wins=wins, losses=losses))

    def update(self, met: OpponentColumns, generation: int) -> OpponentColumns:
        """Take in what a trainee has met up to a generation."""
        met.update(
            LINE[: generation + 1],
            self.payoff,
            ghosts=self.ghosts,
            policies=POLICIES,
            origins=ORIGINS,
            oldest=lambda: np.array([0, *self.oldest]),
        )
        return met


def test_columns_say_whose_weights_were_met_by_hand() -> None:
    league = League()
    league.ghosts = {"b": 0, "unmet": 1, "bot:random": 2}
    league.play(0, "a", 3, 1)
    league.play(0, "bot:random", 2, 0)
    league.play(0, "b", 0, 4)
    league.play(0, "c", 1, 0)
    met = league.update(league.met, 0)
    # Opponents are in the order of the first match. A bot has no checkpoint; c's policy is in no
    # pool.
    assert met.ghost_codes.tolist() == [-1, 2, 0, -1]
    assert met.policy_codes.tolist() == [1, -1, 2, -1]
    assert met.generations.tolist() == [2, -1, 0, 1]
    assert met.agent_steps.tolist() == [500, -1, 900, 100]
    # Two generations of one policy learned beside it, and one policy that is in no pool.
    for name, wins in (("player/p002#3", 5), ("player/p002#4", 6), ("player/p009#0", 7)):
        league.play(0, name, wins, 1)
    met = league.update(league.met, 0)
    assert met.ghost_codes.tolist()[4:] == [-1] * 3
    assert met.policy_codes.tolist()[4:] == [2, 2, -1]
    assert met.generations.tolist()[4:] == [3, 4, 0]
    assert met.agent_steps.tolist()[4:] == [LATEST] * 3
    assert met.results.tolist() == [[3, 2, 0, 1, 5, 6, 7], [1, 0, 4, 0, 1, 1, 1]]
    met = league.update(OpponentColumns(), 0)
    assert met.policy_codes.tolist() == [1, -1, 2, -1, 2, 2, -1], "made anew"
    codes, results = met.among_ghosts()
    assert codes.tolist() == [0, 2]
    assert results.tolist() == [[0, 2], [4, 0]]


def test_weights_that_become_a_ghost_later_are_found_among_ghosts() -> None:
    league = League()
    league.play(0, "a", 3, 1)
    league.play(0, "b", 1, 1)
    assert league.update(league.met, 0).among_ghosts()[0].tolist() == []
    league.ghosts |= {"unmet": 0, "b": 1, "a": 2}
    codes, results = league.update(league.met, 0).among_ghosts()
    assert codes.tolist() == [1, 2]
    assert results.tolist() == [[1, 3], [1, 1]]


def test_results_of_a_generation_before_fade_with_later_ones_by_hand() -> None:
    league = League(half_life=10.0)
    league.play(0, "a", 8, 4)
    league.play(0, "b", 6, 0)
    league.update(league.met, 0)
    league.play(1, "a", 3, 7)
    league.play(1, "c", 1, 1)
    met = league.update(league.met, 1)
    # The half-life is ten matches: ten more were played against a, none against b.
    assert met.results.tolist() == [[7.0, 6.0, 1.0], [9.0, 0.0, 1.0]]
    league.play(2, "a", 0, 10)
    # (7, 9) / 2 + (0, 10)
    met = league.update(met, 2)
    assert met.results.tolist() == [[3.5, 6.0, 1.0], [14.5, 0.0, 1.0]]
    assert league.update(met, 2).results.tolist() == [[3.5, 6.0, 1.0], [14.5, 0.0, 1.0]]


def test_more_than_the_first_columns_hold_are_kept() -> None:
    league = League()
    for number in range(100):
        league.ghosts[f"ghost {number}"] = number
        league.play(0, f"ghost {number}", number, 1)
        league.update(league.met, 0)
    codes, results = league.met.among_ghosts()
    assert codes.tolist() == list(range(100))
    assert results.tolist() == [[float(number) for number in range(100)], [1.0] * 100]


@pytest.mark.parametrize(
    ("line", "expected"),
    [(LINE[:2], True), (LINE[:3], True), (LINE[:1], False), ([LINE[0], LINE[2]], False)],
)
def test_a_line_that_goes_on_is_followed_and_another_is_not(
    line: list[Entrant], expected: bool
) -> None:
    met = League().update(OpponentColumns(), 1)
    assert met.follows(line) == expected
    assert OpponentColumns().follows(line), "with nothing looked at, any line goes on"


STEP = st.one_of(
    st.tuples(st.sampled_from("abcde"), st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from(["explore", "ghost", "look"]),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(STEP, max_size=25), st.sampled_from([5.0, NEVER]))
def test_kept_results_are_those_of_one_made_anew(
    steps: list[tuple[str, int, int] | str], half_life: float
) -> None:
    league = League(half_life=half_life)
    generation = 0
    for step in steps:
        if step == "explore":
            generation = min(generation + 1, len(LINE) - 1)
        elif step == "ghost":
            league.ghosts["abcde"[len(league.ghosts) % 5]] = len(league.ghosts) % 5
        elif step == "look":
            league.update(league.met, generation)
        elif not isinstance(step, str):
            other, wins, losses = step
            league.play(generation, other, wins, losses)
    kept, fresh = (
        league.update(league.met, generation),
        league.update(OpponentColumns(), generation),
    )
    assert kept.line == fresh.line == LINE[: generation + 1]
    assert _columns(kept) == _columns(fresh)
    # Without fading the result is the sum over all generations.
    if half_life == NEVER:
        totals: dict[str, list[float]] = {}
        for entrant in kept.line:
            for other, won, lost in met(league.payoff, entrant):
                total = totals.setdefault(other, [0.0, 0.0])
                total[0] += won
                total[1] += lost
        # The values are rounded, so that rounding errors do not change the sorted order.
        assert sorted(np.round(kept.results.T, 6).tolist()) == sorted(
            np.round(list(totals.values()), 6).tolist()
        )


PLAYED = st.tuples(
    st.sampled_from(["a", "b", "c", "bot:random", "player/p002#4"]),
    st.integers(0, 9),
    st.integers(0, 9),
)
AGED = st.sampled_from(["explore", "ghost", "age a", "age b", "look"])


@settings(deadline=None, max_examples=100)
@given(st.lists(PLAYED | AGED, max_size=40), st.sampled_from([5.0, NEVER]))
def test_one_that_drops_those_who_are_too_old_answers_like_one_that_keeps_all(
    steps: list[tuple[str, int, int] | str], half_life: float
) -> None:
    league = League(half_life=half_life)
    # The small room makes it drop opponents at every update.
    league.met = OpponentColumns(_roomy=0)
    generation = 0
    for step in steps:
        if step == "explore":
            generation = min(generation + 1, len(LINE) - 1)
        elif step == "ghost" and league.oldest[0] <= 500:
            league.ghosts.setdefault("a", len(league.ghosts))
        elif step == "age a":
            league.oldest[0] = 501
        elif step == "age b":
            league.oldest[1] = 901
        elif not isinstance(step, str):
            other, wins, losses = step
            league.play(generation, other, wins, losses)
        league.update(league.met, generation)
        league.met._roomy = 0
    kept, fresh = league.met, league.update(OpponentColumns(_roomy=1000), generation)
    assert _that_matter(kept, [0, *league.oldest]) == _that_matter(fresh, [0, *league.oldest])
    assert [part.tolist() for part in kept.among_ghosts()] == [
        part.tolist() for part in fresh.among_ghosts()
    ]
    # Bots, opponents of policies in no pool, and old ghosts are dropped.
    matter = (kept.policy_codes > 0) & (
        kept.agent_steps >= np.array([0, *league.oldest])[kept.policy_codes]
    )
    assert ((kept.ghost_codes >= 0) | matter).all()


def _that_matter(met: OpponentColumns, oldest: list[int]) -> list[tuple[float, ...]]:
    """Return policy, generation, steps and results of latest checkpoints that are recent enough."""
    rows = zip(met.policy_codes, met.generations, met.agent_steps, *met.results, strict=True)
    return sorted(
        tuple(map(float, row)) for row in rows if row[0] >= 0 and row[2] >= oldest[row[0]]
    )


def _columns(met: OpponentColumns) -> list[list[list[float]]]:
    """All columns, in order of first meeting, and what is said about ghosts."""
    codes, results = met.among_ghosts()
    numbers = (met.ghost_codes, met.policy_codes, met.generations, met.agent_steps, codes)
    return [[column.tolist()] for column in numbers] + [met.results.tolist(), results.tolist()]
