"""Planted truth of simulated leagues: the strength of weights, their learning, and match results.

Skills and advantages are in Elo (400 points: odds of 10:1 between win and loss); ``bot:random`` has
skill 0. The truth is known exactly, so decisions made from matches can be judged by it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from arena.types import RANDOM_BOT, Hyperparameters, Value
from populations.choices import is_known
from populations.core import SearchSpace
from populations.search_space import Dimension, parse_search_space

NUM_KINDS = 3
"""Number of kinds of weights in the cyclic part of the game: rock, paper and scissors."""

BEST_LEARNING_RATE = 0.7
"""Best learning rate, as a position in its range from 0 to 1; for other hyperparameters the best
position is derived from the name.
"""


RECENT_AGENT_STEPS = 100_000.0
"""Lead in agent steps that is worth most of `PlantedModel.recency` (tanh 1 = 76% of it)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Truth about frozen weights.

    Attributes:
        skill: Skill in Elo.
        potential: Elo by which the final skill is above ``PlantedModel.ceiling``.
        kind: 0, 1 or 2; each kind has an advantage over the one before it (in a circle).
        agent_steps: Agent steps of training behind the weights, those of donors included.
    """

    skill: float
    potential: float
    kind: int
    agent_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedModel:
    """Model of the planted truth. Its methods are pure: randomness is an argument.

    Attributes:
        spread: Standard deviation of potentials, Elo.
        ceiling: Final skill of weights of mean potential, Elo.
        learning_agent_steps: Agent steps in which the distance to the ceiling falls to 1/e, with
            the best hyperparameters and opponents.
        width: Distance from its best value, as a share of its range, at which a hyperparameter
            slows learning to 0.61 of its speed.
        opponents_matter: Share of the speed that is lost against opponents that always lose or
            always win.
        noise: Standard deviation of the random gain in skill during ``learning_agent_steps`` of
            training, Elo.
        inheritance: Correlation of a copy's potential with its donor's; the rest is the copy's own
            luck.
        cyclic_share: Variance of the rock-paper-scissors part of a match, divided by that of the
            difference of two skills; 0: none.
        draw_rate: Share of draws between equals, in [0, 1).
        top_draw_rate: Share of draws between equals at the ceiling; below it the share is
            interpolated by mean skill. None: ``draw_rate``.
        pair_deviation: Standard deviation of the effect of each pair of weights of different lines
            besides skills and kinds, Elo; constant for a pair.
        seat_advantage: Advantage of the seat with the lower index, in Elo.
        lapse: Share of matches decided at random, whoever plays; differences of strength then do
            not add up along a chain of players.
        compression: Strength of a compression of large differences: d of two skills plays like
            d / (1 + compression |d| / 1000).
        recency: Largest advantage of weights over weights with less training, besides skill, Elo.
    """

    spread: float = 200.0
    ceiling: float = 1000.0
    learning_agent_steps: float = 1_000_000.0
    width: float = 0.25
    opponents_matter: float = 0.5
    noise: float = 20.0
    inheritance: float = 0.7
    cyclic_share: float = 0.0
    draw_rate: float = 0.0
    top_draw_rate: float | None = None
    pair_deviation: float = 0.0
    seat_advantage: float = 0.0
    lapse: float = 0.0
    compression: float = 0.0
    recency: float = 0.0

    def fresh(self, rng: np.random.Generator) -> Weights:
        """Make random weights, which play like ``bot:random``, whatever their potential."""
        # The potential is z ~ N(0, spread^2), and the kind is uniform.
        potential = self.spread * float(rng.normal())
        return Weights(skill=0.0, potential=potential, kind=int(rng.integers(NUM_KINDS)))

    def bot(self, name: str) -> Weights:
        """Make a scripted player with a skill that depends on its name; 0 for ``bot:random``."""
        # Bots neither train nor are copied, so their potential does not matter.
        share = 0.0 if name == RANDOM_BOT else place(name)
        return Weights(skill=share * self.ceiling, potential=0.0, kind=0)

    def copied(self, donor: Weights, rng: np.random.Generator) -> Weights:
        """Copy a donor's weights into another policy: its skill, and part of its potential."""
        # z' = h z + sqrt(1 - h^2) spread e keeps the variance: h^2 + (1 - h^2) = 1.
        own = math.sqrt(1.0 - self.inheritance**2) * self.spread * float(rng.normal())
        return replace(donor, potential=self.inheritance * donor.potential + own)

    def trained(
        self,
        weights: Weights,
        *,
        agent_steps: int,
        speed: float,
        opponents: Sequence[Weights],
        rng: np.random.Generator,
    ) -> Weights:
        """Return weights after training.

        Args:
            weights: Weights before training.
            agent_steps: Agent steps, at least 0.
            speed: Speed by the hyperparameters, in [0, 1]; see `hyperparameter_speed`.
            opponents: Opponents, one per block of environments; the weights themselves in
                self-play.
            rng: The only source of randomness.
        """
        rounds = agent_steps / self.learning_agent_steps
        rate = speed * self._lesson(weights, opponents)
        # s' = s + (c + z - s) (1 - e^(-v l n / T)) + noise sqrt(n / T) e, with e ~ N(0, 1)
        distance = self.ceiling + weights.potential - weights.skill
        gain = distance * -math.expm1(-rate * rounds)
        chance = self.noise * math.sqrt(rounds) * float(rng.normal())
        return replace(
            weights,
            skill=weights.skill + gain + chance,
            agent_steps=weights.agent_steps + agent_steps,
        )

    def _lesson(self, weights: Weights, opponents: Sequence[Weights]) -> float:
        """Return the speed of learning from opponents, in [1 - ``opponents_matter``, 1]."""
        if not opponents:
            return 1.0
        total = 0.0
        for opponent in opponents:
            # 4 p (1 - p) is 1 for equals, and 0 for a certain win or loss.
            p = expected_score(self.advantage(weights, opponent))
            total += 4.0 * p * (1.0 - p)
        # l = 1 - m (1 - mean(4 p (1 - p)))
        return 1.0 - self.opponents_matter * (1.0 - total / len(opponents))

    def advantage(self, first: Weights, second: Weights) -> float:
        """Return the first player's advantage in a match in Elo, without that of the seat."""
        ahead = self._ahead(first, second)
        turn = (first.kind - second.kind) % NUM_KINDS
        if self.cyclic_share > 0.0 and turn:
            # With a = spread sqrt(3 share), the ratio of variances is `cyclic_share`: between
            # random kinds Var(a r) = 2/3 a^2 for r in {-1, 0, 1}, and Var(z_i - z_j) = 2 spread^2.
            height = self.spread * math.sqrt(3.0 * self.cyclic_share)
            ahead += height if turn == 1 else -height
        if self.pair_deviation > 0.0:
            ahead += self.pair_deviation * pair_effect(first.potential, second.potential)
        return ahead

    def play(
        self, first: Weights, second: Weights, *, num_matches: int, rng: np.random.Generator
    ) -> tuple[int, int, int]:
        """Draw the first player's wins, draws and losses; the first has the lower seat.

        The share of draws does not change the expected score.
        """
        p = self._score(self.advantage(first, second), seat=self.seat_advantage)
        # P(draw) = 2 q min(p, 1 - p), half from wins and half from losses: p stays the mean score.
        draw = 2.0 * self._draw_rate_of(first, second) * min(p, 1.0 - p)
        # Without draws a binomial sample has the same distribution as a multinomial one, and is
        # faster.
        if draw == 0.0:
            wins = int(rng.binomial(num_matches, p))
            return wins, 0, num_matches - wins
        # By rounding, the last share may be below 0, which NumPy refuses.
        shares = [p - 0.5 * draw, draw, max(1.0 - p - 0.5 * draw, 0.0)]
        wins, draws, losses = (int(count) for count in rng.multinomial(num_matches, shares))
        return wins, draws, losses

    def difference(self, first: Weights, second: Weights) -> float:
        """Return the Elo difference that matches show if both seats are played equally often.

        It includes skills, recency, lapses and compression, but not the effects of kinds and pairs,
        which no rating can express.
        """
        ahead = self._ahead(first, second)
        home = self._score(ahead, seat=self.seat_advantage)
        away = self._score(ahead, seat=-self.seat_advantage)
        score = 0.5 * (home + away)
        return 400.0 * math.log10(score / (1.0 - score))

    def _ahead(self, first: Weights, second: Weights) -> float:
        longer = (first.agent_steps - second.agent_steps) / RECENT_AGENT_STEPS
        return first.skill - second.skill + self.recency * math.tanh(longer)

    def _score(self, ahead: float, *, seat: float) -> float:
        shown = ahead / (1.0 + self.compression * abs(ahead) / 1000.0)
        return 0.5 * self.lapse + (1.0 - self.lapse) * expected_score(shown + seat)

    def _draw_rate_of(self, first: Weights, second: Weights) -> float:
        """Return the share of draws between two equals that have the mean skill of the players."""
        if self.top_draw_rate is None:
            return self.draw_rate
        height = min(max(0.5 * (first.skill + second.skill) / self.ceiling, 0.0), 1.0)
        return self.draw_rate + height * (self.top_draw_rate - self.draw_rate)


def expected_score(advantage: float) -> float:
    """Return the expected score of a player by its advantage in Elo, draws half."""
    # E = 1 / (1 + 10^(-d / 400)), with a limit, as `math.pow` raises an error for d < -124,000.
    return 1.0 / (1.0 + math.pow(10.0, -max(min(advantage, 4000.0), -4000.0) / 400.0))


def place(name: str) -> float:
    """Return a pseudo-random number in [0.2, 0.8) that depends only on a name."""
    return 0.2 + 0.6 * int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) / 2**32


def pair_effect(first: float, second: float) -> float:
    """Return a standard normal number that depends on two potentials; swapping them negates it."""
    if first == second:
        return 0.0
    # Sorting makes (i, j) and (j, i) draw the same number.
    low, high = sorted((first, second))
    digest = hashlib.sha256(f"{low!r} {high!r}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8]))
    return float(rng.normal()) * (1.0 if low == first else -1.0)


@dataclass(frozen=True, slots=True)
class Landscape:
    """Speed of learning as a function of hyperparameters: one hill in a population's search space.

    Attributes:
        dimensions: Hyperparameters of the search space, by name.
        width: Width of the hill; see `PlantedModel.width`.
    """

    dimensions: Mapping[str, Dimension]
    width: float

    def speed(self, hyperparameters: Hyperparameters) -> float:
        """Return the speed of learning, in (0, 1]."""
        # v = exp(-mean(((u - u*) / width)^2) / 2), with u the position in the range, from 0 to 1.
        if not self.dimensions:
            return 1.0
        total = 0.0
        for name, dimension in self.dimensions.items():
            best = BEST_LEARNING_RATE if name == "learning_rate" else place(name)
            total += ((unit(dimension, hyperparameters.get(name)) - best) / self.width) ** 2
        return math.exp(-0.5 * total / len(self.dimensions))


def make_landscape(search_space: SearchSpace, *, start: Hyperparameters, width: float) -> Landscape:
    """Make the landscape of a population's search space.

    Raises:
        ConfigError: If the search space is not valid.
    """
    return Landscape(parse_search_space(search_space, start=start), width)


def unit(dimension: Dimension, value: Value | None) -> float:
    """Return the position of a value in its range, from 0 to 1, on the range's own scale.

    An unknown value has the position 0.5.
    """
    if not is_known(value):
        return 0.5
    return min(max(dimension.to_unit(value), 0.0), 1.0)
