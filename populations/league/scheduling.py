"""Choice of the evaluation matches that are most informative for pending decisions.

Ratings decide two questions: the champion, and the bottom fraction that PBT replaces. A player is
important as far as the answers about it are open. Where nothing is open, every player still has a
small importance, so that the whole order becomes better known. Matches go to the pairs that reduce
the variance of important players most: a greedy A-optimal design, weighted by importance.

Sources: Chaloner and Verdinelli, "Bayesian experimental design: a review" (Statistical Science,
1995), section 2.2 (A-optimality); the reduction of variance by one observation of a difference is
the Kalman update of a linear Gaussian model, with the curvature of Bradley-Terry's likelihood, p (1
- p), as its precision.

Shapes: N players, K columns of the factor of their covariance (`populations.ratings`).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from populations.ratings.bradley_terry import ELO_PER_UNIT
from populations.ratings.model import Z95

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

BASE_IMPORTANCE = 0.3
"""Importance of a ranked player with no open question; each fully open question adds 1."""

BASE_IMPORTANCE_UNRANKED = 0.03
"""Importance of a ghost with no open question: its rating is only displayed."""

FAR_SHARE = 1 / 3
"""Share of the pairs whose opponent is drawn at any distance."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Field:
    """Players of all populations, with their ratings and uncertainty.

    The covariance of two players is ``spread[i] @ spread[j]``, plus ``own_variance[i]`` if i = j:
    the uncertainty of weights that have not played yet about those that they were trained from.

    Attributes:
        ratings: Ratings in Elo. float64 [N].
        spread: Factor of the covariance, in Elo. float64 [N, K].
        own_variance: Variance of each player alone, in Elo squared, at least 0. float64 [N].
        is_eligible: Whether a player may become champion. bool [N].
        is_ranked: Whether PBT selects among these players. bool [N].
        population: Index of each player's population; in a game of several populations no player
            meets one of its own. int64 [N].
        remaining: Share of each variance that remains after the matches since the last fit, in (0,
            1]. float64 [N].
        scatter: Variance of pairs around what ratings say of them, in Elo squared, at least 0.
        met: Returns the matches that one player has had with each of them. float64 [N].
    """

    ratings: FloatArray
    spread: FloatArray
    own_variance: FloatArray
    is_eligible: BoolArray
    is_ranked: BoolArray
    population: IntArray
    remaining: FloatArray
    scatter: float
    met: Callable[[int], FloatArray]

    def populations(self) -> list[int]:
        """Return the populations that have players, in order of their indices."""
        # A set is faster than numpy's `unique` for so few.
        return sorted(set(self.population.tolist()))

    def centred_spread(self) -> FloatArray:
        """Return the factor without the uncertainty common to a population. float64 [N, K].

        The distance of all players from the anchor decides nothing among them. The mean is that of
        the ranked players, or of all where none is ranked.
        """
        populations = self.populations()
        means = np.empty((len(populations), self.spread.shape[1]))
        for place, population in enumerate(populations):
            members = self.population == population
            ranked = members & self.is_ranked
            # Mean of the rows of the factor: the common direction of the population's errors.
            means[place] = self.spread[ranked if ranked.any() else members].mean(axis=0)
        # One mean is not written out for each player: there are hundreds of columns.
        if len(populations) > 1:
            means = means[np.searchsorted(populations, self.population)]
        return np.asarray(self.spread - means)

    def variances(self) -> FloatArray:
        """Return the variance of each rating, in Elo squared. float64 [N]."""
        return squared_lengths(self.spread) + self.own_variance

    def covariances(self, player: int) -> FloatArray:
        """Return the covariances with one player, in Elo squared. float64 [N]."""
        covariances = np.asarray(self.spread @ self.spread[player])
        covariances[player] += self.own_variance[player]
        return covariances


MAX_AHEAD = 30.0
"""Limit of log-odds, so that e^-d is not 0."""


def squared_lengths(rows: FloatArray) -> FloatArray:
    """Return the squared length of each row. float64 [N, K] -> [N]."""
    # `einsum` makes no square of each element, which would be an array as large as the factor.
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def import_slow_modules() -> None:
    """Import the modules that the first decision needs, which takes a second; on any thread."""
    importlib.import_module("scipy.special")


def importance(field: Field, *, fraction: float) -> FloatArray:
    """Return how important each player's rating is for pending decisions.

    A question is open as far as the probability p of being ahead of the decisive player is far from
    0 and 1: it counts 4 p (1 - p). For the champion that is the player with the best lower bound,
    for the bottom fraction the best one in it.

    Args:
        field: Players.
        fraction: Share of the ranked players that PBT replaces. 0: none.

    Returns:
        Importance, float64 [N], from ``BASE_IMPORTANCE`` (``BASE_IMPORTANCE_UNRANKED``) to that
            plus 2.
    """
    weights = np.where(field.is_ranked, BASE_IMPORTANCE, BASE_IMPORTANCE_UNRANKED)
    variances = field.variances()
    # The lower bound that names the champion, as in `standings.champion`.
    low = field.ratings - Z95 * np.sqrt(variances)
    for population in field.populations():
        is_member = field.population == population
        eligible = np.flatnonzero(is_member & field.is_eligible)
        # A single one is champion without a question.
        if eligible.size > 1:
            champion = int(eligible[np.argmax(low[eligible])])
            weights[eligible] += _openness(field, eligible, variances, against=champion)
        ranked = np.flatnonzero(is_member & field.is_ranked)
        # The number is rounded as truncation does: whole policies, at most half.
        num_bottom = min(math.ceil(fraction * ranked.size), ranked.size // 2)
        if num_bottom > 0:
            order = ranked[np.argsort(field.ratings[ranked], kind="stable")]
            # The best of the bottom: the others are open as far as they may change places with it.
            border = int(order[num_bottom - 1])
            weights[ranked] += _openness(field, ranked, variances, against=border)
    return weights


def _openness(
    field: Field, players: npt.NDArray[np.intp], variances: FloatArray, *, against: int
) -> FloatArray:
    """Return 4 p (1 - p) for the probability p that each player is ahead of one.

    That one player gets the largest value of the others.
    """
    from scipy.special import ndtr  # only once somebody is rated: the controller starts without

    # Var(i - j) = V_ii + V_jj - 2 V_ij, and p = Phi((r_i - r_j) / sqrt(Var)).
    covariances = field.covariances(against)
    spread = variances[players] + variances[against] - 2.0 * covariances[players]
    deviations = np.sqrt(np.maximum(spread, 1e-12))
    ahead = ndtr((field.ratings[players] - field.ratings[against]) / deviations)
    openness = np.asarray(4.0 * ahead * (1.0 - ahead))
    own = players == against
    # A match against itself says nothing (p = 1/2); its own rating matters as much as its closest
    # question.
    openness[own] = openness[~own].max(initial=0.0)
    return openness


def choose_pairs(
    field: Field,
    *,
    weights: FloatArray,
    may_play: BoolArray,
    num_pairs: int,
    matches_per_pair: int,
    rng: np.random.Generator,
    first: Sequence[int] = (),
    far_share: float = FAR_SHARE,
) -> list[tuple[int, int]]:
    """Choose pairs one after the other, each as if the earlier pairs had been played.

    Each time the player with the largest weighted variance meets the opponent against whom matches
    reduce the weighted variance of both most. Opponents of similar strength are the most
    informative in themselves, well known ones about the player, and those that it has not met:
    pairs scatter around what ratings say, so the hundredth match of a pair tells less of all others
    than its first one. All that holds as far as strengths add up. So a share of the pairs have an
    opponent at any distance, by which a scale that is too long is found and mended.

    Args:
        field: Players.
        weights: Importance of each rating; 0 for mere opponents. [N].
        may_play: Whether a player's weights exist. [N].
        num_pairs: Number of pairs, if there are two players; pairs may repeat.
        matches_per_pair: Matches per pair.
        rng: Draws the distances.
        first: Players to serve first; all may play.
        far_share: Share of the pairs whose opponent is drawn at any distance.

    Returns:
        Indices of the pairs, the served player first.
    """
    playing = np.flatnonzero(may_play)
    present = set(field.population[playing].tolist())
    # There is no match without a player of each population.
    if playing.size < 2 or len(present) < len(field.populations()):
        return []
    known = _Knowledge(
        field,
        playing,
        weights=weights[playing],
        num_pairs=num_pairs,
        matches_per_pair=matches_per_pair,
    )
    pairs = []
    position = {int(player): index for index, player in enumerate(playing)}
    # Evenly among the pairs, so that few of them have their share over time, too.
    is_far = np.diff(np.floor(rng.random() + far_share * np.arange(num_pairs + 1))) > 0.0
    for turn in range(num_pairs):
        # The player with the largest weighted variance w_i V_ii is next if none is given.
        focus = position[first[turn]] if turn < len(first) else known.most_important()
        rival = known.rival_anywhere(focus, rng) if is_far[turn] else known.best_rival(focus)
        known.play(focus, rival)
        pairs.append((int(playing[focus]), int(playing[rival])))
    return pairs


def anywhere(strengths: FloatArray, players: IntArray, rng: np.random.Generator) -> int:
    """Draw one of some players: the nearest to a level drawn evenly from all of theirs."""
    levels = strengths[players]
    level = rng.uniform(levels.min(), levels.max())
    # Many are equal at the beginning, and none of them is to be met more often.
    away = np.abs(levels - level)
    return int(rng.choice(players[away == away.min()]))


class _Knowledge:
    """Covariance of the playing players, as it will be after the chosen pairs.

    Rows of the covariance of the fit are made as needed: those who are served and those whom they
    meet are few. Each chosen pair takes away the product of one column with itself.
    """

    def __init__(
        self,
        field: Field,
        playing: npt.NDArray[np.intp],
        *,
        weights: FloatArray,
        num_pairs: int,
        matches_per_pair: int,
    ) -> None:
        remaining = field.remaining[playing]
        spread = field.centred_spread()[playing]
        spread *= np.sqrt(remaining)[:, None]
        self._spread, self._own = spread, field.own_variance[playing] * remaining
        self._rows: dict[int, FloatArray] = {}
        self._met: dict[int, FloatArray] = {}
        """Matches of those who are served with each player, before the chosen pairs."""
        self._chosen: list[tuple[int, int]] = []
        self._certainties: dict[int, FloatArray] = {}
        """p (1 - p) of one of them with each player."""
        self._lost = np.zeros((num_pairs, len(playing)))
        self._num_lost = 0
        self._variances = squared_lengths(spread) + self._own
        self._weights = weights
        self._importances: list[float] = weights.tolist()
        self._strengths = field.ratings[playing] / ELO_PER_UNIT
        self._scatter = field.scatter / ELO_PER_UNIT**2
        self._matches = matches_per_pair
        self._meetings, self._playing = field.met, playing
        self._population = field.population[playing]
        self._is_one_population = len(field.populations()) == 1

    def most_important(self) -> int:
        """Return the player with the largest weighted variance."""
        return int((self._weights * self._variances).argmax())

    def rival_anywhere(self, focus: int, rng: np.random.Generator) -> int:
        """Return an opponent of a player at any distance."""
        return anywhere(self._strengths, np.flatnonzero(self._may_meet(focus)), rng)

    def best_rival(self, focus: int) -> int:
        """Return the opponent against whom matches tell most about a player.

        Told is by how much the weighted variances of both fall.
        """
        variances, covariances = self._variances, self._covariances(focus)
        # How much of V_ii and of V_jj the two do not share, in Var(i - j) = own + others.
        # Python's number: one of numpy's takes longer in the operation below.
        own = float(variances[focus]) - covariances
        others = variances - covariances
        # s + Var(i - j)
        total = own + others
        total += self._noise_against(focus)
        # The variance of i falls by (V_ii - V_ij)^2 / (s + Var(i - j)), that of j likewise.
        own *= own
        own *= self._importances[focus]
        others *= others
        others *= self._weights
        gain = own
        gain += others
        gain /= total
        # Gains are at least 0, so -1 is never chosen while another remains.
        gain[~self._may_meet(focus)] = -1.0
        return int(gain.argmax())

    def _may_meet(self, focus: int) -> BoolArray:
        """Return whom a player may meet. bool [N]."""
        if self._is_one_population:
            found = np.ones(len(self._population), dtype=bool)
            found[focus] = False
            return found
        # An opponent is one of another population where a game has several.
        return np.asarray(self._population != self._population[focus])

    def play(self, focus: int, rival: int) -> None:
        """Let two players meet: what matches tell of both is known from now on."""
        covariances = self._covariances(focus)
        # s + Var(i - j)
        apart = float(self._variances[focus] - 2.0 * covariances[rival] + self._variances[rival])
        total = apart + float(self._noise_against(focus)[rival])
        # The Kalman update of a difference: V' = V - l l^T, with l = V (e_i - e_j) / sqrt(s +
        # Var(i - j)).
        lost = covariances - self._covariances(rival)
        lost /= math.sqrt(total)
        self._lost[self._num_lost] = lost
        self._num_lost += 1
        self._chosen.append((focus, rival))
        lost *= lost
        # V' is a covariance, too, so it is below 0 by no more than rounding.
        self._variances -= lost

    def _noise_against(self, player: int) -> FloatArray:
        """Return the variance of each difference to one player, as more matches measure it. [N]."""
        met = self._met_by(player)
        information = self._certainties.get(player)
        if information is None:
            ahead = np.abs(self._strengths[player] - self._strengths)
            # p (1 - p) = e^-d / (1 + e^-d)^2; far apart it must not be 0.
            small = np.exp(-np.minimum(ahead, MAX_AHEAD))
            information = self._certainties[player] = small / (1.0 + small) ** 2
        # n matches of a pair tell I(n) = 1 / (1 / (n p (1 - p)) + s) about all, with
        # s the scatter of pairs, and n more tell I(m + n) - I(m), which is
        # n p (1 - p) / ((1 + s m p (1 - p)) (1 + s (m + n) p (1 - p))).
        before = 1.0 + self._scatter * information * met
        after = before + self._scatter * information * self._matches
        return np.asarray(ELO_PER_UNIT**2 * before * after / (self._matches * information))

    def _met_by(self, player: int) -> FloatArray:
        """Return the matches of a player with each, those of the chosen pairs included. [N]."""
        met = self._met.get(player)
        if met is None:
            met = self._met[player] = self._meetings(int(self._playing[player]))[self._playing]
        met = met.copy()
        for focus, rival in self._chosen:
            if player in (focus, rival):
                met[rival if player == focus else focus] += self._matches
        return met

    def _covariances(self, player: int) -> FloatArray:
        """Return the covariances with one player, after the chosen pairs. float64 [N]."""
        row = self._rows.get(player)
        if row is None:
            row = self._rows[player] = self._spread @ self._spread[player]
            row[player] += self._own[player]
        lost = self._lost[: self._num_lost]
        return np.asarray(row - lost[:, player] @ lost)


def noise_of(ahead: float, *, num_matches: int) -> float:
    """Return the variance of two players' difference as measured by matches, in Elo squared.

    Args:
        ahead: Difference of their ratings in Elo.
        num_matches: At least 1.
    """
    # 1 / (n p (1 - p)), and 1 / (p (1 - p)) = 2 + 2 cosh(d).
    return ELO_PER_UNIT**2 * (2.0 + 2.0 * math.cosh(ahead / ELO_PER_UNIT)) / num_matches
