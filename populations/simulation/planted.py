"""The planted truth: the strength of weights, their learning, and results of matches.

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
"""Rock, paper and scissors."""

BEST_LEARNING_RATE = 0.7
"""Place of the best learning rate in its range; of other hyperparameters it follows from
the name.
"""


RECENT_AGENT_STEPS = 100_000.0
"""Agent steps in which weights get most of `PlantedModel.recency` over those before them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Truth about frozen weights.

    Attributes:
        skill: Skill in Elo.
        potential: Elo by which the final skill is above ``PlantedModel.ceiling``.
        kind: 0, 1 or 2; each has an advantage over the one before it (in a circle).
        agent_steps: Agent steps of their line.
    """

    skill: float
    potential: float
    kind: int
    agent_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedModel:
    """Constants of the truth. Pure: randomness is an argument.

    Attributes:
        spread: Standard deviation of potentials, Elo.
        ceiling: Final skill of weights of mean potential, Elo.
        learning_agent_steps: Agent steps in which the distance to the ceiling falls to 1/e, with
            the best hyperparameters and opponents.
        width: Distance from its best value, as a share of its range, at which a hyperparameter
            slows learning to 0.61 of its speed.
        opponents_matter: Share of the speed that is lost against opponents that never win, or
            always.
        noise: Standard deviation of the random gain in skill during ``learning_agent_steps`` of
            training, Elo.
        inheritance: Correlation of a copy's potential with its donor's; the rest is the copy's own
            luck.
        cyclic_share: Variance of the rock-paper-scissors part of a match over that of the
            difference of two skills; 0: none, 1/3: as the interface says.
        draw_rate: Share of draws between equals, in [0, 1).
        top_draw_rate: Share of draws between equals at the ceiling, interpolated by their mean
            skill below. None: ``draw_rate``.
        pair_deviation: Standard deviation of the effect of each pair of weights of different lines
            besides skills and kinds, Elo; constant for a pair.
        seat_advantage: Elo of the seat with the lower index.
        lapse: Share of matches that a lot decides, whoever plays: strengths do not add up then.
        compression: Share by which a difference of 1,000 Elo is longer than matches show, larger
            ones more: d of two skills plays like d / (1 + compression |d| / 1000).
        recency: Elo by which weights are ahead of all that were trained for less, beside skills.
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
        """Make random weights: they play like ``bot:random``, whatever their potential."""
        # z ~ N(0, spread^2), k uniform
        potential = self.spread * float(rng.normal())
        return Weights(skill=0.0, potential=potential, kind=int(rng.integers(NUM_KINDS)))

    def bot(self, name: str) -> Weights:
        """Make a scripted player; the skill of those other than ``bot:random`` follows from the
        name.
        """
        # Bots neither train nor are copied, so they need no potential.
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
        """Train weights.

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
        # s' = s + (c + z - s) (1 - e^(-v l n / T)) + noise sqrt(n / T) e
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
            # 4 p (1 - p) is 1 for equals, 0 for a sure win or loss.
            p = expected_score(self.advantage(weights, opponent))
            total += 4.0 * p * (1.0 - p)
        # l = 1 - m (1 - mean(4 p (1 - p)))
        return 1.0 - self.opponents_matter * (1.0 - total / len(opponents))

    def advantage(self, first: Weights, second: Weights) -> float:
        """Return the Elo by which the first is ahead in a match, without the seats' advantage."""
        ahead = self._ahead(first, second)
        turn = (first.kind - second.kind) % NUM_KINDS
        if self.cyclic_share > 0.0 and turn:
            # The ratio is `cyclic_share` with a = spread sqrt(3 share): Var(a r) = 2/3 a^2 between
            # random kinds, with r in {-1, 0, 1}, and Var(z_i - z_j) = 2 spread^2.
            height = self.spread * math.sqrt(3.0 * self.cyclic_share)
            ahead += height if turn == 1 else -height
        if self.pair_deviation > 0.0:
            ahead += self.pair_deviation * pair_effect(first.potential, second.potential)
        return ahead

    def play(
        self, first: Weights, second: Weights, *, num_matches: int, rng: np.random.Generator
    ) -> tuple[int, int, int]:
        """Draw wins, draws and losses of the first, which has the lower seat.

        The expected score does not depend on how often games are drawn.
        """
        p = self._score(self.advantage(first, second), seat=self.seat_advantage)
        # P(draw) = 2 q min(p, 1 - p), half from wins and half from losses: p stays the mean score.
        draw = 2.0 * self._draw_rate_of(first, second) * min(p, 1.0 - p)
        # If no game can be tied, a binomial sample has the distribution of the multinomial one, and
        # is faster.
        if draw == 0.0:
            wins = int(rng.binomial(num_matches, p))
            return wins, 0, num_matches - wins
        # Rounding may take the last share below 0, which NumPy refuses.
        shares = [p - 0.5 * draw, draw, max(1.0 - p - 0.5 * draw, 0.0)]
        wins, draws, losses = (int(count) for count in rng.multinomial(num_matches, shares))
        return wins, draws, losses

    def difference(self, first: Weights, second: Weights) -> float:
        """Return the Elo by which matches, in each seat equally many, show the first ahead.

        Without the effects of kinds and pairs, which no rating has: that of the two skills and
        times, less what lapses and compression take from it.
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
        """Return the share of draws if the two were equals of their mean skill."""
        if self.top_draw_rate is None:
            return self.draw_rate
        height = min(max(0.5 * (first.skill + second.skill) / self.ceiling, 0.0), 1.0)
        return self.draw_rate + height * (self.top_draw_rate - self.draw_rate)


def expected_score(advantage: float) -> float:
    """Return the expected score of a player that is ahead by so many Elo, draws half."""
    # E = 1 / (1 + 10^(-d / 400)); `math.pow` raises an error from d = -124,000 on.
    return 1.0 / (1.0 + math.pow(10.0, -max(min(advantage, 4000.0), -4000.0) / 400.0))


def place(name: str) -> float:
    """Return a number in [0.2, 0.8) that depends on a name alone."""
    return 0.2 + 0.6 * int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) / 2**32


def pair_effect(first: float, second: float) -> float:
    """Return a standard normal number that depends on two potentials; swapping them negates it."""
    if first == second:
        return 0.0
    # The order is one for both sides, so that (j, i) draws the number of (i, j).
    low, high = sorted((first, second))
    digest = hashlib.sha256(f"{low!r} {high!r}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8]))
    return float(rng.normal()) * (1.0 if low == first else -1.0)


@dataclass(frozen=True, slots=True)
class Landscape:
    """Effect of hyperparameters on the speed of learning: one hill in a population's
    search space.
    """

    dimensions: Mapping[str, Dimension]
    width: float

    def speed(self, hyperparameters: Hyperparameters) -> float:
        """Return the speed of learning, in (0, 1]."""
        # v = exp(-mean(((u - u*) / width)^2) / 2), with u the place in the range, from 0 to 1
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
    """Return the place of a value in its range, from 0 to 1, on the scale on which it is drawn.

    0.5 for a value that is unknown.
    """
    if not is_known(value):
        return 0.5
    return min(max(dimension.to_unit(value), 0.0), 1.0)
