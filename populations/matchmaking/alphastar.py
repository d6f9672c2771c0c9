"""AlphaStar's league: main agents, main exploiters and league exploiters.

Source: Vinyals et al., "Grandmaster level in StarCraft II using multi-agent reinforcement learning"
(Nature, 2019), section "Multi-agent learning" and the pseudocode in its supplementary data. The two
disagree about the opponents of a main exploiter; ``constants`` selects one of them.

A decision is a list of branches whose shares sum to one, so the probability of each opponent can be
computed. Shapes: N ghosts, M latest checkpoints.
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
"""Shares of a main agent's opponents: all ghosts by PFSP, `_League.verification`, self-play."""

# Thresholds and shares are those of the supplement's pseudocode.
TOO_STRONG = 0.3
"""Win rate of the trainee against a main agent at or below which it plays that agent's ghosts
instead of the agent itself."""

EXPLOITED = 0.3
"""Win rate against any main exploiter's ghost below which the trainee plays all of these ghosts."""

FORGOTTEN = 0.7
"""Win rate against any ghost of a main agent below which the trainee plays all of these ghosts."""

ATTACKABLE: dict[Constants, float] = {"pseudocode": 0.1, "paper": 0.2}
"""Win rate against a main agent at or below which a main exploiter plays only its ghosts."""

HISTORY_SHARE: dict[Constants, float] = {"pseudocode": 0.0, "paper": 0.5}
"""Share of a main exploiter's matches against a main agent's ghosts, once the win rate against the
agent itself is above `ATTACKABLE`."""


class AlphastarMatchmaker(Model):
    """Matchmaker that chooses opponents by the trainee's role."""

    constants: Constants = "pseudocode"
    """``alphastar``: source of numbers about which the paper's text and pseudocode disagree."""

    def distribution(self, request: OpponentRequest, *, rng: np.random.Generator) -> Distribution:
        """Return the distribution of opponents: the sum over all branches."""
        del rng
        return self._given(request, _main_indices(request))

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Draw opponents by the trainee's role.

        If there are more main agents than opponents to draw, only ``num_opponents`` main agents,
        drawn uniformly, are considered. That saves time and leaves each probability the same.
        """
        indices = _main_indices(request)
        # A number below 1 is left to `draw_opponents`, which raises the error.
        if len(indices) > request.num_opponents >= 1:
            indices = rng.permutation(indices)[: request.num_opponents]
        return draw_opponents(request, self._given(request, indices), rng=rng)

    def _given(self, request: OpponentRequest, indices: IntArray) -> Distribution:
        """Return the distribution if only the main agents with these indices are considered."""
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
            # Without a main agent the trainee plays all ghosts.
            return [_Branch(share=1.0, ghosts=history, weighting="squared")]
        league = _League(request.ghosts, win_rates=win_rates, constants=self.constants)
        # The pseudocode draws one main agent; here each main agent's branch has an equal share.
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
        index: Position in the request's ``latest``; None for the trainee itself.
        win_rate: Win rate of the trainee against the agent.
    """

    policy: PolicyId
    index: int | None
    win_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    """A possible opponent and its probability: a main agent itself, or one of some ghosts.

    Attributes:
        share: Probability of the branch.
        main: Main agent that is the opponent; None: the opponent is one of ``ghosts``.
        ghosts: Positions in the request's ghosts. If empty, the share goes to the latest.
        weighting: PFSP's weighting among ``ghosts``.
    """

    share: float
    main: _Main | None = None
    ghosts: IntArray
    weighting: Weighting = "squared"


NO_GHOSTS: IntArray = np.zeros(0, dtype=np.int64)


ITSELF = -1
"""Index that stands for the trainee itself among indices of the latest."""


def _main_indices(request: OpponentRequest) -> IntArray:
    """Return the possible main agents as indices of the latest; `ITSELF` is the trainee."""
    own = request.is_own_population and request.role == MAIN
    others = np.flatnonzero(request.latest.of_role(MAIN))
    # `latest` leaves the trainee out, but a main agent also plays itself.
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
        # Against itself the trainee's win rate is 1/2.
        mains.append(_Main(policy=request.trainee, index=None, win_rate=0.5))
    return mains


class _League:
    """History of the league; its methods return AlphaStar's branches."""

    def __init__(self, ghosts: Candidates, *, win_rates: FloatArray, constants: Constants) -> None:
        self._ghosts = ghosts
        self._win_rates = win_rates
        self._constants = constants
        self._histories: dict[PolicyId, IntArray] = {}

    def self_play(self, main: _Main, *, share: float) -> _Branch:
        """Return the branch of a main agent itself, or of its ghosts while it is too strong."""
        history = self._history(main)
        # An agent that is too strong is replaced by its ghosts, mostly those of similar strength.
        if main.win_rate > TOO_STRONG or not len(history):
            return _Branch(share=share, main=main, ghosts=NO_GHOSTS)
        return _Branch(share=share, ghosts=history, weighting="variance")

    def verification(self, mains: Sequence[_Main], *, share: float) -> list[_Branch]:
        """Return the branches that check for lost skills.

        They are all ghosts of main exploiters if the trainee's win rate against any of them is
        below `EXPLOITED`. Otherwise, for each main agent, they are its ghosts if the win rate
        against any of them is below `FORGOTTEN`, and self-play if not.
        """
        exploiters = np.flatnonzero(self._ghosts.of_role(MAIN_EXPLOITER))
        # One weakness is enough to train against all main exploiters, mostly the hardest ones.
        if (self._win_rates[exploiters] < EXPLOITED).any():
            return [_Branch(share=share, ghosts=exploiters, weighting="squared")]
        return [self._former_selves(main, share=share / len(mains)) for main in mains]

    def _former_selves(self, main: _Main, *, share: float) -> _Branch:
        history = self._history(main)
        # The newest ghosts are hard because they are strong, not because skills were forgotten.
        kept = history[: num_before_monotonic_suffix(self._win_rates[history])]
        # Without forgotten skills the share goes to self-play.
        if (self._win_rates[kept] < FORGOTTEN).any():
            return _Branch(share=share, ghosts=kept, weighting="squared")
        return self.self_play(main, share=share)

    def attack(self, main: _Main, *, share: float) -> list[_Branch]:
        """Return a main exploiter's branches against one main agent: its ghosts, and itself.

        Only ghosts are played until the win rate against the agent itself is high enough.
        """
        history = self._history(main)
        past_share = HISTORY_SHARE[self._constants]
        # Without a ghost of the main agent, only the agent itself can be played.
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
            # The sort is stable, so that ghosts of equal steps remain in order of creation.
            history = found[np.argsort(self._ghosts.agent_steps[found], kind="stable")]
            self._histories[main.policy] = history
        return history


def num_before_monotonic_suffix(win_rates: FloatArray) -> int:
    """Return how many ghosts remain without the last run in which win rates never rise.

    Later ghosts are stronger, so win rates fall along the history unless a skill was forgotten;
    where they rise, ghosts before the rise may show one. This is the pseudocode's
    ``remove_monotonic_suffix``.

    Args:
        win_rates: Win rates against ghosts, oldest first. float64 [N].
    """
    rises = np.flatnonzero(np.diff(win_rates) > 0.0)
    # The value after the last rise remains, as in the pseudocode: players[:i + 1].
    return int(rises[-1]) + 2 if len(rises) else 0


def _summed(
    request: OpponentRequest, branches: Sequence[_Branch], *, win_rates: FloatArray
) -> Distribution:
    """Return the distribution that is the sum of some branches."""
    mirror, latest = 0.0, np.zeros(len(request.latest))
    ghosts = np.zeros(len(request.ghosts))
    for branch in branches:
        if branch.share == 0.0:
            continue
        if branch.main is not None and branch.main.index is None:
            mirror += branch.share
        elif branch.main is not None:
            latest[branch.main.index] += branch.share
        # Indexing all ghosts would only copy arrays, which takes time with tens of thousands.
        elif len(branch.ghosts) == len(ghosts) > 0:
            ghosts += branch.share * pfsp_probabilities(win_rates, weighting=branch.weighting)
        elif len(branch.ghosts):
            ghosts[branch.ghosts] += branch.share * pfsp_probabilities(
                win_rates[branch.ghosts], weighting=branch.weighting
            )
        else:
            # Without such a ghost the branch's share goes to the latest.
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
