"""Rewards around deaths: each is counted once, those of dead agents' steps too."""

from __future__ import annotations

from tests.arena.envs.conftest import Make, Replay, assert_same, play_batched

RETURNS = {
    # A turn and a kill, then killed by b.
    "a": 1.0 + 10.0 - 10.0,
    # A turn and two kills, three heritages, the last turn.
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
            # PettingZoo's own loop, which adds up `last()`.
            assert_same(episode, Replay(made, seed=1, recorded=episode).episode)
