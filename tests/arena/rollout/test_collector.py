from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from arena.config import NetworkConfig, RandomOpenings
from arena.core import ActorInput, AlgorithmOutput
from arena.experience import Rollout
from arena.networks.actor_critic import make_actor_critic
from arena.networks.frozen import FrozenPolicy
from arena.rollout.collector import Collector
from arena.rollout.recorder import Learning, SeatedPlayer
from arena.types import PolicyId
from tests.arena import samples
from tests.arena.samples import Always, Counted, Inert, make_blocks
from tests.layouts import discrete, flat_observation

DUEL = {"a": ("a",), "b": ("b",)}
Where = tuple[float, ...]


class EchoAlgorithm(Inert):
    """Values and log-probabilities say which decision they belong to."""

    rollout_length = 7
    gamma = 0.5
    gae_lambda = 0.0

    def __init__(self, action: int = 1) -> None:
        self.action = action
        self.seen: list[Where] = []

    def act(self, inputs: ActorInput, *, generator: torch.Generator) -> AlgorithmOutput:
        observation = inputs.observation
        self.seen += [tuple(row) for row in observation.tolist()]
        action = torch.full((len(observation),), self.action)
        return AlgorithmOutput(
            action=action, log_prob=-self.value(inputs), value=self.value(inputs)
        )

    def value(self, inputs: ActorInput) -> torch.Tensor:
        observation = inputs.observation
        seed, episode, step, agent = observation.unbind(1)
        return 1000 * seed + 100 * episode + 10 * step + agent


def learning(name: str = "player/p000", action: int = 1) -> Learning:
    return Learning(policy=PolicyId(name), algorithm=EchoAlgorithm(action))


def prefers(action: int) -> FrozenPolicy:
    network = make_actor_critic(
        NetworkConfig(hidden_sizes=(4,)),
        observation=flat_observation(4),
        action=discrete(3),
        seed=action,
    )
    network.head.bias.data[action] = 1000.0
    return FrozenPolicy(network)


def make_collector(
    env: Any,
    *blocks: Sequence[SeatedPlayer],
    sides: Mapping[str, tuple[str, ...]] = DUEL,
    **options: Any,
) -> Collector:
    return samples.make_collector(
        env,
        make_blocks(*blocks),
        sides=sides,
        populations=env.populations,
        action=discrete(3),
        **options,
    )


def stored(rollouts: Sequence[Rollout]) -> list[Where]:
    return [tuple(row) for rollout in rollouts for row in rollout.observation.tolist()]


def carried_out(env: Any) -> list[Where]:
    return [tuple(map(float, row[:4])) for row in env.decisions]


@pytest.mark.parametrize("in_turns", [True, False])
def test_in_mirror_play_every_decision_trains_exactly_once(
    scripted_env: Any, in_turns: bool
) -> None:
    env = scripted_env(
        num_envs=3, in_turns=in_turns, length=lambda seed, episode: 2 + seed + episode % 3
    )
    me = learning()
    progress = Counted()
    collector = make_collector(env, (me, me), progress=progress)
    rollouts = [rollout for _ in range(4) for _, rollout in collector.collect()]

    seen = Counter(stored(rollouts))
    decided = carried_out(env)
    assert max(seen.values()) == 1
    left_out = set(decided) - set(seen)
    assert set(seen) <= set(decided)
    # Only an agent that waits for its turn when a rollout ends has a decision without successor.
    assert len(left_out) <= (4 * 3 if in_turns else 0)
    assert collector.agent_steps == {"player/p000": len(decided)}
    assert sum(rollout.agent_steps for rollout in rollouts) == len(decided)
    assert (progress.turns, progress.agent_steps) == (4 * 7, len(decided))


@pytest.mark.parametrize(
    ("num_agents", "in_turns", "calls"), [(2, True, 7), (6, True, 21), (5, True, 18), (6, False, 7)]
)
def test_where_many_take_turns_a_rollout_is_longer(
    scripted_env: Any, num_agents: int, in_turns: bool, calls: int
) -> None:
    agents = tuple("abcdef"[:num_agents])
    env = scripted_env(
        num_envs=2,
        agents=agents,
        populations={"player": agents},
        in_turns=in_turns,
        num_sides=num_agents,
        length=lambda seed, episode: 30 if calls > 7 else 10,
    )
    me = learning()
    sides = {agent: (agent,) for agent in agents}
    progress = Counted()
    collector = make_collector(env, (me,) * num_agents, sides=sides, progress=progress)
    rollouts = [rollout for _ in range(6) for _, rollout in collector.collect()]
    assert progress.turns == 6 * calls
    assert progress.agent_steps == 6 * calls * 2 * (1 if in_turns else num_agents)
    # Few decisions are lost at the end of a rollout, and some have a known successor.
    assert sum(map(len, rollouts)) / progress.agent_steps > 0.7
    for rollout in rollouts:
        each = Counter((seed, agent) for seed, _, _, agent in rollout.observation.tolist())
        assert min(each.values()) >= 2
        assert len(each) == 2 * num_agents


def test_what_is_stored_belongs_together(scripted_env: Any) -> None:
    env = scripted_env(num_envs=3, length=lambda seed, episode: 3 + seed)
    me = learning()
    ((_, rollout),) = make_collector(env, (me, me)).collect()
    value = me.algorithm.value(ActorInput(observation=rollout.observation))
    assert len(rollout) > 0
    assert torch.equal(rollout.value, value)
    assert torch.equal(rollout.log_prob, -value)
    assert rollout.action_mask is not None
    # Action 0 is illegal at even steps.
    assert torch.equal(rollout.action_mask[:, 0], rollout.observation[:, 2] % 2 == 1)


def test_stacked_opponents_decide_in_their_own_blocks(scripted_env: Any) -> None:
    env = scripted_env(num_envs=9, length=lambda seed, episode: 2 + (seed + episode) % 3)
    me = learning(action=1)
    ghosts = [prefers(1), prefers(2), prefers(1)]
    make_collector(env, (me, ghosts[0]), (ghosts[1], me), (me, ghosts[2])).collect()
    played = {(b // 3, agent, action) for b, _, _, agent, action in env.decisions}
    assert played == {(0, 0, 1), (0, 1, 1), (1, 0, 2), (1, 1, 1), (2, 0, 1), (2, 1, 1)}


def test_frozen_players_decide_in_their_seats_and_are_not_stored(scripted_env: Any) -> None:
    env = scripted_env(num_envs=5, length=lambda seed, episode: 2 + (seed + episode) % 3)
    me, ghost, bot = learning(action=1), Always(2), Always(2)
    collector = make_collector(env, (me, ghost), (bot, me))
    rollouts = [rollout for _ in range(3) for _, rollout in collector.collect()]
    # The five environments form two blocks of three and two.
    own_agent = {0: 0, 1: 0, 2: 0, 3: 1, 4: 1}
    assert {(int(seed), int(agent)) for seed, _, _, agent in stored(rollouts)} == set(
        own_agent.items()
    )
    for seed, _, _, agent, action in env.decisions:
        assert action == (1 if own_agent[seed] == agent else 2)
    own = [row for row in env.decisions if own_agent[row[0]] == row[3]]
    assert collector.agent_steps == {"player/p000": len(own)}


def test_tallies_name_the_block_and_count_finished_episodes(scripted_env: Any) -> None:
    env = scripted_env(
        num_envs=4,
        length=lambda seed, episode: 3,
        reward=lambda seed, episode, step, agent: float(agent == 0),
    )
    me, ghost = learning(), Always(2)
    collector = make_collector(env, (me, ghost), (ghost, me))
    collector.collect()
    # Seven steps are two whole episodes of three in each environment, and one unfinished.
    assert [
        (t.entrants, t.matches, t.pairs[0].wins, t.return_sum, t.length_sum)
        for t in collector.tallies()
    ] == [
        (("block0-0", "block0-1"), 4, 4, (12.0, 0.0), 12),
        (("block1-0", "block1-1"), 4, 4, (12.0, 0.0), 12),
    ]


@pytest.mark.parametrize("in_turns", [True, False])
def test_random_openings_are_neither_trained_on_nor_counted(
    scripted_env: Any, in_turns: bool
) -> None:
    env = scripted_env(num_envs=16, in_turns=in_turns, length=lambda seed, episode: 6)
    algorithm = EchoAlgorithm(action=1)
    me = Learning(policy=PolicyId("player/p000"), algorithm=algorithm)
    collector = make_collector(env, (me, me), openings=RandomOpenings(share=1.0, max_decisions=3))
    rollouts = [rollout for _ in range(6) for _, rollout in collector.collect()]
    chosen = set(algorithm.seen)
    episodes: dict[tuple[int, int], list[bool]] = defaultdict(list)
    random_actions = set()
    for seed, episode, step, agent, action in env.decisions:
        is_random = (float(seed), float(episode), float(step), float(agent)) not in chosen
        episodes[seed, episode].append(is_random)
        random_actions |= {action} if is_random else set()
    whole = [rows for (_, episode), rows in episodes.items() if episode < 7]
    assert len(whole) == 16 * 7
    openings = [sum(rows) for rows in whole]
    # Openings come first and have one to three decisions, independent of the agent.
    assert all(all(rows[:length]) for rows, length in zip(whole, openings, strict=True))
    assert set(openings) == {1, 2, 3}
    assert random_actions == {0, 1, 2}

    assert set(stored(rollouts)) <= chosen
    assert collector.agent_steps == {me.policy: len(chosen)}
    assert sum(rollout.agent_steps for rollout in rollouts) == len(chosen)
    assert collector.tallies() == ()
    assert sum(tally.matches for tally in collector.episodes()) == 16 * 7


def test_a_share_of_episodes_has_openings_and_only_those_are_void(scripted_env: Any) -> None:
    env = scripted_env(num_envs=32, length=lambda seed, episode: 1)
    me = learning(action=1)
    collector = make_collector(env, (me, me), openings=RandomOpenings(share=0.25, max_decisions=1))
    for _ in range(4):
        collector.collect()
    matches = sum(tally.matches for tally in collector.tallies())
    # Every episode is one decision, either trained on or random and void.
    assert matches == collector.agent_steps[me.policy]
    num_episodes = 32 * 28
    # The count is Binomial(896, 3/4): five standard deviations are 65.
    assert abs(matches - 0.75 * num_episodes) < 65
    assert sum(tally.matches for tally in collector.episodes()) == num_episodes


def test_truncation_bootstraps_from_the_last_observation(scripted_env: Any) -> None:
    env = scripted_env(
        num_envs=2,
        in_turns=False,
        truncates=True,
        length=lambda seed, episode: 2,
        reward=lambda seed, episode, step, agent: 1.0,
    )
    me = learning()
    ((_, rollout),) = make_collector(env, (me, Always(2))).collect()
    target = dict(zip(stored([rollout]), rollout.return_.tolist(), strict=True))
    # With lambda 0 the target is r + gamma * V(next), with V = 1000 seed + 100 episode + 10 step +
    # agent.
    assert target[1.0, 0.0, 0.0, 0.0] == 1 + 0.5 * 1010
    assert target[1.0, 0.0, 1.0, 0.0] == 1 + 0.5 * 1020
    assert target[1.0, 1.0, 1.0, 0.0] == 1 + 0.5 * 1120


def test_termination_does_not_bootstrap_and_the_end_of_a_rollout_does(scripted_env: Any) -> None:
    env = scripted_env(num_envs=1, in_turns=False, length=lambda seed, episode: 4)
    me = learning()
    ((_, rollout),) = make_collector(env, (me, Always(2))).collect()
    target = dict(zip(stored([rollout]), rollout.return_.tolist(), strict=True))
    assert target[0.0, 0.0, 3.0, 0.0] == 0.0
    # The seventh step is step 2 of episode 1; step 3 comes next.
    assert target[0.0, 1.0, 2.0, 0.0] == 0.5 * 130


def test_two_populations_learn_at_once(scripted_env: Any) -> None:
    env = scripted_env(num_envs=3, in_turns=False, populations={"wolf": ("a",), "hare": ("b",)})
    wolf, hare = learning("wolf/p000", 1), learning("hare/p000", 2)
    collector = make_collector(env, (wolf, hare))
    rollouts = {who.policy: rollout for who, rollout in collector.collect()}
    assert {row[3] for row in stored([rollouts[wolf.policy]])} == {0.0}
    assert {row[3] for row in stored([rollouts[hare.policy]])} == {1.0}
    assert set(rollouts[hare.policy].action.tolist()) == {2}
    assert collector.agent_steps == {"wolf/p000": 21, "hare/p000": 21}


def test_two_policies_of_a_population_learn_against_each_other(scripted_env: Any) -> None:
    env = scripted_env(num_envs=4, length=lambda seed, episode: 4)
    one, other = learning("player/p000", 1), learning("player/p001", 2)
    collector = make_collector(env, (one, other), (other, one))
    rollouts = {who.policy: rollout for who, rollout in collector.collect()}
    for policy, seat_of_seed in (("player/p000", (0, 0, 1, 1)), ("player/p001", (1, 1, 0, 0))):
        seen = stored([rollouts[PolicyId(policy)]])
        assert {(int(row[0]), int(row[3])) for row in seen} == set(enumerate(seat_of_seed))
    assert sum(collector.agent_steps.values()) == len(env.decisions)


def test_in_cooperation_the_policy_has_all_agents(scripted_env: Any) -> None:
    env = scripted_env(
        num_envs=2,
        in_turns=False,
        num_sides=1,
        reward=lambda seed, episode, step, agent: float(1 + agent),
    )
    me = learning()
    collector = make_collector(env, (me, me), sides={"all": ("a", "b")})
    collector.collect()
    assert collector.agent_steps == {"player/p000": 2 * 2 * 7}
    (tally,) = collector.tallies()
    # Each environment has two episodes of three steps; 1.5 is the mean reward of the two agents.
    assert (tally.matches, tally.pairs, tally.return_sum) == (4, (), (18.0, 18.0))


def test_two_populations_that_cooperate_learn_in_the_same_episodes(scripted_env: Any) -> None:
    populations = {"speaker": ("b",), "listener": ("a", "c")}
    env = scripted_env(
        num_envs=2,
        in_turns=False,
        num_sides=1,
        agents=("a", "b", "c"),
        populations=populations,
        reward=lambda seed, episode, step, agent: float(agent),
    )
    speaker, listener = learning("speaker/p000", 1), learning("listener/p000", 2)
    collector = make_collector(
        env, (speaker, listener, speaker, listener), sides={"all": ("a", "b", "c")}
    )
    rollouts = {who.policy: rollout for who, rollout in collector.collect()}
    # Every decision of every agent is in exactly one buffer, once.
    seen = stored([rollouts[speaker.policy]]) + stored([rollouts[listener.policy]])
    assert sorted(seen) == sorted(tuple(map(float, row[:4])) for row in env.decisions)
    assert len(seen) == 2 * 7 * 3
    assert {row[3] for row in stored([rollouts[speaker.policy]])} == {1.0}
    assert set(rollouts[listener.policy].action.tolist()) == {2}
    assert collector.agent_steps == {"speaker/p000": 14, "listener/p000": 28}
    (tally,) = collector.tallies()
    # Each environment has two episodes of three steps; the listeners' mean is (0 + 2) / 2.
    assert (tally.matches, tally.pairs, tally.return_sum) == (4, (), (12.0, 12.0, 12.0, 12.0))


def test_somebody_must_learn(scripted_env: Any) -> None:
    with pytest.raises(ValueError, match="nobody learns"):
        make_collector(scripted_env(num_envs=1), (Always(1), Always(1)))


def test_a_policy_cannot_sit_in_another_populations_seat(scripted_env: Any) -> None:
    with pytest.raises(ValueError, match="wolf/p000 cannot sit"):
        make_collector(scripted_env(num_envs=1), (learning("wolf/p000"), Always(1)))


def test_more_blocks_than_environments_are_refused(scripted_env: Any) -> None:
    me = learning()
    with pytest.raises(ValueError, match="1 to 1 blocks fit 1 environments, got 2"):
        make_collector(scripted_env(num_envs=1), (me, me), (me, me))


def test_opponents_never_change_within_an_episode(scripted_env: Any) -> None:
    env = scripted_env(num_envs=8, length=lambda seed, episode: 5)
    me = learning(action=1)
    ghosts = [Always(1), Always(2)]
    collector = make_collector(env, (me, ghosts[0]), (me, ghosts[1]))
    for _ in range(5):
        collector.collect()
    by_episode: dict[tuple[int, int], set[int]] = defaultdict(set)
    for seed, episode, _, agent, action in env.decisions:
        if agent == 1:
            by_episode[seed, episode].add(action)
    assert len(by_episode) > 8
    assert all(len(actions) == 1 for actions in by_episode.values())
