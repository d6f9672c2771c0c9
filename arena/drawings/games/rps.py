"""Rock, paper, scissors and its larger variants: the last rounds, and how many each has won."""

from __future__ import annotations

from arena.drawings.boards import card, draw_board
from arena.drawings.picture import Moment, Picture

NAMES = {"R": "rock", "P": "paper", "S": "scissors", "K": "spock", "L": "lizard"}
LETTERS = [*NAMES, *map(str, range(5, 100))]
CARDS = {letter: card(letter) for letter in LETTERS}
NUM_SHOWN = 12


def draw(moment: Moment) -> Picture:
    """Draw the choices of both agents; the one that won a round stands out."""
    rounds = [tuple(turn[agent] for agent in moment.agents) for turn in moment.turns]
    winners = [_winner(*choices) for choices in rounds]
    shown = [[LETTERS[choice] for choice in row] for row in zip(*rounds[-NUM_SHOWN:], strict=True)]
    seen = [letter for letter in NAMES if any(LETTERS.index(letter) in one for one in rounds)]
    last = [LETTERS[choice] for choices in rounds[-1:] for choice in choices]
    return draw_board(
        moment,
        shown or [[], []],
        CARDS,
        move=" against ".join(last),
        facts=[
            *(f"{agent}: won {winners.count(at)}" for at, agent in enumerate(moment.agents)),
            ", ".join(f"{letter} {NAMES[letter]}" for letter in seen),
        ],
        ground="table",
        last=[(winner, at) for at, winner in enumerate(winners[-NUM_SHOWN:])],
        rows=moment.agents,
    )


def _winner(first: int, second: int) -> int:
    """Return the agent that won a round; -1: nobody."""
    # Of two different choices the higher one wins if their sum is odd.
    return -1 if first == second else int((first > second) == ((first + second) % 2 == 0))
