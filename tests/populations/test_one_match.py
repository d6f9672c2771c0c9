"""One match on its way to a rating and a copy: through six modules that one reads in a sitting."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType

import torch
from msgspec.structs import replace

from arena.matches.tally import OpenEpisodes, TallyBook
from arena.types import PolicyId, Seat, Tally, is_bot
from populations.controller.state.events import AssignmentFinished
from populations.records.aggregates import PairRow
from populations.records.rows import EventRow, GenerationRow, TallyRow
from tests.arena.samples import make_turn
from tests.populations.controller.eager import eager_world
from tests.populations.controller.simulated import World

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "data.md"
MAX_LINES = 300

SIX = (
    "arena/matches/tally.py",
    "populations/controller/assignments/results.py",
    "populations/league/pairs.py",
    "populations/controller/rating_fit.py",
    "populations/controller/evolution/pbt.py",
    "populations/controller/evolution/changes.py",
)


@contextmanager
def noted(called: set[str]) -> Iterator[None]:
    """Note the modules of the project whose functions are called, as paths."""

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code.co_filename.removeprefix(f"{ROOT}/"))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def counted(tally: Tally, *, seats: tuple[Seat, ...]) -> Tally:
    """Count the matches of a tally as a learner does, each of one step."""
    (pair,) = tally.pairs
    points = [1.0] * pair.wins + [0.5] * pair.draws + [0.0] * pair.losses
    won = torch.tensor([[score, 1.0 - score] for score in points])
    agents = tuple(agent for seat in seats for agent in seat.agents)
    book = TallyBook(
        [tally.entrants],
        block_of_env=torch.zeros(len(points), dtype=torch.int64),
        agents=agents,
        sides=[seat.side for seat in seats],
        seats=seats,
    )
    over = torch.ones(len(points), dtype=torch.bool)
    turn = make_turn(2.0 * won - 1.0, episode_over=over, score=won)
    episodes = OpenEpisodes(num_envs=len(points), num_agents=2, device=torch.device("cpu"))
    episodes.add(turn)
    book.add(turn, episodes)
    (found,) = book.tallies()
    return found


def first_evaluation(world: World) -> tuple[AssignmentFinished, Tally]:
    """Go on until a learner has evaluated two policies' weights; nobody has heard of it yet."""
    for _ in range(200):
        (learner,) = world.state.crew.learners
        world.hear()
        event = world.work(learner)
        assert event is not None
        for tally in event.finished.tallies:
            is_evaluation = event.finished.checkpoints == ()
            if (
                is_evaluation
                and len({*tally.entrants}) == 2
                and not any(map(is_bot, tally.entrants))
            ):
                return event, tally
        world.handle(event)
        world.fit()
    raise AssertionError("nobody was evaluated")


def test_a_match_passes_six_modules_and_ends_in_a_copy() -> None:
    called: set[str] = set()
    world = eager_world()
    event, simulated = first_evaluation(world)
    with noted(called):
        # Tally: a learner counts the results of its environments.
        tally = counted(simulated, seats=world.state.league.seats)
        tallies = tuple(tally if one is simulated else one for one in event.finished.tallies)
        finished = replace(event.finished, tallies=tallies)
        # Rows: the tally and the pair are stored in one transaction.
        rows = world.handle(replace(event, finished=finished)).rows
        (stored,) = [row for row in rows if isinstance(row, TallyRow) and row.tally == tally]
        (pair,) = [
            row
            for row in rows
            if isinstance(row, PairRow) and (row.first, row.second) == tally.entrants
        ]
        (score,) = tally.pairs
        assert (pair.wins, pair.draws, pair.losses) == (score.wins, score.draws, score.losses)
        # Fit: both players are rated by the result.
        world.fit()
        ratings = world.state.tables.ratings["player"]
        assert ratings.num_tallies >= stored.sequence
        assert {*tally.entrants} <= {*ratings.entrants}
        # Decision and copy: PBT copies the donor by these ratings.
        copied = first_copy(world)
    donor, generation = copied.data["donor"], copied.data["generation"]
    policy = world.state.tables.policies[PolicyId(copied.subject)]
    begun = world.state.tables.generations[policy.trainee]
    assert isinstance(begun, GenerationRow)
    assert (begun.cause, begun.generation, policy.parent) == ("exploit", generation, donor)
    assert policy.checkpoint == copied.data["checkpoint"]
    assert {*SIX} <= called


def first_copy(world: World) -> EventRow:
    """Go on until PBT has had a policy copied."""
    for _ in range(200):
        if found := world.events("exploited"):
            return found[0]
        world.step()
    raise AssertionError("nobody was copied")


def test_the_page_names_the_six_in_order_and_each_is_short() -> None:
    page = PAGE.read_text()
    places = [page.index(f"`{name}`") for name in SIX]
    assert all(one < other for one, other in pairwise(places))
    section = page.split("## From a match to a copy")[1]
    assert re.findall(r"^\d\. `([a-z_/]+\.py)`", section, re.MULTILINE) == [*SIX]
    lines = {name: len((ROOT / name).read_text().splitlines()) for name in SIX}
    assert {name: number for name, number in lines.items() if number >= MAX_LINES} == {}
