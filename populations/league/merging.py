"""Results of players that are gone: what they say of those that stay, and their sums.

Weights that are gone tie together those that they met: what their results say of these is kept as
a mesh of links between them (`mesh`).

Matches, wins and returns go to the sums of the policy's generation. Training results only choose
opponents, so those with players that cannot be drawn any more are forgotten. Generations that a
policy has left long ago are merged into a later one: their sums are added up, and their training
results fade with the later matches of the same two, as they do where opponents are chosen.

A merge is a fact of the journal (event ``results_merged``), and the rows after it follow from the
tallies and the merges between them: `apply_merge` is what a run does, and what `arena verify` does
again.

A fit rates few of all weights that were evaluated: those that decide something or are shown. Near
which difference the results of the others are looked at matters, for an error e of it makes one of
e^2 / 2 in what they are taken to say. While a league learns fast, weights are hundreds of Elo ahead
of the last ones of their line that were rated. So their strengths are settled by all of their
results first, each given the others' in turn (`Meetings`).

One player is eliminated from what results say of many by a normal approximation. Near the ratings
of a fit the likelihood of a pair's results is that of a normal distribution of the difference of
two strengths (Laplace's approximation): with n matches, s points, the expected score p and the
difference x there,

    w = n p (1 - p),    d = x + (s - n p) / w

So results of players far apart say next to nothing, whoever won. Taking one player out of the fit
leaves a normal distribution of the others: the star of its pairs becomes a mesh (the Schur
complement of one row of the information matrix). For neighbours i and j at w_i and w_j, with
differences d_i and d_j to the player that goes:

    w_ij = w_i w_j / sum_k w_k,    d_ij = d_j - d_i

Each player that goes has few results, and maximum likelihood puts strengths too far from those of
its opponents then; a fit takes that back by Firth's correction, which therefore is part of d_i, for
the share of the player that goes: half a match more on each side for each w_i / sum_k w_k. Where
there are two populations, each is tied by itself, as if the player that goes were another one for
it, and the sum is over that population's players.

That is kept as it is, a normal distribution of a difference, and the next fit takes it so
(`populations.ratings.bradley_terry`): made results of matches again, it would change with the
ratings, and be approximated anew when one of the two goes, which adds up from merge to merge.

Only the bots and the best known of the other neighbours are tied, so that no pair becomes too
many; the rest is forgotten, which makes ratings less sure, not wrong. Bots are never forgotten,
however little is known of them: they are the zero of the scale, and its distance is known through
all who are gone. Without that nothing is left but that they always lose.

Sources: the star-mesh transform of resistor networks (Rosen, "A new network theorem", 1924), which
is Gaussian elimination of one variable; Laplace's approximation as in McCullagh and Nelder,
"Generalized Linear Models" (1989), section 2.5: d is the working response.
Firth, "Bias reduction of maximum likelihood estimates" (Biometrika, 1993); Neyman and Scott,
"Consistent estimates based on partially consistent observations" (Econometrica, 1948).

Tests: `tests/populations/league/test_merging.py`, `tests/populations/league/test_league.py`,
`tests/populations/league/test_mixture.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations, pairwise
from typing import NamedTuple

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from arena.types import Entrant, is_external, is_trainee
from populations.league.league import League, ResultRow
from populations.league.pairs import Seats, added, seat_advantage
from populations.ratings.bradley_terry import ELO_PER_UNIT
from populations.ratings.results import Counts, Rated
from populations.records.aggregates import PairRow, RecordRow
from populations.records.rows import Deletion, EventRow, Json

NUM_SWEEPS = 8
"""Turns in which each strength is settled given the others: steps become ten times smaller."""

Estimate = Callable[[Rated], tuple[float, float]]
"""Rating and variance of a player by the last fit, else by its line, in Elo and its square."""


class Meetings(NamedTuple):
    """Results and links of a player, by the other one, as the player sees them."""

    played: Mapping[Rated, Sequence[Seen]]
    links: Mapping[Rated, Sequence[Link]]

    def of(self, population: str) -> Meetings:
        """Return those with players of one population."""
        return Meetings(
            {other: seen for other, seen in self.played.items() if other[0] == population},
            {other: known for other, known in self.links.items() if other[0] == population},
        )

    def by(
        self, point: Callable[[Rated], float]
    ) -> tuple[list[tuple[float, Sequence[Seen]]], list[tuple[float, Link]]]:
        """Return results and links with the strength of the other one beside each."""
        played = [(point(other), seen) for other, seen in self.played.items()]
        tied = [(point(other), link) for other, known in self.links.items() for link in known]
        return played, tied


def meetings(league: League, rated: Rated, *, advantage: Callable[[Seats], float]) -> Meetings:
    """Find the results and links of a player.

    Args:
        league: League with all results.
        rated: The player.
        advantage: Worth of the first of two seats against the second, in natural units.
    """
    played: defaultdict[Rated, list[Seen]] = defaultdict(list)
    for (first, second, seats), counts in league.results.of_entrant(rated):
        worth = advantage(seats)
        if first == rated:
            played[second].append((counts, worth))
        else:
            played[first].append((counts.turned(), -worth))
    links: defaultdict[Rated, list[Link]] = defaultdict(list)
    for (first, second, _), counts in league.links.of_entrant(rated):
        known = Link.from_counts(counts)
        if first == rated:
            links[second].append(known)
        else:
            links[first].append(known.turned())
    return Meetings(played, links)


def settled_points(
    league: League,
    gone: Iterable[Rated],
    *,
    estimate: Estimate,
    is_rated: Callable[[Rated], bool],
    advantage: Callable[[Seats], float],
) -> dict[Rated, float]:
    """Return the strengths of some players and of all that they met.

    Args:
        league: League with all results.
        gone: The players.
        estimate: Rating and variance of each, its results left out.
        is_rated: Whether the last fit rated one: then that is its strength.
        advantage: Worth of the first of two seats against the second, in natural units.

    Returns:
        Elo, in the order of ``gone``, each followed by those that it met.
    """
    points: dict[Rated, float] = {}
    asked: dict[Rated, None] = {}
    for own in gone:
        met = meetings(league, own, advantage=advantage)
        asked.update(dict.fromkeys((own, *met.played, *met.links)))
    # Entrants are sorted, as a resumed league may have them in another order.
    unrated = sorted(rated for rated in asked if not is_rated(rated))
    found = {rated: meetings(league, rated, advantage=advantage) for rated in unrated}

    def point(rated: Rated) -> float:
        if rated not in points:
            points[rated] = estimate(rated)[0] / ELO_PER_UNIT
        return points[rated]

    lines = {rated: (point(rated), ELO_PER_UNIT**2 / estimate(rated)[1]) for rated in unrated}
    for _ in range(NUM_SWEEPS):
        for rated, met in found.items():
            line, weight = lines[rated]
            points[rated] = strength_of(line, *met.by(point), line_weight=weight)
    return {rated: ELO_PER_UNIT * point(rated) for rated in asked}


MERGED = "results_merged"
"""Kind of event of a merge; its subject is the population."""


class Merge(Struct, frozen=True, kw_only=True, dict=True, rename={"num_tallies": "tallies"}):
    """Players of one population that are gone, and what becomes of their results.

    Attributes:
        population: Their population.
        num_tallies: Tallies that were committed before.
        pair_deviation: Elo by which pairs deviate from their ratings, by the last fit.
        into: Evaluated weights that are gone, and former generations, ascending, by policy and
            generation that they count for.
        forgotten: Entrants whose training results go.
        points: Weights that are gone and those that they met, by population, with strengths in Elo:
            ratings of the last fit, of others by their results.
        advantages: Elo that one seat is worth against another, row by row of the table; empty: 0.
    """

    population: str
    num_tallies: int
    pair_deviation: float
    into: Mapping[Entrant, tuple[Entrant, ...]]
    forgotten: tuple[Entrant, ...]
    points: tuple[tuple[str, Entrant, float], ...]
    advantages: tuple[float, ...]

    @cached_property
    def _strengths(self) -> Mapping[Rated, float]:
        return {(population, entrant): point for population, entrant, point in self.points}

    def point(self, rated: Rated) -> float:
        """Return a player's strength, in natural units."""
        return self._strengths.get(rated, 0.0) / ELO_PER_UNIT

    def advantage(self, seats: tuple[int, int]) -> float:
        """Return what the first of two seats is worth against the second, in natural units."""
        return seat_advantage(self.advantages, seats) / ELO_PER_UNIT

    @property
    def gone(self) -> dict[Entrant, Entrant]:
        """Return the policy and generation that each one which is gone counts for."""
        return {gone: entrant for entrant, merged in self.into.items() for gone in merged}

    def folds(self) -> Iterator[tuple[Entrant, Entrant]]:
        """Yield each former generation with the one that takes its training results.

        That is the next one: results fade with each later generation's matches.
        """
        for generation, merged in self.into.items():
            former = [gone for gone in merged if is_trainee(gone)]
            yield from pairwise((*former, generation))

    def data(self) -> dict[str, Json]:
        """Return the data of its event."""
        data: dict[str, Json] = to_builtins(self)
        # It is the event's subject.
        del data["population"]
        return data


def apply_merge(league: League, merge: Merge) -> list[ResultRow | Deletion]:
    """Take players out of a league that are gone; keep what they say of others, and their sums.

    Returns:
        Changes in their order, to be committed together.

    Raises:
        ValueError: If weights that are gone have no results.
    """
    population = merge.population
    changes: list[ResultRow | Deletion] = []
    for entrant, generation in merge.gone.items():
        record = league.tables.records.get((population, entrant))
        if record is None:
            # A generation without evaluation matches has training results all the same.
            if is_trainee(entrant):
                continue
            raise ValueError(f"{entrant} of {population} has no results")
        changes.append(league.put(merged_record(league.record(population, generation), record)))
        star = _star(league, record.key, merge)
        changes.append(league.drop(record))
        changes += map(league.drop, league.pairs_of(record.key))
        for first, second, tie in mesh(star):
            seat = next(
                index for index, seat in enumerate(league.seats) if seat.population == first[0]
            )
            old = league.link(first[1], second[1], seat=seat)
            changes.append(league.put(added(old, link_row(tie, first[1], second[1], seat=seat))))
    weights = (gone for gone in merge.gone if not is_trainee(gone))
    changes += map(league.drop, league.payoff.forget((*weights, *merge.forgotten)))
    for former, later in merge.folds():
        # The training results of a former generation are added to those of a later one.
        gone, kept = league.payoff.fold(former, later)
        changes += map(league.drop, gone)
        changes += map(league.put, kept)
    league.compact()
    return changes


def link_row(link: Link, first: Entrant, second: Entrant, *, seat: int) -> PairRow:
    """Return the row of what players that are gone say of two."""
    counts = link.counts()
    return PairRow(
        kind="merged",
        first=first,
        second=second,
        first_seat=seat,
        second_seat=seat,
        wins=counts.wins,
        losses=counts.losses,
        score_sum=counts.points,
        square_sum=counts.squares,
    )


def _star(league: League, rated: Rated, merge: Merge) -> dict[Rated, Link]:
    """Return what is known of a player's strength against each that it met."""
    met = meetings(league, rated, advantage=merge.advantage)
    played, tied = met.by(merge.point)
    own = strength_of(merge.point(rated), played, tied)
    links = {other: list(known) for other, known in met.links.items()}
    # Those of one population are tied together, as if the player were another one for each: what is
    # known of it by the others takes no bias away there.
    total = {
        population: known_of(own, *met.of(population).by(merge.point))
        for population in dict.fromkeys(name for name, _ in met.played)
    }
    for other, seen in met.played.items():
        ahead = own - merge.point(other)
        known = total[other[0]]
        link = link_of(seen, point=ahead, pair_deviation=merge.pair_deviation, known=known)
        if link is not None:
            links.setdefault(other, []).append(link)
    return {other: together(known) for other, known in links.items()}


def merges(events: Iterable[EventRow]) -> Iterator[Merge]:
    """Yield the merges among some events, in their order.

    Raises:
        ValueError: If the data of one are damaged.
    """
    for event in events:
        if event.kind == MERGED:
            yield _merge(event)


def _merge(event: EventRow) -> Merge:
    try:
        return convert({**event.data, "population": event.subject}, Merge)
    except ValidationError as error:
        raise ValueError(f"event {event.sequence}: its data are no merge") from error


def merged_record(sums: RecordRow, gone: RecordRow) -> RecordRow:
    """Add the evaluation matches of weights that are gone to the sums of their generation."""
    is_summed = sums.score_sum is not None or gone.score_sum is not None
    return replace(
        sums,
        matches=sums.matches + gone.matches,
        wins=sums.wins + gone.wins,
        draws=sums.draws + gone.draws,
        losses=sums.losses + gone.losses,
        return_sum=sums.return_sum + gone.return_sum,
        return_sum_of_squares=sums.return_sum_of_squares + gone.return_sum_of_squares,
        score_sum=sums.points + gone.points if is_summed else None,
    )


MAX_NEIGHBOURS = 8
"""Players beside the bots that one who goes ties together; each is tied to each."""

MIN_WEIGHT = 1e-3
"""Least information of a pair, a deviation of 5,500 Elo: what says less is forgotten. What is
passed on from merge to merge says ever less, and players far apart say nothing of each other."""

LINE_WEIGHT = 2.0
"""Information of a player's line about its strength: a deviation of 120 Elo."""

NEWTON_STEPS = 4


class Link(NamedTuple):
    """Knowledge of the difference of two strengths, in natural units: a normal distribution.

    Attributes:
        weight: Information, the inverse of its variance; above 0.
        difference: Strength of the player that goes minus that of the other.
    """

    weight: float
    difference: float

    @classmethod
    def from_counts(cls, counts: Counts) -> Link:
        """Return the link that matches between equals stand for."""
        weight = 0.25 * counts.matches
        return cls(weight, (counts.points - 0.5 * counts.matches) / weight)

    def counts(self) -> Counts:
        """Return as many matches between equals as have its information; links add up by them.

        Points may be fewer than 0 or more than the matches, for no match is meant.
        """
        # n p (1 - p) = w at p = 1/2, and s = n p + w d
        half = 2.0 * self.weight
        points = half + self.weight * self.difference
        return Counts(half, 0.0, half, points=points, squares=points)

    def turned(self) -> Link:
        """Return the same, seen from the other one."""
        return Link(self.weight, -self.difference)


Seen = tuple[Counts, float]
"""Results of the player that goes against another, in one pair of seats: as it sees them, and what
its seat is worth, in natural units."""


def link_of(
    seen: Sequence[Seen], *, point: float, pair_deviation: float, known: float
) -> Link | None:
    """Return what results say of the difference of two strengths, near where it is taken to be.

    Args:
        seen: Results of the pair.
        point: Difference by the last fit, in natural units.
        pair_deviation: Elo by which pairs deviate from their ratings.
        known: Information of all results and links of the player that goes.

    Returns:
        Knowledge of the difference; None: next to none.
    """
    slope, information = _slope(seen, point=point, known=known)
    if information < MIN_WEIGHT:
        return None
    variance = 1.0 / information + (pair_deviation / ELO_PER_UNIT) ** 2
    return Link(1.0 / variance, point + slope / information)


def _slope(seen: Iterable[Seen], *, point: float, known: float = math.inf) -> tuple[float, float]:
    """Return slope and curvature of the log likelihood of results at a difference.

    Args:
        seen: Results of the pair.
        point: The difference, in natural units.
        known: Information that Firth's correction is by; infinite: none.
    """
    slope = information = 0.0
    for counts, advantage in seen:
        share = expected(point + advantage)
        told = counts.matches * share * (1.0 - share)
        # h matches more, half of them won, for the leverage h = n p (1 - p) / sum of all
        slope += counts.points - counts.matches * share + told / known * (0.5 - share)
        information += told
    return slope, information


def known_of(
    strength: float,
    met: Iterable[tuple[float, Iterable[Seen]]],
    tied: Iterable[tuple[float, Link]] = (),
) -> float:
    """Return the information of all results and links of a player.

    Args:
        strength: Its strength, in natural units.
        met: Strength of each other player, and the results.
        tied: Strength of others, and what else is known of the difference.
    """
    played = sum(_slope(seen, point=strength - other)[1] for other, seen in met)
    return played + sum(link.weight for _, link in tied)


def expected(ahead: float) -> float:
    """Return the expected score of a player that is ahead, in natural units."""
    # Nothing changes beyond this distance, and nothing overflows.
    return 1.0 / (1.0 + math.exp(-min(max(ahead, -30.0), 30.0)))


def together(links: Sequence[Link]) -> Link:
    """Return what several say of one difference."""
    weight = sum(link.weight for link in links)
    return Link(weight, sum(link.weight * link.difference for link in links) / weight)


def mesh(star: Mapping[Rated, Link]) -> Iterator[tuple[Rated, Rated, Link]]:
    """Yield the pairs of neighbours that a player ties together.

    Args:
        star: Knowledge of the player that goes against each neighbour.
    """
    groups: defaultdict[str, list[tuple[Rated, Link]]] = defaultdict(list)
    for rated, link in star.items():
        # Populations have scales of their own, which only matches between them tie.
        groups[rated[0]].append((rated, link))
    for known in groups.values():
        # The best known ones; of equals the first by name, whatever the order of the results.
        known.sort(key=lambda entry: (-entry[1].weight, entry[0]))
        external = [entry for entry in known if is_external(entry[0][1])]
        others = [entry for entry in known if not is_external(entry[0][1])]
        chosen = sorted(external + others[:MAX_NEIGHBOURS])
        total = sum(link.weight for _, link in chosen)
        for (first, a), (second, b) in combinations(chosen, 2):
            tied = Link(a.weight * b.weight / total, b.difference - a.difference)
            if tied.weight >= MIN_WEIGHT or is_external(first[1]) or is_external(second[1]):
                yield first, second, tied


def strength_of(
    line: float,
    met: Sequence[tuple[float, Sequence[Seen]]],
    tied: Sequence[tuple[float, Link]] = (),
    *,
    line_weight: float = LINE_WEIGHT,
) -> float:
    """Return the strength of a player that goes by its results and its line, in natural units.

    Args:
        line: Strength of its line by the last fit: a fit may never have rated itself.
        met: Strength of each other player, and the results.
        tied: Strength of others, and what else is known of the difference.
        line_weight: Information of its line about it.
    """
    strength = line
    for _ in range(NEWTON_STEPS):
        slope, information = line_weight * (line - strength), line_weight
        for other, seen in met:
            more = _slope(seen, point=strength - other)
            slope, information = slope + more[0], information + more[1]
        for other, link in tied:
            slope += link.weight * (link.difference + other - strength)
            information += link.weight
        # Far from the mode a step may be too long.
        strength += min(max(slope / information, -1.0), 1.0)
    return strength
