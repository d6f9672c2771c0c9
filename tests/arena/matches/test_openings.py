from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.codec import from_msgpack, to_msgpack
from arena.core import Actor, ActorInput, ActorOutput
from arena.envs.base import Turn
from arena.matches.distinct import NO_DECISION, FirstDecisions
from arena.matches.match import Block, play_matches
from arena.matches.openings import (
    MAX_ACTIONS,
    added,
    bounded,
    choices_of,
    entries,
    most_played,
    openings_problem,
    radices,
)
from arena.matches.seating import make_seats
from arena.types import Entrant, PairScore, SeatOpenings, Tally
from tests.arena.matches.test_distinct import batch
from tests.arena.samples import Always, each_alone


class Drawn(Actor):
    """Plays a legal action at random, and writes all down."""

    reads_agent = False

    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        legal = inputs.action_mask
        weights = torch.ones(len(inputs.observation), 3) if legal is None else legal.float()
        return ActorOutput(action=torch.multinomial(weights, 1, generator=generator)[:, 0])


def tally_of(name: str, actors: tuple[Actor, Actor], *, watch: bool = False) -> tuple[Tally, Any]:
    env, spec = batch(name, num_envs=40)
    sides = each_alone(spec)
    watched = FirstSeen(env)
    (tally,) = play_matches(
        cast(Any, watched),
        blocks=[
            Block(entrants=(Entrant("A"), Entrant("B")), actors=actors, num_envs=40, num_matches=7)
        ],
        seats=make_seats(agents=spec.agents, sides=sides, populations={"player": spec.agents}),
        sides=sides,
        seeds=range(40),
        generator=torch.Generator().manual_seed(1),
        radices={"player": (1,)},
    )
    return tally, watched


class FirstSeen:
    """A batch that writes down each agent's first decision and its score, game by game."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self.num_envs, self.agents, self.halt = env.num_envs, env.agents, env.halt
        self.count: Counter[tuple[int, int]] = Counter()
        self.points: Counter[tuple[int, int]] = Counter()

    def reset(self, seeds: Any) -> Turn:
        self._first: list[dict[int, int]] = [{} for _ in range(self.num_envs)]
        self._turn = self._env.reset(seeds)
        return cast(Turn, self._turn)

    def step(self, actions: Any) -> Turn:
        (group,), (chosen,) = self._turn.groups.values(), actions.values()
        asked = zip(group.agent_index.tolist(), chosen.tolist(), strict=True)
        for first, (agents, answers) in zip(self._first, asked, strict=True):
            for agent, answer in zip(agents, answers, strict=True):
                if agent >= 0:
                    first.setdefault(agent, answer)
        self._turn = self._env.step(actions)
        for b in self._turn.episode_over.nonzero().flatten().tolist():
            for agent, action in self._first[b].items():
                gap = float(self._turn.score[b, agent] - self._turn.score[b, 1 - agent])
                self.count[agent, action] += 1
                self.points[agent, action] += 0.5 + gap / 2  # type: ignore[assignment]
            self._first[b] = {}
        return cast(Turn, self._turn)


@pytest.mark.parametrize("name", ["classic/tictactoe-v3", "classic/rps-v2"])
def test_first_decisions_and_their_points_are_those_that_were_seen(name: str) -> None:
    tally, watched = tally_of(name, (Drawn(), Drawn()))
    seen = {
        (seat, action): (count, won)
        for seat, openings in enumerate(tally.openings)
        for action, count, won in entries(openings)
    }
    assert {key: count for key, (count, _) in seen.items()} == watched.count
    assert {key: won for key, (_, won) in seen.items()} == pytest.approx(dict(watched.points))
    # There are fewer actions than the limit, so every match is counted in every seat.
    assert [sum(seat.matches) for seat in tally.openings] == [tally.matches] * 2
    assert openings_problem(tally) is None


def test_a_player_with_one_action_has_one_opening() -> None:
    tally, _ = tally_of("classic/rps-v2", (Always(1), Always(0)))
    # Paper (1) beats rock (0), so the sum of winning pairs is odd.
    assert tally.openings == (
        SeatOpenings(actions=(1,), matches=(280,), points=(280.0,)),
        SeatOpenings(actions=(0,), matches=(280,), points=(0.0,)),
    )


def test_combinations_of_choices_have_an_index_each() -> None:
    branches = (3, 2, 4)
    places = radices(branches, has_numbers=False)
    assert places is not None
    seen = set()
    for row in torch.cartesian_prod(*(torch.arange(n) for n in branches)).tolist():
        code = sum(choice * place for choice, place in zip(row, places, strict=True))
        assert choices_of(code, branches) == tuple(row)
        seen.add(code)
    assert seen == set(range(24))
    assert radices(branches, has_numbers=True) is None


def test_the_first_agent_of_a_seat_decides_it_even_in_many_turns() -> None:
    first = FirstDecisions(
        num_envs=2, num_agents=3, radices={"p": (4, 1)}, device=torch.device("cpu")
    )
    for step in range(600):
        agent = torch.tensor([[1], [-1]]) if step < 300 else torch.tensor([[0], [2]])
        action = torch.tensor([[[1.0, step % 4]], [[2.0, 3.0]]])
        turn = SimpleNamespace(groups={"p": SimpleNamespace(agent_index=agent)})
        first.absorb(cast(Turn, turn), {"p": action})
    games = first.games(torch.tensor([True, True]))
    first.forget(torch.tensor([True, False]))
    found = first.of(games, seats=[[0, 1], [2], [0]])
    assert found.tolist() == [[4, NO_DECISION, 4], [NO_DECISION, 11, NO_DECISION]]
    # The next game has no opening yet, and the other game continues.
    again = first.of(first.games(torch.tensor([0, 1])), seats=[[0, 1], [2]])
    assert again.tolist() == [[NO_DECISION] * 2, [NO_DECISION, 11]]


@st.composite
def tallies(draw: Any) -> Tally:
    """A tally with wins of the first seat at some openings, and no more actions than are kept."""
    counts = draw(st.dictionaries(st.integers(0, 15), st.integers(1, 9), min_size=1, max_size=16))
    wins = {action: draw(st.integers(0, count)) for action, count in counts.items()}
    matches, won = sum(counts.values()), sum(wins.values())
    mine = [(action, counts[action], float(wins[action])) for action in counts]
    theirs = [(0, matches, float(matches - won))]
    return Tally(
        entrants=(Entrant("bot:a"), Entrant("bot:b")),
        matches=matches,
        pairs=(PairScore(first=0, second=1, wins=won, draws=0, losses=matches - won),),
        return_sum=(0.0, 0.0),
        return_sum_of_squares=(0.0, 0.0),
        length_sum=matches,
        openings=(most_played(mine, most=32), most_played(theirs, most=32)),
    )


@given(tallies(), tallies())
def test_merging_adds_counts_and_points_in_any_order(one: Tally, other: Tally) -> None:
    both = added(one, other)
    assert both == added(other, one)
    for seat, merged in enumerate(both):
        for column, index in (("count", 1), ("points", 2)):
            sums: Counter[int] = Counter()
            for tally in (one, other):
                for entry in entries(tally.openings[seat]):
                    sums[entry[0]] += entry[index]  # type: ignore[assignment]
            found = {entry[0]: entry[index] for entry in entries(merged)}
            assert found == dict(sums), column
        assert sum(merged.matches) == one.matches + other.matches
    # A tally of an older release has no openings, so its first actions are unknown.
    assert added(one, replace(other, openings=())) == ()


@given(tallies())
def test_a_tally_goes_over_the_wire(tally: Tally) -> None:
    assert openings_problem(tally) is None
    assert from_msgpack(to_msgpack(tally, limit=1 << 20), Tally, limit=1 << 20) == tally


def test_what_is_played_rarely_is_left_out() -> None:
    lines = [(action, action + 1, 0.0) for action in range(50)]
    kept = most_played(lines, most=MAX_ACTIONS)
    assert kept.actions == tuple(range(49, 17, -1))
    tally = replace(tally_of("classic/rps-v2", (Drawn(), Drawn()))[0], openings=(kept, kept))
    (one, two) = bounded([tally, tally], most=10)
    assert one == two
    assert [seat.actions for seat in one.openings] == [(49, 48)] * 2
    assert bounded([tally], most=1)[0].openings == ()
