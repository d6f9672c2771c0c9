"""How fast opponents act as one: a stack, a single network and one network after the other.

    python -m experiments.speed.stacking

K frozen policies (MLP 128x128 on 84 features, 7 actions, as in Connect Four) decide for R rows
each: rows in blocks, as environments have them; shuffled; or ragged, each row of any policy. Ways
that take turns in one thread: the stack in float32, and in bfloat16 (as eight opponents or more act
while a policy trains in it), one network on all rows, and every policy by itself. Shown are
medians of microseconds of processor time (others may use the machine too), and the median and
quartiles over rounds of how fast the stacks are relative to the single network, which is float32.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from arena.config import NetworkConfig
from arena.core import ActorInput
from arena.networks.actor_critic import make_actor_critic
from arena.networks.frozen import FrozenPolicy
from arena.networks.stack import PolicyStack
from tests.layouts import discrete, flat_observation

OBSERVATION_SIZE, NUM_ACTIONS = 84, 7
NUM_POLICIES = (4, 8, 16, 32)
ROWS_EACH = (16, 32, 64, 128)
ROUNDS = 21
ROUND_S = 0.01
"""Least seconds for which each of the three ways is called in a round."""


def random_policy(seed: int) -> FrozenPolicy:
    """Make a policy with its first weights."""
    network = make_actor_critic(
        NetworkConfig(hidden_sizes=(128, 128)),
        observation=flat_observation(OBSERVATION_SIZE),
        action=discrete(NUM_ACTIONS),
        seed=seed,
    )
    return FrozenPolicy(network)


def alternate(ways: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Measure microseconds per call of each way, one figure per round."""
    repeats = {}
    for name, call in ways.items():
        call()
        started = time.process_time()
        call()
        repeats[name] = max(1, int(ROUND_S / (time.process_time() - started)))
    rounds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, call in ways.items():
            started = time.process_time()
            for _ in range(repeats[name]):
                call()
            rounds[name].append((time.process_time() - started) / repeats[name] * 1e6)
    return rounds


def measure(num_policies: int, *, rows_each: int, order: str) -> dict[str, list[float]]:
    """Measure microseconds of ``act`` for K policies with so many rows each."""
    policies = [random_policy(seed) for seed in range(num_policies)]
    stack = PolicyStack(policies)
    rounded = PolicyStack(policies, product_dtype=torch.bfloat16)
    generator = torch.Generator().manual_seed(1)
    num_rows = num_policies * rows_each
    observation = torch.rand(num_rows, OBSERVATION_SIZE, generator=generator).round()
    mask = torch.rand(num_rows, NUM_ACTIONS, generator=generator) < 0.9
    mask[:, 3] = True
    player = torch.arange(num_policies).repeat_interleave(rows_each)
    if order == "shuffled":
        player = player[torch.randperm(num_rows, generator=generator)]
    if order == "ragged":
        player = torch.randint(num_policies, (num_rows,), generator=generator).sort().values
    parts = [slice(k * rows_each, (k + 1) * rows_each) for k in range(num_policies)]
    return alternate(
        {
            "stack": lambda: stack.act(observation, mask, player=player, generator=generator),
            "bfloat16": lambda: rounded.act(observation, mask, player=player, generator=generator),
            "single": lambda: (
                policies[0]
                .act(
                    ActorInput(observation=observation, action_mask=mask),
                    agent="",
                    generator=generator,
                )
                .action
            ),
            "each": lambda: [
                policy.act(
                    ActorInput(observation=observation[part], action_mask=mask[part]),
                    agent="",
                    generator=generator,
                ).action
                for policy, part in zip(policies, parts, strict=True)
            ],
        }
    )


def main() -> None:
    """Print one line per size."""
    torch.set_num_threads(1)
    say(
        "policies rows order    stack_us bfloat16_us single_us one_by_one_us "
        "stack/single  quartiles bfloat16/single  quartiles"
    )
    for num_policies, rows_each in itertools.product(NUM_POLICIES, ROWS_EACH):
        for order in ("blocks", "shuffled", "ragged"):
            rounds = measure(num_policies, rows_each=rows_each, order=order)
            stack, bfloat16, single, each = map(statistics.median, rounds.values())
            say(
                f"{num_policies:8d} {rows_each:4d} {order:8s} {stack:8.0f} {bfloat16:11.0f} "
                f"{single:9.0f} {each:13.0f} {speed(rounds, 'stack')} {speed(rounds, 'bfloat16')}"
            )


def speed(rounds: Mapping[str, Sequence[float]], way: str) -> str:
    """Return a way's speed relative to the single network: median and quartiles."""
    ratios = [b / a for a, b in zip(rounds[way], rounds["single"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:12.2f}  {low:.2f}-{high:.2f}"


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
