"""Which ratings do the results bound from above?

A player's rating has an upper bound by results if there is a path of lost points from it to an
anchor: it lost some to a second player, that one some to a third, and so on. Whoever never lost to
the others can be any distance above them; only priors keep its rating finite.

Source: Ford, "Solution of a ranking problem from binary comparisons" (American Mathematical
Monthly, 1957).

Shapes: N entrants.

Tests: `tests/populations/ratings/test_bounds.py`.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from populations.ratings.model import E
from populations.ratings.results import ResultColumns


def open_above(
    results: ResultColumns[E], *, links: ResultColumns[E], anchors: Collection[E]
) -> frozenset[E]:
    """Return the entrants with results that have no upper bound.

    Nobody where no anchor has played: there is no scale then on which they could be high.

    Args:
        results: Results of matches.
        links: Further knowledge of differences, which bounds both sides.
        anchors: Entrants at 0.
    """
    names = tuple(dict.fromkeys((*results.entrants, *links.entrants)))
    position = {name: i for i, name in enumerate(names)}
    is_bound = np.array([name in anchors for name in names], dtype=bool)
    own, tied = _places(results, position), _places(links, position)
    lost, won = results.matches - results.scores > 0.0, results.scores > 0.0
    # Loser and winner of some points of each pair.
    loser = np.concatenate([own[lost, 0], own[won, 1], tied[:, 0], tied[:, 1]])
    winner = np.concatenate([own[lost, 1], own[won, 0], tied[:, 1], tied[:, 0]])
    played = np.unique(np.concatenate([loser, winner]))
    if not is_bound[played].any():
        return frozenset()
    num_before = 0
    # Each turn goes one match further away from the anchors.
    while (num_bound := int(is_bound.sum())) > num_before:
        num_before = num_bound
        is_bound[loser[is_bound[winner]]] = True
    return frozenset(names[i] for i in played.tolist() if not is_bound[i])


def _places(columns: ResultColumns[E], position: dict[E, int]) -> npt.NDArray[np.int64]:
    """Return the places of first and second of each row. int64 [M, 2]."""
    of = np.array([position[name] for name in columns.entrants], dtype=np.int64)
    return np.stack([of[columns.first], of[columns.second]], axis=1)
