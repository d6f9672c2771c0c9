from __future__ import annotations

import torch

from arena.rollout.phases import Phases

CPU = torch.device("cpu")


def waits(phases: Phases, *, num_envs: int, calls: int) -> list[int]:
    """Calls after which each environment goes on; 0: it never waited."""
    found = [0] * num_envs
    for call in range(1, calls + 1):
        resumed = phases.tick()
        if resumed is not None:
            for env in resumed.nonzero().flatten().tolist():
                found[env] = call
    return found


def test_environments_are_spread_evenly_over_a_long_episode() -> None:
    phases = Phases(num_envs=4, rollout_length=5, device=CPU)
    waiting = phases.begin(20.0, generator=torch.Generator().manual_seed(1))
    assert waiting is not None
    assert int(waiting.sum()) == 3
    # wait_k = k 20 / 4
    assert sorted(waits(phases, num_envs=4, calls=20)) == [0, 5, 10, 15]
    assert phases.waiting is None


def test_short_episodes_are_not_spread() -> None:
    phases = Phases(num_envs=4, rollout_length=5, device=CPU)
    generator = torch.Generator()
    assert phases.begin(9.9, generator=generator) is None
    assert phases.begin(0.0, generator=generator) is None
    assert phases.waiting is None
    assert phases.tick() is None


def test_only_too_many_ends_in_one_step_are_spread() -> None:
    phases = Phases(num_envs=100, rollout_length=5, device=CPU)
    generator = torch.Generator().manual_seed(1)
    over = torch.zeros(100, dtype=torch.bool)
    # Four times the even share: 4 * 100 / 50 = 8.
    over[:8] = True
    assert phases.end(over, length=50.0, generator=generator) is None
    over[:9] = True
    waiting = phases.end(over, length=50.0, generator=generator)
    assert waiting is not None
    assert int(waiting.sum()) == 8
    assert not waiting[9:].any()
