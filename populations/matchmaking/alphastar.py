"""AlphaStar's league: main agents, main exploiters and league exploiters.

Source: Vinyals et al., "Grandmaster level in StarCraft II using multi-agent reinforcement learning"
(Nature, 2019), section "Multi-agent learning" and the pseudocode in its supplementary data. Where
the two disagree about whom a main exploiter plays, ``constants`` says which holds.

A decision is a list of branches whose shares sum to one, so what is drawn can be computed. Shapes:
N ghosts, M latest checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arena.config import Model
from arena.types import PolicyId
from populations.candidates import Candidates, FloatArray, IntArray
from populations.core import OpponentRequest, Opponents
from populations.matchmaking.drawing import Distribution, draw_opponents, with_latest
from populations.matchmaking.pfsp import Weighting, pfsp_probabilities
from populations.roles import LEAGUE_EXPLOITER, MAIN, MAIN_EXPLOITER, Constants
from populations.rule_kinds import RuleKind, itself

PFSP_SHARE, VERIFICATION_SHARE, SELF_PLAY_SHARE = 0.5, 0.15, 0.35
"""Shares of a main agent's opponents: all ghosts by PFSP, `_Options.verification`, self-play."""

# Thresholds and shares as in the supplement's pseudocode.
TOO_STRONG = 0.3
"""Win rate of the trainee against a main agent at or below which it plays that agent's ghosts
instead of the agent itself."""

EXPLOITED = 0.3
"""Win rate of the trainee against a ghost of a main exploiter below which it plays all of them."""

FORGOTTEN = 0.7
"""Win rate of the trainee against a main agent's former self below which it plays all of them."""

ATTACKABLE: dict[Constants, float] = {"pseudocode": 0.1, "paper": 0.2}
"""Win rate against a main agent at or below which a main exploiter plays only its ghosts."""

HISTORY_SHARE: dict[Constants, float] = {"pseudocode": 0.0, "paper": 0.5}
"""Share of a main exploiter's matches against the ghosts of a main agent above `ATTACKABLE`."""


class AlphastarMatchmaker(Model):
    """Opponents by the trainee's role."""

    constants: Constants = "pseudocode"
    """``alphastar``: source of the numbers where the paper's text and its pseudocode disagree."""

    def distribution(self, request: OpponentRequest, *, rng: np.random.Generator) -> Distribution:
        """Return the sum over all branches."""
        del rng
        return self._given(request, _main_indices(request))

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Draw opponents by role.

        With more main agents than opponents to draw, as many of them are drawn first: the same
        probabilities, without looking at every main agent's history.
        """
        indices = _main_indices(request)
        # `draw_opponents` refuses numbers below 1.
        if len(indices) > request.num_opponents >= 1:
            indices = rng.permutation(indices)[: request.num_opponents]
        return draw_opponents(request, self._given(request, indices), rng=rng)

    def _given(self, request: OpponentRequest, indices: IntArray) -> Distribution:
        """Return the distribution in which some main agents are equally likely opponents."""
        win_rates = request.win_rates(request.ghosts)
        branches = self._branches(request, _mains(request, indices), win_rates=win_rates)
        return _summed(request, branches, win_rates=win_rates)

    def _branches(
        self, request: OpponentRequest, mains: Sequence[_Main], *, win_rates: FloatArray
    ) -> list[_Branch]:
        """Return all possible branches."""
        history = np.arange(len(request.ghosts))
        if request.role == LEAGUE_EXPLOITER:
            return [_Branch(share=1.0, ghosts=history, weighting="linear_capped")]
        if not mains:
            # All history is met while there is no main agent to meet.
            return [_Branch(share=1.0, ghosts=history, weighting="squared")]
        league = _League(request.ghosts, win_rates=win_rates, constants=self.constants)
        # The pseudocode draws one main agent; here every branch has its share of that draw.
        share = 1.0 / len(mains)
        if request.role == MAIN_EXPLOITER:
            return [branch for main in mains for branch in league.attack(main, share=share)]
        return [
            _Branch(share=PFSP_SHARE, ghosts=history, weighting="squared"),
            *league.verification(mains, share=VERIFICATION_SHARE),
            *(league.self_play(main, share=SELF_PLAY_SHARE * share) for main in mains),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Main:
    """A main agent as an opponent.

    Attributes:
        policy: Id of the agent.
        index: Position in the latest; None for the trainee itself.
        win_rate: Win rate of the trainee against it.
    """

    policy: PolicyId
    index: int | None
    win_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    """A possible opponent and its probability: a main agent itself, or one of some ghosts.

    Attributes:
        share: The probability.
        main: Main agent that is met; None: one of ``ghosts``.
        ghosts: Positions in the request's ghosts. If there are none, the latest are met instead.
        weighting: PFSP's among them.
    """

    share: float
    main: _Main | None = None
    ghosts: IntArray
    weighting: Weighting = "squared"


NO_GHOSTS: IntArray = np.zeros(0, dtype=np.int64)


ITSELF = -1
"""The trainee among indices of the latest."""


def _main_indices(request: OpponentRequest) -> IntArray:
    """Return all main agents that may be met: the trainee itself, and indices of the latest."""
    own = request.is_own_population and request.role == MAIN
    others = np.flatnonzero(request.latest.of_role(MAIN))
    # `latest` leaves the trainee out, but a main agent also meets itself.
    return np.append([ITSELF], others) if own else others


def _mains(request: OpponentRequest, indices: IntArray) -> list[_Main]:
    others = indices[indices != ITSELF]
    candidates = request.latest.take(others)
    win_rates = request.win_rates(candidates)
    mains = [
        _Main(policy=policy, index=int(index), win_rate=float(win_rate))
        for policy, index, win_rate in zip(candidates.policies, others, win_rates, strict=True)
    ]
    if len(others) < len(indices):
        # Every match against itself is even.
        mains.append(_Main(policy=request.trainee, index=None, win_rate=0.5))
    return mains


class _League:
    """The history of the league. The methods are AlphaStar's branches."""

    def __init__(self, ghosts: Candidates, *, win_rates: FloatArray, constants: Constants) -> None:
        self._ghosts = ghosts
        self._win_rates = win_rates
        self._constants = constants
        self._histories: dict[PolicyId, IntArray] = {}

    def self_play(self, main: _Main, *, share: float) -> _Branch:
        """Return the main agent itself, or its history while it is too strong."""
        history = self._history(main)
        # An agent that is too strong is replaced by its former selves, the most even ones first.
        if main.win_rate > TOO_STRONG or not len(history):
            return _Branch(share=share, main=main, ghosts=NO_GHOSTS)
        return _Branch(share=share, ghosts=history, weighting="variance")

    def verification(self, mains: Sequence[_Main], *, share: float) -> list[_Branch]:
        """Return the branches that check for lost skills.

        All ghosts of main exploiters if the trainee beats any of them less than `EXPLOITED`; else,
        for each main agent, its former selves if any is beaten less than `FORGOTTEN`; else
        self-play.
        """
        exploiters = np.flatnonzero(self._ghosts.of_role(MAIN_EXPLOITER))
        # One weakness is enough to train against all, weighted towards the hardest.
        if (self._win_rates[exploiters] < EXPLOITED).any():
            return [_Branch(share=share, ghosts=exploiters, weighting="squared")]
        return [self._former_selves(main, share=share / len(mains)) for main in mains]

    def _former_selves(self, main: _Main, *, share: float) -> _Branch:
        history = self._history(main)
        # The newest selves are hard because they are strong, not because they are forgotten.
        kept = history[: num_before_monotonic_suffix(self._win_rates[history])]
        # The share is not lost without forgotten skills: it goes to self-play.
        if (self._win_rates[kept] < FORGOTTEN).any():
            return _Branch(share=share, ghosts=kept, weighting="squared")
        return self.self_play(main, share=share)

    def attack(self, main: _Main, *, share: float) -> list[_Branch]:
        """Return a main exploiter's branches: the main agent itself once it is beaten at times."""
        history = self._history(main)
        past_share = HISTORY_SHARE[self._constants]
        # There is no past to go to without a ghost.
        if not len(history):
            past_share = 0.0
        elif main.win_rate <= ATTACKABLE[self._constants]:
            past_share = 1.0
        return [
            _Branch(share=past_share * share, ghosts=history, weighting="variance"),
            _Branch(share=(1.0 - past_share) * share, main=main, ghosts=NO_GHOSTS),
        ]

    def _history(self, main: _Main) -> IntArray:
        """Return positions of a main agent's ghosts, oldest first."""
        history = self._histories.get(main.policy)
        if history is None:
            found = np.flatnonzero(self._ghosts.of_policy(main.policy))
            # Stable: ghosts of equal steps stay in order of creation.
            history = found[np.argsort(self._ghosts.agent_steps[found], kind="stable")]
            self._histories[main.policy] = history
        return history


def num_before_monotonic_suffix(win_rates: FloatArray) -> int:
    """Return how many of a history remain without its last run of win rates that never rise.

    Later selves are harder, so win rates fall along a history that is not forgotten; where one
    rises, what came before it is suspect. The pseudocode's ``remove_monotonic_suffix``.

    Args:
        win_rates: Oldest first. float64 [N].
    """
    rises = np.flatnonzero(np.diff(win_rates) > 0.0)
    # The value after the last rise stays, as in the pseudocode: players[:i + 1].
    return int(rises[-1]) + 2 if len(rises) else 0


def _summed(
    request: OpponentRequest, branches: Sequence[_Branch], *, win_rates: FloatArray
) -> Distribution:
    """Return the distribution that some branches add up to."""
    mirror, latest = 0.0, np.zeros(len(request.latest))
    ghosts = np.zeros(len(request.ghosts))
    for branch in branches:
        if branch.share == 0.0:
            continue
        if branch.main is not None and branch.main.index is None:
            mirror += branch.share
        elif branch.main is not None:
            latest[branch.main.index] += branch.share
        # All ghosts: no copies by position, for leagues of tens of thousands.
        elif len(branch.ghosts) == len(ghosts) > 0:
            ghosts += branch.share * pfsp_probabilities(win_rates, weighting=branch.weighting)
        elif len(branch.ghosts):
            ghosts[branch.ghosts] += branch.share * pfsp_probabilities(
                win_rates[branch.ghosts], weighting=branch.weighting
            )
        else:
            # The branch's share goes to the latest if there is no such ghost yet.
            instead = with_latest(request, ghosts=np.zeros(0), latest_ratio=1.0)
            mirror += branch.share * instead.mirror
            latest += branch.share * instead.latest
    return Distribution(mirror=mirror, latest=latest, ghosts=ghosts)


KIND = RuleKind(
    name="alphastar",
    settings=AlphastarMatchmaker,
    make=itself,
    unread=frozenset({"latest_ratio"}),
)
