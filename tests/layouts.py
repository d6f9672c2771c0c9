"""Layouts that tests of networks and algorithms need: ``from tests.layouts import discrete``."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from arena.export.card import Card
from arena.networks.frozen import FrozenPolicy
from arena.spaces import ActionLayout, ObservationLayout


def flat_observation(size: int) -> ObservationLayout:
    """A Box of ``size`` numbers."""
    return ObservationLayout.from_json(
        {"kind": "Box", "shape": [size], "dtype": "float32", "low": "-inf", "high": "inf"}
    )


def discrete(num_choices: int) -> ActionLayout:
    """One choice."""
    return ActionLayout.from_json(
        {"kind": "Discrete", "n": num_choices, "start": 0}, continuous="squashed"
    )


def branching(*branches: int) -> ActionLayout:
    """Several choices at once."""
    space = {"kind": "MultiDiscrete", "nvec": list(branches), "start": [0] * len(branches)}
    return ActionLayout.from_json({**space, "dtype": "int64"}, continuous="squashed")


def squashed(low: float, high: float, *, size: int) -> ActionLayout:
    """Numbers within bounds."""
    space = {"kind": "Box", "shape": [size], "dtype": "float32", "low": low, "high": high}
    return ActionLayout.from_json(space, continuous="squashed")


def frozen_policy(
    card: Card, weights: Mapping[str, torch.Tensor], *, greedy: bool = False
) -> FrozenPolicy:
    """What an export was made from."""
    return FrozenPolicy.from_weights(
        card.network,
        weights,
        observation=card.observation_layout,
        action=card.action_layout,
        device=torch.device("cpu"),
        greedy=greedy,
    )
