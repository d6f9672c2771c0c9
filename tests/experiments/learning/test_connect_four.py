"""The search against a slow second one, and the stored positions against plain minimax.

Diagrams show the board as one sees it: x is on turn, o the opponent.
"""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
import torch

from arena.bots.connect_four import Tactical, bitboards, completing
from arena.core import Actor, ActorInput, ActorOutput
from experiments.learning import connect_four
from experiments.learning.connect_four import NO_ROOM, POSITIONS, Opened, Positions, observe
from experiments.learning.connect_four_search import (
    ILLEGAL,
    WIN,
    WORTH,
    Search,
    board_after,
    move_values,
)

ROWS, COLUMNS = 6, 7
LINES = [
    [(row + k * down, column + k * right) for k in range(4)]
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1))
    for row in range(ROWS)
    for column in range(COLUMNS)
    if 0 <= row + 3 * down < ROWS and 0 <= column + 3 * right < COLUMNS
]
Grid = tuple[str, ...]
"""Rows from the top; x is on turn."""

ENDING = ".xxooo. xxoxox. oooxoxx xoooxxx oxxoxoo oxxoxoo"
"""Room for one stone on the left and for two on the right, where the upper one completes four o."""

HAND = (
    # On the left x leaves o only the cell below its own four; on the right x itself must fill it.
    ENDING,
    # With exchanged colours x waits on the left, and o has to fill the cell below the four.
    ENDING.translate(str.maketrans("xo", "ox")),
    # With the cell below filled, o completes four unless x blocks it, and the reverse.
    ENDING.replace("xxoxox.", "xxoxoxo"),
    ENDING.replace("xxoxox.", "xxoxoxo").translate(str.maketrans("xo", "ox")),
    # The board lacks the last stone of a draw.
    ENDING.replace("xxoxox.", "xxoxoxo").replace("ooo.", "ooox"),
)


def grid_of(diagram: str) -> Grid:
    """Rows that are left out are empty ones on top."""
    lines = diagram.split()
    return ("." * COLUMNS,) * (ROWS - len(lines)) + tuple(lines)


def planes(grid: Grid) -> npt.NDArray[np.int8]:
    return np.array([[[cell == "x", cell == "o"] for cell in row] for row in grid], dtype=np.int8)


def boards(*grids: Grid) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    return bitboards(np.stack([planes(grid) for grid in grids]))


def grid_after(moves: str) -> Grid:
    grid = grid_of("")
    for move in moves:
        grid = dropped(grid, int(move))
    return grid


def legal(grid: Grid) -> list[int]:
    return [column for column in range(COLUMNS) if grid[0][column] == "."]


def dropped(grid: Grid, column: int) -> Grid:
    """x plays, and the other one, who is x then, is on turn."""
    row = max(row for row in range(ROWS) if grid[row][column] == ".")
    line = grid[row][:column] + "x" + grid[row][column + 1 :]
    changed = (*grid[:row], line, *grid[row + 1 :])
    return tuple(one.translate(str.maketrans("xo", "ox")) for one in changed)


def has_won(grid: Grid) -> bool:
    """Whether who has just played, o, has four."""
    return any(all(grid[row][column] == "o" for row, column in line) for line in LINES)


@cache
def minimax(grid: Grid) -> int:
    """Value to who has just played."""
    if has_won(grid):
        return 1
    return -max((minimax(dropped(grid, column)) for column in legal(grid)), default=0)


def exact(grid: Grid) -> str:
    return "".join(
        "-=+"[minimax(dropped(grid, column)) + 1] if grid[0][column] == "." else "."
        for column in range(COLUMNS)
    )


def searched(grid: Grid, depth: int) -> list[int]:
    """Slow values of the columns to x; only wins where there are some."""
    after = {column: dropped(grid, column) for column in legal(grid)}
    wins = [column for column, then in after.items() if has_won(then)]
    values = [ILLEGAL] * COLUMNS
    for column in wins or after:
        values[column] = WIN + depth if wins else -slow_value(after[column], depth - 1)
    return values


def slow_value(grid: Grid, depth: int) -> int:
    if not legal(grid):
        return 0
    if depth:
        return max(searched(grid, depth))
    lines = ["".join(grid[row][column] for row, column in line) for line in LINES]
    return sum(
        sign * WORTH[line.count(own) - 1]
        for line in lines
        for own, other, sign in (("x", "o", 1), ("o", "x", -1))
        if own in line and other not in line
    )


def random_grids(number: int, *, rng: np.random.Generator) -> list[Grid]:
    """Positions of random play that go on."""
    grids: list[Grid] = []
    while len(grids) < number:
        grid = grid_of("")
        for _ in range(rng.integers(ROWS * COLUMNS)):
            if legal(grid) and not has_won(grid):
                grid = dropped(grid, int(rng.choice(legal(grid))))
        if legal(grid) and not has_won(grid):
            grids.append(grid)
    return grids


def test_stored_positions_are_decisive_ones_that_go_on() -> None:
    positions = Positions.read()
    assert (
        len(positions.moves) == len(set(zip(positions.own, positions.other, strict=True))) == 1050
    )
    assert {len(moves) for moves in positions.moves} == set(range(16, 37))
    for side in (positions.own, positions.other):
        assert not (completing(side) & side).any()
    for values in positions.values:
        assert len(set(values.tolist()) - {NO_ROOM}) > 1
    assert POSITIONS.stat().st_size <= 60_000


def test_stored_values_are_those_of_plain_minimax() -> None:
    lines = [line.split() for line in POSITIONS.read_text().splitlines()]
    late = [(moves, values) for moves, values in lines if len(moves) >= 32]
    assert len(late) >= 30
    assert [exact(grid_after(moves)) for moves, _ in late] == [values for _, values in late]


def test_positions_are_given_away_by_moves_below_the_best() -> None:
    positions = Positions.read()
    of_board = {
        planes(grid_after(moves)).tobytes(): values
        for moves, values in zip(positions.moves, positions.values, strict=True)
    }
    agents: dict[str, int] = {}

    def by_value(
        observation: npt.NDArray[np.int8], mask: npt.NDArray[np.bool_], agent: str, *, sign: int
    ) -> npt.NDArray[np.int64]:
        values = np.array([of_board[row.tobytes()] for row in observation])
        assert ((values != NO_ROOM) == mask).all()
        agents[agent] = int(observation[0].sum()) % 2
        return np.asarray(np.where(mask, sign * values, -9).argmax(axis=1))

    assert not positions.given_away(lambda *asked: by_value(*asked, sign=1)).any()
    assert positions.given_away(lambda *asked: by_value(*asked, sign=-1)).all()
    assert agents == {"player_0": 0, "player_1": 1}


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_searched_values_are_those_of_a_slow_search(depth: int) -> None:
    grids = random_grids(25, rng=np.random.default_rng(depth)) + [grid_of(one) for one in HAND]
    values = move_values(*boards(*grids), depth=depth)
    assert values.tolist() == [searched(grid, depth) for grid in grids]


def test_search_chooses_evenly_among_the_best() -> None:
    # With two open ends x completes three lines of four on either side.
    observation = np.repeat(planes(grid_of("..xxx.. .ooxoo."))[np.newaxis], 20_000, axis=0)
    chosen = Search(depth=2).act(
        {"observation": observation}, None, agent="", rng=np.random.default_rng(1)
    )
    counts = np.bincount(chosen, minlength=COLUMNS)
    assert counts[1] + counts[5] == 20_000
    # The bound is six standard deviations of fair coins.
    assert abs(counts[1] - counts[5]) < 6 * 142


class _Leftmost(Actor):
    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        return ActorOutput(action=torch.zeros(len(inputs.observation), dtype=torch.int64))


def test_an_opening_is_drawn_and_then_the_player_moves() -> None:
    player = Opened(_Leftmost(), num_moves=2)
    for moves in ("", "3", "33"):
        row = observe(*(np.array([one], dtype=np.uint64) for one in board_after(moves)))
        rows = torch.from_numpy(row.reshape(1, -1)).float().repeat(7_000, 1)
        generator = torch.Generator().manual_seed(1)
        action = player.act(ActorInput(observation=rows), agent="", generator=generator).action
        counts = torch.bincount(action, minlength=COLUMNS).tolist()
        if len(moves) < 2:
            # The bound is six standard deviations of 7,000 draws from seven columns.
            assert all(abs(count - 1_000) < 6 * 30 for count in counts)
        else:
            assert counts == [7_000, 0, 0, 0, 0, 0, 0]


def test_bots_are_judged(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "bot:arena.bots.connect_four:Tactical"
    monkeypatch.setattr("sys.argv", ["connect_four", name, "--matches", "40", "--json"])
    connect_four.main()
    found = json.loads(capsys.readouterr().out)
    assert found["player"] == name
    # The bot plays itself; the bound is six standard deviations of 40 coins.
    assert abs(found["tactical"]["value"] - 0.5) < 6 * 0.08
    # A search of four plies wins nearly always.
    assert found["search"]["value"] < 0.2
    rng = np.random.default_rng(2)
    own = Positions.read().given_away(
        lambda observation, mask, agent: Tactical().act(
            {"observation": observation}, mask, agent=agent, rng=rng
        )
    )
    assert found["given_away"]["value"] == pytest.approx(own.mean(), abs=0.05)
    assert found["given_away"]["low"] < found["given_away"]["value"] < found["given_away"]["high"]
