from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from arena.config import NetworkConfig
from arena.core import Actor, ActorInput, ActorOutput
from arena.envs.base import Group
from arena.matches.match import Block, play_matches
from arena.matches.seated import NOBODY, Seatable, SeatedPlayers, block_of_envs
from arena.matches.seating import make_seats
from arena.matches.tournament import TournamentResult, play_tournament
from arena.networks.actor_critic import make_actor_critic
from arena.networks.frozen import FrozenPolicy
from arena.networks.stack import PolicyStack
from arena.types import Entrant
from tests.layouts import discrete, flat_observation

NUM_FEATURES, NUM_ACTIONS = 4, 3
SIDES = {"a": ("a",), "b": ("b",)}
SEATS = make_seats(agents=("a", "b"), sides=SIDES, populations={"player": ("a", "b")})


def make_policy(
    seed: int, *, hidden_sizes: tuple[int, ...] = (8,), greedy: bool = True
) -> FrozenPolicy:
    network = make_actor_critic(
        NetworkConfig(hidden_sizes=hidden_sizes),
        observation=flat_observation(NUM_FEATURES),
        action=discrete(NUM_ACTIONS),
        seed=seed,
    )
    network.head.weight.data.mul_(1000.0)
    return FrozenPolicy(network, greedy=greedy)


class ByItself(Actor):
    """A policy that the router knows nothing of: it gets a call of its own."""

    reads_agent = False

    def __init__(self, policy: FrozenPolicy) -> None:
        self._policy = policy

    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        return self._policy.act(inputs, agent=agent, generator=generator)


class Learner:
    """Sits there and decides elsewhere."""

    state_size = 0


def seat(*blocks: tuple[Seatable, Seatable], sizes: Sequence[int]) -> SeatedPlayers[Seatable]:
    return SeatedPlayers(blocks, block_of_env=block_of_envs(sizes), seats=SEATS, agents=("a", "b"))


def make_group(num_envs: int, *, seed: int = 0) -> Group:
    """Who is on turn differs from environment to environment; some ask for nothing."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(num_envs, 1, NUM_ACTIONS, generator=generator) < 0.6
    mask[:, :, 1] = True
    return Group(
        agent_index=torch.randint(-1, 2, (num_envs, 1), generator=generator),
        observation=torch.randn(num_envs, 1, NUM_FEATURES, generator=generator),
        action_mask=mask,
    )


def play(seated: SeatedPlayers[Seatable], group: Group) -> torch.Tensor:
    owner = seated.owners(group.agent_index)
    action = torch.full_like(owner, -7)
    seated.play_frozen(
        "player", group, owner=owner, action=action, generator=torch.Generator().manual_seed(1)
    )
    return action


def test_every_decision_is_its_players_own() -> None:
    small = [make_policy(seed) for seed in range(3)]
    large = [make_policy(seed, hidden_sizes=(16,)) for seed in range(2)]
    bot = ByItself(make_policy(9))
    learner = Learner()
    blocks: list[tuple[Seatable, Seatable]] = [
        (small[0], small[1]),
        (learner, large[0]),
        (small[2], bot),
        (large[1], small[0]),
        (make_policy(7, greedy=False), learner),
    ]
    # The last policy samples, with a clear preference for one of two actions.
    sizes = [9, 8, 7, 10, 0]
    group = make_group(sum(sizes))
    action = play(seat(*blocks, sizes=sizes), group)
    block_of_env = block_of_envs(sizes).tolist()
    assert group.action_mask is not None
    for env, block in enumerate(block_of_env):
        on_turn = int(group.agent_index[env, 0])
        player = blocks[block][on_turn] if on_turn >= 0 else None
        if isinstance(player, FrozenPolicy | ByItself):
            expected = player.act(
                ActorInput(observation=group.observation[env], action_mask=group.action_mask[env]),
                agent="",
                generator=torch.Generator(),
            ).action
            assert action[env].tolist() == expected.tolist()
        else:
            assert action[env].tolist() == [-7]


def test_policies_of_one_architecture_decide_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    act = PolicyStack.act

    def counted(self: PolicyStack, observation: torch.Tensor, *rest: Any, **more: Any) -> Any:
        calls.append(len(observation))
        return act(self, observation, *rest, **more)

    monkeypatch.setattr(PolicyStack, "act", counted)
    monkeypatch.setattr(FrozenPolicy, "act", None)
    policies = [make_policy(seed) for seed in range(6)]
    blocks = [(policies[k], policies[(k + 1) % 6]) for k in range(6)]
    group = make_group(60)
    play(seat(*blocks, sizes=[10] * 6), group)
    assert calls == [int((group.agent_index >= 0).sum())]


def test_populations_have_stacks_of_their_own() -> None:
    seats = make_seats(
        agents=("a", "b"), sides=SIDES, populations={"wolf": ("a",), "sheep": ("b",)}
    )
    wolves = [make_policy(seed) for seed in range(2)]
    sheep = [make_policy(seed) for seed in range(2, 4)]
    seated = SeatedPlayers(
        list(zip(wolves, sheep, strict=True)),
        block_of_env=block_of_envs([4, 4]),
        seats=seats,
        agents=("a", "b"),
    )
    for population, agent, policies in (("wolf", 0, wolves), ("sheep", 1, sheep)):
        group = make_group(8, seed=agent)
        group.agent_index.fill_(agent)
        owner = seated.owners(group.agent_index)
        action = torch.zeros_like(owner)
        generator = torch.Generator()
        seated.play_frozen(population, group, owner=owner, action=action, generator=generator)
        assert group.action_mask is not None
        for env in range(8):
            expected = (
                policies[env // 4]
                .act(
                    ActorInput(
                        observation=group.observation[env], action_mask=group.action_mask[env]
                    ),
                    agent="",
                    generator=generator,
                )
                .action
            )
            assert action[env].tolist() == expected.tolist()


def test_nobody_decides_where_an_environment_stands_still() -> None:
    seated = seat((make_policy(0), make_policy(1)), (make_policy(2), make_policy(3)), sizes=[3, 3])
    group = make_group(6)
    active = torch.tensor([True, False, True, False, False, True])
    group.agent_index[:] = torch.where(active, 1, NOBODY)[:, None]
    owner = seated.owners(group.agent_index)
    assert (owner == NOBODY).flatten().tolist() == (~active).tolist()
    action = torch.full_like(owner, -7)
    seated.play_frozen("player", group, owner=owner, action=action, generator=torch.Generator())
    assert (action == -7).flatten().tolist() == (~active).tolist()


def entrants(block: int) -> tuple[Entrant, Entrant]:
    return Entrant(f"{block}a"), Entrant(f"{block}b")


@pytest.mark.parametrize("in_turns", [True, False])
def test_matches_are_the_same_stacked_and_one_by_one(scripted_env: Any, in_turns: bool) -> None:
    policies = [make_policy(seed) for seed in range(5)]
    pairs = [(0, 1), (1, 0), (2, 4), (3, 0), (4, 4)]

    def decisions(actors: Sequence[Actor]) -> tuple[Any, Any]:
        env = scripted_env(
            num_envs=11,
            in_turns=in_turns,
            length=lambda seed, episode: 1 + (seed + 3 * episode) % 4,
        )
        env.reward = lambda seed, episode, step, agent: float(
            next(
                (d[4] for d in reversed(env.decisions) if d[:4] == (seed, episode, step, agent)), 0
            )
        )
        tallies = play_matches(
            env,
            blocks=[
                Block(
                    entrants=entrants(block),
                    actors=(actors[home], actors[away]),
                    num_envs=2,
                    num_matches=3,
                )
                for block, (home, away) in enumerate(pairs)
            ],
            seats=SEATS,
            sides=SIDES,
            seeds=range(11),
            generator=torch.Generator().manual_seed(1),
        )
        return env.decisions, tallies

    stacked = decisions(policies)
    assert stacked == decisions([ByItself(policy) for policy in policies])
    assert [tally.matches for tally in stacked[1]] == [6] * len(pairs)


@pytest.mark.parametrize("num_envs", [3, 17, 40])
def test_a_tournament_of_many_networks_is_exact_and_repeatable(
    scripted_env: Any, num_envs: int
) -> None:
    policies = [make_policy(seed, greedy=False) for seed in range(6)]

    def tournament() -> TournamentResult:
        return play_tournament(
            scripted_env(
                num_envs=num_envs, length=lambda seed, episode: 1 + (seed * 7 + episode) % 5
            ),
            contenders={f"n{index}": {"player": one} for index, one in enumerate(policies)},
            num_matches=4,
            seats=SEATS,
            sides=SIDES,
            seed=3,
            generator=torch.Generator().manual_seed(3),
        )

    result = tournament()
    names = [f"n{index}" for index in range(6)]
    pairs = [(home, away) for home in names for away in names if home != away]
    assert [(pair.home, pair.away) for pair in result.pairs] == pairs
    assert {pair.matches for pair in result.pairs} == {4}
    assert result == tournament()
