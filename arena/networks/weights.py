"""Named tensors in and out of live ones, strictly and without aliases.

Tests: `tests/arena/networks/test_actor_critic.py`, `tests/arena/learning/test_ppo.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from arena.config import NetworkConfig
from arena.errors import CheckpointCorrupt

CENTRALIZED = ("critic.", "critic_normalizer.")
"""Prefixes of the names of a centralized critic's weights."""


def copy_tensors(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return float32 CPU copies that share no memory with anything."""
    return {
        name: tensor.detach().to("cpu", torch.float32, copy=True).contiguous()
        for name, tensor in tensors.items()
    }


@torch.no_grad()
def load_tensors(
    live: Mapping[str, torch.Tensor], saved: Mapping[str, torch.Tensor], *, what: str
) -> None:
    """Copy saved values into live tensors, all of them or none.

    Args:
        live: Tensors to overwrite in place.
        saved: Saved values: float32, the same names and shapes.
        what: Subject of an error: ``weights`` or ``optimizer``.

    Raises:
        CheckpointCorrupt: If names, shapes or dtypes differ or a number is not finite.
    """
    if live.keys() != saved.keys():
        raise CheckpointCorrupt(
            f"{what} must have the names of this architecture: missing "
            f"{sorted(live.keys() - saved.keys())}, unknown {sorted(saved.keys() - live.keys())}"
        )
    for name, tensor in saved.items():
        if tensor.shape != live[name].shape:
            raise CheckpointCorrupt(
                f"{what}: {name} must have shape {list(live[name].shape)}, got {list(tensor.shape)}"
            )
        if tensor.dtype != torch.float32:
            raise CheckpointCorrupt(f"{what}: {name} must be float32, got {tensor.dtype}")
        if not bool(tensor.isfinite().all()):
            raise CheckpointCorrupt(f"{what}: {name} must be finite")
    # Tensors are copied after all checks, so that an error leaves the live ones unchanged.
    for name, tensor in saved.items():
        live[name].copy_(tensor)


def without_critic(
    network: NetworkConfig, weights: Mapping[str, torch.Tensor]
) -> Mapping[str, torch.Tensor]:
    """Return a policy's weights without those of a centralized critic, as needed to play.

    A value network that reads the policy's observation stays.
    """
    if network.critic == "own":
        return weights
    return {name: tensor for name, tensor in weights.items() if not name.startswith(CENTRALIZED)}
