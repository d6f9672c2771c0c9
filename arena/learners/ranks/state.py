"""One state of an algorithm in all ranks.

Tests: `tests/arena/learners/ranks/test_weights.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch

from arena.core import Algorithm, LearnsInRanks
from arena.errors import ConfigError
from arena.learners.ranks.crew import Ranks
from arena.normalization import all_of
from arena.types import Digest

DIGEST_BYTES = hashlib.sha256().digest_size


def share_state(algorithm: Algorithm, ranks: Ranks) -> None:
    """Give all ranks the state of rank 0's algorithm, as if they had loaded its checkpoint; from
    now on they learn together.

    Raises:
        ConfigError: If the algorithm cannot.
    """
    if not isinstance(algorithm, LearnsInRanks):
        raise ConfigError(
            f"learner_cores must be 1 with algorithm {type(algorithm).__name__}, which has no "
            f"method join (arena.core.LearnsInRanks), got {ranks.number}"
        )
    weights, optimizer = algorithm.weights(), algorithm.optimizer_state()
    updates = int(all_of(ranks.exchange, algorithm.learner_updates)[0, 0])
    state = ranks.exchange(_flat(weights, optimizer))[0]
    if ranks.rank:
        sizes = [tensor.numel() for tensor in (*weights.values(), *optimizer.values())]
        parts = iter(torch.split(state, sizes))
        # In the order of `_flat`.
        weights, optimizer = (
            {name: next(parts).view(tensor.shape) for name, tensor in tensors.items()}
            for tensors in (weights, optimizer)
        )
        algorithm.load(weights, optimizer, learner_updates=updates)
    algorithm.join(ranks.exchange)


def is_same_state(algorithm: Algorithm, ranks: Ranks) -> bool:
    """Return whether all ranks have the same state; the answer is the same in each of them."""
    state = _flat(algorithm.weights(), algorithm.optimizer_state())
    digest = hashlib.sha256(state.numpy().tobytes()).digest()
    digests = ranks.exchange(torch.frombuffer(bytearray(digest), dtype=torch.uint8))
    return bool((digests == digests[0]).all())


def share_digests(own: Sequence[Digest], ranks: Ranks, *, number: int) -> tuple[Digest, ...]:
    """Return some digests of rank 0 in all ranks.

    Args:
        own: The digests in rank 0; not read in the others.
        ranks: The ranks.
        number: Number of digests.
    """
    sent = bytes.fromhex("".join(own)) if not ranks.rank else bytes(DIGEST_BYTES * number)
    got = ranks.exchange(torch.frombuffer(bytearray(sent), dtype=torch.uint8))[0]
    return tuple(Digest(bytes(part.tolist()).hex()) for part in got.view(number, DIGEST_BYTES))


def _flat(
    weights: Mapping[str, torch.Tensor], optimizer: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Return all numbers of a state, one after the other. float32 [K]."""
    return torch.cat([tensor.flatten() for tensor in (*weights.values(), *optimizer.values())])
