"""League: results, records and lineage that follow from the journal's rows.

Evaluation and training tallies are summed up in aggregates (`RecordRow`, `PairRow`), which the
journal stores beside the tallies. A league is built from the aggregates, so that the tallies need
not be read again. Matchmaking uses results of training, ratings use results of evaluation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from arena.matches.comparisons import (
    counted,
    is_by_seats,
    is_repeating,
    is_tally_by_seats,
    result_weights,
    rival_seats,
)
from arena.matches.pair_scores import mean_score, num_scored, points
from arena.matches.seating import plays_of
from arena.matches.teammates import between_rivals, seats_per_agent
from arena.types import (
    RANDOM_BOT,
    Digest,
    Entrant,
    PolicyId,
    Seat,
    Tally,
    is_trainee,
    policy_of_trainee,
)
from populations.gc_pause import collector_paused
from populations.league.pairs import PairRows, added, part_of
from populations.league.payoff import Payoff
from populations.ratings.result_table import ResultTable
from populations.ratings.results import Counts, Rated
from populations.records.aggregates import PairKey, PairRow, RecordRow
from populations.records.rows import (
    CheckpointRow,
    Deletion,
    PolicyRow,
    TallyRow,
)
from populations.records.tables import Tables

ResultRow = RecordRow | PairRow
"""Row of results that a tally or a merge (`populations.league.merging`) changes."""

ResultKey = tuple[Rated, Rated, tuple[int, int]]
"""First player, second player, and their seats; the seats are (0, 0) in cooperation."""

RECENT_PER_POLICY = 6
"""Number of a policy's newest evaluated weights, which every fit of ratings includes."""


class League:
    """All players of all populations with their results. Owned by one thread.

    It answers questions about the tables, and caches sums that each decision would need anew.

    Attributes:
        tables: The journal's rows.
        seats: Seats of the environment.
        mixes_teammates: Whether training tallies have an entrant for each agent.
        repeats_games: Whether players without randomness repeat the same game in each seating; it
            then counts once.
        training_seats: Seats of training tallies.
        is_cooperation: Whether all seats are on one side.
        teams: Policies that learn together, by each of their members; empty where every policy is a
            team of its own.
        payoff: Results of training matches.
        results: Results of evaluation matches, by pair and seats; a match is one result for each of
            its players.
        links: Results left by removed players (`populations.league.merging`), by pair.
        recent: Newest evaluated weights of each policy, in order of first evaluation.
    """

    @collector_paused()
    def __init__(
        self,
        tables: Tables,
        *,
        seats: tuple[Seat, ...],
        half_life_matches: float,
        mixes_teammates: bool = False,
        repeats_games: bool = False,
    ) -> None:
        self.tables = tables
        self.seats = seats
        self.repeats_games = repeats_games
        self.mixes_teammates = mixes_teammates
        self.training_seats = seats_per_agent(seats) if mixes_teammates else seats
        self.is_cooperation = len(plays_of(seats)) > 1
        self.teams = _teams(tables.policies.values()) if self.is_cooperation else {}
        self._rows = PairRows(seats)
        self._share_of_row = _shares_of_rows(seats, weight=self._rows.weight)
        # Teammates share a result, which matters only for intervals, so payoffs ignore shares.
        self.payoff = Payoff(half_life_matches=half_life_matches, rows=self._rows)
        self.results: ResultTable[Rated] = ResultTable()
        self.links: ResultTable[Rated] = ResultTable()
        self.recent: dict[PolicyId, deque[Rated]] = {}
        self._filed: set[tuple[int, int]] = set()
        """Pairs of seats that occur in rows of evaluation."""
        self._generation_matches: dict[tuple[str, int], int] = {}
        self._standing: dict[Rated, Digest | None] = {}
        """Cached answers of `nearest_evaluated` for weights that were not evaluated themselves."""
        self._depending: dict[str, set[Rated]] = {}
        """Keys of `_standing` that become invalid once weights are evaluated or recorded, by digest
        of these weights."""
        for record in tables.records.values():
            self._note_evaluated(record)
            self._count(record, record.matches)
        for pair in tables.pairs.values():
            self._file(pair)

    @property
    def checkpoints(self) -> Mapping[Digest, CheckpointRow]:
        """Return the origin of each weights digest: the first checkpoint that had them."""
        return self.tables.checkpoints.first("weights")

    @property
    def evaluated(self) -> Mapping[Rated, RecordRow]:
        """Return the records of evaluated weights and bots, in order of first evaluation."""
        return self.tables.records.by("rated").get(True, {})

    @property
    def num_rated_seats(self) -> int:
        """Return how many seats, counted from the first, have a rated advantage."""
        return self._rows.num_seats

    def add_tally(self, row: TallyRow) -> list[ResultRow]:
        """Add the results of a tally to the tables.

        Returns:
            Changed rows, to be committed in the tally's transaction.
        """
        if row.kind == "train":
            changed = self.payoff.add(self.whole_sides(row.tally))
            for result in changed:
                self.tables.put(result)
            return [*changed]
        if is_alone(row.tally, self.seats):
            return []
        return [*self._add_records(row.tally), *self._add_results(row.tally)]

    def whole_sides(self, tally: Tally) -> Tally:
        """Return a training tally with one entrant per side.

        Where teammates are mixed, a side's entrant is the trainee or its rival.
        """
        return between_rivals(tally, seats=self.seats) if self.mixes_teammates else tally

    def _add_records(self, tally: Tally) -> list[RecordRow]:
        rated = [
            (seat.population, entrant)
            for seat, entrant in zip(self.seats, tally.entrants, strict=True)
        ]
        changed: dict[Rated, RecordRow] = {}
        # Scores between win and loss cannot be counted as wins, draws and losses, so the sum of
        # scores is stored as soon as one pair has it.
        has_sums = any(pair.score_sum is not None for pair in tally.pairs)
        outcomes = _outcomes(tally)
        by_seats = is_tally_by_seats(tally, self.seats)
        for index, key in enumerate(rated):
            # A tally by players has the player's mean return in each of the player's seats, so it
            # is counted only once.
            if not by_seats and key in changed:
                continue
            # An entrant may hold several seats: its later seats add to the row of the earlier ones.
            old = changed.get(key) or self.record(*key)
            wins, draws, losses, won = outcomes[index]
            is_summed = old.score_sum is not None or has_sums
            changed[key] = RecordRow(
                population=old.population,
                entrant=old.entrant,
                matches=old.matches + tally.matches,
                wins=old.wins + wins,
                draws=old.draws + draws,
                losses=old.losses + losses,
                return_sum=old.return_sum + tally.return_sum[index],
                return_sum_of_squares=(
                    old.return_sum_of_squares + tally.return_sum_of_squares[index]
                ),
                score_sum=old.points + won if is_summed else None,
            )
        # A record is stored only after all seats of its entrant are added up.
        for record in changed.values():
            self.put(record)
        return list(changed.values())

    def _add_results(self, tally: Tally) -> Iterator[PairRow]:
        # A result of an entrant against itself holds no information on its strength.
        rows = [
            row
            for row in self._rows.of(tally, kind="evaluate")
            if len(set(self._result_key(row)[:2])) == 2
        ]
        num_games = self._num_new(tally, rows)
        for played in rows if num_games else ():
            new = part_of(played, num_games, of=tally.matches)
            row = added(self.tables.pairs.get(played.key), new)
            self.put(row)
            yield row

    def _num_new(self, tally: Tally, rows: Sequence[PairRow]) -> int:
        """Count the games of an evaluation that add information, without repeated ones."""
        if not self.repeats_games:
            return tally.matches
        repeating = set(tally.entrants) - {RANDOM_BOT}
        # An earlier tally had the only possible game of these players in these seats. With more
        # than two sides other seatings may have had all of its pairs; then a new game is ignored.
        if (
            tally.distinct == 1
            and is_repeating(tally, repeating)
            and all(row.key in self.tables.pairs for row in rows)
        ):
            return 0
        return counted(tally, repeating)

    def put(self, row: ResultRow) -> ResultRow:
        """Store a row of results in the tables, and return it.

        For a training row, call it after the payoff has made that row.
        """
        old = self.tables.records.get(row.key) if isinstance(row, RecordRow) else None
        self.tables.put(row)
        if isinstance(row, RecordRow):
            if old is None:
                self.forget_standing(row.entrant)
                self._note_evaluated(row)
            # Records are totals, so the generation gets only the difference.
            self._count(row, row.matches - (old.matches if old is not None else 0))
        elif row.kind != "train":
            self._file(row)
        return row

    def drop(self, row: ResultRow) -> Deletion:
        """Remove a row of results from the tables, and return its `Deletion`.

        For a training row, call it after the payoff has removed that row.
        """
        gone = Deletion(row=row)
        self.tables.put(gone)
        if isinstance(row, RecordRow):
            self._count(row, -row.matches)
        elif row.kind != "train":
            table, key = self._table(row), self._result_key(row)
            # In cooperation several rows share one result, which may be removed already.
            if key in table:
                del table[key]
        return gone

    def pairs_of(self, rated: Rated) -> list[PairRow]:
        """Return the rows about an evaluated entrant, sorted, so the order survives a resume."""
        keys: set[PairKey] = set()
        for ((_, first), (_, second), both), _ in self.results.of_entrant(rated):
            # Results in cooperation have no seats, so the rows of all pairs of seats are tried.
            seats = rival_seats(self.seats) if self.is_cooperation else (both,)
            keys.update(("evaluate", first, second, *pair) for pair in seats)
        for ((_, first), (_, second), _), _ in self.links.of_entrant(rated):
            keys.update(("merged", first, second, seat, seat) for seat in range(len(self.seats)))
        rows = (self.tables.pairs.get(key) for key in sorted(keys))
        return [row for row in rows if row is not None and rated in self._result_key(row)[:2]]

    def link(self, first: Entrant, second: Entrant, *, seat: int) -> PairRow | None:
        """Return the row that removed players left about two entrants; None: there is none."""
        return self.tables.pairs.get(("merged", first, second, seat, seat))

    def compact(self) -> None:
        """Clear caches that may depend on removed rows."""
        self.results, self.links = self.results.without_deleted(), self.links.without_deleted()
        self._standing.clear()
        self._depending.clear()

    def _count(self, row: RecordRow, new: int) -> None:
        """Add new matches of an evaluated entrant to the generation that made its weights."""
        generation = self._generation_of(row.entrant)
        if generation is None:
            return
        self._generation_matches[generation] = self._generation_matches.get(generation, 0) + new
        if not self._generation_matches[generation]:
            del self._generation_matches[generation]

    def _generation_of(self, entrant: Entrant) -> tuple[PolicyId, int] | None:
        """Return policy and generation of an evaluated entrant; None for players from outside."""
        if is_trainee(entrant):
            return policy_of_trainee(entrant)
        origin = self.checkpoints.get(Digest(entrant))
        return None if origin is None else (origin.policy, origin.generation)

    def _note_evaluated(self, row: RecordRow) -> None:
        origin = self.checkpoints.get(Digest(row.entrant))
        if origin is not None:
            recent = self.recent.setdefault(origin.policy, deque(maxlen=RECENT_PER_POLICY))
            recent.append(row.key)

    def _file(self, row: PairRow) -> None:
        if row.kind == "train":
            self.payoff.put(row)
            return
        if row.kind == "evaluate":
            self._filed.add((row.first_seat, row.second_seat))
        share = self._share_of_row.get((row.first_seat, row.second_seat), 1.0)
        counts = Counts.from_results(row, weight=share)
        self._table(row)[self._result_key(row)] = counts

    def _table(self, row: PairRow) -> ResultTable[Rated]:
        return self.links if row.kind == "merged" else self.results

    def _result_key(self, row: PairRow) -> ResultKey:
        first = (self.seats[row.first_seat].population, row.first)
        second = (self.seats[row.second_seat].population, row.second)
        # In cooperation two entrants play the same episodes, so neither has the better seat.
        seats = (0, 0) if self.is_cooperation else (row.first_seat, row.second_seat)
        return first, second, seats

    def record(self, population: str, entrant: str) -> RecordRow:
        """Return the record of an entrant in evaluation; all zeros if it has played no match."""
        key = (population, Entrant(entrant))
        return self.tables.records.get(key) or RecordRow(population=population, entrant=key[1])

    def evaluated_against(self, entrant: Entrant, other: Entrant) -> tuple[float, float] | None:
        """Return an entrant's mean score and mean return against another in evaluation.

        Matches in all seats count. None: the two have not played.
        """
        won = matches = return_sum = 0.0
        for low, high in sorted(self._filed):
            row = self.tables.pairs.get(("evaluate", entrant, other, low, high))
            if row is not None:
                won += points(row)
                matches += num_scored(row)
                return_sum += row.first_return_sum
            row = self.tables.pairs.get(("evaluate", other, entrant, low, high))
            if row is not None:
                won += num_scored(row) - points(row)
                matches += num_scored(row)
                return_sum += row.second_return_sum
        score = mean_score(won, matches)
        return None if score is None else (score, return_sum / matches)

    def results_of(self, first: Rated, second: Rated) -> Iterator[Counts]:
        """Yield the results of two players in evaluation, the first in the lower seat.

        With many seats, a result may be stored in either order of the players: ask for both.
        """
        # Only pairs of seats that occur in a row are looked up, because all pairs may be many.
        for seats in [(0, 0)] if self.is_cooperation else sorted(self._filed):
            counts = self.results.get((first, second, seats))
            if counts is not None:
                yield counts

    def num_met(self, first: Rated, second: Rated) -> float:
        """Return the number of evaluation matches of two players, the first in the lower seat."""
        return sum(counts.matches for counts in self.results_of(first, second))

    def sums(self, population: str) -> Iterator[Entrant]:
        """Yield the generations that have a record with the results of removed weights."""
        # The form of a key tells whether its entrant is a generation, so no record is read.
        return (
            entrant
            for own, entrant in self.tables.records
            if own == population and is_trainee(entrant)
        )

    def is_evaluated(self, population: str, entrant: str) -> bool:
        """Return whether an entrant has played an evaluation match."""
        return (population, Entrant(entrant)) in self.tables.records

    def ancestors(self, digest: Digest) -> Iterator[Digest]:
        """Yield the ancestors of some weights, by digest, the nearest first."""
        # A digest may occur twice in a line of copies, so the walk must be protected from cycles.
        origins, seen = self.checkpoints, {digest}
        row = origins.get(digest)
        while row is not None and row.parent is not None and row.parent not in seen:
            seen.add(row.parent)
            yield row.parent
            row = origins.get(row.parent)

    def weights(self, policy: PolicyRow) -> Digest | None:
        """Return the weights of a policy's current checkpoint; None: it has none yet."""
        checkpoint = self.tables.checkpoints.get(policy.checkpoint or "")
        return None if checkpoint is None else checkpoint.weights_digest

    def standing_weights(self, policy: PolicyRow) -> Digest | None:
        """Return the latest evaluated weights in a policy's line, which represent it in standings.

        None: none were evaluated.
        """
        digest = self.weights(policy)
        return None if digest is None else self.nearest_evaluated(policy.population, digest)

    def first_checkpoint(self, policy: PolicyRow) -> CheckpointRow | None:
        """Return the first checkpoint of a policy's current generation; None: there is none yet."""
        firsts = self.tables.checkpoints.first("generation")
        return firsts.get((policy.policy, policy.generation))

    def first_weights(self, policy: PolicyRow) -> Digest | None:
        """Return the weights that a policy's current generation began with; None: not made yet."""
        first = self.first_checkpoint(policy)
        # A generation began with the parent of its first checkpoint, after an exploit the donor's.
        if first is not None:
            # A generation without a parent began with its own first weights.
            return first.parent or first.weights_digest
        return self.weights(policy)

    def nearest_evaluated(self, population: str, digest: Digest) -> Digest | None:
        """Return the given weights if they were evaluated, else their nearest evaluated ancestor.

        None: no ancestor was evaluated either.
        """
        key = (population, Entrant(digest))
        if key in self.tables.records:
            return digest
        if key not in self._standing:
            self._standing[key] = self._evaluated_ancestor(key)
        return self._standing[key]

    def _evaluated_ancestor(self, key: Rated) -> Digest | None:
        """Return the nearest evaluated ancestor; record all weights that the answer depends on."""
        population, digest = key
        # Once these weights themselves are evaluated, they replace the ancestor found here.
        self._depending.setdefault(digest, set()).add(key)
        for ancestor in self.ancestors(Digest(digest)):
            if self.is_evaluated(population, ancestor):
                return ancestor
            # Once this ancestor is evaluated, it is nearer than the answer found here.
            self._depending.setdefault(ancestor, set()).add(key)
        return None

    def forget_standing(self, digest: str) -> None:
        """Drop cached standings that depend on weights that were just evaluated or recorded."""
        if self._depending:
            for key in self._depending.pop(digest, ()):
                self._standing.pop(key, None)

    def matches_in_generation(self, policy: PolicyRow) -> int:
        """Return the number of evaluation matches of the checkpoints that a policy has made in its
        current generation.
        """
        return self._generation_matches.get((policy.policy, policy.generation), 0)


def _teams(policies: Iterable[PolicyRow]) -> dict[PolicyId, tuple[PolicyId, ...]]:
    by_index: dict[int, list[PolicyId]] = {}
    # Policies of equal index, one of each population, are a team.
    for row in policies:
        by_index.setdefault(row.index, []).append(row.policy)
    return {policy: tuple(team) for team in by_index.values() if len(team) > 1 for policy in team}


def is_alone(tally: Tally, seats: tuple[Seat, ...]) -> bool:
    """Return whether a player met only itself, which gives no information on its strength."""
    rated = list(zip((seat.population for seat in seats), tally.entrants, strict=True))
    plays = plays_of(seats)
    if len(plays) > 1:
        # Both plays of an episode have the same populations in the same order.
        return rated[: len(plays[0])] == rated[len(plays[0]) :]
    return len(set(rated)) == 1


def _shares_of_rows(seats: tuple[Seat, ...], *, weight: float) -> dict[tuple[int, int], float]:
    """Return, by pair of seats, the factor from a row's counts to its weight in ratings.

    Pairs without an entry have the factor 1.
    """
    # Where results are stored by player and not by seat, the rows include their weight already.
    if not is_by_seats(seats):
        return {}
    # All members of a team have the same result, which rows store as if each had its own.
    weights = result_weights(dict.fromkeys(rival_seats(seats), 1), entrants=range(len(seats)))
    return {pair: own / weight for pair, own in weights.items()}


def _outcomes(tally: Tally) -> list[tuple[int, int, int, float]]:
    """Return wins, draws, losses and sum of scores of each seat, over its pairs of seats."""
    outcomes = [(0, 0, 0, 0.0)] * len(tally.entrants)
    for pair in tally.pairs:
        won = points(pair)
        wins, draws, losses, score = outcomes[pair.first]
        outcomes[pair.first] = (
            wins + pair.wins,
            draws + pair.draws,
            losses + pair.losses,
            score + won,
        )
        wins, draws, losses, score = outcomes[pair.second]
        outcomes[pair.second] = (
            wins + pair.losses,
            draws + pair.draws,
            losses + pair.wins,
            score + (num_scored(pair) - won),
        )
    return outcomes
