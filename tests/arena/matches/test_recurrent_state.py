from __future__ import annotations

import pytest
import torch

from arena.config import NetworkConfig
from arena.core import ActorInput
from arena.envs.base import Group, Turn
from arena.game_theory.exploitability import PolicyIsRecurrent, sampling
from arena.matches.seated import SeatedPlayers, block_of_envs
from arena.matches.seating import make_seats
from arena.networks.actor_critic import make_actor_critic
from arena.networks.frozen import FrozenPolicy
from tests.arena.samples import make_turn
from tests.layouts import discrete, flat_observation

AGENTS = ("a", "b", "c")
SEATS = make_seats(
    agents=AGENTS, sides={agent: (agent,) for agent in AGENTS}, populations={"player": AGENTS}
)
SIZE, NUM_ENVS = 4, 5


def policy(core: str, *, seed: int, size: int = 6) -> FrozenPolicy:
    network = make_actor_critic(
        NetworkConfig.model_validate({"hidden_sizes": (8,), "core": core, "core_size": size}),
        observation=flat_observation(SIZE),
        action=discrete(50),
        seed=seed,
    )
    network.head.weight.data *= 1e4
    return FrozenPolicy(network, greedy=True)


def ends(*, rng: torch.Generator) -> Turn:
    def flags(share: float, *shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=rng) < share

    return make_turn(
        torch.zeros(NUM_ENVS, len(AGENTS)),
        terminated=flags(0.05, NUM_ENVS, len(AGENTS)),
        truncated=flags(0.05, NUM_ENVS, len(AGENTS)),
        episode_over=flags(0.1, NUM_ENVS),
    )


def test_every_agent_of_every_environment_has_a_memory_of_its_own() -> None:
    gru, lstm, none = policy("gru", seed=1), policy("lstm", seed=2, size=5), policy("none", seed=3)
    # The same policy has two seats in one environment, and seats in several.
    blocks = [(gru, lstm, gru), (none, gru, lstm)]
    block_of_env = block_of_envs([3, 2])
    seated = SeatedPlayers(blocks, block_of_env=block_of_env, seats=SEATS, agents=AGENTS)
    rng, unused = torch.Generator().manual_seed(0), torch.Generator()
    states: dict[tuple[int, int], torch.Tensor] = {}
    answers = set()
    for _ in range(30):
        group = Group(
            torch.stack([torch.randperm(3, generator=rng)[:2] for _ in range(NUM_ENVS)]),
            torch.randn(NUM_ENVS, 2, SIZE, generator=rng),
            None,
        )
        group.agent_index[torch.rand(NUM_ENVS, 2, generator=rng) < 0.2] = -1
        action = group.new_actions()
        owner = seated.owners(group.agent_index)
        seated.play_frozen("player", group, owner=owner, action=action, generator=unused)
        for env in range(NUM_ENVS):
            for slot, agent in enumerate(group.agent_index[env].tolist()):
                if agent < 0:
                    continue
                player = blocks[int(block_of_env[env])][agent]
                row = group.observation[env, slot][None]
                before = None
                if player.state_size:
                    before = states.get((env, agent), torch.zeros(1, player.state_size))
                inputs = ActorInput(observation=row, recurrent_state=before)
                output = player.act(inputs, agent="", generator=unused)
                chosen = output.action
                if output.recurrent_state is not None:
                    states[env, agent] = output.recurrent_state
                assert (output.recurrent_state is None) == (player.state_size == 0)
                assert action[env, slot] == chosen
                answers.add(int(chosen))
        turn = ends(rng=rng)
        seated.recurrent_state.reset(turn)
        over = turn.terminated | turn.truncated | turn.episode_over[:, None]
        states = {place: state for place, state in states.items() if not over[place]}
    assert len(answers) > 10


def test_who_remembers_nothing_keeps_nothing() -> None:
    seated = SeatedPlayers(
        [(policy("none", seed=1),) * 3],
        block_of_env=block_of_envs([NUM_ENVS]),
        seats=SEATS,
        agents=AGENTS,
    )
    assert seated.recurrent_state.read(torch.arange(2), size=0).shape == (2, 0)


def test_a_policy_with_a_memory_has_no_exploitability() -> None:
    with pytest.raises(PolicyIsRecurrent, match="memory"):
        sampling(policy("gru", seed=1))
