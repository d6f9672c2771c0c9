"""START HERE: the nouns of the controller's half, as Protocols, and what they exchange.

::

    Matchmaker    decides against whom a policy trains      populations.matchmaking
    Exploit       decides which policy copies which one     populations.pbt.exploit
    Explore       changes hyperparameters                   populations.pbt.explore
    Thinning      decides which ghosts a full pool removes  populations.thinning
    Launcher      starts and ends learner processes         populations.launchers

All but the Launcher are pure: they use no file, socket, clock or global random, a
`numpy.random.Generator` is an argument, and equal arguments give equal answers. The controller
draws opponents for each training assignment, fits ratings after new evaluation results, and calls
Exploit and Explore when `populations.pbt.scheduler` finds a policy ready.

Tests: `tests/populations/matchmaking/test_rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from arena.types import Entrant, Hyperparameters, PolicyId
from arena.wire.messages import Hello
from populations.candidates import Candidate, Candidates
from populations.decisions import Decision

if TYPE_CHECKING:
    from populations.records.rows import GenerationRow


FloatArray = npt.NDArray[np.float64]

RatingDifference = Callable[[PolicyId, PolicyId], tuple[float, float] | None]
"""Function from two policies to mean and standard deviation of how much better the first is, in
Elo; None if unrated.
"""

# This is k in the formulas below. With a prior score of 1/2 and the weight of one match, PFSP was
# uniform in practice.
PRIOR_MATCHES = 8.0
"""Weight of the score that ratings predict, as a number of matches that is added to results."""

SearchSpace = Mapping[str, Mapping[str, object]]
"""Search space by hyperparameter: ``{low, high, log, step, complement, factors}`` or
``{choices}``, as in YAML.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinningRequest:
    """Input of a rule that thins the ghosts of one population; arrays are in order of creation.

    Attributes:
        policies: Number of each ghost's policy. int64 [N].
        agent_steps: Policy's agent steps. int64 [N].
        ratings: Elo, NaN if unrated. float64 [N].
        lows: Lower ends of the 95% intervals by which players are compared, Elo; -inf if unrated.
            float64 [N].
        is_needed: Ghosts that must stay. bool [N].
        num_to_go: Number of ghosts to remove; the rule removes fewer if too many must stay.
    """

    policies: npt.NDArray[np.int64]
    agent_steps: npt.NDArray[np.int64]
    ratings: FloatArray
    lows: FloatArray
    is_needed: npt.NDArray[np.bool_]
    num_to_go: int


class Thinning(Protocol):
    """Rule that thins a full pool of ghosts."""

    def choose(self, request: ThinningRequest) -> tuple[int, ...]:
        """Return the indices of the ghosts to remove, of which none is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpponentRequest:
    """Input of a matchmaker that draws the opponents of one population for an assignment.

    Attributes:
        trainee: Policy that trains.
        role: Role of the trainee.
        entrant: Trainee's name in payoffs: policy and generation.
        agent_steps: Trainee's agent steps.
        num_opponents: Opponents to draw: one for each block of environments.
        is_own_population: Whether the opponents are of the trainee's own population, so that it can
            play itself.
        ghosts: All ghosts of the opponents' population, the trainee's own included.
        latest: Latest checkpoints of the active policies of the opponents' population, the trainee
            itself left out. With ``matchmaking.rivals: learning`` this is the rival alone, which
            learns in the same assignment; when it is drawn, it plays with its live weights.
        record: Wins and losses of the trainee against each candidate since its weights were last
            replaced, draws half on each side, older ones decayed: float64 [N] each, zeros without
            matches. For ``latest``: against any recent checkpoint of the policy.
        predicted: Score that ratings predict for the trainee against each candidate, in [0, 1]; an
            unrated ghost counts as its nearest rated ancestor, 1/2 where nothing is known. float64
            [N].
        ratings: Elo of each candidate, NaN if unrated; for ``latest``, that of the policy's newest
            rated weights. float64 [N].
        trainee_rating: Elo of the trainee's newest rated weights; NaN if there are none.
        scores: Expected score of each candidate (row) against each other one (column), draws half.
            float64 [N, N], 1/2 on the diagonal.
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
        """Return a and b of Beta(a, b), the posterior of the trainee's score against each
        candidate.

        a = wins + k p and b = losses + k (1 - p), draws half: results, and the prediction p of the
        ratings with the weight of k = ``PRIOR_MATCHES`` matches. float64 [N] each.
        """
        wins, losses = self.record(candidates)
        points = PRIOR_MATCHES * self.predicted(candidates)
        return wins + points, losses + (PRIOR_MATCHES - points)

    def win_rates(self, candidates: Candidates) -> FloatArray:
        """Return the expected score of the trainee against each candidate: the mean of `posterior`.

        It is the prediction of the ratings without matches, and the results after many. float64
        [N], in [0, 1].
        """
        wins, losses = self.record(candidates)
        # This is (wins + k p) / (wins + losses + k), computed in place, because there may be tens
        # of thousands of candidates and each pass over them takes time.
        points = PRIOR_MATCHES * self.predicted(candidates)
        points += wins
        matches = wins + losses
        matches += PRIOR_MATCHES
        points /= matches
        return points


@dataclass(frozen=True, slots=True, kw_only=True)
class Opponents:
    """Opponents of the ``num_opponents`` blocks of an assignment.

    Attributes:
        num_mirrors: Blocks in which the trainee plays itself; 0 if the opponents are of another
            population.
        players: Opponents, drawn with replacement, so one may occur twice.
    """

    num_mirrors: int
    players: tuple[Candidate, ...]


class Matchmaker(Protocol):
    """Rule that draws a policy's opponents.

    The object keeps no state; a rule of Arena's own may have one number in each ghost's row
    (`populations.matchmaking.drawing.GhostMemory`).
    """

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Draw the opponents of one assignment.

        Raises:
            ValueError: If there is no opponent to draw, or ``num_opponents`` is below 1.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Active policy as PBT's selection sees it.

    Attributes:
        policy: Policy's id.
        index: Policy's number, by which ties are broken: the lower one first.
        rating: Elo of its standing weights; None if unrated.
        num_matches: Evaluation matches since its generation began.
        is_reference: Whether it is the reference member, which is never mutated.
        deviation: Standard deviation of the rating in Elo, without the uncertainty common to all
            policies (their distance from the anchor); 0: exact.
        num_returns: Evaluation matches of its standing weights behind the next two
            (``Record.matches``).
        return_mean: Mean return of these matches (``return_sum / matches``); 0 without matches.
        return_variance: Sample variance of these returns, ``(return_square_sum - return_sum**2 /
            matches) / (matches - 1)``; 0 below two matches.
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
        matches: Number of matches; a float where opponents were weighted.
    """

    points: float
    matches: float


CommonScores = Callable[[PolicyId, PolicyId], tuple[Score, Score] | None]
"""Function from two policies to their scores in evaluation against common opponents.

Both scores have the same mix of opponents (`populations.pbt.statistics.on_common_opponents`); None
if there is no common opponent. Matches against each other do not count.
"""


class Exploit(Protocol):
    """Rule that decides which policy copies which one; the object keeps no state."""

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
            members: Active policies of its population, in any order.
            difference: Rating differences of the last fit.
            common: Scores against common opponents. None in cooperation, where there are no
                opponents and returns are compared instead.
            rng: Generator that chooses the rival, or among equally good donors.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """Step in the space of hyperparameters.

    Attributes:
        old: Every hyperparameter before.
        new: Every hyperparameter after; those outside the search space are unchanged.
        moves: Change of each hyperparameter in the search space: ``resampled``, ``x0.8``, ``x1.2``,
            ``next``, ``previous``, ``switched`` (to another choice without an order), ``reset`` or
            ``kept``, or the rule that chose it (``tpe``); after a semicolon, the reason for using
            another rule.
    """

    old: Hyperparameters
    new: Hyperparameters
    moves: Mapping[str, str]


class Explore(Protocol):
    """Rule that changes hyperparameters; the object keeps no state."""

    def explore(
        self,
        hyperparameters: Hyperparameters,
        search_space: SearchSpace,
        *,
        history: Sequence[GenerationRow] = (),
        agent_steps: int = 0,
        rng: np.random.Generator,
    ) -> Exploration:
        """Change the hyperparameters that are in the search space, within its bounds.

        Args:
            hyperparameters: Hyperparameters to start from: the policy's own, or its donor's.
            search_space: Hyperparameters that may change, and their bounds.
            history: All generations of the population, in order of beginning. The generation that
                ends with this decision should have its end already (``agent_steps_end``,
                ``rating_end``), as a generation without an end counts as running.
            agent_steps: Policy's agent steps now.
            rng: The only source of randomness.
        """


class Launcher(Protocol):
    """Manager of learner processes, one per slot; used by one thread only."""

    def start(self, slot: int, populations: tuple[str, ...]) -> None:
        """Start a learner in a slot, after killing its predecessor there.

        Args:
            slot: Slot's number, from 0.
            populations: Populations that the learner may train; empty for any.
        """

    def kill(self, slot: int, *, dump_stacks: bool = False) -> None:
        """End a slot's learner at once; does nothing if there is none.

        Args:
            slot: Slot's number.
            dump_stacks: Whether the learner may first write the stacks of its threads, to debug a
                hang. The call does not wait for that.
        """

    def slot_of(self, hello: Hello) -> int | None:
        """Return the slot of the learner that sent a Hello; None if it was not started here."""

    def waiting(self) -> Collection[int]:
        """Return slots whose learner waits for resources; it is started as soon as they are
        available.
        """

    def exited(self) -> list[tuple[int, int | None]]:
        """Return slots whose learner has ended by itself since the last call, not by `kill`.

        Each comes with its exit code (-n: ended by signal n; None: lost with its machine).
        """

    def close(self) -> None:
        """End all remaining learners."""
