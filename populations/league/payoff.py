"""Who beats whom while training: what matchmaking reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from arena.types import Entrant, Tally

JEFFREYS = 0.5
"""Added to wins and to losses: the Beta(1/2, 1/2) prior."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRecord:
    """Decayed counts of two entrants, seen from the first one."""

    wins: float = 0.0
    draws: float = 0.0
    losses: float = 0.0

    @property
    def matches(self) -> float:
        """How many matches the counts are worth."""
        return self.wins + self.draws + self.losses

    @property
    def win_rate(self) -> float:
        """Posterior mean of the score, draws half: in (0, 1), and 0.5 without a match."""
        return (self.wins + 0.5 * self.draws + JEFFREYS) / (self.matches + 2.0 * JEFFREYS)

    def reversed(self) -> PairRecord:
        """The same seen from the other one."""
        return PairRecord(wins=self.losses, draws=self.draws, losses=self.wins)


class Payoff:
    """Results between entrants, from training tallies. Owned by one thread.

    Sparse: only pairs that met take room, each once. Old results fade with the matches of their own
    pair, not with time, so a rival who has not been met for long is as well known as before. A
    trainee's entrant names its generation, so its statistics start anew after an exploit. Folding
    the same tallies gives the same table to the bit.
    """

    def __init__(self, *, half_life_matches: float) -> None:
        """An empty table.

        Args:
            half_life_matches: After so many further matches of a pair, a result counts half.

        Raises:
            ValueError: If ``half_life_matches`` is not above 0.
        """
        if not half_life_matches > 0.0:
            raise ValueError(f"half_life_matches must be above 0, got {half_life_matches!r}")
        self._half_life_matches = half_life_matches
        self._records: dict[tuple[Entrant, Entrant], PairRecord] = {}

    @property
    def records(self) -> Mapping[tuple[Entrant, Entrant], PairRecord]:
        """All pairs that met, each once, the entrant that sorts lower first."""
        return MappingProxyType(self._records)

    def add(self, tally: Tally) -> None:
        """Take in the results of a tally: each pair of its seats that are on different sides.

        Pairs of seats with the same two players count as one batch, so their order does not
        matter. What an entrant does against itself says nothing and is left out.
        """
        batch: dict[tuple[Entrant, Entrant], list[int]] = {}
        for pair in tally.pairs:
            first, second = tally.entrants[pair.first], tally.entrants[pair.second]
            if first == second:
                continue
            outcome = (pair.wins, pair.draws, pair.losses)
            key = (first, second)
            if second < first:
                key, outcome = (second, first), outcome[::-1]
            counts = batch.setdefault(key, [0, 0, 0])
            for index, count in enumerate(outcome):
                counts[index] += count
        for key, (wins, draws, losses) in batch.items():
            old = self._records.get(key, PairRecord())
            remaining = 0.5 ** ((wins + draws + losses) / self._half_life_matches)
            self._records[key] = PairRecord(
                wins=old.wins * remaining + wins,
                draws=old.draws * remaining + draws,
                losses=old.losses * remaining + losses,
            )

    def record(self, first: Entrant, second: Entrant) -> PairRecord:
        """Counts of a pair seen from ``first``; zeros if they never met."""
        if second < first:
            return self.record(second, first).reversed()
        return self._records.get((first, second), PairRecord())

    def win_rate(self, first: Entrant, second: Entrant) -> float:
        """How often ``first`` beats ``second``, draws half; 0.5 if they never met."""
        return self.record(first, second).win_rate
