"""Frozen players that may be opponents, as columns.

Shapes: N candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from arena.types import Entrant, PlayerId, PolicyId

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
ObjectArray = npt.NDArray[np.object_]
ScalarT = TypeVar("ScalarT", bound=np.generic)

# The capacity doubles when the columns are full, so a league of any size costs few copies.
FIRST_CAPACITY = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Frozen player that may be an opponent.

    Attributes:
        player: A ghost, a policy (its latest checkpoint), a bot or an imported champion.
        policy: Policy that has these weights; for bots and imported champions, the player itself.
        role: Role of the policy.
        entrant: Weights digest, or a bot's id: the key of its results in payoffs.
        agent_steps: Agent steps of the policy when the weights were frozen.
        quality: Number that a stateful rule of matchmaking keeps for the candidate.
    """

    player: PlayerId
    policy: PolicyId
    role: str = "main"
    entrant: Entrant
    agent_steps: int
    quality: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Codes:
    """Integer codes of the texts in columns, from 0 in order of first appearance.

    All views of the same `CandidateColumns` share one object.

    Attributes:
        policies: Numbers of policies.
        roles: Numbers of roles.
        entrants: Numbers of entrants.
    """

    policies: dict[str, int] = field(default_factory=dict)
    roles: dict[str, int] = field(default_factory=dict)
    entrants: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Candidates as columns of equal length N, in order of creation.

    They are arrays, because a league has tens of thousands of ghosts and a decision must take less
    than a millisecond. They are read-only views: use them for one decision only.

    Attributes:
        players: `PlayerId`. object [N].
        policies: `PolicyId`. object [N].
        roles: Text. object [N].
        entrants: `Entrant`. object [N].
        agent_steps: Agent steps of the policies. int64 [N].
        qualities: Log-weights. float64 [N].
        codes: Codes of the texts, as comparing integers is faster than comparing texts.
        policy_codes: ``policies`` as numbers. int64 [N].
        role_codes: ``roles`` as numbers. int64 [N].
        entrant_codes: ``entrants`` as numbers; candidates with equal weights share one. int64 [N].
    """

    players: ObjectArray
    policies: ObjectArray
    roles: ObjectArray
    entrants: ObjectArray
    agent_steps: IntArray
    qualities: FloatArray
    codes: Codes
    policy_codes: IntArray
    role_codes: IntArray
    entrant_codes: IntArray

    def __len__(self) -> int:
        """Return N, the number of candidates."""
        return len(self.players)

    def __getitem__(self, index: int) -> Candidate:
        """Return a candidate by index, from 0."""
        return Candidate(
            player=self.players[index],
            policy=self.policies[index],
            role=self.roles[index],
            entrant=self.entrants[index],
            agent_steps=int(self.agent_steps[index]),
            quality=float(self.qualities[index]),
        )

    def take(self, indices: IntArray) -> Candidates:
        """Return the candidates at some positions, in that order."""
        return Candidates(
            # The positions need not be contiguous, so these are copies and not views.
            players=self.players[indices],
            policies=self.policies[indices],
            roles=self.roles[indices],
            entrants=self.entrants[indices],
            agent_steps=self.agent_steps[indices],
            qualities=self.qualities[indices],
            # A subset shares the codes of the whole set, so both can be compared.
            codes=self.codes,
            policy_codes=self.policy_codes[indices],
            role_codes=self.role_codes[indices],
            entrant_codes=self.entrant_codes[indices],
        )

    def of_policy(self, policy: PolicyId) -> BoolArray:
        """Return which candidates belong to a policy. bool [N]."""
        # -1 is no code, so an unknown policy has no candidate.
        return np.equal(self.policy_codes, self.codes.policies.get(policy, -1))

    def of_role(self, role: str) -> BoolArray:
        """Return which candidates belong to policies with a role. bool [N]."""
        return np.equal(self.role_codes, self.codes.roles.get(role, -1))


class CandidateColumns:
    """`Candidates` that can grow; used by one thread only.

    Adding is amortized constant time, and reading makes no copy.
    """

    def __init__(self) -> None:
        self.codes = Codes()
        self._num = 0
        self._players: ObjectArray = np.empty(FIRST_CAPACITY, dtype=np.object_)
        self._policies: ObjectArray = np.empty(FIRST_CAPACITY, dtype=np.object_)
        self._roles: ObjectArray = np.empty(FIRST_CAPACITY, dtype=np.object_)
        self._entrants: ObjectArray = np.empty(FIRST_CAPACITY, dtype=np.object_)
        self._agent_steps: IntArray = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self._qualities: FloatArray = np.zeros(FIRST_CAPACITY, dtype=np.float64)
        # The rows have the codes of policies, roles and entrants.
        self._coded: IntArray = np.zeros((3, FIRST_CAPACITY), dtype=np.int64)

    def append(self, candidate: Candidate) -> None:
        """Add a candidate at the end."""
        if self._num == len(self._players):
            # Views that were returned before refer to the old arrays, and stay valid.
            self._double()
        self._num += 1
        self.set(self._num - 1, candidate)

    def set(self, index: int, candidate: Candidate) -> None:
        """Replace the candidate at a position."""
        self._players[index] = candidate.player
        self._policies[index] = candidate.policy
        self._roles[index] = candidate.role
        self._entrants[index] = candidate.entrant
        self._agent_steps[index] = candidate.agent_steps
        self._qualities[index] = candidate.quality
        # Codes are never reused: a policy that has no candidate any more keeps its code.
        codes = self.codes
        self._coded[0, index] = _code(codes.policies, candidate.policy)
        self._coded[1, index] = _code(codes.roles, candidate.role)
        self._coded[2, index] = _code(codes.entrants, candidate.entrant)

    def _double(self) -> None:
        self._players = _doubled(self._players)
        self._policies = _doubled(self._policies)
        self._roles = _doubled(self._roles)
        self._entrants = _doubled(self._entrants)
        self._agent_steps = _doubled(self._agent_steps)
        self._qualities = _doubled(self._qualities)
        self._coded = _doubled(self._coded)

    @property
    def candidates(self) -> Candidates:
        """Return all candidates so far, as views."""
        # The three codes are rows of one array [3, capacity], so growing makes one copy.
        policy_codes, role_codes, entrant_codes = (_view(row, self._num) for row in self._coded)
        return Candidates(
            players=_view(self._players, self._num),
            policies=_view(self._policies, self._num),
            roles=_view(self._roles, self._num),
            entrants=_view(self._entrants, self._num),
            agent_steps=_view(self._agent_steps, self._num),
            qualities=_view(self._qualities, self._num),
            codes=self.codes,
            policy_codes=policy_codes,
            role_codes=role_codes,
            entrant_codes=entrant_codes,
        )


def _code(codes: dict[str, int], text: str) -> int:
    return codes.setdefault(text, len(codes))


def _doubled(column: npt.NDArray[ScalarT]) -> npt.NDArray[ScalarT]:
    """Return a copy whose last axis has twice the length."""
    return np.concatenate([column, np.zeros_like(column)], axis=-1)


def _view(column: npt.NDArray[ScalarT], num: int) -> npt.NDArray[ScalarT]:
    view = column[:num]
    # Only the view becomes read-only, as `CandidateColumns` still writes to the array.
    view.flags.writeable = False
    return view
