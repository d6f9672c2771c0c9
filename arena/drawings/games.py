"""Moves of games by name and cells, and a function that draws each game, found by its id.

Games of OpenSpiel are read from the state, without OpenSpiel itself.

Tests: `tests/arena/drawings/test_games.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from string import ascii_lowercase
from textwrap import wrap
from typing import Any, cast

from arena.drawings.boards import (
    BLACK,
    CROSS,
    GOLD,
    INK,
    MARK,
    RED,
    RING,
    WHITE,
    YELLOW,
    card,
    disc,
    draw_board,
    line,
    write,
)
from arena.drawings.picture import ANY, NUM_COLUMNS, Cell, Drawing, Moment, Move, Picture, tag
from arena.envs.batched.leduc_betting import betting_of
from arena.envs.openspiel.game import is_openspiel
from arena.envs.registry import TWINS
from arena.errors import ConfigError
from arena.resolve import resolve

OPTIONS = re.compile(r"[-_]v\d+$|\(.*\)$")
"""Version and parameters of an environment's id."""

CHANCE = -1
"""Player that OpenSpiel calls chance."""

CHESS_STYLE = re.compile(r'style="fill:([^;"]+); ?stroke:([^;"]+);"')

STONES = {"x": BLACK, "o": WHITE}

DISCS = {"x": disc(RED), "o": disc(YELLOW, core=GOLD)}

GO_COLUMNS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"

MOST_OF_A_POINT, BAR = 5, 6
"""Most pieces of a point that are drawn one by one, and the column of the bar."""

WAYS = ((0, 1), (1, 0), (1, 1), (1, -1))
"""Rows and columns from a cell of a line to the next one, for each way that a line can go."""

STICK = tag("path", d="M50 14V86", **line(INK, 14))

KUHN_WORDS = ("pass", "bet")

LEDUC_WORDS = ("fold", "call", "raise")
# The suits only distinguish equal ranks, and have no value.
SUITS = {"": INK, " red": RED}
LEDUC_CARDS = {f"{face}{suit}": card(face, fill=SUITS[suit]) for face in "JQK" for suit in SUITS}

RPS_NAMES = {"R": "rock", "P": "paper", "S": "scissors", "K": "spock", "L": "lizard"}
RPS_LETTERS = [*RPS_NAMES, *map(str, range(5, 100))]
RPS_CARDS = {letter: card(letter) for letter in RPS_LETTERS}
NUM_ROUNDS = 12

WORDS = {"kuhn_poker": KUHN_WORDS, "leduc_poker": LEDUC_WORDS, "rps": (*RPS_NAMES.values(),)}
"""Names of actions that have no cells."""


def game_of(environment_id: str) -> str:
    """Return an environment's id as `DRAWINGS` has it; a batched game stands for its original."""
    originals = {game: original for original, game in TWINS.items()}
    return OPTIONS.sub("", originals.get(environment_id, environment_id))


def move_of(moment: Moment, agent: str, action: int) -> Move | None:
    """Return a move of an agent that is on turn; None: the game has no name for it.

    Args:
        moment: Moment before it.
        agent: The agent.
        action: Index of the action from 0.
    """
    game = game_of(moment.environment_id)
    name = re.split("[:/]", game)[-1] if game in DRAWINGS else ""
    # These are the words of an OpenSpiel state.
    own = getattr(moment.env, "action_to_string", lambda *_: "")
    words = own(moment.agents.index(agent), action)
    if name in WORDS:
        known = WORDS[name]
        return Move(known[action] if action < len(known) else str(action), words=words)
    if name == "connect_four":
        return Move(str(action + 1), ((ANY, action),), f"column {action + 1}")
    if is_openspiel(game):
        return Move("_".join(words.split()), _cells_of(moment, action, words, name=name), words)
    if name == "tictactoe":
        # The action is the cell's index, column by column.
        column, row = divmod(action, 3)
        return Move(f"{row + 1},{column + 1}", ((row, column),))
    if name == "go":
        # The action is a crossing's index, row by row; the last action is a pass.
        size = len(moment.env.unwrapped._go.board)
        row, column = divmod(action, size)
        if row == size:
            return Move("pass")
        crossing = f"{GO_COLUMNS[column]}{size - row}"
        return Move(crossing.lower(), ((row, column),), crossing)
    if name == "chess":
        from pettingzoo.classic.chess import chess_utils

        board = moment.env.unwrapped.board
        uci = chess_utils.action_to_move(board, action, moment.agents.index(agent)).uci()
        return Move(uci, _squares(uci, 8))
    return None


def _cells_of(moment: Moment, action: int, words: str, *, name: str) -> tuple[Cell, ...]:
    """Return the cells of an action of OpenSpiel's."""
    if name in ("hex", "othello", "tic_tac_toe"):
        # The action is the cell's index, row by row; othello's last action is a pass.
        board = cells_of(moment.env)
        cell = divmod(action, len(board[0]))
        return (cell,) if cell[0] < len(board) else ()
    return _squares(words, len(cells_of(moment.env, "bw"))) if name == "breakthrough" else ()


def _squares(words: str, size: int) -> tuple[Cell, ...]:
    """Return the squares in words such as a7b6*, the last row being 1."""
    found = re.findall(r"([a-z])(\d+)", words)
    return tuple((size - int(row), ascii_lowercase.index(column)) for column, row in found)


def cells_of(board: object, letters: Iterable[str] = STONES) -> list[list[str]]:
    """Return the cells of a board that prints itself: its rows are the lines with the most cells.

    Args:
        board: A ``pyspiel.State``, or whatever else prints a board.
        letters: Letters of pieces; ``.`` and ``-`` are empty.
    """
    known = {".", "-", *letters}
    lines = [[letter for letter in line if letter in known] for line in str(board).splitlines()]
    return [line for line in lines if len(line) == max(map(len, lines))]


def dealt(moment: Moment) -> list[int]:
    """Return the cards that were dealt: by a batched game, or by chance in a state of OpenSpiel."""
    if hasattr(moment.env, "full_history"):
        return [one.action for one in moment.env.full_history() if one.player == CHANCE]
    cards: list[int] = moment.env.dealt()[0].tolist()
    return cards


def draw_text(moment: Moment) -> Picture:
    """Return what a state of any game prints, or what an agent that plays observes."""
    state = moment.env
    facts = state.get_game().get_type()
    if moment.viewer is None or facts.information.name == "PERFECT_INFORMATION":
        return Picture(text=f"{moment.caption()}\n{state}")
    viewer = moment.agents.index(moment.viewer)
    # Other players' actions may be hidden, too.
    observed = (
        state.observation_string(viewer)
        if facts.provides_observation_string
        else state.information_state_string(viewer)
    )
    lines = (wrap(line, NUM_COLUMNS) or [""] for line in observed.splitlines())
    return Picture(text="\n".join(chain.from_iterable(lines)))


def draw_stones(moment: Moment, **look: Any) -> Picture:  # noqa: ANN401
    """Draw the stones that a state prints.

    Args:
        moment: Moment; ``env`` is a ``pyspiel.State``.
        look: Look of the board, as in `draw_board`.
    """
    return draw_board(moment, cells_of(moment.env), STONES, last=moment.last, **look)


def in_line(cells: Sequence[Sequence[str]], last: list[Cell], *, length: int) -> list[Cell]:
    """Return the cells of lines of equal pieces that the last piece has completed, else its own.

    Args:
        cells: Pieces.
        last: Cell of the last piece; empty: there is none.
        length: Pieces of a line.
    """
    pieces = {
        (row, column): one for row, line in enumerate(cells) for column, one in enumerate(line)
    }
    found: list[Cell] = []
    for row, column in last:
        for down, right in WAYS:
            for begin in range(1 - length, 1):
                steps = range(begin, begin + length)
                line = [(row + down * step, column + right * step) for step in steps]
                if all(pieces.get(cell) == pieces[row, column] for cell in line):
                    found += line
    return found or last


def draw_tictactoe(moment: Moment) -> Picture:
    """Draw the marks of tic-tac-toe: an action is a cell."""
    cells = [["."] * 3 for _ in range(3)]
    # PettingZoo numbers cells column by column, OpenSpiel row by row.
    order = 1 if is_openspiel(moment.environment_id) else -1
    for agent, action in moment.moves:
        row, column = divmod(action, 3)[::order]
        cells[row][column] = "xo"[agent]
    move = "".join(f"row {row + 1}, column {column + 1}" for row, column in moment.last)
    last = in_line(cells, moment.last, length=3)
    return draw_board(moment, cells, {"x": CROSS, "o": RING}, move=move, last=last)


def draw_connect_four(moment: Moment) -> Picture:
    """Draw the discs of Connect Four that fell: an action is a column."""
    cells, length = [["."] * 7 for _ in range(6)], 4
    if is_openspiel(moment.environment_id):
        # OpenSpiel's board may have another size, and lines of another length.
        cells = [["."] * len(row) for row in cells_of(moment.env)]
        length = moment.env.get_game().get_parameters().get("x_in_row", length)
    last: list[Cell] = []
    for agent, column in moment.moves:
        last = [max((row, column) for row in range(len(cells)) if cells[row][column] == ".")]
        cells[last[0][0]][column] = "xo"[agent]
    return draw_board(
        moment,
        cells,
        DISCS,
        ground="holes",
        last=in_line(cells, last, length=length),
        columns=[str(column + 1) for column in range(len(cells[0]))],
    )


def draw_go(moment: Moment) -> Picture:
    """Draw the stones of PettingZoo's Go."""
    position = moment.env.unwrapped._go
    size = len(position.board)
    return draw_board(
        moment,
        # 0: empty, 1: black, -1: white.
        [[".xo"[int(stone)] for stone in row] for row in position.board],
        STONES,
        notes=[f": took {number}" for number in position.caps],
        ground="points",
        last=moment.last,
        rows=[str(size - row) for row in range(size)],
        columns=GO_COLUMNS[:size],
    )


def draw_chess(moment: Moment) -> Picture:
    """Draw the board of PettingZoo's chess, White below."""
    import chess.svg

    # python-chess draws squares of 45 units, and pages allow no styles.
    pieces = {
        letter: tag("g", CHESS_STYLE.sub(r'fill="\1" stroke="\2"', shape), transform="scale(2.22)")
        for letter, shape in chess.svg.PIECES.items()
    }
    return draw_board(
        moment,
        cells_of(moment.env.unwrapped.board, pieces),
        pieces,
        players="Kk",
        ground="checks",
        last=moment.last,
        rows="87654321",
        columns="abcdefgh",
    )


def draw_backgammon(moment: Moment) -> Picture:
    """Draw OpenSpiel's backgammon: points, the bar between them, the dice, and what is borne off.

    Point 1 is at the lower right, 12 at the lower left, 24 at the upper right.
    """
    cells, pieces = [["."] * 13 for _ in range(2 * MOST_OF_A_POINT + 1)], {**STONES}
    for point in range(24):
        column = point - 12 if point > 11 else 11 - point
        for player, piece in enumerate("xo"):
            number = moment.env.board(player, point)
            for at in range(min(number, MOST_OF_A_POINT)):
                is_full = at == MOST_OF_A_POINT - 1 and number > MOST_OF_A_POINT
                row = cells[at if point > 11 else -1 - at]
                row[column + (column >= BAR)] = f"{number} {piece}" if is_full else piece
            middle = {"x": 50, "y": 68, "text_anchor": "middle", "font_size": 52}
            count = write(str(number), **middle, class_="count", fill=MARK)
            pieces[f"{number} {piece}"] = STONES[piece] + count
    text = dict(line.split(":", 1) for line in str(moment.env).splitlines() if ":" in line)
    for at, piece in enumerate(text["Bar"].strip()):
        cells[(at + MOST_OF_A_POINT // 2) % len(cells)][BAR] = piece
    return draw_board(
        moment,
        cells,
        pieces,
        move=moment.move.partition(" - ")[2],
        notes=[f": {number} off" for number in re.findall(r"\d+", text["Scores, X"])],
        facts=[f"next dice:{text['Dice']}"],
        ground="bands",
    )


def draw_breakthrough(moment: Moment) -> Picture:
    """Draw the pieces of breakthrough, and the cells that the last one left and reached."""
    cells = cells_of(moment.env, "bw")
    return draw_board(
        moment,
        cells,
        {"b": BLACK, "w": WHITE},
        players="bw",
        ground="checks",
        last=moment.last,
        rows=[str(row) for row in range(len(cells), 0, -1)],
        columns=ascii_lowercase[: len(cells[0])],
    )


def draw_hex(moment: Moment) -> Picture:
    """Draw the stones of hex; each player connects two edges."""
    return draw_stones(moment, notes=(": top to bottom", ": left to right"), ground="hexagons")


def draw_nim(moment: Moment) -> Picture:
    """Draw a row for each pile of nim; cells whose stick was taken are empty."""
    begun = moment.env.get_game().get_parameters()["pile_sizes"].split(";")
    left = str(moment.env).partition(": ")[2].split()
    piles = [f"{'|' * int(number):.<{size}}" for size, number in zip(begun, left, strict=True)]
    rows = [str(pile + 1) for pile in range(len(piles))]
    return draw_board(moment, piles, {"|": STICK}, move=moment.move.rstrip(";"), rows=rows)


def draw_othello(moment: Moment) -> Picture:
    """Draw the discs of othello, and how many each player has."""
    rows = cells_of(moment.env)
    notes = [f": {sum(row.count(letter) for row in rows)}" for letter in "xo"]
    return draw_stones(moment, notes=notes, rows="12345678", columns="abcdefgh")


def draw_kuhn_poker(moment: Moment) -> Picture:
    """Draw the hands of all players of Kuhn poker; a bet adds 1 to the ante of 1."""
    # With more players there are more cards than named faces.
    faces = "JQK" if len(moment.agents) == 2 else "123456789"
    bets = [KUHN_WORDS[action] for _, action in moment.moves]
    paid = [1 + moment.moves.count((at, 1)) for at in range(len(moment.agents))]
    return draw_board(
        moment,
        moment.hidden([[faces[one]] for one in dealt(moment)]),
        {"?": card(""), **{face: card(face) for face in faces}},
        move="".join(bets[-1:]),
        facts=[f"bets: {', '.join(bets)}"],
        ground="table",
        rows=[f"{agent}: paid {number}" for agent, number in zip(moment.agents, paid, strict=True)],
    )


def draw_leduc_poker(moment: Moment) -> Picture:
    """Draw the hands and the public card of Leduc poker for two."""
    # With more players the betting has other rules.
    if len(moment.agents) != 2:
        return draw_text(moment)
    betting = betting_of(tuple(action for _, action in moment.moves))
    cards = [[*LEDUC_CARDS][one] for one in dealt(moment)]
    public = cards[2] if len(betting.rounds) > 1 else "?"
    paid = zip(moment.agents, betting.paid, strict=True)
    return draw_board(
        moment,
        [*moment.hidden([[one] for one in cards[:2]]), [public]],
        {**LEDUC_CARDS, "?": card("")},
        move="".join(move.name for move in moment.did),
        facts=[
            f"round {number}: {', '.join(LEDUC_WORDS[action] for action in actions)}"
            for number, actions in enumerate(betting.rounds[:2], start=1)
            if actions
        ],
        ground="table",
        rows=[*(f"{agent}: paid {number}" for agent, number in paid), "public card"],
    )


def draw_rps(moment: Moment) -> Picture:
    """Draw rock, paper, scissors or a larger variant: the last rounds, and how many each has won.

    The choice that won a round stands out.
    """
    rounds = [[turn[agent] for agent in moment.agents] for turn in moment.turns]
    # Of two different choices the higher one wins if their sum is odd; -1 is a draw.
    winners = [-1 if a == b else int((a > b) == ((a + b) % 2 == 0)) for a, b in rounds]
    named = [[RPS_LETTERS[choice] for choice in choices] for choices in rounds]
    seen = [letter for letter in RPS_NAMES if letter in chain(*named)]
    return draw_board(
        moment,
        [*zip(*named[-NUM_ROUNDS:], strict=True)] or [[], []],
        RPS_CARDS,
        move=" against ".join(chain(*named[-1:])),
        facts=[
            *(f"{agent}: won {winners.count(at)}" for at, agent in enumerate(moment.agents)),
            ", ".join(f"{letter} {RPS_NAMES[letter]}" for letter in seen),
        ],
        ground="table",
        last=[(winner, at) for at, winner in enumerate(winners[-NUM_ROUNDS:])],
        rows=moment.agents,
    )


DRAWINGS: Mapping[str, Drawing] = {
    "classic/chess": draw_chess,
    "classic/connect_four": draw_connect_four,
    "classic/go": draw_go,
    "classic/rps": draw_rps,
    "classic/tictactoe": draw_tictactoe,
    "openspiel:backgammon": draw_backgammon,
    "openspiel:breakthrough": draw_breakthrough,
    "openspiel:connect_four": draw_connect_four,
    "openspiel:hex": draw_hex,
    "openspiel:kuhn_poker": draw_kuhn_poker,
    "openspiel:leduc_poker": draw_leduc_poker,
    "openspiel:nim": draw_nim,
    "openspiel:othello": draw_othello,
    "openspiel:tic_tac_toe": draw_tictactoe,
}
"""Function that draws an environment, by its id without version and parameters."""


def find_drawing(
    environment_id: str, *, reference: str | None = None, launch_directory: str | None = None
) -> Drawing | None:
    """Return the function that draws an environment; None: it can only render itself.

    Args:
        environment_id: Canonical id, or that of a batched game.
        reference: Function of the user's, as ``package.module:function``, instead of Arena's own.
        launch_directory: Directory put first on ``sys.path`` for it.

    Raises:
        ConfigError: If there is no such function, or it cannot be imported.
        NotTrusted: If the user has not said that it may be imported.
    """
    if reference is None:
        game = game_of(environment_id)
        return DRAWINGS.get(game, draw_text if is_openspiel(game) else None)
    found = resolve(reference, launch_directory=launch_directory)
    if not callable(found):
        raise ConfigError(f"{reference} must be a function that draws, got {found!r}")
    return cast("Drawing", found)
