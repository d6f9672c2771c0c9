"""Players from an export directory: opponents in tournaments, starting points of other runs.

Shapes: N rows, F numbers of a flattened observation, n logits, K numbers of an action's row, H
numbers of a recurrent state.

Tests: `tests/arena/export/test_onnx.py`, `tests/arena/export/test_actor.py`,
`tests/arena/export/test_levels.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch

from arena.checkpoints.files import read_verified
from arena.checkpoints.tensors import deserialize
from arena.config import NetworkConfig
from arena.core import Actor, ActorInput, ActorOutput
from arena.errors import CheckpointCorrupt
from arena.export.card import POLICY, WEIGHTS, Card, read_card
from arena.export.champion import at_temperature, make_session, state_size_of
from arena.export.graph import ACTION_MASK, STATE_IN, STATE_OUT, Feeds, feeds_of, parameter_names
from arena.networks.distributions import make_distribution


class ExportedActor(Actor):
    """An `arena.core.Actor` that runs ``policy.onnx``. Not thread-safe.

    Args:
        directory: Export directory.
        greedy: Play the likeliest action instead of sampling.
        graph: Graph to play by: the champion's, or that of one of the levels.
        temperature: Temperature of the probabilities to sample by.

    Raises:
        CheckpointMissing: If it is no export.
        CheckpointCorrupt: If a file is not the one that its card names.
    """

    # An agent id is part of the observation's row, so the actor need not read the agent.
    reads_agent = False

    def __init__(
        self,
        directory: Path,
        *,
        greedy: bool = False,
        graph: str = POLICY,
        temperature: float = 1.0,
    ) -> None:
        self.card = read_card(directory)
        self._greedy = greedy
        self._temperature = temperature
        self._session = make_session(_verified(directory, self.card, graph))
        self._state_size = state_size_of(self._session)
        self._layout = self.card.observation_layout
        self._action = self.card.action_layout
        self._outputs = list(parameter_names(self._action))
        self._make_distribution = make_distribution(self._action)

    @property
    def state_size(self) -> int:
        """Size H of the recurrent state; 0: the policy is not recurrent."""
        return self._state_size

    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        """Choose one action per row, as in `arena.core.Actor`.

        Raises:
            ValueError: If it is recurrent and there is no recurrent state, or the other way round.
        """
        state, device = inputs.recurrent_state, inputs.observation.device
        if (state is None) != (self._state_size == 0):
            raise ValueError("a recurrent policy needs its recurrent state, and no other has one")
        feeds, names = self._feeds(inputs.observation, inputs.action_mask), self._outputs
        if state is not None:
            feeds[STATE_IN] = state.cpu().numpy()
            names = [*names, STATE_OUT]
        found = dict(zip(names, self._session.run(names, feeds), strict=True))
        at = at_temperature(found, self._temperature)
        parameters = torch.cat([torch.from_numpy(at[name]) for name in self._outputs], dim=1)
        # The graph runs on the CPU and has already put illegal choices at the minimum, so only
        # results go to the environment's device.
        distribution = self._make_distribution(parameters.to(device), None)
        after = None if state is None else torch.from_numpy(found[STATE_OUT]).to(device)
        action = distribution.greedy() if self._greedy else distribution.sample(generator)
        return ActorOutput(action=action, recurrent_state=after)

    def _feeds(self, observation: torch.Tensor, action_mask: torch.Tensor | None) -> Feeds:
        feeds = feeds_of(observation.cpu(), self._layout)
        if self.card.mask is not None:
            # The graph always has the input; without a mask all choices are legal.
            legal = torch.ones(len(observation), self._action.num_logits, dtype=torch.bool)
            feeds[ACTION_MASK] = (legal if action_mask is None else action_mask.cpu()).numpy()
        return feeds


def load_export_weights(
    directory: Path, *, weights: str = WEIGHTS
) -> tuple[NetworkConfig, dict[str, torch.Tensor]]:
    """Read architecture and weights of an export, the champion's or those of one of its levels.

    Raises:
        CheckpointMissing: If it is no export.
        CheckpointCorrupt: If its weights are not those that its card names.
    """
    card = read_card(directory)
    return card.network, deserialize(_verified(directory, card, weights))


def _verified(directory: Path, card: Card, name: str) -> bytes:
    # A card may come from anywhere, so it may lack an entry.
    record = card.files.get(name)
    if record is None:
        raise CheckpointCorrupt(f"{directory}: its card names no {name}")
    return read_verified(directory, name, record)


def tempered(
    weights: Mapping[str, torch.Tensor], network: NetworkConfig, *, temperature: float
) -> dict[str, torch.Tensor]:
    """Return weights that sample by the probabilities of others to the power of 1 / temperature.

    Logits are divided by it, deviations of continuous numbers multiplied by its square root; the
    value and the likeliest actions stay.

    Args:
        weights: Weights of a policy, of which nothing is changed.
        network: Its architecture.
        temperature: Temperature, above 0.
    """
    changed = dict(weights)
    numbers = len(weights["log_std"]) if "log_std" in weights else 0
    shared = network.critic == "own" and not network.separate_value
    # The last layer has P = n + C outputs, and one more if it gives the value, too.
    num_logits = len(weights["head.bias"]) - numbers - shared
    for name in ("head.weight", "head.bias"):
        changed[name] = weights[name].clone()
        changed[name][:num_logits] /= temperature
    if numbers:
        # p(x)^(1 / T) of a normal density has T times its variance.
        changed["log_std"] = weights["log_std"] + 0.5 * math.log(temperature)
    return changed
