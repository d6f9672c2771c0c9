from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from arena.environment_spec import AgentSpec, EnvironmentRequest, EnvironmentSpec
from arena.envs.checks.check import EnvironmentReport, check_environment
from arena.envs.checks.native_play import first_difference, look
from arena.envs.checks.native_watch import Look, Watch
from arena.envs.checks.roles import roles_of
from arena.envs.checks.time_limit import TimeLimit
from arena.envs.describe import environment_facts, mask_like
from arena.envs.findings import MENDS, SEE_README, Finding, finding_of
from arena.envs.inspect import inspect_environment
from arena.envs.registry import make_environment
from arena.envs.spaces.observations import describe
from arena.errors import EnvironmentFault


def check(environment_id: str, assets: str, **kwargs: object) -> EnvironmentReport:
    return check_environment(
        EnvironmentRequest(environment_id, kwargs=kwargs, launch_directory=assets), seconds=0.1
    )


@pytest.fixture(autouse=True)
def _inspected_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inspect in this process, which has PettingZoo; `tests.tools.envs` does it in another one."""
    monkeypatch.setattr(
        "arena.envs.checks.check.inspect_environment",
        lambda request, *, timeout_s: environment_facts(request),
    )


BOTH = (("prisoner", "guard"),)


@pytest.mark.parametrize(
    ("environment_id", "same_views"),
    [
        ("one_view:Prison", BOTH),
        ("one_view:in_turns", BOTH),
        ("one_view:OwnView", ()),
        # Both agents see an empty board first; later each has its own view.
        ("classic/tictactoe-v3", ()),
        ("classic/rps-v2", ()),
        ("mpe2/simple_spread_v3", ()),
    ],
)
def test_roles_that_see_the_same_are_found(
    environment_id: str, same_views: tuple[tuple[str, ...], ...], assets: str
) -> None:
    report = check(environment_id, assets)
    assert report.problems == []
    assert list(report.same_views) == list(same_views)
    told = [note for note in report.notes if "saw the same at each moment" in note]
    assert len(told) == len(same_views)
    for note in told:
        assert note.startswith("'prisoner', 'guard' have equal spaces")
        assert "network.agent_id: true" in note


def test_who_saw_the_same_once_is_told_apart_by_anything_else() -> None:
    box = describe(spaces.Box(0.0, 9.0, (2,)))
    facts = AgentSpec(observation=box, action=describe(spaces.Discrete(2)), mask=None)
    agents = ("a", "b", "c", "d", "e")
    spec = EnvironmentSpec(
        id="x:y", kwargs={}, api="parallel", agents=agents, agent_specs=dict.fromkeys(agents, facts)
    )
    seen = Look()
    watch = Watch(spec=spec, seen=seen)
    for views in ("aabb", "aabb", "ab.c", "...."):
        pairs = zip(agents, views, strict=False)
        # No other agent has the view of the last one.
        watch.compare({agent: np.array([ord(view)]) for agent, view in pairs if view != "."})
    assert seen.same_views == (("c", "d"),)
    watch.compare({"c": {"board": 1, "action_mask": 1}, "d": {"board": 1, "action_mask": 0}})
    assert seen.same_views == (("c", "d"),)
    watch.compare({"c": {"board": 1}, "d": {"board": 2}})
    assert len(seen.same_views) == 0


def test_tictactoe_in_numbers(assets: str) -> None:
    report = check("classic/tictactoe-v3", assets)
    measured = report.measured
    assert report.turn_order == "player_1, player_2 in turn"
    assert (measured.reward_low, measured.reward_high) == (-1.0, 1.0)
    assert (measured.return_low, measured.return_high) == (-1.0, 1.0)
    assert measured.same_rewards == (("player_1",), ("player_2",))
    # The number of legal moves falls from 9 to what is left at the end.
    assert 4.5 < measured.legal_mean["player_1"] < 6.5
    # Rewards come only in the last of 5 to 9 steps, and not in a draw.
    assert measured.mean_length is not None
    assert 0.75 / measured.mean_length < measured.rewarded_share < 1.05 / measured.mean_length


def test_a_seed_test_that_cannot_be_run_is_noted(assets: str) -> None:
    """PettingZoo's tests sample with masks of int8 alone: that says nothing about seeds."""
    report = check("environments:MaskedTurns", assets, where="info", dtype="bool")
    assert report.contract == {"api_test": False, "seed_test": False}
    (problem,) = report.problems
    assert "PettingZoo's api_test: " in problem.problem
    (note,) = [note for note in report.notes if "could not be run" in note]
    assert note.startswith("PettingZoo's seed_test could not be run: ")
    assert "int8" in note


def test_arrays_that_are_written_again_are_noted(assets: str) -> None:
    report = check("environments:AliasingTurns", assets)
    assert report.problems == []
    assert report.aliased == "a"
    assert any("array.copy()" in note for note in report.notes)
    # The environment's script has twelve decisions.
    assert report.measured.mean_length == 12.0


@pytest.mark.parametrize(
    ("part", "is_alike"),
    [
        (spaces.MultiBinary(4), True),
        (spaces.Box(0, 1, (4,), np.int8), True),
        (spaces.Box(0.0, 1.0, (4,), np.float32), False),  # perhaps a picture
        (spaces.Box(0, 2, (4,), np.int8), False),
        (spaces.MultiBinary(3), False),
    ],
)
def test_a_part_that_looks_like_a_mask(part: spaces.Space[Any], is_alike: bool) -> None:
    seen = describe(spaces.Dict({"x": spaces.Discrete(3), "flags": part}))
    assert mask_like(seen, describe(spaces.Discrete(4))) == ("flags" if is_alike else None)
    assert mask_like(describe(part), describe(spaces.Discrete(4))) is None


def test_every_mend_is_found_by_its_own_words() -> None:
    for fragment, mend in MENDS:
        assert finding_of(EnvironmentFault(f"agent 'a' {fragment} x")).mend == mend
    assert finding_of(EnvironmentFault("hm")).mend == SEE_README
    assert finding_of(EnvironmentFault("hm"), where="there").problem == "there: hm"


def told(problems: list[Finding]) -> list[str]:
    """The first line of each problem, without where it was."""
    lines = (found.problem.splitlines()[0] for found in problems)
    return [line.partition("(seed=7): ")[2] or line for line in lines]


def looked_at(environment_id: str, assets: str, **kwargs: object) -> Look:
    """What a look finds, in this process."""
    spec = environment_facts(
        EnvironmentRequest(environment_id, kwargs=kwargs, launch_directory=assets, lenient=True)
    )
    return look(lambda: made(spec, assets), spec=spec, num_decisions=300)


def made(spec: EnvironmentSpec, assets: str) -> Any:
    return make_environment(spec.id, kwargs=spec.kwargs, api=spec.api, launch_directory=assets)


NO_INFOS = "reset must return (observations, infos), got one dict"
SHAPE = "agent 'a_0': an observation must have shape (3,), got (4,) (likewise 'a_1', 'b_0')"
UNSEEDED = (
    "two runs with one seed and the same actions differ: the observation of 'a_0', after reset"
)
FORGETS = "step returned no rewards of agent 'a_1', who had acted; it has those of 'a_0', 'b_0'"
NAN = "agent 'b_0': a reward must be finite and at most 1e12 in size, got nan"


def test_six_mistakes_are_listed_in_one_call_each_once(assets: str) -> None:
    mistakes = ["no_infos", "shape", "unseeded", "forgets", "nan", "raises", "large"]
    report = check("mistakes:AtOnce", assets, mistakes=mistakes)
    *first, refused, seed = told(report.problems)
    assert first == [NO_INFOS, SHAPE, FORGETS, NAN]
    assert refused.startswith("step({'a_0': ")
    assert refused.endswith("raised KeyError: 'no such move'")
    assert seed == UNSEEDED
    # The traceback has only frames of the user's file, none of Arena or PettingZoo.
    (raised,) = (found.problem for found in report.problems if "no such move" in found.problem)
    assert [line.rpartition(", in ")[2] for line in raised.splitlines()[1::2]] == [
        "step",
        "_refuse",
    ]
    assert "arena/envs" not in raised
    # What is not a fault is still noted, with its rule and the values.
    assert any("at most 10 in size, these go from -12 to 12" in note for note in report.notes)


def test_mistakes_in_turns_are_listed_at_once(assets: str) -> None:
    found = told(check("mistakes:InTurns", assets).problems)
    assert found[:3] == [
        "infos must have an entry of every agent in agents, 'b' has none",
        "agent 'b': an observation must have dtype float32, got <U1",
        "agent 'a': a reward must be finite and at most 1e12 in size, got inf",
    ]
    assert found[3].endswith("raised RuntimeError: tired")
    assert found[4] == (
        "two runs with one seed and the same actions differ: the observation of 'a', after reset"
    )
    assert len(found) == 5


@pytest.mark.parametrize(("fault", "is_noted"), [("slow", True), ("", False)])
def test_slow_steps_are_noted_with_what_helps(fault: str, is_noted: bool, assets: str) -> None:
    report = check_environment(
        EnvironmentRequest("faulty:Rounds", kwargs={"fault": fault}, launch_directory=assets),
        seconds=0.05,
    )
    noted = [note for note in report.notes if "environment.num_env_workers" in note]
    assert bool(noted) == is_noted


@pytest.mark.parametrize(("max_cycles", "is_noted"), [(1, False), (4, True)])
def test_returns_that_say_more_than_who_won_are_noted(
    max_cycles: int, is_noted: bool, assets: str
) -> None:
    report = check("classic/rps-v2", assets, max_cycles=max_cycles)
    notes = [note for note in report.notes if note.startswith("returns are not only -1, 0 and 1")]
    assert len(notes) == is_noted
    assert all("environment.outcome: {margin: auto}" in note for note in notes)


def test_a_launch_explains_a_reset_without_infos(assets: str) -> None:
    """What a launch does: nothing is let pass."""
    with pytest.raises(EnvironmentFault, match=r"reset must return \(observations, infos\)"):
        inspect_environment(
            EnvironmentRequest(
                "mistakes:AtOnce", kwargs={"mistakes": ["no_infos"]}, launch_directory=assets
            )
        )


def test_each_stage_is_told(assets: str) -> None:
    stages: list[str] = []
    check_environment(
        EnvironmentRequest("classic/rps-v2", launch_directory=assets),
        seconds=0.1,
        limit=TimeLimit(tell=stages.append),
    )
    assert stages == [
        "making it and looking at its spaces",
        "playing one environment by itself",
        "measuring random play",
        "comparing two runs with one seed",
        "running PettingZoo's own tests",
    ]


@pytest.mark.parametrize(("mistakes", "differs"), [([], False), (["unseeded"], True)])
def test_a_seed_is_looked_at_in_its_own_form(
    mistakes: list[str], differs: bool, assets: str
) -> None:
    """Two environments in turns: what they share, such as a global generator, tells."""
    spec = environment_facts(
        EnvironmentRequest(
            "mistakes:AtOnce", kwargs={"mistakes": mistakes}, launch_directory=assets
        )
    )
    difference = first_difference(lambda: made(spec, assets), spec=spec, num_calls=30)
    assert (difference is not None) == differs


@pytest.mark.parametrize(
    ("agents", "means", "roles"),
    [
        # Rewards of red and blue differ only by chance.
        (["red_0", "red_1", "blue_0", "blue_1"], {}, [4]),
        (["wolf_0", "wolf_1", "sheep_0", "sheep_1"], {"wolf": 3.0, "sheep": -3.0}, [2, 2]),
        # The difference is as small as noise, so the roles are merged.
        (["wolf_0", "wolf_1", "sheep_0", "sheep_1"], {"wolf": 0.2}, [4]),
        (["wolf_0", "sheep_0", "sheep_1"], {}, [1, 2]),
        (["player_0", "player_1"], {}, [2]),
        (["a_0", "b_0", "c_0", "d_0"], {"b": 9.0, "d": 9.0}, [2, 2]),
    ],
)
def test_roles_are_told_apart_by_number_and_reward(
    agents: list[str], means: dict[str, float], roles: list[int]
) -> None:
    rng = np.random.default_rng(3)
    rewards = rng.normal(0.0, 1.0, (16, len(agents)))
    rewards += [means.get(agent.partition("_")[0], 0.0) for agent in agents]
    found = roles_of(agents, rewards)
    assert [len(role.agents) for role in found] == roles
    assert sorted(agent for role in found for agent in role.agents) == sorted(agents)
    assert [bool(role.why) for role in found] == [False] + [True] * (len(roles) - 1)


def test_few_environments_say_nothing_of_rewards() -> None:
    rewards = np.array([[9.0, -9.0]] * 3)
    assert len(roles_of(["wolf", "sheep"], rewards)) == 1
    assert len(roles_of(["wolf", "sheep"], np.repeat(rewards, 3, axis=0))) == 2
