"""Frozen players of a finished run, for exact calculations in small games."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from arena.checkpoints.manifest import Manifest
from arena.checkpoints.tensors import load_weights
from arena.environment_spec import EnvironmentSpec
from arena.envs.batched.kuhn_poker import KuhnPoker
from arena.envs.batched.leduc_poker import LeducPoker
from arena.game_theory.exploitability import Policy
from arena.networks.frozen import FrozenPolicy
from arena.spaces import ActionLayout, ObservationLayout
from arena.types import WeightsRef
from populations.views.questions.inspection import Inspection

CPU = torch.device("cpu")
POKER_GAMES = {"kuhn": KuhnPoker, "leduc": LeducPoker}


def left_behind(inspection: Inspection) -> list[FrozenPolicy]:
    """Return the ghosts, oldest first, and the last checkpoint of each policy."""
    tables = inspection.tables
    rows = sorted(tables.ghosts.values(), key=lambda ghost: ghost.agent_steps)
    refs = {ghost.weights.digest: ghost.weights for ghost in rows}
    for policy in tables.policies.values():
        assert policy.checkpoint is not None
        last = tables.checkpoints[policy.checkpoint].weights
        refs.pop(last.digest, None)
        refs[last.digest] = last
    spec = inspection.run_file.spec
    return [_load(inspection.run_dir, ref, spec) for ref in refs.values()]


def _load(run: Path, ref: WeightsRef, spec: EnvironmentSpec) -> FrozenPolicy:
    manifest, tensors = load_weights(run, ref)
    return frozen(manifest, tensors, spec)


def frozen(
    manifest: Manifest, tensors: Mapping[str, torch.Tensor], spec: EnvironmentSpec
) -> FrozenPolicy:
    """Return a player of weights."""
    observation, action = layouts(spec)
    return FrozenPolicy.from_weights(
        manifest.network, tensors, observation=observation, action=action, device=CPU
    )


def layouts(spec: EnvironmentSpec) -> tuple[ObservationLayout, ActionLayout]:
    """Return how the first agent's observations and actions are laid out."""
    facts = spec.agent_specs[spec.agents[0]]
    return (
        ObservationLayout.from_json(facts.observation),
        ActionLayout.from_json(facts.action, continuous="squashed"),
    )


def as_policy(frozen: FrozenPolicy) -> Policy:
    """Return the policy that plays by its probabilities."""

    def play(observation: torch.Tensor, mask: torch.Tensor, agent: str) -> torch.Tensor:
        return frozen.logits(observation, mask).double().softmax(dim=1)

    return play
