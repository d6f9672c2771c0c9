"""Rewards around deaths: each is counted once, those of dead agents' steps too."""

from __future__ import annotations

from tests.arena.envs.conftest import Make, Replay, assert_same, play_batched

RETURNS = {
    # a takes a turn (+1), kills (+10), and is killed by b (-10).
    "a": 1.0 + 10.0 - 10.0,
    # b takes a turn, kills twice, inherits three times, and takes the last turn.
    "b": 1.0 + 20.0 + 3 * 3.0 + 1.0,
    "c": -10.0,
    "d": -10.0,
}


def test_deaths_in_the_middle_of_an_episode_pay_what_last_says(make: Make) -> None:
    made = make("heirs:Heirs", num_envs=2)
    for episodes in play_batched(made, seeds=[1, 2], num_steps=6):
        assert [len(episode.decisions) for episode in episodes] == [3, 3, 0]
        for episode in episodes[:-1]:
            assert episode.returns == RETURNS
            # The oracle is PettingZoo's own loop, which sums `last()`.
            assert_same(episode, Replay(made, seed=1, recorded=episode).episode)
