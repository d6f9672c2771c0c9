"""Bradley-Terry ratings with an advantage for each pair of seats, and priors.

In a match between i in seat a and j in seat b, the expected score of i is

    p = 1 / (1 + exp(-d)),    d = theta_i - theta_j + g_ab,

where a draw is half a win and a margin its share. 400 Elo points of d are an expected score of
10/11, however often games are drawn. The ratings solve the score equations: the sum of w (s - n p)
over the results, plus the pull of the priors, is 0. This is the gradient of a concave function, and
normal priors make it strictly concave: every fit has exactly one finite solution, even where an
entrant always won or two groups never met. The weights w, and with them the intervals, follow from
the scatter of the scores (`populations.ratings.fitting.components`).

A child that starts from rated weights has the prior mean of its parent plus the common gain of its
time: policies that train together improve together, and errors in that gain would add up over
generations. Entrants are therefore put into stages by their time, and the steps between stages have
wide priors of their own. What a line gains beside that has a prior whose variance grows with the
doublings of its time (a Wiener process, as in whole-history rating, in the logarithm of time, in
which learning curves are straighter): many small steps are as wide as one large one.

Sources: Bradley and Terry, "Rank analysis of incomplete block designs" (Biometrika, 1952);
Coulom, "Whole-history rating" (Computers and Games, 2008), section 3;
Wedderburn, "Quasi-likelihood functions, generalized linear models, and the Gauss-Newton method"
(Biometrika, 1974).

Problems of up to `populations.ratings.fitting.newton.MAX_EXACT` parameters are fitted exactly,
larger ones by sparse matrices, with a spread from samples.

Where log-odds may be bent, the newer one of two is also ahead by the recency, one parameter for all
(`populations.ratings.fitting.bend`).

What else is known of a difference is a *link*: a normal distribution of theta_i - theta_j. It is
given as n matches between equals with s points in all: they have the information n / 4 there, and
the mean difference is (s - n / 2) / (n / 4). So links add up as results do.

Shapes: N entrants; F of them free (no anchor); P parameters, those of the free entrants first, then
one advantage per pair of seats, then the stages and the recency; M results; L links; C children.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Generic

import numpy as np

from populations.ratings.design import Design, check_lineage, make_design
from populations.ratings.design import Time as Time
from populations.ratings.fitting.bend import (
    BENDS,
    Meeting,
    Recency,
    adds_up,
    against_anchors,
    left_of,
    ratings_by,
    ratings_of,
    scatter_of,
)
from populations.ratings.fitting.components import Components, pair_scatter, prior_deviation
from populations.ratings.fitting.misfit import (
    DOUBT,
    MISFIT,
    anchor_errors,
    anchor_variance,
    bend_of,
)
from populations.ratings.fitting.newton import MAX_EXACT, Solver, make_solver, maximize
from populations.ratings.fitting.pair_errors import Pairs, pair_fit
from populations.ratings.fitting.posterior import (
    FloatArray,
    IntArray,
    Problem,
    differences,
    log_odds,
    logistic,
)
from populations.ratings.model import E, Fit, Result
from populations.ratings.results import ResultColumns, merge_columns, renamed, result_columns

# theta has natural odds, Elo odds of 10 : 1 in 400 points: Elo = 400 / ln 10 * theta.
ELO_PER_UNIT = 400.0 / math.log(10.0)
"""Elo points of one unit of theta."""

NUM_ROUNDS = 3
"""Estimates of the components of variance before the last fit."""

ROUGH = 1e-6
"""Gain in log density below which a fit is good enough to estimate the components."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BradleyTerry:
    """Bradley-Terry model with normal priors.

    Attributes:
        root_deviation: Prior deviation in Elo of an entrant without a rated parent, around the
            anchor.
        child_deviation: Prior deviation in Elo of an entrant with a rated parent, around its parent
            plus the common gain; the start of the estimate of tau.
        doubling_deviation: Lower limit of that deviation in Elo for a child in whose line the time
            has doubled since its parent; the limit of another one has the variance of its share of
            a doubling.
        least_child_deviation: Lower limit for a child whose time is not known.
        stage_deviation: Prior deviation in Elo of the common gain from one stage to the next.
        advantage_deviation: Prior deviation in Elo of each advantage, around 0; weaker than one
            match.
        recency_deviation: Prior deviation in Elo of the recency, around 0.
        reduces_bias: Whether Firth's correction pulls ratings at the end of long chains of results
            towards the anchor. The ratings are then no longer the mode of the posterior.
        bends: Whether log-odds may be bent (`populations.ratings.fitting.bend`). Ratings are then
            the additive strengths nearest to them, all pairs of entrants alike. Newer entrants may
            then also be ahead of older ones beside their strengths.
        num_rounds: Estimates of the components of variance. 0: they stay as they are here.
        max_exact: Number of parameters up to which the fit is exact.
    """

    root_deviation: float = 1000.0
    child_deviation: float = 200.0
    doubling_deviation: float = 200.0
    least_child_deviation: float = 120.0
    stage_deviation: float = 500.0
    advantage_deviation: float = 400.0
    recency_deviation: float = 30.0
    reduces_bias: bool = False
    bends: bool = False
    num_rounds: int = NUM_ROUNDS
    max_exact: int = MAX_EXACT

    def fit(
        self,
        results: Iterable[Result[E]],
        *,
        links: ResultColumns[E] | None = None,
        entrants: Iterable[E] = (),
        parents: Mapping[E, E] | None = None,
        times: Mapping[E, Time] | None = None,
        anchors: Collection[E] = (),
        scale_of: Callable[[E], Hashable] = lambda _: None,
    ) -> Fit[E]:
        """Find the ratings of highest posterior density.

        Entrants on separate scales (predators and prey) go into one fit under different names, each
        scale with its own anchor. The advantages hold what the game gives to one side.

        Args:
            results: Results in any order.
            links: Further knowledge of differences; see above.
            entrants: Entrants to rate even if they have no result.
            parents: Entrant whose rating is the prior mean, by child.
            times: Population and age of the entrants that learn, from which the common gain is
                estimated.
            anchors: Entrants fixed at exactly 0. Without any, the mean of all ratings is 0.
            scale_of: Names the scale of an entrant; asked where log-odds may be bent.

        Raises:
            ValueError: If counts are negative or not finite, an entrant plays itself, or the
                parents form a cycle.
        """
        posterior = self.posterior(
            results,
            links=links,
            entrants=entrants,
            parents=parents,
            times=times,
            anchors=anchors,
            scale_of=scale_of,
        )
        estimated = self.estimate(posterior)
        return estimated.posterior.fit(
            estimated.parameters, estimated.solver, shrunk=estimated.shrunk
        )

    def estimate(self, posterior: Posterior[E]) -> Estimated[E]:
        """Estimate the components of variance, then find the mode of the posterior."""
        # One solver for all fits: it keeps the terms, which stay; weights and precisions change.
        solver = make_solver(posterior.problem, max_exact=self.max_exact)
        narrow = None
        for _ in range(self.num_rounds):
            # Ratings and components depend on each other, so both take turns.
            narrow = maximize(posterior.problem, solver, start=narrow, settled=ROUGH)
            posterior = posterior.learned(narrow, solver)
        # Ratings that are reported must not lose a part of each line's gains to narrow priors.
        posterior = posterior.widened()
        parameters = maximize(posterior.problem, solver, start=narrow)
        # One step of Firth's correction, from a point near the mode, is enough: the leverages
        # hardly change over the distance that it moves.
        if self.reduces_bias:
            unbiased = posterior.unbiased(parameters, solver)
            parameters = maximize(unbiased.problem, solver, start=parameters)
        return Estimated(
            posterior=posterior,
            parameters=parameters,
            shrunk=parameters if narrow is None else narrow,
            solver=solver,
        )

    def posterior(
        self,
        results: Iterable[Result[E]],
        *,
        links: ResultColumns[E] | None = None,
        entrants: Iterable[E] = (),
        parents: Mapping[E, E] | None = None,
        times: Mapping[E, Time] | None = None,
        anchors: Collection[E] = (),
        scale_of: Callable[[E], Hashable] = lambda _: None,
    ) -> Posterior[E]:
        """Return the posterior that `fit` maximizes, with the components of variance as given."""
        columns, ties = result_columns(results), links or result_columns(())
        lineage = dict(parents or {})
        check_lineage(lineage)
        names = dict.fromkeys(
            (*columns.entrants, *ties.entrants, *entrants, *lineage, *lineage.values(), *anchors)
        )
        # repr, because entrants need not be comparable; it is the same in every process.
        ordered = tuple(sorted(names, key=repr))
        return _posterior(
            self,
            merge_columns(columns, entrants=ordered),
            links=renamed(ties, entrants=ordered),
            parents=lineage,
            times=times or {},
            anchors=frozenset(anchors),
            scale_of=scale_of,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated(Generic[E]):
    """Posterior with estimated components of variance, and its mode.

    Attributes:
        posterior: Posterior with the wide priors of the final fit.
        parameters: Mode of the posterior [P].
        shrunk: Mode with priors as narrow as the entrants lie apart [P].
        solver: Solver with the curvature at ``parameters``.
    """

    posterior: Posterior[E]
    parameters: FloatArray
    shrunk: FloatArray
    solver: Solver


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior(Generic[E]):
    """Problem, and the meaning of its parameters.

    Attributes:
        problem: Arrays of the posterior.
        entrants: All entrants, sorted.
        design: Terms that the problem was made of.
        counts: Wins, draws and losses of the match rows. float64 [M, 3].
        pairs: Match rows by pair of entrants.
        components: Components of variance.
        model: Model that the posterior was made by.
        anchor_errors: Means and deviations of what results against the anchors are off the log-odds
            of the free entrants, in units of theta. float64 [2, F].
        scales: Entrants of each scale. int64 [N'] each.
        meetings: Two scales that meet, by their place in ``scales``, and the parameter of what the
            seats of the first are worth, P for none. int64 [R, 3].
    """

    problem: Problem
    entrants: tuple[E, ...]
    design: Design
    counts: FloatArray
    pairs: Pairs
    components: Components
    model: BradleyTerry
    anchor_errors: FloatArray
    scales: tuple[IntArray, ...]
    meetings: IntArray

    def learned(self, parameters: FloatArray, solver: Solver) -> Posterior[E]:
        """Return the posterior with components of variance estimated from a fit.

        Args:
            parameters: Parameters of the fit [P].
            solver: Solver with the curvature there.
        """
        # Terms are the rows of results first [M], then one prior for each parameter [P].
        problem, now = self.problem, self.components
        num_rows = len(problem.matches)
        summed = differences(problem, parameters)
        told, slopes = log_odds(problem, summed)
        term_variances = solver.variances()
        fit, dispersion = pair_fit(
            self.pairs, ahead=told[:num_rows], scores=problem.scores, matches=problem.matches
        )
        variances = np.zeros(len(fit.error))
        # The seats of a pair's rows differ, but their variances are close: any row's will do.
        variances[self.pairs.of_row] = (slopes**2 * term_variances)[:num_rows]
        # All rows of a pair have its weight.
        weights = np.ones(len(fit.error))
        weights[self.pairs.of_row] = problem.weights
        scatter, misfit = pair_scatter(fit, variances=variances, weights=weights)
        bend, unsure, _ = bend_of(problem, solver, summed=summed)
        # Chance explains a bend below 0 up to the threshold.
        bend = bend if bend > 0.0 or bend <= -MISFIT * unsure else 0.0
        anchor, estranged = anchor_variance(
            fit, is_anchored=self.pairs.is_anchored, variances=variances
        )
        prior = num_rows + self.design.recency
        lead = abs(summed[prior]) / math.sqrt(term_variances[prior]) if self._has_recency else 0.0
        # Chance explains errors below the threshold, and intervals stay as they are.
        anchor = anchor if estranged >= DOUBT else 0.0
        entrants, signs = self._free_of_pairs()
        # A pair with an anchor deviates by no less than others far apart do.
        off = anchor_errors(
            fit,
            entrants=entrants,
            signs=signs,
            num_entrants=len(self.design.free),
            variance=max(anchor, scatter),
        )
        tau, rho = (
            prior_deviation(
                ELO_PER_UNIT * summed[terms],
                variances=ELO_PER_UNIT**2 * term_variances[terms],
                now=deviation,
                prior=self.model.child_deviation,
            )
            for terms, deviation in (
                (self.design.children, now.child_deviation),
                (self.design.roots, now.root_deviation),
            )
        )
        return replace(
            self,
            problem=replace(
                problem,
                weights=fit.weights(scatter)[self.pairs.of_row],
                precisions=self._precisions(child_deviation=tau, root_deviation=rho),
                bend=float(np.clip(bend, *BENDS)) if self.model.bends else 0.0,
            ),
            components=Components(
                child_deviation=tau,
                root_deviation=rho,
                pair_deviation=ELO_PER_UNIT * math.sqrt(scatter),
                dispersion=dispersion,
                misfit=max(misfit, abs(bend) / unsure, lead, estranged),
                anchor_deviation=ELO_PER_UNIT * math.sqrt(anchor),
            ),
            anchor_errors=off,
        )

    def widened(self) -> Posterior[E]:
        """Return the posterior with priors wide enough for whole lines, not only single steps."""
        # A line gains step after step, and the lines that gain most go on. A prior as narrow as
        # single steps takes a part of each gain: leagues of 64 ended 40 Elo too low. A wide one for
        # each of many small steps mistakes the luck of copied policies for strength, once more with
        # each copy: leagues with a ghost every 20,000 agent steps ended 140 Elo too high.
        # tau^2 >= doubling^2 log2(t / t_0)
        least = np.where(
            np.isnan(self.design.doublings),
            self.model.least_child_deviation,
            self.model.doubling_deviation * np.sqrt(self.design.doublings),
        )
        tau = np.maximum(self.components.child_deviation, least)
        # Nothing was estimated: the deviation that the caller gave holds, below the limit too.
        if not self.model.num_rounds:
            tau = np.full_like(tau, self.model.child_deviation)
        # rho was estimated only for the shrunk fit.
        precisions = self._precisions(child_deviation=tau, root_deviation=self.model.root_deviation)
        return replace(self, problem=replace(self.problem, precisions=precisions))

    def unbiased(self, parameters: FloatArray, solver: Solver) -> Posterior[E]:
        """Return the posterior with Firth's correction added to the results.

        Maximum likelihood puts ratings at the end of a chain of results too far from 0. The
        correction adds h matches, half of them won, to a row of leverage h (its share in deciding
        its own log-odds).

        Args:
            parameters: Parameters near the mode [P].
            solver: Solver with the curvature there.

        Source: Firth, "Bias reduction of maximum likelihood estimates" (Biometrika, 1993).
        """
        problem = self.problem
        num_rows = len(problem.matches)
        told, slopes = log_odds(problem, differences(problem, parameters))
        _, information = logistic(told[:num_rows])
        variances = (slopes**2 * solver.variances())[:num_rows]
        # Leverage h = w n p (1 - p) v, at most 1. The weight w cancels: the fit weights the added
        # matches again.
        added = (
            problem.matches
            * information
            * np.minimum(
                variances, 1.0 / np.maximum(problem.weights * problem.matches * information, 1e-300)
            )
        )
        return replace(
            self,
            problem=replace(
                problem, matches=problem.matches + added, scores=problem.scores + 0.5 * added
            ),
        )

    @property
    def _has_recency(self) -> bool:
        return self.design.recency < self.problem.num_parameters

    def _free_of_pairs(self) -> tuple[IntArray, FloatArray]:
        """Return the free entrant of each pair with an anchor, elsewhere P, and its sign. [Q]."""
        num_rows, nobody = len(self.problem.matches), self.problem.num_parameters
        # An anchor has the parameter P, that of none.
        first, second = self.problem.index[:num_rows, :2].T
        found = np.full(len(self.pairs.is_anchored), nobody, dtype=np.int64)
        found[self.pairs.of_row] = np.minimum(first, second)
        signs = np.ones(len(found))
        signs[self.pairs.of_row] = np.where(first == nobody, -self.pairs.sign, self.pairs.sign)
        return np.where(self.pairs.is_anchored, found, nobody), signs

    def _precisions(
        self, *, child_deviation: float | FloatArray, root_deviation: float
    ) -> FloatArray:
        num_rows = len(self.problem.matches)
        precisions = self.problem.precisions.copy()
        # children and roots count terms, and the priors' terms begin after the M rows.
        precisions[self.design.children - num_rows] = (ELO_PER_UNIT / child_deviation) ** 2
        precisions[self.design.roots - num_rows] = (ELO_PER_UNIT / root_deviation) ** 2
        return precisions

    def ratings(self, parameters: FloatArray) -> FloatArray:
        """Return the ratings of parameters [P], in Elo. float64 [N]."""
        strengths = self._of_all(parameters[: len(self.design.free)])
        found, _ = ratings_of(
            strengths,
            np.zeros((len(strengths), 0)),
            self._met(parameters, np.zeros((len(parameters), 0))),
            bend=self.problem.bend,
        )
        return self.elo(found)

    def _met(self, parameters: FloatArray, directions: FloatArray) -> list[Meeting]:
        """Return who meets whom, by parameters [P] and their changes [P, K]."""
        # The constant 0 stands for no advantage and no recency.
        padded = np.append(parameters, 0.0)
        moved = np.append(directions, np.zeros((1, directions.shape[1])), axis=0)
        recency = Recency(
            ages=self.design.ages,
            worth=float(padded[self.design.recency]),
            changes=moved[self.design.recency],
        )
        return [
            Meeting(
                first=self.scales[one],
                second=self.scales[two],
                advantage=float(padded[worth]),
                changes=moved[worth],
                recency=recency,
            )
            for one, two, worth in self.meetings.tolist()
        ]

    def elo(self, rows: FloatArray) -> FloatArray:
        """Convert values of every entrant [N, ...] to Elo.

        Without anchors the mean over the entrants is 0.
        """
        # Only differences are known without anchors. A spread is shifted alike, column by column.
        if 0 < len(self.design.free) == len(self.entrants):
            rows = rows - rows.mean(axis=0)
        return ELO_PER_UNIT * rows

    def _of_all(self, values: FloatArray) -> FloatArray:
        """Return values of the free entrants [F, ...] and zeros of the anchors. [N, ...]."""
        # Anchors have no parameter: they stay at exactly 0, with a spread of 0.
        rows = np.zeros((len(self.entrants), *values.shape[1:]))
        rows[self.design.free] = values
        return rows

    def fit(self, parameters: FloatArray, solver: Solver, *, shrunk: FloatArray) -> Fit[E]:
        """Return the fit of parameters [P], with the solver at them, and the shrunk ones [P]."""
        bend, num_free = self.problem.bend, len(self.design.free)
        strengths, spread = self._of_all(parameters[:num_free]), solver.spread()
        met = self._met(parameters, spread)
        ratings, rows = ratings_of(strengths, self._of_all(spread[:num_free]), met, bend=bend)
        scatter = 0.0
        if self.model.bends:
            # An unknown bend is one more direction in which all ratings may be off.
            summed = differences(self.problem, parameters)
            _, unsure, change = bend_of(self.problem, solver, summed=summed)
            moving = self._met(parameters, change[:, None])
            own = self._of_all(change[:num_free, None])
            _, moved = ratings_of(strengths, own, moving, bend=bend)
            column = moved + ratings_by(strengths, met, bend=bend)[:, None]
            rows = np.concatenate([rows, unsure * column], axis=1)
            # It grows with the square of the bend, whose mean square is b^2 + its variance.
            most = math.copysign(math.hypot(bend, unsure), bend)
            scatter = scatter_of(strengths, met, bend=most)
        # `worth` is what the seats are worth beside ratings, by parameter.
        worth = np.append(parameters, 0.0)
        for (_, _, place), one in zip(self.meetings.tolist(), met, strict=True):
            if place < len(parameters) and not adds_up(met, bend=bend):
                worth[place], _ = left_of(strengths, ratings, one, bend=bend)
        # What the fit itself says of results against the anchors is off the ratings, too.
        off = self._of_all(self.anchor_errors.T)
        off[:, 0] += against_anchors(strengths, ratings, met, bend=bend)
        components = replace(
            self.components,
            bend=bend,
            pair_deviation=math.hypot(self.components.pair_deviation, ELO_PER_UNIT * scatter**0.5),
        )
        return Fit(
            entrants=self.entrants,
            ratings=self.elo(ratings),
            spread=self.elo(rows),
            advantages={
                pair: float(ELO_PER_UNIT * worth[num_free + k])
                for k, pair in enumerate(self.design.seats)
            },
            components=components,
            shrunk=self.ratings(shrunk),
            anchor_errors=ELO_PER_UNIT * np.linalg.norm(off, axis=1),
        )


def _posterior(
    model: BradleyTerry,
    results: ResultColumns[E],
    *,
    links: ResultColumns[E],
    parents: Mapping[E, E],
    times: Mapping[E, Time],
    anchors: Collection[E],
    scale_of: Callable[[E], Hashable],
) -> Posterior[E]:
    design = make_design(
        results,
        links=links,
        parents=parents,
        times=times,
        anchors=anchors,
        root_deviation=model.root_deviation,
        child_deviation=model.child_deviation,
        advantage_deviation=model.advantage_deviation,
        stage_deviation=model.stage_deviation,
        recency_deviation=model.recency_deviation if model.bends else 0.0,
    )
    # A link counts as n matches between equals: its information is n / 4.
    information = 0.25 * links.matches
    known = (links.scores - 0.5 * links.matches) / information
    size = len(design.deviations)
    problem = Problem(
        num_parameters=size,
        index=design.index,
        matches=results.matches,
        scores=results.scores,
        weights=np.ones(len(results)),
        precisions=np.concatenate([(ELO_PER_UNIT / design.deviations) ** 2, information]),
        means=np.concatenate([np.zeros(size), known]),
        newer=design.newer,
        groups=design.groups,
    )
    is_anchor = np.array([entrant in anchors for entrant in results.entrants], dtype=bool)
    names = list(map(scale_of, results.entrants))
    places = {name: i for i, name in enumerate(dict.fromkeys(names))}
    scale = np.array([places[name] for name in names], dtype=np.int64)
    worth = design.index[: len(results), 2]
    meetings = np.stack((scale[results.first], scale[results.second], worth), axis=1)
    # The order of two does not matter where their seats have no worth.
    meetings[worth == size, :2] = np.sort(meetings[worth == size, :2], axis=1)
    # Whoever met nobody yet is compared with its own scale.
    alone = np.setdiff1d(scale, meetings[:, :2])
    own = np.stack((alone, alone, np.full(len(alone), size)), axis=1)
    return Posterior(
        problem=problem,
        entrants=results.entrants,
        design=design,
        counts=results.outcomes,
        pairs=Pairs.from_rows(
            results.first,
            results.second,
            slack=results.scores - results.squares,
            is_anchored=is_anchor[results.first] | is_anchor[results.second],
        ),
        components=Components(
            child_deviation=model.child_deviation, root_deviation=model.root_deviation
        ),
        model=model,
        anchor_errors=np.zeros((2, len(design.free))),
        scales=tuple(np.flatnonzero(scale == i) for i in range(len(places))),
        meetings=np.concatenate([np.unique(meetings, axis=0), own]),
    )
