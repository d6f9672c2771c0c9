"""START HERE: the nouns of the controller's half, as Protocols, and what they exchange.

    Matchmaker    against whom a policy trains              populations.matchmaking
    Exploit       who copies whom                           populations.pbt.exploit
    Explore       what changes about the hyperparameters    populations.pbt.explore
    RatingModel   how strong everyone is                    populations.ratings
    Launcher      starts and ends learner processes         populations.launchers

All but the Launcher are pure: no file, socket, clock or global random; a `numpy.random.Generator`
comes in as an argument, and the same arguments give the same answer. The controller draws opponents
for each training assignment, fits ratings after each evaluation, and asks Exploit and Explore when
a policy's clock (`populations.pbt.scheduler`) says that it is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from arena.types import Entrant, PolicyId
from populations.candidates import Candidate, Candidates
from populations.decisions import Decision

if TYPE_CHECKING:
    from populations.records.rows import GenerationRow


FloatArray = npt.NDArray[np.float64]

RatingDifference = Callable[[PolicyId, PolicyId], tuple[float, float] | None]
"""By how much the first is better: mean and standard deviation in Elo; None if unrated."""

PRIOR_MATCHES = 8.0
"""Matches that the prediction of a score by ratings is worth, beside results."""

SearchSpace = Mapping[str, Mapping[str, object]]
"""By hyperparameter, ``{low, high, log, step, complement}`` or ``{choices}``, as in YAML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpponentRequest:
    """What a matchmaker knows when it draws the opponents of one population for an assignment.

    Attributes:
        trainee: Who trains.
        role: Its role.
        entrant: The trainee in payoffs: policy and generation.
        agent_steps: Its count.
        num_opponents: Opponents to draw: one for each block of environments.
        is_own_population: Whether the opponents are of the trainee's own population, so that it can
            play itself.
        ghosts: All ghosts of the opponents' population, the trainee's own included.
        latest: Latest checkpoints of the active policies of the opponents' population, the trainee
            itself left out.
        record: Matches of the trainee against each candidate since its weights were last
            replaced, draws half on each side, older ones decayed: wins and losses, float64 [N]
            each, zeros if they never met. Of ``latest``: against any recent checkpoint of the
            policy.
        predicted: Score that ratings promise the trainee against each candidate, in [0, 1]; an
            unrated ghost counts as its nearest rated ancestor, 1/2 where nothing is known.
            float64 [N].
        ratings: Elo of each candidate, NaN if unrated; of ``latest``, of the policy's newest
            weights that are rated. float64 [N].
        trainee_rating: Elo of the trainee's newest weights that are rated; NaN if none are.
        scores: What each candidate (row) is expected to score against each other one (column),
            draws half. float64 [N, N], 1/2 on the diagonal.
    """

    trainee: PolicyId
    role: str = "main"
    entrant: Entrant
    agent_steps: int = 0
    num_opponents: int
    is_own_population: bool
    ghosts: Candidates
    latest: Candidates
    record: Callable[[Candidates], tuple[FloatArray, FloatArray]]
    predicted: Callable[[Candidates], FloatArray]
    ratings: Callable[[Candidates], FloatArray]
    trainee_rating: float
    scores: Callable[[Candidates], FloatArray]

    def posterior(self, candidates: Candidates) -> tuple[FloatArray, FloatArray]:
        """Return a and b of Beta(a, b), the posterior of how often the trainee beats each.

        a = wins + k p and b = losses + k (1 - p), draws half: results, and what ratings predict
        (p) with the weight of k = ``PRIOR_MATCHES`` matches. float64 [N] each.
        """
        wins, losses = self.record(candidates)
        points = PRIOR_MATCHES * self.predicted(candidates)
        return wins + points, losses + (PRIOR_MATCHES - points)

    def win_rates(self, candidates: Candidates) -> FloatArray:
        """Return how often the trainee beats each, draws half: the mean of `posterior`.

        It is what ratings predict where they never met, and the results where they met often.
        float64 [N], in [0, 1].
        """
        wins, losses = self.record(candidates)
        # As few passes over tens of thousands of candidates as may be.
        points = PRIOR_MATCHES * self.predicted(candidates)
        points += wins
        matches = wins + losses
        matches += PRIOR_MATCHES
        points /= matches
        return points


@dataclass(frozen=True, slots=True, kw_only=True)
class Opponents:
    """Against whom the blocks of an assignment are played; together ``num_opponents`` of them.

    Attributes:
        num_mirrors: Blocks in which the trainee plays itself; 0 where the opponents are of another
            population.
        players: Drawn with replacement, so one may be there twice.
    """

    num_mirrors: int
    players: tuple[Candidate, ...]


class Matchmaker(Protocol):
    """Decides against whom a policy trains. Keeps no state."""

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Draw the opponents of one assignment.

        Raises:
            ValueError: If nobody is there to be drawn, or ``num_opponents`` is below 1.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An active policy as selection sees it.

    Attributes:
        policy: Its id.
        index: Its number: breaks ties, lower first.
        rating: Elo of its standing weights; None if unrated.
        num_matches: Evaluation matches since its generation began.
        is_reference: Never mutated.
        deviation: Standard deviation of the rating, Elo; 0: exact. Without what is uncertain about
            all policies alike (how far away the anchor is).
        num_returns: Evaluation matches of its standing weights that the next two are about
            (``Record.matches``).
        return_mean: Their mean return (``return_sum / matches``); 0 without any.
        return_variance: Their sample variance,
            ``(return_square_sum - return_sum**2 / matches) / (matches - 1)``; 0 below two.
    """

    policy: PolicyId
    index: int
    rating: float | None
    num_matches: int
    is_reference: bool = False
    deviation: float = 0.0
    num_returns: int = 0
    return_mean: float = 0.0
    return_variance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Points of a player in some matches: a win counts 1, a draw 1/2.

    Attributes:
        points: wins + draws / 2, from 0 to ``matches``.
        matches: How many; a float where opponents were weighted.
    """

    points: float
    matches: float


CommonScores = Callable[[PolicyId, PolicyId], tuple[Score, Score] | None]
"""What two policies scored in evaluation against the opponents that both have met, the same mix of
opponents for both (`populations.pbt.statistics.on_common_opponents` makes it so); None if there is
no such opponent. Their matches against each other do not count."""


class Exploit(Protocol):
    """Decides who copies whom. Keeps no state."""

    def decide(
        self,
        policy: PolicyId,
        *,
        members: Sequence[Member],
        difference: RatingDifference,
        common: CommonScores | None = None,
        rng: np.random.Generator,
    ) -> Decision:
        """Decide about one policy that is ready.

        Args:
            policy: One of ``members``.
            members: The active policies of its population, in any order.
            difference: From the last fit of ratings.
            common: Scores against common opponents; None in cooperation, where nobody has
                opponents and returns are compared instead.
            rng: Chooses the rival, or among equally good donors.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """A step in the space of hyperparameters.

    Attributes:
        old: Every hyperparameter before.
        new: Every hyperparameter after; those outside of the search space are as before.
        moves: What was done to each one in the search space: ``resampled``, ``x0.8``, ``x1.2``,
            ``next``, ``previous``, ``reset`` or ``kept``, or the rule that chose it (``tpe``);
            after a semicolon, why another rule was used.
    """

    old: Mapping[str, float]
    new: Mapping[str, float]
    moves: Mapping[str, str]


class Explore(Protocol):
    """Decides what changes about hyperparameters. Keeps no state."""

    def explore(
        self,
        hyperparameters: Mapping[str, float],
        search_space: SearchSpace,
        *,
        history: Sequence[GenerationRow] = (),
        agent_steps: int = 0,
        rng: np.random.Generator,
    ) -> Exploration:
        """Change the hyperparameters that are in the search space, within its bounds.

        Args:
            hyperparameters: From which to go on: the policy's own, or its donor's.
            search_space: What may change.
            history: All generations of the population, in order of beginning. The one that ends
                with this decision should be ended in it already (``agent_steps_end``,
                ``rating_end``): what has no end counts as still running.
            agent_steps: The policy's count now.
            rng: All randomness.
        """
        ...


class Launcher(Protocol):
    """Starts, watches and ends learner processes, one per slot. Use it from one thread."""

    def start(self, slot: int, populations: tuple[str, ...]) -> None:
        """Start a learner in a slot; what ran there before is killed.

        Args:
            slot: Its number, from 0.
            populations: Which it trains; empty: any.
        """
        ...

    def kill(self, slot: int, *, dump_stacks: bool = False) -> None:
        """End a slot's learner at once; nothing happens if there is none.

        Args:
            slot: Which.
            dump_stacks: Whether it first writes where it is; it has a moment for that, in which
                nobody waits for it.
        """
        ...

    def running(self) -> Mapping[int, int]:
        """Process ids by slot."""
        ...

    def exited(self) -> list[tuple[int, int]]:
        """Slots whose learner has ended since the last call, with exit codes (-n: by signal n)."""
        ...

    def close(self) -> None:
        """End what is left."""
        ...
