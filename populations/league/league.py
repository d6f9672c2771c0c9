"""League: results, records and lineage that follow from the journal's rows.

Evaluation and training tallies are folded into aggregates (`RecordRow`, `PairRow`), which the
journal keeps beside the tallies. A league is made from the aggregates, so that the tallies need not
be read again. Training tallies feed the payoff that matchmaking uses, evaluation tallies the
ratings.
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
"""Row that a tally or a merge changes."""

ResultKey = tuple[Rated, Rated, tuple[int, int]]
"""First, second, and their seats; the seats are (0, 0) in cooperation."""

RECENT_PER_POLICY = 6
"""Newest evaluated weights of a policy, which stay in the fit of ratings whatever leaves it."""


class League:
    """All players of all populations with their results. Owned by one thread.

    Questions about the tables, and beside these what a decision would have to add up each time.

    Attributes:
        tables: The journal's rows.
        seats: Seats of the environment.
        mixes_teammates: Whether training tallies have an entrant for each agent.
        repeats_games: Whether those who draw nothing have one game in each seating, which counts
            once.
        training_seats: Seats of training tallies.
        is_cooperation: Whether it has one side.
        teams: By policy, who learns beside it, itself included; empty where every policy is a team
            of its own.
        payoff: Results of training matches.
        results: Results of evaluation matches, by pair and seats; a match is one result for each of
            its players.
        links: Results left by players that are gone (`populations.league.merging`), by pair.
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
        # The shares of team mates matter for intervals alone, so payoffs go without them.
        self.payoff = Payoff(half_life_matches=half_life_matches, rows=self._rows)
        self.results: ResultTable[Rated] = ResultTable()
        self.links: ResultTable[Rated] = ResultTable()
        self.recent: dict[PolicyId, deque[Rated]] = {}
        self._filed: set[tuple[int, int]] = set()
        """Seats that rows of evaluation have."""
        self._generation_matches: dict[tuple[str, int], int] = {}
        self._standing: dict[Rated, Digest | None] = {}
        """Cached answers of `nearest_evaluated` for weights that were not evaluated themselves."""
        self._depending: dict[str, set[Rated]] = {}
        """Cached answers to drop when a digest is evaluated or becomes known, by digest."""
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
        """Return the number of seats whose advantages are rated, the first ones."""
        return self._rows.num_seats

    def add_tally(self, row: TallyRow) -> list[ResultRow]:
        """Put the results of a tally into the tables.

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
        """Return a training tally with one entrant per side: where teammates are mixed, the trainee
        or its rival.
        """
        return between_rivals(tally, seats=self.seats) if self.mixes_teammates else tally

    def _add_records(self, tally: Tally) -> list[RecordRow]:
        rated = [
            (seat.population, entrant)
            for seat, entrant in zip(self.seats, tally.entrants, strict=True)
        ]
        changed: dict[Rated, RecordRow] = {}
        # Scores between win and loss cannot be counted as wins, draws and losses: the sum is kept
        # as soon as one pair has it.
        has_sums = any(pair.score_sum is not None for pair in tally.pairs)
        outcomes = _outcomes(tally)
        by_seats = is_tally_by_seats(tally, self.seats)
        for index, key in enumerate(rated):
            # A tally by seats counts once for a player, each of whose seats has the player's mean
            # return.
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
        # Put once per entrant, after all of its seats.
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
        """Count the games of an evaluation that say something new: where they repeat, others."""
        if not self.repeats_games:
            return tally.matches
        repeating = set(tally.entrants) - {RANDOM_BOT}
        # The only game of these players in these seats, which an earlier tally had. With more than
        # two sides other seatings may have had all its pairs, and then it is lost.
        if (
            tally.distinct == 1
            and is_repeating(tally, repeating)
            and all(row.key in self.tables.pairs for row in rows)
        ):
            return 0
        return counted(tally, repeating)

    def put(self, row: ResultRow) -> ResultRow:
        """Put a row of results into the tables, and return it; of training, after the payoff."""
        old = self.tables.records.get(row.key) if isinstance(row, RecordRow) else None
        self.tables.put(row)
        if isinstance(row, RecordRow):
            if old is None:
                self.forget_standing(row.entrant)
                self._note_evaluated(row)
            # Records are totals, so only the difference is new to the generation.
            self._count(row, row.matches - (old.matches if old is not None else 0))
        elif row.kind != "train":
            self._file(row)
        return row

    def drop(self, row: ResultRow) -> Deletion:
        """Take a row of results out of the tables, and return that; of training, after the
        payoff.
        """
        gone = Deletion(row=row)
        self.tables.put(gone)
        if isinstance(row, RecordRow):
            self._count(row, -row.matches)
        elif row.kind != "train":
            table, key = self._table(row), self._result_key(row)
            # Several rows have one result in cooperation.
            if key in table:
                del table[key]
        return gone

    def pairs_of(self, rated: Rated) -> list[PairRow]:
        """Return the rows about an evaluated entrant, in an order that each league has."""
        keys: set[PairKey] = set()
        for ((_, first), (_, second), both), _ in self.results.of_entrant(rated):
            # Results in cooperation do not tell which seats their rows have.
            seats = rival_seats(self.seats) if self.is_cooperation else (both,)
            keys.update(("evaluate", first, second, *pair) for pair in seats)
        for ((_, first), (_, second), _), _ in self.links.of_entrant(rated):
            keys.update(("merged", first, second, seat, seat) for seat in range(len(self.seats)))
        rows = (self.tables.pairs.get(key) for key in sorted(keys))
        return [row for row in rows if row is not None and rated in self._result_key(row)[:2]]

    def link(self, first: Entrant, second: Entrant, *, seat: int) -> PairRow | None:
        """Return what players that are gone say of two; None: nothing."""
        return self.tables.pairs.get(("merged", first, second, seat, seat))

    def compact(self) -> None:
        """Forget what was found out with the help of rows that are gone."""
        self.results, self.links = self.results.without_deleted(), self.links.without_deleted()
        self._standing.clear()
        self._depending.clear()

    def _count(self, row: RecordRow, new: int) -> None:
        """Count new matches of an evaluated entrant for the generation that made it."""
        generation = self._generation_of(row.entrant)
        if generation is None:
            return
        self._generation_matches[generation] = self._generation_matches.get(generation, 0) + new
        if not self._generation_matches[generation]:
            del self._generation_matches[generation]

    def _generation_of(self, entrant: Entrant) -> tuple[PolicyId, int] | None:
        """Return policy and generation of an evaluated entrant; None: it has none."""
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
        # Both play the same episodes in cooperation, so no seat is better than the other.
        seats = (0, 0) if self.is_cooperation else (row.first_seat, row.second_seat)
        return first, second, seats

    def record(self, population: str, entrant: str) -> RecordRow:
        """Return the evaluation matches of an entrant; zeros if it has played none."""
        key = (population, Entrant(entrant))
        return self.tables.records.get(key) or RecordRow(population=population, entrant=key[1])

    def evaluated_against(self, entrant: Entrant, other: Entrant) -> tuple[float, float] | None:
        """Return an entrant's mean score and mean return against another in evaluation, over all
        seats; None if they have not met.
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

        Of many seats they are filed under one or the other player's, so ask for both orders.
        """
        # Only seats that some row has are looked up: all pairs of them would be many.
        for seats in [(0, 0)] if self.is_cooperation else sorted(self._filed):
            counts = self.results.get((first, second, seats))
            if counts is not None:
                yield counts

    def num_met(self, first: Rated, second: Rated) -> float:
        """Return the evaluation matches of two players, the first in the lower seat."""
        return sum(counts.matches for counts in self.results_of(first, second))

    def sums(self, population: str) -> Iterator[Entrant]:
        """Yield the generations that have sums of weights which are gone."""
        # A record's key is known by its form alone: sums are few among evaluated weights.
        return (
            entrant
            for own, entrant in self.tables.records
            if own == population and is_trainee(entrant)
        )

    def is_evaluated(self, population: str, entrant: str) -> bool:
        """Return whether an entrant has played an evaluation match."""
        return (population, Entrant(entrant)) in self.tables.records

    def ancestors(self, digest: Digest) -> Iterator[Digest]:
        """Yield the digests that these weights were trained from, nearest first."""
        # Copied weights may repeat a digest within a line, so the walk could be a cycle.
        origins, seen = self.checkpoints, {digest}
        row = origins.get(digest)
        while row is not None and row.parent is not None and row.parent not in seen:
            seen.add(row.parent)
            yield row.parent
            row = origins.get(row.parent)

    def weights(self, policy: PolicyRow) -> Digest | None:
        """Return the weights that a policy goes on from; None: it has none yet."""
        checkpoint = self.tables.checkpoints.get(policy.checkpoint or "")
        return None if checkpoint is None else checkpoint.weights_digest

    def standing_weights(self, policy: PolicyRow) -> Digest | None:
        """Return the latest evaluated weights in a policy's line, which its standing is about."""
        digest = self.weights(policy)
        return None if digest is None else self.nearest_evaluated(policy.population, digest)

    def first_checkpoint(self, policy: PolicyRow) -> CheckpointRow | None:
        """Return the first checkpoint of a policy's current generation; None: there is none yet."""
        firsts = self.tables.checkpoints.first("generation")
        return firsts.get((policy.policy, policy.generation))

    def first_weights(self, policy: PolicyRow) -> Digest | None:
        """Return the weights that a policy's current generation began with; None: not made yet."""
        first = self.first_checkpoint(policy)
        # The generation began with its parent's weights: after an exploit these are the donor's.
        if first is not None:
            # A generation without a parent began with its own first weights.
            return first.parent or first.weights_digest
        return self.weights(policy)

    def nearest_evaluated(self, population: str, digest: Digest) -> Digest | None:
        """Return the evaluated weights nearest to given ones in their line, these included."""
        key = (population, Entrant(digest))
        if key in self.tables.records:
            return digest
        if key not in self._standing:
            self._standing[key] = self._evaluated_ancestor(key)
        return self._standing[key]

    def _evaluated_ancestor(self, key: Rated) -> Digest | None:
        """Return the nearest evaluated ancestor; note all weights that the answer depends on."""
        population, digest = key
        # If these weights are evaluated later, they are their own answer.
        self._depending.setdefault(digest, set()).add(key)
        for ancestor in self.ancestors(Digest(digest)):
            if self.is_evaluated(population, ancestor):
                return ancestor
            # An ancestor that is evaluated later is nearer than the answer found here.
            self._depending.setdefault(ancestor, set()).add(key)
        return None

    def forget_standing(self, digest: str) -> None:
        """Find standings anew that weights decide which were evaluated or became known."""
        if self._depending:
            for key in self._depending.pop(digest, ()):
                self._standing.pop(key, None)

    def matches_in_generation(self, policy: PolicyRow) -> int:
        """Return the evaluation matches of the checkpoints that the policy made in its
        generation.
        """
        return self._generation_matches.get((policy.policy, policy.generation), 0)


def _teams(policies: Iterable[PolicyRow]) -> dict[PolicyId, tuple[PolicyId, ...]]:
    by_index: dict[int, list[PolicyId]] = {}
    # Equal index, one of each population.
    for row in policies:
        by_index.setdefault(row.index, []).append(row.policy)
    return {policy: tuple(team) for team in by_index.values() if len(team) > 1 for policy in team}


def is_alone(tally: Tally, seats: tuple[Seat, ...]) -> bool:
    """Return whether a player met only itself, which shows nothing of its strength."""
    rated = list(zip((seat.population for seat in seats), tally.entrants, strict=True))
    plays = plays_of(seats)
    if len(plays) > 1:
        # Both have the same populations in the same order.
        return rated[: len(plays[0])] == rated[len(plays[0]) :]
    return len(set(rated)) == 1


def _shares_of_rows(seats: tuple[Seat, ...], *, weight: float) -> dict[tuple[int, int], float]:
    """Return the share of a match that a row of two seats is worth, where it is not all of it."""
    # Where results are stored by player and not by seat, each row has its weight already.
    if not is_by_seats(seats):
        return {}
    # Each member of a team has the team's result; rows store it as if it were the member's own.
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
