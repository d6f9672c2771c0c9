"""What follows from the rows: who was evaluated, how often, with which results, and from whom.

Folded from the journal's rows at start and kept up to date row by row; folding the same rows gives
the same league. Training tallies feed the payoff that matchmaking uses, evaluation tallies the
ratings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from arena.types import Digest, Entrant, Seat, is_bot
from populations.league.payoff import Payoff
from populations.ratings.results import Rated
from populations.storage.tables import Tables
from populations.types import CheckpointRow, PolicyRow, TallyRow


@dataclass(slots=True)
class Record:
    """Evaluation matches of one entrant."""

    matches: int = 0
    wins: int = 0
    draws: int = 0
    losses: int = 0
    return_sum: float = 0.0


class League:
    """All players of all populations and what is known of them. Owned by one thread."""

    def __init__(self, *, seats: tuple[Seat, ...], half_life_matches: float) -> None:
        self.seats = seats
        self.is_cooperation = len({seat.side for seat in seats}) == 1
        self.payoff = Payoff(half_life_matches=half_life_matches)
        self.records: dict[Rated, Record] = {}
        self.results: dict[tuple[Rated, Rated, tuple[int, int]], list[int]] = {}
        self.checkpoints: dict[Digest, CheckpointRow] = {}
        self.generation_matches: dict[tuple[str, int], int] = {}
        self.last_evaluation_sequence = 0

    @classmethod
    def fold(cls, tables: Tables, *, seats: tuple[Seat, ...], half_life_matches: float) -> League:
        """The league that a journal's rows describe."""
        league = cls(seats=seats, half_life_matches=half_life_matches)
        for checkpoint in tables.checkpoints.values():
            league.add_checkpoint(checkpoint)
        for tally in tables.tallies:
            league.add_tally(tally)
        return league

    def add_checkpoint(self, row: CheckpointRow) -> None:
        """Take in a recorded checkpoint; the first of equal weights is their origin."""
        known = self.checkpoints.get(row.weights_digest)
        if known is None or known.key == row.key:
            self.checkpoints[row.weights_digest] = row

    def add_tally(self, row: TallyRow) -> None:
        """Take in a committed tally."""
        if row.kind == "train":
            self.payoff.add(row.tally)
            return
        self.last_evaluation_sequence = row.sequence
        tally = row.tally
        for seat, entrant, return_sum in zip(
            self.seats, tally.entrants, tally.return_sum, strict=True
        ):
            record = self.records.setdefault((seat.population, entrant), Record())
            record.matches += tally.matches
            record.return_sum += return_sum
            origin = self.checkpoints.get(Digest(entrant))
            if origin is not None:
                generation = (origin.policy, origin.generation)
                matches = self.generation_matches.get(generation, 0)
                self.generation_matches[generation] = matches + tally.matches
        for pair in tally.pairs:
            first = (self.seats[pair.first].population, tally.entrants[pair.first])
            second = (self.seats[pair.second].population, tally.entrants[pair.second])
            outcome = (pair.wins, pair.draws, pair.losses)
            if first != second:
                # In cooperation both play the same episodes: no seat is better than the other.
                seats = (0, 0) if self.is_cooperation else (pair.first, pair.second)
                key = (first, second, seats)
                total = self.results.setdefault(key, [0, 0, 0])
                for index, number in enumerate(outcome):
                    total[index] += number
            for rated, (wins, draws, losses) in ((first, outcome), (second, outcome[::-1])):
                record = self.records[rated]
                record.wins += wins
                record.draws += draws
                record.losses += losses

    def record(self, population: str, entrant: str) -> Record:
        """Evaluation matches of an entrant; zeros if it has played none."""
        return self.records.get((population, Entrant(entrant)), Record())

    def is_evaluated(self, population: str, entrant: str) -> bool:
        """Whether an entrant has played an evaluation match."""
        return (population, Entrant(entrant)) in self.records

    def ancestors(self, digest: Digest) -> Iterable[Digest]:
        """Weights digests from which these weights were trained, nearest first, then on."""
        seen = {digest}
        row = self.checkpoints.get(digest)
        while row is not None and row.parent is not None and row.parent not in seen:
            seen.add(row.parent)
            yield row.parent
            row = self.checkpoints.get(row.parent)

    def standing_weights(self, policy: PolicyRow, tables: Tables) -> Digest | None:
        """The latest evaluated weights in a policy's line: what its standing is about."""
        if policy.checkpoint is None:
            return None
        digest = tables.checkpoints[policy.checkpoint].weights_digest
        if self.is_evaluated(policy.population, digest):
            return digest
        for ancestor in self.ancestors(digest):
            if self.is_evaluated(policy.population, ancestor):
                return ancestor
        return None

    def matches_in_generation(self, policy: PolicyRow) -> int:
        """Evaluation matches of the checkpoints that the policy made in its generation."""
        return self.generation_matches.get((policy.policy, policy.generation), 0)

    def rated_ancestor(self, digest: Digest, rated: set[Entrant]) -> Entrant | None:
        """The nearest ancestor among some entrants: whose rating is the prior mean."""
        for ancestor in self.ancestors(digest):
            if Entrant(ancestor) in rated:
                return Entrant(ancestor)
        return None

    def bots(self, population: str) -> list[Entrant]:
        """Bots that have played evaluation matches for a population's agents."""
        return [entrant for name, entrant in self.records if name == population and is_bot(entrant)]
