"""Which evaluation matches tell most about what will be decided.

Two questions are decided by ratings: who is champion, and who is in the bottom fraction that PBT
replaces. A player matters as far as the answers about it are open; where nothing is open, every
player still matters a little, so that the whole order gets better known. Matches then go to the
pairs that shrink the variance of those who matter most: a greedy A-optimal design, weighted by how
open the decisions are.

Sources: Chaloner and Verdinelli, "Bayesian experimental design: a review" (Statistical Science,
1995), section 2.2 (A-optimality); the reduction of variance by one observation of a difference is
the Kalman update of a linear Gaussian model, with the curvature of Bradley-Terry's likelihood,
p (1 - p), as its precision.

Shapes: N players, K columns of the factor of their covariance (`populations.ratings`).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from populations.ratings.bradley_terry import ELO_PER_UNIT
from populations.ratings.model import Z95

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

BASE_IMPORTANCE = 0.3
"""Of a ranked player about whom nothing is open, against 1 for each question that is quite open."""

GROWTH = 32
"""Rows for pairs that are made at once."""

BASE_IMPORTANCE_UNRANKED = 0.03
"""Of a ghost about which nothing is open: nothing but a table shows its rating."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Field:
    """The players of all populations, as far as they are known.

    The covariance of two players is ``spread[i] @ spread[j]``, plus ``own_variance[i]`` where i is
    j: what separates weights that have not played yet from those that they were trained from.

    Attributes:
        ratings: Elo. float64 [N].
        spread: Factor of the covariance, in Elo. float64 [N, K].
        own_variance: In Elo squared, at least 0. float64 [N].
        is_eligible: Who may become champion. bool [N].
        is_ranked: Among whom PBT selects. bool [N].
        population: Index of each player's population; in a game of several populations nobody
            meets players of its own. int64 [N].
        remaining: Share of each variance that matches since the last fit will have left, in (0, 1].
            float64 [N].
    """

    ratings: FloatArray
    spread: FloatArray
    own_variance: FloatArray
    is_eligible: BoolArray
    is_ranked: BoolArray
    population: IntArray
    remaining: FloatArray

    def centred_spread(self) -> FloatArray:
        """The factor without what is uncertain about all of a population alike. float64 [N, K].

        How far all of them are from the anchor decides nothing among them. The mean is that of the
        ranked players, of all where nobody is ranked.
        """
        means = np.zeros_like(self.spread)
        for population in np.unique(self.population):
            rows = self.population == population
            ranked = rows & self.is_ranked
            means[rows] = self.spread[ranked if ranked.any() else rows].mean(axis=0)
        return np.asarray(self.spread - means)

    def variances(self) -> FloatArray:
        """Of each rating, in Elo squared. float64 [N]."""
        return np.asarray((self.spread**2).sum(axis=1) + self.own_variance)

    def covariances(self, player: int) -> FloatArray:
        """With one player, in Elo squared. float64 [N]."""
        covariances = np.asarray(self.spread @ self.spread[player])
        covariances[player] += self.own_variance[player]
        return covariances


def import_slow_modules() -> None:
    """What the first decision would import otherwise, and be a second about it: on any thread."""
    importlib.import_module("scipy.special")


def importance(field: Field, *, fraction: float) -> FloatArray:
    """How much each player's rating matters for what will be decided.

    An answer is open where the probability p of being ahead of the player in question is far from 0
    and 1: it counts 4 p (1 - p). For the champion that player is the one with the best lower bound,
    for the bottom fraction the best of those in it.

    Args:
        field: The players.
        fraction: Of the ranked, that PBT replaces. 0: none.

    Returns:
        float64 [N], from ``BASE_IMPORTANCE`` (``BASE_IMPORTANCE_UNRANKED``) to that plus 2.
    """
    weights = np.where(field.is_ranked, BASE_IMPORTANCE, BASE_IMPORTANCE_UNRANKED)
    variances = field.variances()
    low = field.ratings - Z95 * np.sqrt(variances)
    for population in np.unique(field.population):
        is_member = field.population == population
        eligible = np.flatnonzero(is_member & field.is_eligible)
        if eligible.size > 1:
            champion = int(eligible[np.argmax(low[eligible])])
            weights[eligible] += _openness(field, eligible, variances, against=champion)
        ranked = np.flatnonzero(is_member & field.is_ranked)
        num_bottom = min(math.ceil(fraction * ranked.size), ranked.size // 2)
        if num_bottom > 0:
            order = ranked[np.argsort(field.ratings[ranked], kind="stable")]
            border = int(order[num_bottom - 1])
            weights[ranked] += _openness(field, ranked, variances, against=border)
    return weights


def _openness(
    field: Field, players: npt.NDArray[np.intp], variances: FloatArray, *, against: int
) -> FloatArray:
    """4 p (1 - p) of each player being ahead of one; that one gets the largest of the others'."""
    from scipy.special import ndtr  # only once somebody is rated: the controller starts without

    covariances = field.covariances(against)
    spread = variances[players] + variances[against] - 2.0 * covariances[players]
    deviations = np.sqrt(np.maximum(spread, 1e-12))
    ahead = ndtr((field.ratings[players] - field.ratings[against]) / deviations)
    openness = np.asarray(4.0 * ahead * (1.0 - ahead))
    own = players == against
    openness[own] = openness[~own].max(initial=0.0)
    return openness


def choose_pairs(
    field: Field,
    *,
    weights: FloatArray,
    may_play: BoolArray,
    num_pairs: int,
    matches_per_pair: int,
    first: Sequence[int] = (),
) -> list[tuple[int, int]]:
    """Choose pairs one after the other, each as if the matches of those before were played.

    Each time the player whose weighted variance is largest plays the opponent against whom the
    matches shrink the weighted variance of the two most. Opponents of about the same strength tell
    most by themselves, well known ones most about the player.

    Args:
        field: The players.
        weights: How much each rating matters; 0 for those who only serve as opponents. [N].
        may_play: Whose weights are there to be played with. [N].
        num_pairs: So many, if there are two who may play; pairs may come again.
        matches_per_pair: That will be played.
        first: Players that come before that, each with the opponent that tells most; all may play.

    Returns:
        Indices, the player in question first.
    """
    playing = np.flatnonzero(may_play)
    num_present = np.unique(field.population[playing]).size
    if playing.size < 2 or num_present < np.unique(field.population).size:
        return []
    known = _Knowledge(field, playing, weights=weights[playing])
    pairs = []
    position = {int(player): index for index, player in enumerate(playing)}
    for turn in range(num_pairs):
        if turn < len(first):
            focus = position[first[turn]]
        else:
            focus = int(np.argmax(known.weights * known.variances))
        covariances = known.covariances(focus)
        rival = known.best_rival(focus, covariances, num_matches=matches_per_pair)
        known.play(focus, rival, covariances, num_matches=matches_per_pair)
        pairs.append((int(playing[focus]), int(playing[rival])))
    return pairs


class _Knowledge:
    """The covariance of those who may play, as it will be after the pairs chosen so far.

    Kept as factor, own variances and one column for each pair: the covariance lost with it.
    """

    def __init__(self, field: Field, playing: npt.NDArray[np.intp], *, weights: FloatArray) -> None:
        self.weights = weights
        self._ratings = field.ratings[playing]
        self._population = field.population[playing]
        self._is_one_population = bool((field.population == field.population[0]).all())
        remaining = field.remaining[playing]
        self._spread = field.centred_spread()[playing] * np.sqrt(remaining)[:, None]
        self._own = field.own_variance[playing] * remaining
        self._lost = np.zeros((0, len(playing)))
        self._num_lost = 0
        self.variances = np.asarray((self._spread**2).sum(axis=1) + self._own)

    def best_rival(self, focus: int, covariances: FloatArray, *, num_matches: int) -> int:
        """The opponent against whom matches shrink the weighted variance of the two most.

        Args:
            focus: The player in question.
            covariances: Its own. float64 [N].
            num_matches: To be played.
        """
        variances = self.variances
        total = self._noise(focus, num_matches=num_matches) + np.maximum(
            variances + variances[focus] - 2.0 * covariances, 0.0
        )
        gain = (
            self.weights[focus] * (variances[focus] - covariances) ** 2
            + self.weights * (variances - covariances) ** 2
        ) / total
        gain[focus] = -1.0
        if not self._is_one_population:
            gain[self._population == self._population[focus]] = -1.0
        return int(np.argmax(gain))

    def play(self, focus: int, rival: int, covariances: FloatArray, *, num_matches: int) -> None:
        """Take in that two have played: the Kalman update of a difference.

        Args:
            focus: One of the two.
            rival: The other one.
            covariances: Of ``focus``, as they are now. float64 [N].
            num_matches: That were played.
        """
        difference = covariances - self.covariances(rival)
        ahead = float(self._ratings[focus] - self._ratings[rival])
        noise = noise_of(ahead, num_matches=num_matches)
        lost = difference / math.sqrt(noise + max(float(difference[focus] - difference[rival]), 0))
        if self._num_lost == len(self._lost):
            self._lost = np.concatenate([self._lost, np.zeros((GROWTH, len(lost)))])
        self._lost[self._num_lost] = lost
        self._num_lost += 1
        self.variances = np.maximum(self.variances - lost**2, 0.0)

    def covariances(self, player: int) -> FloatArray:
        """With one player, after all that was played so far. float64 [N]."""
        covariances = np.asarray(self._spread @ self._spread[player])
        covariances[player] += self._own[player]
        lost = self._lost[: self._num_lost]
        covariances -= lost[:, player] @ lost
        return covariances

    def _noise(self, focus: int, *, num_matches: int) -> FloatArray:
        """Variance of a difference as matches tell it, in Elo squared. float64 [N]."""
        ahead = (self._ratings[focus] - self._ratings) / ELO_PER_UNIT
        return np.asarray(ELO_PER_UNIT**2 * (2.0 + 2.0 * np.cosh(ahead)) / num_matches)


def noise_of(ahead: float, *, num_matches: int) -> float:
    """Variance of a difference as matches of two tell it, in Elo squared.

    Args:
        ahead: Elo, by their ratings.
        num_matches: At least 1.
    """
    return ELO_PER_UNIT**2 * (2.0 + 2.0 * math.cosh(ahead / ELO_PER_UNIT)) / num_matches
