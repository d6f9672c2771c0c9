"""Terms of a Bradley-Terry fit as arrays of indices of their parameters.

Shapes: N entrants; F of them free (no anchor); P parameters, those of the free entrants first, then
one advantage per pair of seats, then the stages, then the recency; M results; L links; C children.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from populations.ratings.fitting.bend import newer
from populations.ratings.fitting.posterior import FloatArray, IntArray
from populations.ratings.model import E
from populations.ratings.results import ResultColumns

Time = tuple[str, float]
"""Group in which an entrant came to be (its population), and when, since its line began to learn,
in any unit."""

NUM_STAGES = 32
"""Stages per group, with about equally many entrants each."""

NUM_GROUPS = 256
"""Like `NUM_STAGES`, but of the groups that a solver that iterates moves together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Terms of a fit and the parameters in them.

    Attributes:
        index: Four parameters of each term, P for none: of a result those of its first, its second,
            its advantage and the recency; of a prior the parameter, its mean, its stage and the
            mean's stage. Of a link its first and its second. int64 [M + P + L, 4].
        deviations: Prior deviation of each parameter, in Elo. float64 [P].
        groups: Group of each parameter, -1 for none. int64 [P].
        free: Positions of the entrants that are no anchors. int64 [F].
        seats: Pairs of seats that have an advantage.
        children: Terms of the priors of children. int64 [C].
        doublings: How often the time of each child's line has doubled since its parent, in [0, 1];
            nan where it is not known. float64 [C].
        roots: Terms of the priors of those without a rated parent whose time is known. int64 [R].
        ages: Times over the longest one; 0 where they are not known. float64 [N].
        newer: By how much the first of each result is newer. float64 [M].
        recency: Parameter of the recency, P for none.
    """

    index: IntArray
    deviations: FloatArray
    groups: IntArray
    free: IntArray
    seats: tuple[tuple[int, int], ...]
    children: IntArray
    doublings: FloatArray
    roots: IntArray
    ages: FloatArray
    newer: FloatArray
    recency: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Parameters of entrants, pairs of seats and stages; ``size`` stands for none.

    Attributes:
        size: Number of parameters, P.
        free: Positions of the entrants that are no anchors. int64 [F].
        entrant: Parameter of each entrant. int64 [N].
        advantage: Parameter of the advantage in each result. int64 [M].
        seats: Pairs of seats that have an advantage.
        first_stage: Parameter of the first stage.
        stage: Parameter of the stage of each free entrant. int64 [F].
        before: Parameter of the stage before each stage. int64 [stages].
        recency: Parameter of the recency.
    """

    size: int
    free: IntArray
    entrant: IntArray
    advantage: IntArray
    seats: tuple[tuple[int, int], ...]
    first_stage: int
    stage: IntArray
    before: IntArray
    recency: int


def make_design(
    results: ResultColumns[E],
    *,
    parents: Mapping[E, E],
    times: Mapping[E, Time],
    anchors: Collection[E],
    links: ResultColumns[E],
    root_deviation: float,
    child_deviation: float,
    advantage_deviation: float,
    stage_deviation: float,
    recency_deviation: float = 0.0,
) -> Design:
    """Lay out the terms of a fit.

    Args:
        results: Merged results; their entrants are all that are rated.
        parents: Parent of each child, without circles.
        times: Group and time of those whose time is known.
        anchors: Entrants at 0.
        links: Further knowledge of differences, between the same entrants.
        root_deviation: As in `populations.ratings.bradley_terry.BradleyTerry`; so are the next.
        child_deviation: Deviation around the parent and the common gain.
        advantage_deviation: Deviation of each advantage.
        stage_deviation: Deviation of what all gain from one stage to the next.
        recency_deviation: Deviation of the recency; 0: there is no such parameter.
    """
    entrants = results.entrants
    of_entrants = [times.get(entrant) for entrant in entrants]
    # Bots are older than all that learn: these were at no time trained against later ones.
    ages = np.array([0.0 if time is None else max(time[1], 0.0) for time in of_entrants])
    ages /= max(ages.max(initial=0.0), 1e-300)
    has_recency = recency_deviation > 0.0 and bool(ages.any())
    places = _make_places(results, times=of_entrants, anchors=anchors, has_recency=has_recency)
    size, free = places.size, places.free
    # One prior for each parameter; `size` is the constant 0, so a root's prior mean is the anchor.
    priors = np.full((size, 4), size)
    priors[:, 0] = np.arange(size)
    # theta_i - stage_i ~ N(0, root^2): a gain of the whole stage is free for each entrant in it.
    priors[: len(free), 2] = places.stage
    # stage_k ~ N(stage_{k-1}, stage^2), a random walk from 0.
    stages = slice(places.first_stage, places.first_stage + len(places.before))
    priors[stages, 1] = places.before
    deviation = np.full(size, root_deviation)
    position = {entrant: i for i, entrant in enumerate(entrants)}
    children: dict[int, float] = {}
    # A root without a time keeps its fixed deviation: rho is about distances within a time.
    is_root = places.stage < size
    for child, parent in parents.items():
        p, q = places.entrant[position[child]], places.entrant[position[parent]]
        # An anchor is fixed: its parent says nothing about it.
        if p < size:
            # (theta_p - stage_p) - (theta_q - stage_q) ~ N(0, child^2); an anchor has no stage.
            priors[p, 1], priors[p, 3] = q, places.stage[q] if q < size else size
            deviation[p] = child_deviation
            children[p] = _doublings(since=times.get(parent), until=times.get(child))
            is_root[p] = False
    deviation[len(free) : places.first_stage] = advantage_deviation
    deviation[stages] = stage_deviation
    deviation[places.recency :] = recency_deviation
    recency = np.full(len(results), places.recency)
    first, second = places.entrant[results.first], places.entrant[results.second]
    # [M, 4]: theta_first - theta_second + advantage + newer recency
    rows = np.stack((first, second, places.advantage, recency), axis=1)
    nowhere = np.full(len(links), size)
    # [L, 4]: theta_first - theta_second; neither has a stage there.
    ties = (places.entrant[links.first], places.entrant[links.second], nowhere, nowhere)
    groups = slices(of_entrants, number=NUM_GROUPS)[0][free]
    return Design(
        index=np.concatenate([rows, priors, np.stack(ties, axis=1)]),
        deviations=deviation,
        groups=np.concatenate([groups, np.full(size - len(free), -1)]),
        free=free,
        seats=places.seats,
        # Children are sorted, so that sums do not depend on the order in which parents were given.
        children=len(results) + np.array(sorted(children), dtype=np.int64),
        doublings=np.array([children[p] for p in sorted(children)], dtype=np.float64),
        roots=len(results) + np.flatnonzero(is_root),
        ages=ages,
        newer=newer(ages[results.first], ages[results.second]),
        recency=places.recency,
    )


def _doublings(*, since: Time | None, until: Time | None) -> float:
    """Return how often a line's time has doubled between two of its entrants, in [0, 1].

    nan where that is not known.
    """
    if since is None or until is None or since[0] != until[0]:
        return math.nan
    # log2(t / t_0), and 1 from the beginning on: the first of all steps is no longer than others.
    if until[1] <= since[1]:
        return 0.0
    return 1.0 if since[1] <= 0.0 else min(math.log2(until[1] / since[1]), 1.0)


def _make_places(
    results: ResultColumns[E],
    *,
    times: Sequence[Time | None],
    anchors: Collection[E],
    has_recency: bool,
) -> _Places:
    entrants = results.entrants
    free = np.array([i for i, entrant in enumerate(entrants) if entrant not in anchors], np.int64)
    num_seats = 1 + int(results.seats.max(initial=0))
    codes, seating = np.unique(results.seats @ np.array([num_seats, 1]), return_inverse=True)
    seatings = np.stack(np.divmod(codes, num_seats), axis=1)
    # Seats with equal numbers have no order, so neither can have an advantage over the other.
    has_order = seatings[:, 0] != seatings[:, 1]
    num_advantages = int(has_order.sum())
    stage, before = slices(times, number=NUM_STAGES)
    first_stage = len(free) + num_advantages
    recency = first_stage + len(before)
    size = recency + has_recency
    entrant = np.full(len(entrants), size)
    entrant[free] = np.arange(len(free))
    advantage = np.full(len(seatings), size)
    advantage[has_order] = len(free) + np.arange(num_advantages)
    return _Places(
        size=size,
        free=free,
        entrant=entrant,
        advantage=advantage[seating],
        seats=tuple((int(a), int(b)) for a, b in seatings[has_order]),
        first_stage=first_stage,
        # -1 stands for none in `slices`, `size` in the index arrays, where a padded 0 stands.
        stage=np.where(stage >= 0, first_stage + stage, size)[free],
        before=np.where(before >= 0, first_stage + before, size),
        recency=recency,
    )


def check_lineage(parents: Mapping[E, E]) -> None:
    """Refuse parents that form a cycle.

    Raises:
        ValueError: Names one of those in the circle.
    """
    settled: set[E] = set()
    for child in parents:
        line: dict[E, None] = {}
        entrant = child
        while entrant in parents and entrant not in settled:
            if entrant in line:
                raise ValueError(
                    f"parents must not form a cycle, but {entrant!r} is its own ancestor"
                )
            line[entrant] = None
            entrant = parents[entrant]
        # Ancestors that were followed once are not followed again: linear in all children.
        settled.update(line)


def slices(times: Sequence[Time | None], *, number: int) -> tuple[IntArray, IntArray]:
    """Put entrants into at most so many stages of about equally many, by group and time.

    Args:
        times: Group and time of each entrant, None where it is not known.
        number: Most stages of a group.

    Returns:
        Stage of each entrant, -1 without a time [N]; the stage before each one, -1 where it is the
        first of its group [stages].
    """
    stage = np.full(len(times), -1, dtype=np.int64)
    before: list[int] = []
    groups = sorted({time[0] for time in times if time is not None})
    for group in groups:
        members = [i for i, time in enumerate(times) if time is not None and time[0] == group]
        when = np.array([time[1] for time in times if time is not None and time[0] == group])
        # The borders are times that occur, so that equal times are in one stage.
        num_borders = min(number, len(when))
        borders = np.unique(np.sort(when)[np.arange(num_borders) * len(when) // num_borders])
        # Borders are lower ends, the first the earliest time, so the index is at least 0.
        index = np.searchsorted(borders, when, side="right") - 1
        stage[members] = len(before) + index
        before += [-1, *range(len(before), len(before) + len(borders) - 1)]
    return stage, np.array(before, dtype=np.int64)
