"""What a resume may change, what is code, and what others may read of a configuration."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arena.environment_spec import AgentSpec, EnvironmentSpec
from populations.config.resume import (
    HIDDEN,
    is_under,
    named_code,
    other_code,
    other_facts,
    other_versions,
    why_not,
    without_secrets,
)
from populations.config.run_config import validate_config
from populations.config.run_file import RunFile, new_run_file

BOX = {"kind": "Box", "shape": [4], "dtype": "float32", "low": 0.0, "high": 1.0}
WIDER = {**BOX, "shape": [5]}
FOUR, FIVE = ({"kind": "Discrete", "n": n, "start": 0} for n in (4, 5))
AGENT = AgentSpec(observation=BOX, action=FOUR, mask=None)
SPEC = EnvironmentSpec(
    id="game:Game",
    kwargs={},
    api="parallel",
    agents=("a_0", "a_1"),
    agent_specs={"a_0": AGENT, "a_1": AGENT},
    versions={"pettingzoo": "1.27.0"},
)


@pytest.fixture
def run_file(tmp_path: Path) -> RunFile:
    config = validate_config({"environment": {"id": "game:Game"}, "learners": 2})
    made = new_run_file(config, SPEC, name="game", launch_directory="/somewhere")
    made = replace(made, code={"game": "1" * 64, "rules": "2" * 64})
    # A resume reads the run file from disk.
    made.save(tmp_path / "run.yaml")
    return RunFile.load(tmp_path / "run.yaml")


def of_all(**facts: object) -> EnvironmentSpec:
    changed = replace(AGENT, **facts)  # type: ignore[arg-type]
    return replace(SPEC, agent_specs={"a_0": changed, "a_1": changed})


def test_the_same_environment_differs_in_nothing(run_file: RunFile) -> None:
    assert other_facts(run_file.spec, SPEC) == []
    # Package versions are not facts of the environment, and neither is a state that no critic uses.
    assert other_facts(run_file.spec, replace(SPEC, versions={}, state=BOX)) == []


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (of_all(observation=WIDER), "observation.shape was [4] and is [5] (of a_0, a_1)"),
        (of_all(action=FIVE), "action.n was 4 and is 5 (of a_0, a_1)"),
        (of_all(mask="info"), "mask was None and is 'info' (of a_0, a_1)"),
        (
            replace(SPEC, agent_specs={"a_0": AGENT, "a_1": replace(AGENT, action=FIVE)}),
            "action.n was 4 and is 5 (of a_1)",
        ),
        (
            replace(SPEC, agents=("a_0", "b"), agent_specs={"a_0": AGENT, "b": AGENT}),
            "agents was ['a_0', 'a_1'] and is ['a_0', 'b']",
        ),
        (replace(SPEC, api="aec"), "api was 'parallel' and is 'aec'"),
    ],
)
def test_each_other_fact_is_told_with_both_values(
    run_file: RunFile, spec: EnvironmentSpec, told: str
) -> None:
    assert other_facts(run_file.spec, spec) == [told]


def test_a_state_that_critics_read_is_a_fact(run_file: RunFile) -> None:
    old = replace(run_file.spec, state=BOX)
    assert other_facts(old, replace(SPEC, state=WIDER)) == ["state.shape was [4] and is [5]"]


def test_code_that_both_have_is_compared(run_file: RunFile) -> None:
    now = {"game": "1" * 64, "rules": "3" * 64, "more": "4" * 64}
    assert other_code(run_file.code, now) == {"rules": ("2" * 64, "3" * 64)}
    assert other_code({}, now) == {}


def test_packages_that_are_others_here_are_named(run_file: RunFile) -> None:
    assert other_versions(run_file.versions).keys() <= {
        "pettingzoo"
    }  # the specification is invented
    versions = {**run_file.versions, "torch": "1.0", "no-such-package": "3"}
    found = other_versions(versions)
    assert found["torch"] == ("1.0", importlib.metadata.version("torch"))
    assert found["no-such-package"] == ("3", None)
    assert "numpy" not in found


@pytest.mark.parametrize(
    ("key", "pattern", "expected"),
    [
        ("pbt", "pbt", True),
        ("pbt.fraction", "pbt", True),
        ("pbtx.fraction", "pbt", False),
        ("populations.prey.pbt.fraction", "populations.*.pbt", True),
        ("populations.prey", "populations.*.pbt", False),
        ("populations.prey.network", "populations.*.pbt", False),
        ("matchmaking.bots.bot:a.b:C(depth=3)", "matchmaking.bots", True),
    ],
)
def test_a_pattern_names_a_key_and_all_below(key: str, pattern: str, expected: bool) -> None:
    assert is_under(key, pattern) is expected


def test_each_refused_key_has_a_reason() -> None:
    assert why_not("stop.duration_s") is None
    assert why_not("hooks.on_ghost") is None
    assert why_not("journal.keep_detail_hours") is None
    assert why_not("metrics.keep_mb") is None
    assert why_not("populations.prey.hyperparameters.reward_weights.win") is None
    assert why_not("populations.prey.size") == (
        "the members of a population were made with the run"
    )
    assert why_not("populations.prey.network.core") == "weights fit one architecture"
    reason = "all results and weights are about the environment that they were made in"
    assert why_not("environment.curriculum") == reason
    # Keys below an unchangeable key are unchangeable, too.
    assert why_not("evaluation.kwargs.size") == reason
    assert why_not("evaluation.share") is None
    assert why_not("evaluation.greedy") == (
        "results of sampled and of greedy play are never in one fit"
    )
    for section in ("pbt", "populations.prey.pbt"):
        reason = "the members of a population were made with the run"
        assert why_not(f"{section}.initial") == reason
    assert why_not("a.later.section") == "it was fixed when the run was made"


def test_players_whose_weights_were_copied_stay() -> None:
    for name in ("pbt.immigration.from", "populations.prey.pbt.immigration.from"):
        reason = why_not(name)
        assert reason == "the weights of its players were copied when the run was made"
    for name in ("matchmaking.bots.bot:random", "evaluation.bots"):
        assert why_not(name) is None
        # The index of a player counts all imported players.
        reason = why_not(name, moves_players=True)
        assert reason is not None
        assert "bots may only follow" in reason
    assert why_not("pbt.immigration.probability") is None


EVERYWHERE = {
    "environment": {"id": "game:Game", "outcome": "rules:outcome"},
    "matchmaking": {"kind": "rules:Matchmaker", "bots": {"bot:rules:Bot(depth=2)": 0.5}},
    "ghosts": {"thinning": "rules:Thinning"},
    "evaluation": {"bots": ["bot:random", "bot:rules:Hard"]},
    "pbt": {"exploit": "rules:Exploit", "explore": "rules:Explore"},
    "populations": {
        "player": {
            "algorithm": "learn:Algorithm",
            "network": {"encoder": "learn:Encoder", "normalize_observations": True},
            "normalizer_warm_up": {"agent_steps": 10, "player": "bot:rules:Warm"},
            "pbt": {"exploit": "rules:OwnExploit"},
        }
    },
    "metrics": {"sinks": ["jsonl", "figures:Sink"]},
    "hooks": {"on_ghost": [["command", "a:b"], "figures:hook"]},
}


def test_every_key_that_names_code_is_found() -> None:
    assert named_code(validate_config(EVERYWHERE)) == {
        "environment.outcome": "rules:outcome",
        "matchmaking.kind": "rules:Matchmaker",
        "ghosts.thinning": "rules:Thinning",
        "evaluation.bots[1]": "rules:Hard",
        "matchmaking.bots": "rules:Bot",
        "pbt.exploit": "rules:Exploit",
        "pbt.explore": "rules:Explore",
        "populations.player.algorithm": "learn:Algorithm",
        "populations.player.network.encoder": "learn:Encoder",
        "populations.player.normalizer_warm_up.player": "rules:Warm",
        "populations.player.pbt.exploit": "rules:OwnExploit",
        "metrics.sinks[1]": "figures:Sink",
        "hooks.on_ghost[1]": "figures:hook",
    }


def test_arenas_own_kinds_are_no_code() -> None:
    assert named_code(validate_config({"environment": {"id": "classic/connect_four-v3"}})) == {}


def shown(**sections: Any) -> Any:
    config = validate_config({"environment": {"id": "a:b"}, **sections})
    return without_secrets(config.model_dump(mode="json"))


def test_of_commands_of_hooks_the_program_is_shown_alone() -> None:
    command = ["curl", "-H", "Authorization: Bearer S3CRET", "https://host"]
    found = shown(hooks={"on_end": ["a.b:c", command, ["notify"]]})["hooks"]
    assert found["on_end"] == ["a.b:c", ["curl", HIDDEN], ["notify"]]
    assert found["time_limit_s"] == 60.0
    # Differences and events about a change show the value in this form.
    assert without_secrets([command], "hooks.on_end") == [["curl", HIDDEN]]
    assert without_secrets(None, "hooks.on_end") is None


def test_names_of_secrets_and_logins_hide_their_values() -> None:
    kwargs = {
        "api_key": "S3CRET",
        "Token": ["S3CRET", "S3CRET"],
        "inner": {"db_password": "S3CRET", "host": "db"},
        "url": "https://me:S3CRET@host/path",
        "max_tokens": 5,
        "keyboard": "qwerty",
    }
    environment = {"id": "a:b", "kwargs": kwargs}
    assert shown(environment=environment)["environment"]["kwargs"] == {
        "api_key": HIDDEN,
        "Token": [HIDDEN, HIDDEN],
        "inner": {"db_password": HIDDEN, "host": "db"},
        "url": f"https://{HIDDEN}@host/path",
        "max_tokens": 5,
        "keyboard": "qwerty",
    }


def test_everything_else_stays() -> None:
    config = validate_config({"environment": {"id": "a:b"}}).model_dump(mode="json")
    assert without_secrets(config) == config
