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

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from arena.types import Entrant, PlayerId, PolicyId

if TYPE_CHECKING:
    import numpy as np

    from populations.ratings.bradley_terry import Fit

E = TypeVar("E", bound=Hashable)

WinRate = Callable[[Entrant, Entrant], float]
"""How often the first beats the second, draws half, in (0, 1); 0.5 for those who never met."""

RatingDifference = Callable[[PolicyId, PolicyId], tuple[float, float] | None]
"""By how much the first is better: mean and standard deviation in Elo; None if unrated."""

SearchSpace = Mapping[str, Mapping[str, object]]
"""By hyperparameter, ``{low, high, log, step, complement}`` or ``{choices}``, as in YAML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A frozen player that may be an opponent.

    Attributes:
        player: A ghost, or a policy of another population (its latest checkpoint).
        policy: Whose weights they are.
        entrant: Weights digest: how payoffs know it.
        agent_steps: The policy's count when they were frozen.
    """

    player: PlayerId
    policy: PolicyId
    entrant: Entrant
    agent_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpponentRequest:
    """What a matchmaker knows when it draws the opponents of one population for an assignment.

    Attributes:
        trainee: Who trains.
        entrant: The trainee in payoffs: policy and generation.
        num_opponents: Opponents to draw: one for each block of environments.
        ghosts: All ghosts of the opponents' population, the trainee's own included.
        latest: Latest checkpoints of the policies of the opponents' population. Empty where the
            opponents are of the trainee's own population: then "latest" is mirror self-play.
        win_rate: The payoffs.
    """

    trainee: PolicyId
    entrant: Entrant
    num_opponents: int
    ghosts: tuple[Candidate, ...]
    latest: tuple[Candidate, ...] = ()
    win_rate: WinRate


@dataclass(frozen=True, slots=True, kw_only=True)
class Opponents:
    """Against whom the blocks of an assignment are played; together ``num_opponents`` of them.

    Attributes:
        num_mirrors: Blocks in which the trainee plays itself.
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
    """

    policy: PolicyId
    index: int
    rating: float | None
    num_matches: int
    is_reference: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The numbers behind a decision, for the event log.

    Attributes:
        rank: 1 is best; None if the policy is not ranked.
        num_ranked: Policies with a rating and enough matches.
        num_selected: So many are bottom, and so many top.
        rating: Elo; None if unrated.
        num_matches: Evaluation matches since the policy's generation began.
    """

    rank: int | None
    num_ranked: int
    num_selected: int
    rating: float | None
    num_matches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReady:
    """Too little is known: ask again after the next evaluation. Changes nothing."""

    reason: str
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """The policy stays as it is until its next ready mark."""

    reason: str
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploreOwn:
    """The policy keeps its weights; its hyperparameters are explored."""

    reason: str
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploitDonor:
    """The policy takes over the donor's weights, optimizer, normalizers and hyperparameters.

    Attributes:
        donor: Never the policy itself.
        explore: Whether the hyperparameters are explored afterwards (not for the reference).
        donor_rank: Its rank.
        donor_rating: Elo.
        gap: Elo by which the donor is better.
        gap_deviation: Standard deviation of that difference.
        probability_better: Of the donor, from these two.
        num_donors: Policies among the top that passed the same test.
        evidence: About the policy.
    """

    donor: PolicyId
    explore: bool
    donor_rank: int
    donor_rating: float
    gap: float
    gap_deviation: float
    probability_better: float
    num_donors: int
    evidence: Evidence


Decision = NotReady | Keep | ExploreOwn | ExploitDonor


class Exploit(Protocol):
    """Decides who copies whom. Keeps no state."""

    def decide(
        self,
        policy: PolicyId,
        *,
        members: Sequence[Member],
        difference: RatingDifference,
        rng: np.random.Generator,
    ) -> Decision:
        """Decide about one policy that is ready.

        Args:
            policy: One of ``members``.
            members: The active policies of its population, in any order.
            difference: From the last fit of ratings.
            rng: Chooses among equally good donors.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """A step in the space of hyperparameters.

    Attributes:
        old: Every hyperparameter before.
        new: Every hyperparameter after; those outside of the search space are as before.
        moves: What was done to each one in the search space: ``resampled``, ``x0.8``, ``x1.2``,
            ``next``, ``previous`` or ``kept``.
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
        rng: np.random.Generator,
    ) -> Exploration:
        """Change the hyperparameters that are in the search space, within its bounds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[E]):
    """Matches between two entrants in one pair of seats, seen from ``first``.

    Attributes:
        first: An entrant: any hashable name.
        second: Another one.
        seats: Indices of their seats, in this order; equal numbers if seats do not matter.
        wins: Of ``first``. A float where scores between 0 and 1 were counted in parts.
        draws: Matches with equal scores.
        losses: Of ``first``.
    """

    first: E
    second: E
    seats: tuple[int, int]
    wins: float
    draws: float
    losses: float


class RatingModel(Protocol):
    """Turns results into ratings with their uncertainty. Keeps no state."""

    def fit(
        self,
        results: Iterable[Result[E]],
        *,
        entrants: Iterable[E] = (),
        parents: Mapping[E, E] | None = None,
        anchors: Collection[E] = (),
    ) -> Fit[E]:
        """Fit ratings.

        Args:
            results: In any order.
            entrants: To be rated even if they have no result.
            parents: Whose rating is the prior mean, for those that have a rated parent.
            anchors: At exactly 0. Without any, the mean of all ratings is 0.

        Raises:
            ValueError: If counts are negative or not finite, an entrant plays itself, or parents
                go round in a circle.
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

    def kill(self, slot: int) -> None:
        """End a slot's learner at once; nothing happens if there is none."""
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
