"""Plays from an export directory: an opponent in tournaments, a start for other runs.

Shapes: N rows, F features of a flattened observation, n actions.
"""

from __future__ import annotations

from pathlib import Path

import torch

from arena.checkpoints.files import read_verified
from arena.checkpoints.tensors import deserialize
from arena.config import NetworkConfig
from arena.envs.spaces import ObservationLayout
from arena.errors import CheckpointCorrupt
from arena.export.card import POLICY, WEIGHTS, Card, read_card
from arena.export.session import make_session
from arena.networks import heads


class ExportedActor:
    """An `arena.core.Actor` that runs ``policy.onnx``. Not thread-safe.

    Args:
        directory: That ``arena export`` wrote.
        greedy: Play the likeliest action instead of sampling.

    Raises:
        CheckpointMissing: If it is no export.
        CheckpointCorrupt: If a file is not the one that its card names.
    """

    reads_agent = False

    def __init__(self, directory: Path, *, greedy: bool = False) -> None:
        self.card = read_card(directory)
        self._greedy = greedy
        self._session = make_session(_verified(directory, self.card, POLICY))
        self._layout = ObservationLayout.from_json(self.card.observation.space)
        self._shape = self.card.observation.shape

    def act(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        agent: str,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Choose one action per row, as in `arena.core.Actor`; who decides makes no difference."""
        rows = self._layout.to_environment(observation.cpu()).astype("float32")
        feeds = {"observation": rows.reshape(len(observation), *self._shape)}
        if self.card.mask is not None:
            legal = torch.ones(len(observation), self.card.action.num_actions, dtype=torch.bool)
            feeds["action_mask"] = (legal if action_mask is None else action_mask.cpu()).numpy()
        output = "action" if self._greedy else "logits"
        (values,) = self._session.run([output], feeds)
        result = torch.from_numpy(values).to(observation.device)
        if self._greedy:
            return result
        # Illegal actions are at the minimum in the graph already.
        return heads.sample(heads.masked_log_probs(result, None), generator=generator)


def load_export_weights(directory: Path) -> tuple[NetworkConfig, dict[str, torch.Tensor]]:
    """Read architecture and weights of an export.

    Raises:
        CheckpointMissing: If it is no export.
        CheckpointCorrupt: If its weights are not those that its card names.
    """
    card = read_card(directory)
    return card.network, deserialize(_verified(directory, card, WEIGHTS))


def _verified(directory: Path, card: Card, name: str) -> bytes:
    record = card.files.get(name)
    if record is None:
        raise CheckpointCorrupt(f"{directory}: its card names no {name}")
    return read_verified(directory, name, record)
