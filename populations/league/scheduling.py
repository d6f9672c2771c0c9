"""Choice of the evaluation matches that are most informative for pending decisions.

Ratings decide two questions: which player is champion, and which bottom fraction PBT replaces. A
player is important to the degree that these answers are uncertain for it. Every player has a small
importance besides, so that the whole order becomes better known. Matches go to the pairs that
reduce the variance of important players most: a greedy A-optimal design, weighted by importance.

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
"""Importance of a ranked player about which no question is open; a fully open question adds 1."""

BASE_IMPORTANCE_UNRANKED = 0.03
"""Importance of a ghost about which no question is open: its rating is only displayed."""

FAR_SHARE = 1 / 3
"""Share of the pairs whose opponent is drawn at any distance."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Field:
    """Players of all populations, with their ratings and uncertainty.

    The covariance of two players is ``spread[i] @ spread[j]``, plus ``own_variance[i]`` if i = j:
    the unknown change of weights that have not played yet since their nearest rated ancestor.

    Attributes:
        ratings: Ratings in Elo. float64 [N].
        spread: Factor of the covariance, in Elo. float64 [N, K].
        own_variance: Variance of each player alone, in Elo squared, at least 0. float64 [N].
        is_eligible: Whether a player may become champion. bool [N].
        is_ranked: Whether PBT's selection ranks a player. bool [N].
        population: Index of each player's population; in a game of several populations no player
            meets one of its own. int64 [N].
        remaining: Share of each variance that remains after the matches since the last fit, in (0,
            1]. float64 [N].
        scatter: Variance of the differences of pairs around those of their ratings, in Elo squared,
            at least 0.
        met: Function from a player's index to the number of its matches with each player. float64
            [N].
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
        # There are few populations, for which a set is faster than numpy's `unique`.
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
            # The mean row of the factor is the common direction of the population's errors.
            means[place] = self.spread[ranked if ranked.any() else members].mean(axis=0)
        # A single mean is broadcast and not repeated for each player, to save memory.
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
"""Maximum of the log-odds d, so that e^-d stays above 0."""


def squared_lengths(rows: FloatArray) -> FloatArray:
    """Return the squared length of each row. float64 [N, K] -> [N]."""
    # `einsum` needs no array of squares, which would be as large as the factor.
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def import_slow_modules() -> None:
    """Import modules of the first decision ahead, as that takes a second. Call on any thread."""
    importlib.import_module("scipy.special")


def importance(field: Field, *, fraction: float) -> FloatArray:
    """Return how important each player's rating is for pending decisions.

    A question is open for a player if its probability p of being ahead of the decisive player is
    far from 0 and 1; its weight is 4 p (1 - p). For the title of champion the decisive player is
    the one with the best lower bound, for the bottom fraction it is the best player in it.

    Args:
        field: Players.
        fraction: Share of the ranked players that PBT replaces; 0: none.

    Returns:
        Importance, float64 [N], from ``BASE_IMPORTANCE`` (``BASE_IMPORTANCE_UNRANKED``) to that
            plus 2.
    """
    weights = np.where(field.is_ranked, BASE_IMPORTANCE, BASE_IMPORTANCE_UNRANKED)
    variances = field.variances()
    # The champion is chosen by this lower bound, as in `populations.league.standings`.
    low = field.ratings - Z95 * np.sqrt(variances)
    for population in field.populations():
        is_member = field.population == population
        eligible = np.flatnonzero(is_member & field.is_eligible)
        # A single eligible player is champion without any comparison.
        if eligible.size > 1:
            champion = int(eligible[np.argmax(low[eligible])])
            weights[eligible] += _openness(field, eligible, variances, against=champion)
        ranked = np.flatnonzero(is_member & field.is_ranked)
        # The number is rounded as in `populations.pbt.exploit.Truncation`: up, and at most half.
        num_bottom = min(math.ceil(fraction * ranked.size), ranked.size // 2)
        if num_bottom > 0:
            order = ranked[np.argsort(field.ratings[ranked], kind="stable")]
            # Players may enter or leave the bottom only by changing places with its best one.
            border = int(order[num_bottom - 1])
            weights[ranked] += _openness(field, ranked, variances, against=border)
    return weights


def _openness(
    field: Field, players: npt.NDArray[np.intp], variances: FloatArray, *, against: int
) -> FloatArray:
    """Return 4 p (1 - p) for the probability p that each player is ahead of player ``against``.

    Player ``against`` itself gets the largest value of the others.
    """
    from scipy.special import ndtr  # imported late, so that the controller starts without scipy

    # Var(i - j) = V_ii + V_jj - 2 V_ij, and p = Phi((r_i - r_j) / sqrt(Var)).
    covariances = field.covariances(against)
    spread = variances[players] + variances[against] - 2.0 * covariances[players]
    deviations = np.sqrt(np.maximum(spread, 1e-12))
    ahead = ndtr((field.ratings[players] - field.ratings[against]) / deviations)
    openness = np.asarray(4.0 * ahead * (1.0 - ahead))
    own = players == against
    # Its p against itself would be 1/2 without any meaning; its rating matters as much as the most
    # open comparison with it.
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
    reduce the weighted variance of both most. Opponents are informative if they are of similar
    strength, if their own rating is certain, and if the two have played little: pairs scatter
    around their ratings, so the hundredth match of a pair tells less about other pairs than the
    first one. All of this assumes that differences of strength add up along a chain of players. To
    correct a scale that is too long, a share of the pairs have an opponent at any distance.

    Args:
        field: Players.
        weights: Importance of each rating; 0 for players that serve only as opponents. [N].
        may_play: Whether a player's weights exist. [N].
        num_pairs: Number of pairs to choose; pairs may repeat.
        matches_per_pair: Number of matches of each chosen pair.
        rng: Generator that draws opponents at any distance.
        first: Players for which the first pairs are chosen, one each; ``may_play`` is true for all.
        far_share: Share of the pairs whose opponent is drawn at any distance.

    Returns:
        Indices of the pairs, first the player for whom the pair was chosen; empty if two players
        that may meet are lacking.
    """
    playing = np.flatnonzero(may_play)
    present = set(field.population[playing].tolist())
    # A match needs a player of each population.
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
    # Far pairs are spread evenly from a random start, so that calls with few pairs keep the share
    # on average.
    is_far = np.diff(np.floor(rng.random() + far_share * np.arange(num_pairs + 1))) > 0.0
    for turn in range(num_pairs):
        # The player with the largest weighted variance w_i V_ii is next if none is given.
        focus = position[first[turn]] if turn < len(first) else known.most_important()
        rival = known.rival_anywhere(focus, rng) if is_far[turn] else known.best_rival(focus)
        known.play(focus, rival)
        pairs.append((int(playing[focus]), int(playing[rival])))
    return pairs


def anywhere(strengths: FloatArray, players: IntArray, rng: np.random.Generator) -> int:
    """Draw a player: the one nearest to a strength drawn uniformly between lowest and highest."""
    levels = strengths[players]
    level = rng.uniform(levels.min(), levels.max())
    # Many players are equal at the beginning, so equally near ones are drawn uniformly.
    away = np.abs(levels - level)
    return int(rng.choice(players[away == away.min()]))


class _Knowledge:
    """Covariance of the playing players, as it will be after the chosen pairs.

    Rows of the fit's covariance are computed as needed, because only the players of chosen pairs
    need them. Each chosen pair subtracts the outer product of one column with itself.
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
        """Cached matches of a player with each player, before the chosen pairs. [N] each."""
        self._chosen: list[tuple[int, int]] = []
        self._certainties: dict[int, FloatArray] = {}
        """Cached p (1 - p) of a player with each player, p its expected score. [N] each."""
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
        """Return the opponent whose matches reduce the weighted variances of both players most."""
        variances, covariances = self._variances, self._covariances(focus)
        # own = V_ii - V_ij and others = V_jj - V_ij are the parts that the two do not share, so
        # Var(i - j) = own + others. The conversion to Python's float makes the subtraction faster.
        own = float(variances[focus]) - covariances
        others = variances - covariances
        # The denominator is s + Var(i - j), with s the variance of the matches' noise.
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
        """Return whether each player may be an opponent of ``focus``. bool [N]."""
        if self._is_one_population:
            found = np.ones(len(self._population), dtype=bool)
            found[focus] = False
            return found
        # In a game of several populations an opponent is always of another population.
        return np.asarray(self._population != self._population[focus])

    def play(self, focus: int, rival: int) -> None:
        """Update the covariance as if the matches of a chosen pair had been played."""
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
        # V' is a covariance, too, so only rounding can bring a variance below 0.
        self._variances -= lost

    def _noise_against(self, player: int) -> FloatArray:
        """Return the noise variance with which new matches measure differences to a player. [N].

        In Elo squared; the pair's former matches make it larger.
        """
        met = self._met_by(player)
        information = self._certainties.get(player)
        if information is None:
            ahead = np.abs(self._strengths[player] - self._strengths)
            # p (1 - p) = e^-d / (1 + e^-d)^2, with a limit on d, because it is divided by below.
            small = np.exp(-np.minimum(ahead, MAX_AHEAD))
            information = self._certainties[player] = small / (1.0 + small) ** 2
        # n matches of a pair have the information I(n) = 1 / (1 / (n p (1 - p)) + s) about ratings,
        # with s the scatter of pairs. After m matches, n more add I(m + n) - I(m), which is
        # n p (1 - p) / ((1 + s m p (1 - p)) (1 + s (m + n) p (1 - p))).
        before = 1.0 + self._scatter * information * met
        after = before + self._scatter * information * self._matches
        return np.asarray(ELO_PER_UNIT**2 * before * after / (self._matches * information))

    def _met_by(self, player: int) -> FloatArray:
        """Return the matches of a player with each player, including the chosen pairs. [N]."""
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
    """Return the noise variance of a difference measured by matches of a pair, in Elo squared.

    Args:
        ahead: Difference of the two ratings in Elo.
        num_matches: Number of matches, at least 1.
    """
    # The variance is 1 / (n p (1 - p)), with 1 / (p (1 - p)) = 2 + 2 cosh(d) for log-odds d.
    return ELO_PER_UNIT**2 * (2.0 + 2.0 * math.cosh(ahead / ELO_PER_UNIT)) / num_matches
