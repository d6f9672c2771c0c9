"""Removal of players from a league: their results become links between the remaining players.

Results against removed weights carry information about the opponents of these weights. It is stored
as a mesh of links between these opponents (`mesh`).

Matches, wins and returns are added to the record of the policy's generation. Training results only
choose opponents, so results with players that cannot be drawn any more are dropped. Old generations
of a policy are merged into a later one: their records are added up, and their training results
decay with the later matches of the same two players, as in `populations.league.payoff`.

A merge is recorded in the journal (event ``results_merged``), and the rows after it follow from the
tallies and the merges between them: `apply_merge` is what a run does, and what `arena verify`
repeats.

A fit rates only some of all evaluated weights: those that decide something or are shown. Results of
the others are approximated near an assumed difference of strengths, and an error e of this
difference makes an error of e^2 / 2 in the link. While a league learns fast, weights are hundreds
of Elo ahead of their last rated ancestors. So strengths are first estimated from all of their
results, each with the others held fixed, in turn (`settled_points`).

One player is eliminated from the joint likelihood by a normal approximation. Near the ratings
of a fit the likelihood of a pair's results is that of a normal distribution of the difference of
two strengths (Laplace's approximation): with n matches, s points, the expected score p and the
difference x there,

    w = n p (1 - p),    d = x + (s - n p) / w

So results of players far apart have next to no weight, whoever won. Eliminating one player
leaves a normal distribution of the others: the star of its pairs becomes a mesh (the Schur
complement of one row of the information matrix). For neighbours i and j at w_i and w_j, with
differences d_i and d_j to the removed player:

    w_ij = w_i w_j / sum_k w_k,    d_ij = d_j - d_i

A removed player has few results, and from few results maximum likelihood puts strengths too far
from those of the opponents. A fit corrects that by Firth's method, so d_i contains the removed
player's share of the correction: half a match more on each side for each w_i / sum_k w_k. Where
there are two populations, the neighbours of each are linked only among themselves, as if the
removed player were a different one for each population, and the sum is over that population.

A link stays a normal distribution of a difference, and the next fit reads it as one
(`populations.ratings.bradley_terry`). Converted to results of matches, it would change with the
ratings and be approximated again at each further merge, and these errors would add up.

Only the bots and the neighbours with the most information are linked, to bound the number of pairs;
dropping the rest makes ratings less certain, not wrong. Bots are always linked, however little is
known of them: they are the zero of the scale, and its distance is known through all removed
players. Without these links only the fact that bots always lose would remain.

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
"""Rounds in which each strength is estimated given the others; each divides the change by ten."""

Estimate = Callable[[Rated], tuple[float, float]]
"""Function to a player's rating in Elo and its variance in Elo squared, by the last fit; for an
unrated player, those predicted from its ancestors."""


class Meetings(NamedTuple):
    """Results and links of a player, by opponent, from the player's view."""

    played: Mapping[Rated, Sequence[Seen]]
    links: Mapping[Rated, Sequence[Link]]

    def of(self, population: str) -> Meetings:
        """Return the results and links with players of one population."""
        return Meetings(
            {other: seen for other, seen in self.played.items() if other[0] == population},
            {other: known for other, known in self.links.items() if other[0] == population},
        )

    def by(
        self, point: Callable[[Rated], float]
    ) -> tuple[list[tuple[float, Sequence[Seen]]], list[tuple[float, Link]]]:
        """Return results, and links, each paired with the opponent's strength by ``point``."""
        played = [(point(other), seen) for other, seen in self.played.items()]
        tied = [(point(other), link) for other, known in self.links.items() for link in known]
        return played, tied


def meetings(league: League, rated: Rated, *, advantage: Callable[[Seats], float]) -> Meetings:
    """Find the results and links of a player.

    Args:
        league: League with all results.
        rated: The player.
        advantage: Advantage of the first of two seats over the second, in natural units.
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
    """Estimate the strengths of some players and of all their opponents.

    Args:
        league: League with all results.
        gone: Players that are to be removed.
        estimate: Prior rating and variance of a player, without its results.
        is_rated: Whether the last fit rated a player; if so, the rating is its strength.
        advantage: Advantage of the first of two seats over the second, in natural units.

    Returns:
        Strengths in Elo, in the order of ``gone``, each player followed by its opponents.
    """
    points: dict[Rated, float] = {}
    asked: dict[Rated, None] = {}
    for own in gone:
        met = meetings(league, own, advantage=advantage)
        asked.update(dict.fromkeys((own, *met.played, *met.links)))
    # Entrants are sorted, because a resumed league may have them in another order.
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
"""Kind of the event that records a merge; its subject is the population."""


class Merge(Struct, frozen=True, kw_only=True, dict=True, rename={"num_tallies": "tallies"}):
    """Removal of players of one population, with all numbers that `apply_merge` needs.

    Attributes:
        population: Population of the removed players.
        num_tallies: Number of tallies that were committed before the merge.
        pair_deviation: Elo by which pairs deviate from their ratings, by the last fit.
        into: Removed weights and former generations, ascending, by the generation (policy and
            number) to whose record their results are added.
        forgotten: Entrants whose training results are dropped.
        points: Population, entrant and strength in Elo of the removed weights and their opponents:
            the rating of the last fit, or an estimate by results for unrated weights.
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
        """Return the advantage of the first of two seats over the second, in natural units."""
        return seat_advantage(self.advantages, seats) / ELO_PER_UNIT

    @property
    def gone(self) -> dict[Entrant, Entrant]:
        """Return the generation to which each removed entrant's results are added."""
        return {gone: entrant for entrant, merged in self.into.items() for gone in merged}

    def folds(self) -> Iterator[tuple[Entrant, Entrant]]:
        """Yield each former generation with the generation that takes its training results.

        It is always the next one, so that results decay with each later generation's matches.
        """
        for generation, merged in self.into.items():
            former = [gone for gone in merged if is_trainee(gone)]
            yield from pairwise((*former, generation))

    def data(self) -> dict[str, Json]:
        """Return the data of the merge's event."""
        data: dict[str, Json] = to_builtins(self)
        # The population is the event's subject.
        del data["population"]
        return data


def apply_merge(league: League, merge: Merge) -> list[ResultRow | Deletion]:
    """Remove a merge's players from a league; put links and sums in the place of their results.

    Returns:
        Changes in their order, to be committed together.

    Raises:
        ValueError: If removed weights have no results.
    """
    population = merge.population
    changes: list[ResultRow | Deletion] = []
    for entrant, generation in merge.gone.items():
        record = league.tables.records.get((population, entrant))
        if record is None:
            # A generation without evaluation matches may be merged for its training results.
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
    """Return the row that stores a link between two entrants in one seat."""
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
    """Return the link between a player and each of its opponents, from results and older links."""
    met = meetings(league, rated, advantage=merge.advantage)
    played, tied = met.by(merge.point)
    own = strength_of(merge.point(rated), played, tied)
    links = {other: list(known) for other, known in met.links.items()}
    # Each population is linked by itself, so Firth's correction counts only the information from
    # that population (see the module's docstring).
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
        ValueError: If the data of an event are damaged.
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
    """Add the evaluation matches of removed weights to the record of their generation."""
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
"""Maximum number of opponents beside bots that a removed player links, each with each other."""

MIN_WEIGHT = 1e-3
"""Minimum information of a link, a deviation of 5,500 Elo; links with less are dropped. Links lose
information from merge to merge, and results of players far apart have little to begin with."""

LINE_WEIGHT = 2.0
"""Information that a player's ancestors give about its strength: a deviation of 120 Elo."""

NEWTON_STEPS = 4


class Link(NamedTuple):
    """Knowledge of the difference of two strengths, in natural units: a normal distribution.

    Attributes:
        weight: Information, the inverse of the variance; above 0.
        difference: Mean of the first player's strength minus the second's.
    """

    weight: float
    difference: float

    @classmethod
    def from_counts(cls, counts: Counts) -> Link:
        """Return the link that counts of matches between equals encode; inverse of `counts`."""
        weight = 0.25 * counts.matches
        return cls(weight, (counts.points - 0.5 * counts.matches) / weight)

    def counts(self) -> Counts:
        """Encode the link as counts of matches between equals, which add up as information does.

        Points may be below 0 or above the number of matches, because no real matches are meant.
        """
        # n p (1 - p) = w at p = 1/2, and s = n p + w d
        half = 2.0 * self.weight
        points = half + self.weight * self.difference
        return Counts(half, 0.0, half, points=points, squares=points)

    def turned(self) -> Link:
        """Return the same link with the two players exchanged."""
        return Link(self.weight, -self.difference)


Seen = tuple[Counts, float]
"""Results of a player against another in one pair of seats, from the player's view, and the
advantage of the player's seat in natural units."""


def link_of(
    seen: Sequence[Seen], *, point: float, pair_deviation: float, known: float
) -> Link | None:
    """Return the normal approximation of a pair's results, near an assumed difference.

    Args:
        seen: Results of the pair.
        point: Assumed difference of strengths, in natural units.
        pair_deviation: Elo by which pairs deviate from their ratings.
        known: Information of all results and links of the removed player, for Firth's correction.

    Returns:
        Link of the pair; None: its information is below ``MIN_WEIGHT``.
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
        known: Information by which Firth's correction is divided; infinite: no correction.
    """
    slope = information = 0.0
    for counts, advantage in seen:
        share = expected(point + advantage)
        told = counts.matches * share * (1.0 - share)
        # Firth's correction adds h matches, half of them won, with the leverage
        # h = n p (1 - p) / (sum over all results of the player).
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
        strength: Strength of the player, in natural units.
        met: Strength of each opponent, and the results against it.
        tied: Strength of each linked player, and the link.
    """
    played = sum(_slope(seen, point=strength - other)[1] for other, seen in met)
    return played + sum(link.weight for _, link in tied)


def expected(ahead: float) -> float:
    """Return the expected score of a player, by its lead in natural units."""
    # The score hardly changes beyond 30 units, and the limit prevents an overflow.
    return 1.0 / (1.0 + math.exp(-min(max(ahead, -30.0), 30.0)))


def together(links: Sequence[Link]) -> Link:
    """Combine independent links about one difference: the weighted mean, and the sum of weights."""
    weight = sum(link.weight for link in links)
    return Link(weight, sum(link.weight * link.difference for link in links) / weight)


def mesh(star: Mapping[Rated, Link]) -> Iterator[tuple[Rated, Rated, Link]]:
    """Yield the links between neighbours of a removed player, as (first, second, link).

    Args:
        star: Link between the removed player and each neighbour.
    """
    groups: defaultdict[str, list[tuple[Rated, Link]]] = defaultdict(list)
    for rated, link in star.items():
        # Each population has its own scale, so only neighbours of one population are linked.
        groups[rated[0]].append((rated, link))
    for known in groups.values():
        # Neighbours with the most information come first; names break ties, because a resumed
        # league may have results in another order.
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
    """Estimate a player's strength from its results and its ancestors, in natural units.

    Args:
        line: Prior mean: strength of its nearest rated ancestor, or its own by the last fit.
        met: Strength of each opponent, and the results against it.
        tied: Strength of each linked player, and the link.
        line_weight: Information of the prior.
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
        # Far from the mode a Newton step may be too long, so its length is limited.
        strength += min(max(slope / information, -1.0), 1.0)
    return strength
