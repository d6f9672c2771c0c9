"""What random play of one environment shows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.environment_spec import EnvironmentRequest
from arena.envs import inspect
from arena.envs.describe import environment_facts
from arena.envs.inspect import Play, inspect_and_play
from arena.envs.probe.pace import Pace
from arena.envs.probe.play import find_pace
from arena.errors import EnvironmentFault
from arena.processes.parent import Child
from tests.support import run_process


def pace_of(
    environment_id: str,
    *,
    assets: str,
    backend: str = "auto",
    reads_state: bool = False,
    deterministic: bool = True,
    **kwargs: object,
) -> Pace:
    spec = environment_facts(
        EnvironmentRequest(environment_id, kwargs=kwargs, launch_directory=assets)
    )
    return find_pace(
        spec,
        launch_directory=assets,
        backend=backend,
        reads_state=reads_state,
        deterministic=deterministic,
    )


@pytest.mark.slow
def test_lengths_are_those_of_the_rules(assets: str) -> None:
    # A call of step is one decision of each agent.
    rounds = pace_of("classic/rps-v2", assets=assets, max_cycles=30)
    assert (rounds.episode_length, rounds.is_lower_bound) == (30.0, False)
    at_once = pace_of("mpe2/simple_spread_v3", assets=assets, max_cycles=10)
    assert (at_once.episode_length, at_once.is_lower_bound) == (10.0, False)
    # Two players play thirteen tricks; the last card is forced.
    assert pace_of("openspiel:goofspiel", assets=assets).episode_length == 12.0
    # A game of Kuhn poker has two or three decisions; random play has 2 + 1/4 on average.
    assert pace_of("openspiel:kuhn_poker", assets=assets).episode_length == pytest.approx(
        2.25, abs=0.06
    )


@pytest.mark.parametrize(
    ("environment_id", "margin", "is_known", "has_stakes"),
    [
        # The values are the largest possible returns, whatever random play reaches.
        ("openspiel:kuhn_poker", 2.0, True, True),
        ("openspiel:leduc_poker", 13.0, True, True),
        ("openspiel:tic_tac_toe", 1.0, True, False),
        ("classic/tictactoe-v3", 1.0, False, False),
    ],
)
def test_the_margin_of_a_whole_match_is_found(
    environment_id: str, margin: float, is_known: bool, has_stakes: bool, assets: str
) -> None:
    pace = pace_of(environment_id, assets=assets)
    assert (pace.largest_margin, pace.is_margin_known) == (margin, is_known)
    assert pace.has_stakes == has_stakes


def test_returns_are_added_up_over_an_episode(assets: str) -> None:
    # Three rounds of rock-paper-scissors are won by at most 3, in about one episode of 14.
    pace = pace_of("classic/rps-v2", assets=assets, max_cycles=3)
    assert (pace.largest_margin, pace.is_margin_known, pace.has_stakes) == (3.0, False, True)


@pytest.mark.parametrize(("length", "is_lower_bound"), [(1999, False), (5000, True)])
def test_steps_are_counted_where_no_clock_may_decide(
    length: int, is_lower_bound: bool, assets: str
) -> None:
    pace = pace_of("environments:Long", assets=assets, length=length)
    assert pace.is_lower_bound == is_lower_bound
    assert pace.episode_length == min(length, 2000)


def test_a_running_episode_is_cut_when_time_is_up(
    assets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.envs.probe.play.MAX_S", 0.05)
    pace = pace_of("environments:Long", assets=assets, length=10**9, deterministic=False)
    assert pace.is_lower_bound
    assert pace.episode_length >= 1
    assert 0.0 < pace.step_s <= 0.05


@pytest.mark.slow
def test_counted_play_comes_out_the_same(assets: str) -> None:
    one, other = (pace_of("classic/tictactoe-v3", assets=assets) for _ in range(2))
    assert one.episode_length == other.episode_length
    assert 5.0 < one.episode_length < 9.0


@pytest.mark.parametrize(("megabytes", "least", "most"), [(0, 0.0, 1.0), (8, 7.2, 8.8)])
def test_memory_is_that_of_one_environment(
    megabytes: int, least: float, most: float, assets: str
) -> None:
    # Memory is measured in a child, as at launch: this process has free memory and would not grow.
    kwargs = {"length": 10, "megabytes": megabytes}
    found = inspect_and_play(
        EnvironmentRequest("environments:Long", kwargs=kwargs, launch_directory=assets),
        play="counted",
    )
    assert found.pace is not None
    assert least <= found.pace.env_bytes / 2**20 <= most
    assert found.pace.machine_bytes > 1 << 30


@pytest.mark.slow
def test_batched_games_are_those_that_train_as_such(assets: str) -> None:
    name = "classic/tictactoe-v3"
    assert pace_of(name, assets=assets).is_batched
    assert not pace_of(name, assets=assets, backend="pettingzoo").is_batched
    assert not pace_of(name, assets=assets, reads_state=True).is_batched
    assert not pace_of("environments:Long", assets=assets, length=3).is_batched
    own = pace_of("batched_games:Hunt", assets=assets)
    assert own.is_batched
    assert 2.0 < own.episode_length < 4.0


@pytest.mark.slow
def test_masks_are_kept_wherever_they_are(assets: str) -> None:
    for where in ("observation", "info"):
        assert not pace_of("environments:MaskedTurns", assets=assets, where=where).is_lower_bound


def test_a_fault_before_an_episode_ended_is_said(assets: str) -> None:
    with pytest.raises(EnvironmentFault, match="step 2 of random play raised KeyError"):
        pace_of("environments:FaultyTurns", assets=assets, fault="step_raises")


@pytest.mark.parametrize("play", ["timed", "counted"])
@pytest.mark.slow
def test_the_child_finds_the_same(play: Play, assets: str) -> None:
    found = inspect_and_play(
        EnvironmentRequest("classic/rps-v2", launch_directory=assets), play=play
    )
    assert found.pace is not None
    assert found.pace.episode_length == 15.0
    assert found.spec == environment_facts(
        EnvironmentRequest("classic/rps-v2", launch_directory=assets)
    )


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("dies", "random play ended the process (SIGKILL)"),
        ("raises", "step 1 of random play raised RuntimeError: no more"),
    ],
)
def test_facts_stand_whatever_play_does(fault: str, why: str, assets: str) -> None:
    found = inspect_and_play(
        EnvironmentRequest("environments:Long", kwargs={"fault": fault}, launch_directory=assets)
    )
    assert found.spec.agents == ("a", "b")
    assert found.pace is None
    assert why in found.why


def test_facts_stand_where_play_hangs(
    assets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"

    class UntilItHangs(Child):
        def events(self, timeout_s: float = 0.0) -> Iterator[bytes]:
            while not started.exists():
                yield from super().events(0.05)

    monkeypatch.setattr(inspect, "Child", UntilItHangs)
    kwargs = {"fault": "hangs", "started": str(started)}
    found = inspect_and_play(
        EnvironmentRequest("environments:Long", kwargs=kwargs, launch_directory=assets),
        timeout_s=77.0,
    )
    assert found.spec.agents == ("a", "b")
    assert (found.pace, found.why) == (None, "random play was not over within 77 s")


def test_playing_an_environment_needs_no_torch(assets: str) -> None:
    script = (
        "import sys; from arena.envs.inspect import _facts, _pace; "
        "from arena.environment_spec import EnvironmentRequest; "
        "asked = EnvironmentRequest('classic/tictactoe-v3', launch_directory=''); "
        "print(_pace(_facts(asked, {}).spec, asked, play='counted')['pace']['is_batched'], "
        "'torch' in sys.modules)"
    )
    done = run_process([sys.executable, "-c", script], check=True)
    assert done.stdout.split() == ["True", "False"]
