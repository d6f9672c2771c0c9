"""A policy's network: features, an optional recurrent core, one linear layer for policy and value,
and the normalizers.

Shapes: N rows, F numbers of a flattened observation, K of them normalized, n logits of all
branches, C continuous numbers, P = n + 2 C parameters of the policy's distribution, H numbers of a
recurrent state, G numbers of a critic's input.

Tests: `tests/arena/networks/test_actor_critic.py`, `tests/arena/networks/test_encoders.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from arena.config import NetworkConfig
from arena.networks.distributions import make_distribution, mask_logits
from arena.networks.encoders import make_encoder, make_linear, make_mlp
from arena.networks.planes import is_image, of_critic
from arena.normalization import RETURN_MEMORY, Exchange, RunningNormalizer
from arena.spaces import ActionLayout, ObservationLayout, is_agent_id

HEAD_GAIN = 0.01
"""Gain of the last layer. Near-zero logits make the first policy almost uniform; a near-zero value
is almost the mean return.
"""


NUM_GATES = {"gru": 3, "lstm": 4}

FORGET_BIAS = 1.0

WEIGHTS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")

# The limit is in standard deviations; `PolicyStack` uses the same one.
OBSERVATION_CLIP = 10.0


class PartNormalizer(RunningNormalizer):
    """Normalizer of some columns of rows; the others pass unchanged.

    Args:
        columns: Normalized columns. int64 [K].
        row_size: F.
        clip: As in `RunningNormalizer`.
    """

    _columns: torch.Tensor

    def __init__(self, columns: torch.Tensor, *, row_size: int, clip: float) -> None:
        super().__init__(len(columns), clip=clip)
        self._row_size = row_size
        self.register_buffer("_columns", columns, persistent=False)

    def by_column(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and deviation of every column: 0 and 1 where it passes unchanged. float32 [F]
        each.
        """
        mean = self.mean.new_zeros(self._row_size).index_copy(0, self._columns, self.mean)
        ones = self.mean.new_ones(self._row_size)
        return mean, ones.index_copy(0, self._columns, self.deviation)

    def normalize(self, values: torch.Tensor) -> torch.Tensor:
        """Normalize rows. [N, F] of any dtype to float32 [N, F]."""
        # [N, F] -> [N, K] -> [N, F]
        part = super().normalize(values.index_select(1, self._columns))
        return values.float().index_copy(1, self._columns, part)

    def denormalize(self, values: torch.Tensor) -> torch.Tensor:
        """Undo `normalize`, except its clipping. [N, F] to [N, F]."""
        part = super().denormalize(values.index_select(1, self._columns))
        return values.index_copy(1, self._columns, part)

    def update(self, values: torch.Tensor, *, exchange: Exchange | None = None) -> bool:
        """Merge a batch [N, F] of any dtype."""
        return super().update(values.index_select(1, self._columns).float(), exchange=exchange)


def make_observation_normalizer(observation: ObservationLayout) -> RunningNormalizer | None:
    """Make a normalizer of everything but images and agent ids; None if nothing remains."""
    is_normalized = torch.ones(observation.size, dtype=torch.bool)
    for leaf in observation.leaves:
        if is_image(leaf) or is_agent_id(leaf):
            is_normalized[leaf.place] = False
    columns = is_normalized.nonzero().squeeze(1)
    if not len(columns) and observation.size:
        return None
    if len(columns) == observation.size and observation.dtype.kind == "f":
        return RunningNormalizer(observation.size, clip=OBSERVATION_CLIP)
    return PartNormalizer(columns, row_size=observation.size, clip=OBSERVATION_CLIP)


class ActorCritic(nn.Module):
    """Network with everything that playing needs: its ``state_dict`` is a policy's weights.

    `normalize_observation` and `forward` are two calls because a learner normalizes a rollout once
    and then passes it through the network in every epoch. Nothing in the module changes while it
    plays.

    A network with a core is recurrent: only `step` and `unroll` give its parameters and values, and
    the caller keeps the recurrent state.

    A network with a centralized critic (``network.critic``) takes a critic input for the value,
    after `normalize_critic_input`. A network made without the layout of that input can only play.

    Attributes:
        action: Layout of the actions.
        distribution: Maker of the action distribution from parameters.
        state_size: H; 0: the network is not recurrent.
        critic_size: G; 0: the value reads the observation, or there is none.
    """

    def __init__(
        self,
        network: NetworkConfig,
        *,
        observation: ObservationLayout,
        action: ActionLayout,
        generator: torch.Generator,
        critic_input: ObservationLayout | None = None,
    ) -> None:
        super().__init__()
        self.action = action
        self.distribution = make_distribution(action)
        self.observation_normalizer = (
            make_observation_normalizer(observation) if network.normalize_observations else None
        )
        # The normalizer is part of the weights, because a value without its units means nothing.
        self.return_normalizer = RunningNormalizer(1, memory=RETURN_MEMORY)
        self.encoder, features = make_encoder(network, observation, generator=generator)
        self.trunk = make_mlp(features, network.hidden_sizes, generator=generator)
        width = network.hidden_sizes[-1] if network.hidden_sizes else features
        self.core = make_core(network, in_features=width, generator=generator)
        self.state_size = 0
        if self.core is not None:
            width, self.state_size = self.core.num_features, self.core.state_size
        outputs = action.num_logits + action.num_continuous
        # Where policy and value share the trunk, the value is the last output of one product,
        # which is faster than two products.
        self._shares_value = network.critic == "own" and not network.separate_value
        shared = 1 if self._shares_value else 0
        self.head = make_linear(width, outputs + shared, gain=HEAD_GAIN, generator=generator)
        # These are deviations before squashing or clipping; they do not depend on the observation.
        self.log_std = (
            nn.Parameter(torch.zeros(action.num_continuous)) if action.num_continuous else None
        )
        self.critic = None
        self.critic_normalizer = None
        self.critic_size = 0
        if network.critic == "own":
            if network.separate_value:
                self.critic = _make_critic(network, observation, generator=generator)
        elif critic_input is not None:
            # A policy that only plays is made without the critic's layout, and therefore without
            # its weights.
            self.critic_size = critic_input.size
            self.critic = _make_critic(
                of_critic(network, critic_input), critic_input, generator=generator
            )
            if network.normalize_observations:
                self.critic_normalizer = make_observation_normalizer(critic_input)

    @property
    def has_value(self) -> bool:
        """Return whether its value needs nothing but observations: no centralized critic."""
        return self._shares_value or (self.critic is not None and not self.critic_size)

    def normalize_observation(self, observation: torch.Tensor) -> torch.Tensor:
        """Normalize by the running statistics, where the network has them. [N, F] to [N, F].

        Without statistics rows are returned as they are, in their dtype: rows of images stay uint8.
        """
        if self.observation_normalizer is None:
            return observation
        return self.observation_normalizer.normalize(observation)

    def normalize_critic_input(self, critic_input: torch.Tensor) -> torch.Tensor:
        """Normalize as `normalize_observation` does, by separate statistics. [N, G] to [N, G]."""
        if self.critic_normalizer is None:
            return critic_input
        return self.critic_normalizer.normalize(critic_input)

    def forward(
        self, normalized: torch.Tensor, critic_input: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the policy's parameters and the value of normalized observations.

        Args:
            normalized: Output of `normalize_observation`, possibly in fewer bits. [N, F].
            critic_input: Normalized input of a centralized critic; None without one. [N, G].

        Returns:
            Parameters for ``distribution``, logits unmasked, float32 [N, P]; and the normalized
                value float32 [N].
        """
        outputs = self._outputs(normalized)
        if self._shares_value:
            return self._with_deviations(outputs[:, :-1]), outputs[:, -1]
        value = self._value_apart(normalized, critic_input)
        return self._with_deviations(outputs), value

    def step(
        self,
        normalized: torch.Tensor,
        state: torch.Tensor,
        critic_input: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Compute one decision per row of a recurrent network.

        Args:
            normalized: As for `forward`. [N, F].
            state: Recurrent state before the decision. float32 [N, H].
            critic_input: As for `forward`.

        Returns:
            As of `forward`, and the recurrent state after the decision, float32 [N, H].
        """
        remembered, next_state = self._memory.step(self._features(normalized), state)
        return *self._judged(normalized, remembered, critic_input), next_state

    def policy_step(
        self, normalized: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute `step` without the value: parameters [N, P] and the next state [N, H]."""
        remembered, next_state = self._memory.step(self._features(normalized), state)
        outputs = self.head(remembered).float()
        outputs = outputs[:, :-1] if self._shares_value else outputs
        return self._with_deviations(outputs), next_state

    def unroll(
        self,
        normalized: torch.Tensor,
        *,
        batch_sizes: torch.Tensor,
        state: torch.Tensor,
        critic_input: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute all decisions of whole sequences of a recurrent network.

        Args:
            normalized: Rows in the order of `arena.learning.sequences.Packed`. [R, F].
            batch_sizes: As there. int64 [L], on the CPU.
            state: As there. float32 [Q, H].
            critic_input: As for `forward`, in the same order. [R, G].

        Returns:
            As of `forward`, for each row.
        """
        features = self._features(normalized)
        remembered = self._memory.unroll(features, batch_sizes=batch_sizes, state=state)
        return self._judged(normalized, remembered, critic_input)

    def policy(self, normalized: torch.Tensor) -> torch.Tensor:
        """Return the parameters that `forward` gives, without the value. float32 [N, P]."""
        outputs = self._outputs(normalized)
        return self._with_deviations(outputs[:, :-1] if self._shares_value else outputs)

    def decide(
        self, observation: torch.Tensor, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Compute one decision per row of raw observations.

        Args:
            observation: Rows [N, F].
            state: As for `step`; None without a core.

        Returns:
            Parameters float32 [N, P]; and the recurrent state after the decision, float32 [N, H],
                None without a core.
        """
        normalized = self.normalize_observation(observation)
        if state is None:
            return self.policy(normalized), None
        return self.policy_step(normalized, state)

    def judge(
        self, observation: torch.Tensor, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Compute `decide` with the value.

        Returns:
            Parameters; expected discounted return, in units of reward, float32 [N], None unless it
                `has_value`; and the state after the decision.
        """
        if not self.has_value:
            parameters, after = self.decide(observation, state)
            return parameters, None, after
        normalized, after = self.normalize_observation(observation), None
        if state is None:
            parameters, value = self(normalized)
        else:
            parameters, value, after = self.step(normalized, state)
        return parameters, self.return_normalizer.denormalize(value), after

    def logits(
        self, observation: torch.Tensor, action_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return logits of raw observations, illegal choices at float32's minimum.
        float32 [N, n].
        """
        parameters, _ = self.decide(observation, None)
        return mask_logits(parameters[:, : self.action.num_logits], action_mask)

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the expected discounted return of raw observations, in units of reward. float32
        [N].
        """
        _, value = self(self.normalize_observation(observation))
        return self.return_normalizer.denormalize(value)

    def _outputs(self, normalized: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the policy's head. float32 [N, ...]."""
        if self.state_size:
            raise ValueError("a network with a core needs the state: call step or unroll")
        outputs: torch.Tensor = self.head(self._features(normalized))
        return outputs.float()

    def _features(self, normalized: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the last hidden layer. [N, ...]."""
        features: torch.Tensor = self.trunk(_encoded(self.encoder, normalized))
        return features

    @property
    def _memory(self) -> Core:
        if self.core is None:
            raise ValueError("a network without a core has no state: call it as it is")
        return self.core

    def _judged(
        self,
        normalized: torch.Tensor,
        remembered: torch.Tensor,
        critic_input: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return parameters and value from the outputs of the core."""
        outputs = self.head(remembered).float()
        if self._shares_value:
            return self._with_deviations(outputs[:, :-1]), outputs[:, -1]
        # The value reads the policy's recurrent output but does not train it, so that there is
        # only one recurrent state.
        value = self._value_apart(normalized, critic_input, remembered.detach())
        return self._with_deviations(outputs), value

    def _value_apart(
        self,
        normalized: torch.Tensor,
        critic_input: torch.Tensor | None,
        remembered: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the value of a network that shares nothing but the recurrent output.
        float32 [N].
        """
        if self.critic is None:
            raise ValueError("a network without the layout of its critic's input only plays")
        judged = critic_input if self.critic_size else normalized
        if judged is None:
            raise ValueError("a centralized critic needs its input: there is none")
        value: torch.Tensor = self.critic(judged, remembered)
        return value.float()[:, 0]

    def _with_deviations(self, outputs: torch.Tensor) -> torch.Tensor:
        if self.log_std is None:
            return outputs
        # [C] -> [N, C], one for all observations
        return torch.cat([outputs, self.log_std.expand(outputs.shape[0], -1)], dim=1)


class Critic(nn.Module):
    """Value with an encoder and hidden layers of its own; it shares the recurrent output."""

    def __init__(self, encoder: nn.Module | None, trunk: nn.Sequential, head: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder
        self.trunk = trunk
        self.head = head

    def forward(
        self, normalized: torch.Tensor, remembered: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the value. [N, F], and the output of the policy's core if any, to [N, 1]."""
        features = _encoded(self.encoder, normalized)
        if remembered is not None:
            # The cast is needed, because a core returns float32 even under autocast.
            features = torch.cat([features.float(), remembered], dim=1)
        value: torch.Tensor = self.head(self.trunk(features))
        return value


def _make_critic(
    network: NetworkConfig, observation: ObservationLayout, *, generator: torch.Generator
) -> Critic:
    encoder, features = make_encoder(network, observation, generator=generator)
    # A critic reads the output of the policy's core in addition to its features.
    features += network.core_size if network.core != "none" else 0
    trunk = make_mlp(features, network.hidden_sizes, generator=generator)
    width = network.hidden_sizes[-1] if network.hidden_sizes else features
    head = make_linear(width, 1, gain=HEAD_GAIN, generator=generator)
    return Critic(encoder, trunk, head)


def _encoded(encoder: nn.Module | None, normalized: torch.Tensor) -> torch.Tensor:
    """Return the input of the hidden layers."""
    if encoder is not None:
        features: torch.Tensor = encoder(normalized)
        return features
    return normalized if normalized.is_floating_point() else normalized.float()


class Core(nn.Module):
    """Recurrent layer whose state is a row of numbers, zeros at the start of an episode.

    Computes in float32 whatever the dtype of its input, because rounding adds up along a sequence.

    GRU: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for Statistical
    Machine Translation" (EMNLP 2014). LSTM: Hochreiter and Schmidhuber, "Long Short-Term Memory"
    (1997), with an open forget gate at first (Jozefowicz et al., "An Empirical Exploration of
    Recurrent Network Architectures", ICML 2015). Shapes: I input features, C output features
    (``core_size``), H numbers of a state: C of a GRU; 2 C of an LSTM, output and cell side by side.
    Q sequences of at most L decisions, R decisions in all.

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
        # The fused cell has the same weights as the packed layer in `unroll`: a packed sequence of
        # length 1 would cost more than the product itself.
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
        # The layer requires contiguous [1, Q, C] tensors.
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
    # On the device ``meta`` the constructor draws nothing from the global generator.
    layer = kind(in_features, network.core_size, device="meta").to_empty(device="cpu")
    for name, parameter in layer.named_parameters():
        if name.startswith("weight"):
            for gate in parameter.data.chunk(NUM_GATES[network.core]):
                # Each gate is initialized separately, because one orthogonal matrix would
                # correlate the gates.
                nn.init.orthogonal_(gate, generator=generator)
        else:
            nn.init.zeros_(parameter)
    if network.core == "lstm":
        # Gates are in the order input, forget, cell, output. An open forget gate lets gradients
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


def make_actor_critic(
    network: NetworkConfig,
    *,
    observation: ObservationLayout,
    action: ActionLayout,
    seed: int,
    critic_input: ObservationLayout | None = None,
) -> ActorCritic:
    """Make a fresh network on the CPU, without touching global randomness.

    Args:
        network: Architecture. A user's module is searched for on ``sys.path`` as it is.
        observation: Layout of the observations.
        action: Layout of the actions.
        seed: Seed of the weights. Any integer; taken modulo 2**63.
        critic_input: Layout of a centralized critic's input (`arena.envs.spaces.critic_input`).
            None: there is no such critic, or the network only plays and has none of its weights.

    Raises:
        ConfigError: If the architecture does not fit the observation, or a user's module cannot be
            made.
    """
    # A separate generator makes weights depend on the seed alone, and keeps global draws
    # unaffected.
    generator = torch.Generator().manual_seed(seed % 2**63)
    return ActorCritic(
        network,
        observation=observation,
        action=action,
        generator=generator,
        critic_input=critic_input,
    )
