"""What PPO's loss is computed from, and in which parts.

Shapes: M rows (a rollout's or a minibatch's), F features, n logits, P parameters of a distribution,
D decisions of a rollout, G numbers of a row that only the value reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from arena.experience import Sequences
from arena.learning.sequences import Packed, pack
from arena.networks.actor_critic import ActorCritic


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a minibatch (or the whole rollout) gives the loss.

    Attributes:
        normalized: Observations after the normalizer. float32 [M, F].
        action_mask: bool [M, n], or None.
        action: int64 [M] or float32 [M, ...].
        log_prob: Of the policy that played. float32 [M].
        advantage: Mean 0 and deviation 1 over the rollout. float32 [M].
        target: Normalized return. float32 [M].
        value: What the network gave while playing, normalized by the statistics of then; None where
            values are not clipped. float32 [M].
        magnet: Parameters of the magnet's distribution; None without one. float32 [M, P].
        packed: How the rows are unrolled, where the policy has a memory.
        critic_input: What a centralized critic reads, normalized; None without one. [M, G].
    """

    normalized: torch.Tensor
    action_mask: torch.Tensor | None
    action: torch.Tensor
    log_prob: torch.Tensor
    advantage: torch.Tensor
    target: torch.Tensor
    value: torch.Tensor | None = None
    magnet: torch.Tensor | None = None
    packed: Packed | None = None
    critic_input: torch.Tensor | None = None

    def rows(self, index: torch.Tensor) -> Batch:
        """One gather per tensor."""
        return Batch(
            normalized=self.normalized.index_select(0, index),
            action_mask=_rows(self.action_mask, index),
            action=self.action.index_select(0, index),
            log_prob=self.log_prob.index_select(0, index),
            advantage=self.advantage.index_select(0, index),
            target=self.target.index_select(0, index),
            value=_rows(self.value, index),
            magnet=_rows(self.magnet, index),
            critic_input=_rows(self.critic_input, index),
        )


def _rows(tensor: torch.Tensor | None, index: torch.Tensor) -> torch.Tensor | None:
    return None if tensor is None else tensor.index_select(0, index)


def minibatches(
    batch: Batch, sequences: Sequences | None, *, num_parts: int, generator: torch.Generator
) -> Iterator[Batch]:
    """All rows once in random order, in equal parts (sizes differ by one at most), none empty.

    Args:
        batch: Of a whole rollout, at least one row.
        sequences: Where the policy has a memory: what is divided are whole sequences then.
        num_parts: Fewer if there are fewer rows or sequences.
        generator: Of the order.
    """
    total = len(batch.action) if sequences is None else len(sequences)
    permutation = torch.randperm(total, generator=generator, device=generator.device)
    for index in permutation.to(batch.action.device).tensor_split(min(num_parts, total)):
        if sequences is None:
            yield batch.rows(index)
        else:
            packed = pack(sequences, index)
            yield replace(batch.rows(packed.rows), packed=packed)


def predict(
    network: ActorCritic,
    normalized: torch.Tensor,
    *,
    packed: Packed | None = None,
    critic_input: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Parameters [M, P] and normalized values [M] of the rows of a minibatch."""
    if packed is None:
        found: tuple[torch.Tensor, torch.Tensor] = network(normalized, critic_input)
        return found
    return network.unroll(
        normalized, batch_sizes=packed.batch_sizes, state=packed.state, critic_input=critic_input
    )


def predict_all(
    network: ActorCritic,
    normalized: torch.Tensor,
    sequences: Sequences | None,
    *,
    num_parts: int,
    critic_input: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Parameters [D, P] and normalized values [D], as many rows at once as a minibatch has."""
    if sequences is None:
        rows = normalized.tensor_split(num_parts)
        judged = (
            [None] * len(rows) if critic_input is None else critic_input.tensor_split(num_parts)
        )
        outputs = [
            predict(network, part, critic_input=seen)
            for part, seen in zip(rows, judged, strict=True)
            if len(part)
        ]
        return torch.cat([part[0] for part in outputs]), torch.cat([part[1] for part in outputs])
    everything = torch.arange(len(sequences), device=normalized.device)
    parts = [pack(sequences, index) for index in everything.tensor_split(num_parts) if len(index)]
    outputs = [
        predict(
            network,
            normalized[part.rows],
            packed=part,
            critic_input=_rows(critic_input, part.rows),
        )
        for part in parts
    ]
    place = torch.cat([part.rows for part in parts]).argsort()
    parameters = torch.cat([part[0] for part in outputs]).index_select(0, place)
    return parameters, torch.cat([part[1] for part in outputs]).index_select(0, place)
