"""League: results, records and lineage that follow from the journal's rows.

Evaluation and training tallies are folded into aggregates (`RecordRow`, `PairRow`), which the
journal keeps beside the tallies. A league is made from the aggregates, so that the tallies need not
be read again. Training tallies feed the payoff that matchmaking uses, evaluation tallies the
ratings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

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
    PlayerId,
    PolicyId,
    Seat,
    Tally,
    is_external,
    is_trainee,
    policy_of_trainee,
    population_of,
)
from populations.gc_pause import collector_paused
from populations.league.pairs import PairRows, added, as_link, part_of
from populations.league.payoff import Payoff
from populations.ratings.result_table import ResultTable
from populations.ratings.results import Counts, Rated
from populations.records.aggregates import PairKey, PairRow, RecordRow
from populations.records.rows import (
    CheckpointRow,
    GhostRow,
    PolicyRow,
    TallyRow,
)
from populations.records.tables import Tables

ResultKey = tuple[Rated, Rated, tuple[int, int]]
"""First, second, and their seats; the seats are (0, 0) in cooperation."""


RECENT_PER_POLICY = 6
"""Newest evaluated weights of a policy, which stay in the fit of ratings whatever leaves it."""


class League:
    """All players of all populations with their results. Owned by one thread.

    Attributes:
        seats: Seats of the environment.
        mixes_teammates: Whether training tallies have an entrant for each agent.
        repeats_games: Whether those who draw nothing have one game in each seating, which counts
            once.
        training_seats: Seats of training tallies.
        is_cooperation: Whether it has one side.
        payoff: Results of training matches.
        records: Evaluation matches of each entrant, in order of first evaluation.
        results: Results of evaluation matches, by pair and seats; a match is one result for each of
            its players.
        links: Results left by players that are gone (`populations.league.merging`), by pair.
        checkpoints: Origin of each weights digest.
        last_evaluation_sequence: Sequence of the last evaluation tally.
        recent: Newest evaluated weights of each policy, in order of first evaluation.
    """

    def __init__(
        self,
        *,
        seats: tuple[Seat, ...],
        half_life_matches: float,
        mixes_teammates: bool = False,
        repeats_games: bool = False,
    ) -> None:
        self.seats = seats
        self.repeats_games = repeats_games
        self.mixes_teammates = mixes_teammates
        self.training_seats = seats_per_agent(seats) if mixes_teammates else seats
        self.is_cooperation = len(plays_of(seats)) > 1
        self._rows = PairRows(seats)
        self._share_of_row = _shares_of_rows(seats, weight=self._rows.weight)
        # The shares of team mates matter for intervals alone, so payoffs go without them.
        self.payoff = Payoff(half_life_matches=half_life_matches, rows=self._rows)
        self.records: dict[Rated, RecordRow] = {}
        self.results: ResultTable[Rated] = ResultTable()
        self.links: ResultTable[Rated] = ResultTable()
        self.checkpoints: dict[Digest, CheckpointRow] = {}
        self.last_evaluation_sequence = 0
        self.recent: dict[PolicyId, deque[Rated]] = {}
        self._evaluated: list[Rated] = []
        self._evaluated_ghosts: list[Rated] = []
        self._some_left = self._some_dropped = False
        self._ghosts: dict[Rated, set[PlayerId]] = {}
        """Present ghosts by their weights."""
        self._evaluation_pairs: dict[PairKey, PairRow] = {}
        self._filed: set[tuple[int, int]] = set()
        """Seats that rows of evaluation have."""
        self._generation_matches: dict[tuple[str, int], int] = {}
        self._first: dict[tuple[str, int], CheckpointRow] = {}
        """First checkpoint of each generation of each policy."""
        self._standing: dict[Rated, Digest | None] = {}
        """Cached answers of `nearest_evaluated` for weights that were not evaluated themselves."""
        self._depending: dict[str, set[Rated]] = {}
        """Cached answers to drop when a digest is evaluated or becomes known, by digest."""

    @classmethod
    @collector_paused()
    def fold(
        cls,
        tables: Tables,
        *,
        seats: tuple[Seat, ...],
        half_life_matches: float,
        mixes_teammates: bool = False,
        repeats_games: bool = False,
    ) -> League:
        """Make the league of a journal's rows."""
        # Origins and ghosts come first: records and results are filed by them.
        league = cls(
            seats=seats,
            half_life_matches=half_life_matches,
            mixes_teammates=mixes_teammates,
            repeats_games=repeats_games,
        )
        for checkpoint in tables.checkpoints.values():
            league.add_checkpoint(checkpoint)
        for ghost in tables.ghosts.values():
            league.put_ghost(ghost)
        for record in tables.records.values():
            league.put(record)
        for pair in tables.pairs.values():
            league.put(pair)
        league.last_evaluation_sequence = tables.last_evaluation_sequence
        return league

    def add_checkpoint(self, row: CheckpointRow) -> None:
        """Add a recorded checkpoint; the first of equal weights is their origin."""
        self._first.setdefault((row.policy, row.generation), row)
        known = self.checkpoints.get(row.weights_digest)
        # Equal weights of a later checkpoint keep their first origin; the same row replaces itself.
        if known is None or known.key == row.key:
            self.checkpoints[row.weights_digest] = row
        # Walks for a standing that ended here may now go on to its parent.
        if known is None:
            self._forget_standing(row.weights_digest)

    def remove_checkpoint(self, row: CheckpointRow) -> None:
        """Forget a checkpoint whose children have another parent now.

        It is none of two with equal weights, was never evaluated, and its policy's generation did
        not begin with it.
        """
        del self.checkpoints[row.weights_digest]
        generation = (row.policy, row.generation)
        first = self._first.get(generation)
        if first is not None and first.key == row.key:
            del self._first[generation]
        # Answers are the same, but would be remembered for weights that are gone.
        self._standing.pop((population_of(row.policy), Entrant(row.weights_digest)), None)
        self._depending.pop(row.weights_digest, None)

    def put_ghost(self, row: GhostRow) -> None:
        """Take in what a ghost is now; repeating it changes nothing."""
        key = (row.population, Entrant(row.weights_digest))
        # Corrupt ones stay rated.
        if not row.doomed:
            if key not in self._ghosts and key in self.records:
                # Evaluated before it became a ghost; otherwise `_note_evaluated` adds it later.
                self._evaluated_ghosts.append(key)
            self._ghosts.setdefault(key, set()).add(row.player)
        elif key in self._ghosts:
            self._ghosts[key].discard(row.player)
            # Another ghost may have the same weights.
            if not self._ghosts[key]:
                del self._ghosts[key]
                self._some_left = True

    @property
    def num_rated_seats(self) -> int:
        """Return the number of seats whose advantages are rated, the first ones."""
        return self._rows.num_seats

    @property
    def evaluated(self) -> list[Rated]:
        """Return evaluated weights and bots in order of first evaluation; like the ghosts."""
        if self._some_dropped:
            self._some_dropped = False
            self._evaluated = [key for key in self._evaluated if key in self.records]
        return self._evaluated

    @property
    def evaluated_ghosts(self) -> list[Rated]:
        """Return evaluated weights of ghosts; it grows, and is another list once some left."""
        # At the next question, for many may leave at once; a fit may still read the old list.
        if self._some_left:
            self._some_left = False
            self._evaluated_ghosts = [key for key in self._evaluated_ghosts if key in self._ghosts]
        return self._evaluated_ghosts

    def add_tally(self, row: TallyRow) -> list[RecordRow | PairRow]:
        """Add a committed tally.

        Returns:
            Changed rows, to be committed in the tally's transaction.
        """
        if row.kind == "train":
            return [*self.payoff.add(self.whole_sides(row.tally))]
        self.last_evaluation_sequence = row.sequence
        # Its sequence counts all the same.
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
            # Of many seats each has its player's mean return, and a match is one for the player.
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
            self._put_record(record)
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
            row = added(self._evaluation_pairs.get(played.key), new)
            self._put_pair(row)
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
            and all(row.key in self._evaluation_pairs for row in rows)
        ):
            return 0
        return counted(tally, repeating)

    def put(self, row: RecordRow | PairRow) -> None:
        """Take in a row as it is now."""
        if isinstance(row, RecordRow):
            self._put_record(row)
        elif row.kind == "train":
            self.payoff.put(row)
        else:
            self._put_pair(row)

    def drop(self, row: RecordRow | PairRow) -> None:
        """Take out a row of an evaluated entrant."""
        if isinstance(row, RecordRow):
            del self.records[row.key]
            self._some_dropped = True
            generation = self._generation_of(row.entrant)
            if generation is not None:
                self._generation_matches[generation] -= row.matches
                if not self._generation_matches[generation]:
                    del self._generation_matches[generation]
        else:
            del self._evaluation_pairs[row.key]
            table, key = self._table(row), self._result_key(row)
            # In cooperation several rows have one result.
            if key in table:
                del table[key]

    def pairs_of(self, rated: Rated) -> list[PairRow]:
        """Return the rows about an evaluated entrant, in an order that each league has."""
        keys: set[PairKey] = set()
        for ((_, first), (_, second), both), _ in self.results.of_entrant(rated):
            # In cooperation results do not tell which seats their rows have.
            seats = rival_seats(self.seats) if self.is_cooperation else (both,)
            keys.update(("evaluate", first, second, *pair) for pair in seats)
        for ((_, first), (_, second), _), _ in self.links.of_entrant(rated):
            keys.update(("merged", first, second, seat, seat) for seat in range(len(self.seats)))
        rows = (self._evaluation_pairs.get(key) for key in sorted(keys))
        return [row for row in rows if row is not None and rated in self._result_key(row)[:2]]

    def link(self, first: Entrant, second: Entrant, *, seat: int) -> PairRow | None:
        """Return what players that are gone say of two; None: nothing."""
        return self._evaluation_pairs.get(("merged", first, second, seat, seat))

    def compact(self) -> None:
        """Forget what was found out with the help of rows that are gone."""
        self.results, self.links = self.results.without_deleted(), self.links.without_deleted()
        self._standing.clear()
        self._depending.clear()

    def _put_record(self, row: RecordRow) -> None:
        old = self.records.get(row.key)
        self.records[row.key] = row
        origin = self.checkpoints.get(Digest(row.entrant))
        if old is None:
            self._forget_standing(row.entrant)
            self._note_evaluated(row.key, origin)
        generation = self._generation_of(row.entrant)
        if generation is not None:
            # Records are totals, so only the difference is new to the generation.
            new = row.matches - (old.matches if old is not None else 0)
            self._generation_matches[generation] = self._generation_matches.get(generation, 0) + new

    def _generation_of(self, entrant: Entrant) -> tuple[PolicyId, int] | None:
        """Return policy and generation of an evaluated entrant; None: it has none."""
        if is_trainee(entrant):
            return policy_of_trainee(entrant)
        origin = self.checkpoints.get(Digest(entrant))
        return None if origin is None else (origin.policy, origin.generation)

    def _note_evaluated(self, key: Rated, origin: CheckpointRow | None) -> None:
        if key in self._ghosts:
            self._evaluated_ghosts.append(key)
        if is_external(key[1]) or origin is not None:
            self._evaluated.append(key)
        if origin is not None:
            recent = self.recent.setdefault(origin.policy, deque(maxlen=RECENT_PER_POLICY))
            recent.append(key)

    def _put_pair(self, row: PairRow) -> None:
        row = as_link(row) if row.kind == "merged" else row
        self._evaluation_pairs[row.key] = row
        if row.kind == "evaluate":
            self._filed.add((row.first_seat, row.second_seat))
        share = self._share_of_row.get((row.first_seat, row.second_seat), 1.0)
        self._table(row)[self._result_key(row)] = Counts.from_results(row, weight=share)

    def _table(self, row: PairRow) -> ResultTable[Rated]:
        return self.links if row.kind == "merged" else self.results

    def _result_key(self, row: PairRow) -> ResultKey:
        first = (self.seats[row.first_seat].population, row.first)
        second = (self.seats[row.second_seat].population, row.second)
        # In cooperation both play the same episodes: no seat is better than the other.
        seats = (0, 0) if self.is_cooperation else (row.first_seat, row.second_seat)
        return first, second, seats

    def record(self, population: str, entrant: str) -> RecordRow:
        """Return the evaluation matches of an entrant; zeros if it has played none."""
        key = (population, Entrant(entrant))
        return self.records.get(key) or RecordRow(population=population, entrant=key[1])

    def evaluated_against(self, entrant: Entrant, other: Entrant) -> tuple[float, float] | None:
        """Return an entrant's mean score and mean return against another in evaluation, over all
        seats; None if they have not met.
        """
        won = matches = return_sum = 0.0
        for low, high in sorted(self._filed):
            row = self._evaluation_pairs.get(("evaluate", entrant, other, low, high))
            if row is not None:
                won += points(row)
                matches += num_scored(row)
                return_sum += row.first_return_sum
            row = self._evaluation_pairs.get(("evaluate", other, entrant, low, high))
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
        # Only seats that some row has: all pairs of them would be many.
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
            entrant for own, entrant in self.records if own == population and is_trainee(entrant)
        )

    def is_evaluated(self, population: str, entrant: str) -> bool:
        """Return whether an entrant has played an evaluation match."""
        return (population, Entrant(entrant)) in self.records

    def parent(self, digest: Digest) -> Digest | None:
        """Return the digest of the weights that these were trained from; None: not known."""
        row = self.checkpoints.get(digest)
        return None if row is None else row.parent

    def ancestors(self, digest: Digest) -> Iterable[Digest]:
        """Yield the digests that these weights were trained from, nearest first."""
        # Copied weights may repeat a digest within a line, so the walk could be a cycle.
        seen = {digest}
        parent = self.parent(digest)
        while parent is not None and parent not in seen:
            seen.add(parent)
            yield parent
            parent = self.parent(parent)

    def standing_weights(self, policy: PolicyRow, tables: Tables) -> Digest | None:
        """Return the latest evaluated weights in a policy's line, which its standing is about."""
        if policy.checkpoint is None:
            return None
        digest = tables.checkpoints[policy.checkpoint].weights_digest
        return self.nearest_evaluated(policy.population, digest)

    def first_checkpoint(self, policy: PolicyRow) -> CheckpointRow | None:
        """Return the first checkpoint of a policy's current generation; None: there is none yet."""
        return self._first.get((policy.policy, policy.generation))

    def first_weights(self, policy: PolicyRow, tables: Tables) -> Digest | None:
        """Return the weights that a policy's current generation began with; None: not made yet."""
        first = self.first_checkpoint(policy)
        # After an exploit the parent is the donor's weights, which the generation began with.
        if first is not None:
            # Without a parent the generation began with its own first weights.
            return first.parent or first.weights_digest
        if policy.checkpoint is None:
            return None
        return tables.checkpoints[policy.checkpoint].weights_digest

    def nearest_evaluated(self, population: str, digest: Digest) -> Digest | None:
        """Return the evaluated weights nearest to given ones in their line, these included."""
        key = (population, Entrant(digest))
        if key in self.records:
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
            # Not evaluated yet: when it is, it is nearer than the answer found here.
            self._depending.setdefault(ancestor, set()).add(key)
        return None

    def _forget_standing(self, digest: str) -> None:
        if self._depending:
            for key in self._depending.pop(digest, ()):
                self._standing.pop(key, None)

    def matches_in_generation(self, policy: PolicyRow) -> int:
        """Return the evaluation matches of the checkpoints that the policy made in its
        generation.
        """
        return self._generation_matches.get((policy.policy, policy.generation), 0)


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
    # Rows of players have their weights already.
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
