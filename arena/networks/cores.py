"""Recurrent cores: a GRU or LSTM between the hidden layers and the head.

Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine
Translation" (EMNLP 2014); Hochreiter and Schmidhuber, "Long Short-Term Memory" (1997), with an open
forget gate at first (Jozefowicz et al., "An Empirical Exploration of Recurrent Network
Architectures", ICML 2015). Shapes: N rows, I input features, C output features (``core_size``), H
numbers of a recurrent state: C of a GRU; 2 C of an LSTM, output and cell side by side. Q sequences
of at most L decisions, R decisions in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from arena.config import NetworkConfig

NUM_GATES = {"gru": 3, "lstm": 4}

FORGET_BIAS = 1.0

WEIGHTS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


class Core(nn.Module):
    """Recurrent layer whose state is a row of numbers, zeros at the start of an episode.

    Computes in float32 whatever the dtype of its input, because rounding adds up along a sequence.

    Args:
        recurrent: A single layer.

    Attributes:
        num_features: C.
        state_size: H.
    """

    def __init__(self, recurrent: nn.GRU | nn.LSTM) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.num_features = recurrent.hidden_size
        self._has_cell = isinstance(recurrent, nn.LSTM)
        self.state_size = recurrent.hidden_size * (2 if self._has_cell else 1)

    def step(
        self, features: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute one decision of each of N rows.

        Args:
            features: Features [N, I].
            state: Recurrent state before the decision. float32 [N, H].

        Returns:
            Output float32 [N, C], and the state after the decision, float32 [N, H].
        """
        weights = [self.recurrent.get_parameter(name) for name in WEIGHTS]
        # The fused cell of the same weights that `unroll` passes to the packed layer: a packed
        # sequence of length 1 would cost more than the product itself.
        with _in_float32(features):
            # state = [output | cell], 2 C numbers
            if self._has_cell:
                out, cell = torch.lstm_cell(features.float(), state.chunk(2, dim=1), *weights)
                return out, torch.cat([out, cell], dim=1)
            out = torch.gru_cell(features.float(), state, *weights)
            return out, out

    def unroll(
        self, features: torch.Tensor, *, batch_sizes: torch.Tensor, state: torch.Tensor
    ) -> torch.Tensor:
        """Compute all decisions of Q sequences; see `arena.learning.sequences.Packed`.

        Args:
            features: First decisions of all sequences, the longest sequence first, then second
                decisions of those that have one, and so on. [R, I].
            batch_sizes: Number of sequences with a first, second, ... decision. int64 [L], on the
                CPU.
            state: Recurrent state before the first decisions. float32 [Q, H].

        Returns:
            Output float32 [R, C].
        """
        parts = state[None].chunk(2 if self._has_cell else 1, dim=2)
        # The layer wants contiguous [1, Q, C] tensors.
        hidden = tuple(part.contiguous() for part in parts)
        with _in_float32(features):
            packed = PackedSequence(features.float(), batch_sizes)
            found, _ = self.recurrent(packed, hidden if self._has_cell else hidden[0])
        out: torch.Tensor = found.data
        return out


def make_core(
    network: NetworkConfig, *, in_features: int, generator: torch.Generator
) -> Core | None:
    """Make the configured core with orthogonal weights, gate by gate; None without a core."""
    if network.core == "none":
        return None
    kind = nn.GRU if network.core == "gru" else nn.LSTM
    # meta: made elsewhere, it would draw from the global generator.
    layer = kind(in_features, network.core_size, device="meta").to_empty(device="cpu")
    for name, parameter in layer.named_parameters():
        if name.startswith("weight"):
            for gate in parameter.data.chunk(NUM_GATES[network.core]):
                # Gate by gate: an orthogonal matrix over all gates would correlate them.
                nn.init.orthogonal_(gate, generator=generator)
        else:
            nn.init.zeros_(parameter)
    if network.core == "lstm":
        # Gates lie in the order input, forget, cell, output. An open forget gate lets gradients
        # through.
        layer.get_parameter("bias_ih_l0").data.chunk(4)[1].fill_(FORGET_BIAS)
    return Core(layer)


@contextmanager
def _in_float32(like: torch.Tensor) -> Iterator[None]:
    """Disable autocast, where it is enabled."""
    kind = like.device.type
    if not torch.is_autocast_enabled(kind):
        yield
        return
    with torch.autocast(kind, enabled=False):
        yield
