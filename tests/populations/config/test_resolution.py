from __future__ import annotations

from pathlib import Path

import pytest

from arena.config import EnvironmentConfig, NetworkConfig, ThresholdOutcome
from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.errors import ConfigError
from populations.config.hooks import HooksConfig
from populations.config.resolution import check_encoder, group_agents, resolve_sides
from populations.config.resolve import resolve_config
from populations.config.run_config import RunConfig, load_config, validate_config

BOARD = {"type": "Box", "shape": [6, 7, 2]}
MOVES = {"type": "Discrete", "n": 7}


def make_spec(**widths: int) -> EnvironmentSpec:
    """An environment whose agents see as many numbers as their keyword says."""
    return EnvironmentSpec(
        id="package.module:env",
        kwargs={},
        api="aec",
        agents=tuple(widths),
        agent_specs={
            agent: AgentSpec(
                observation={"type": "Box", "shape": [width]}, action=MOVES, mask="observation"
            )
            for agent, width in widths.items()
        },
    )


TWO_PLAYERS = make_spec(player_0=84, player_1=84)
TAG = make_spec(adversary_0=16, adversary_1=16, adversary_2=16, agent_0=14)
SPREAD = make_spec(agent_0=18, agent_1=18, agent_2=18)
PRESET_SPECS = {
    "default": TWO_PLAYERS,
    "connect_four": TWO_PLAYERS,
    "tictactoe": make_spec(player_1=18, player_2=18),
    "rock_paper_scissors": make_spec(player_0=4, player_1=4),
    "simple_spread": SPREAD,
    "simple_tag": TAG,
}


def resolve(spec: EnvironmentSpec, **document: object) -> RunConfig:
    config = validate_config({"environment": {"id": spec.id}, **document})
    return resolve_config(config, spec, num_cores=2)


def test_two_equal_players_form_one_population_with_two_sides() -> None:
    config = resolve(TWO_PLAYERS)
    assert config.environment.sides == {"player_0": ["player_0"], "player_1": ["player_1"]}
    assert list(config.populations) == ["player"]
    player = config.populations["player"]
    assert player.agents == ("player_0", "player_1")
    assert player.size == 8
    assert player.hyperparameters == {
        "learning_rate": 3e-4,
        "clip_coef": 0.2,
        "entropy_coef": 0.01,
        "value_coef": 0.5,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "max_grad_norm": 0.5,
        "num_epochs": 4,
        "num_minibatches": 4,
        "rollout_length": 32,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_eps": 1e-5,
        "magnet_coef": 0.0,
        "magnet_rate": 0.01,
        "kl_coef": 0.0,
        "ema_decay": 0.0,
        "rho_bar": 1.0,
        "c_bar": 1.0,
    }
    assert list(player.search_space) == ["learning_rate", "gamma"]


def test_default_yaml_is_what_nothing_at_all_resolves_to() -> None:
    nothing = RunConfig(environment=EnvironmentConfig(id="classic/connect_four-v3"))
    resolved = resolve_config(nothing, TWO_PLAYERS, num_cores=2)
    assert resolve_config(load_config("default"), TWO_PLAYERS, num_cores=2) == resolved


@pytest.mark.parametrize("name", PRESET_SPECS)
def test_presets_resolve_and_resolving_twice_changes_nothing(name: str) -> None:
    config = resolve_config(load_config(name), PRESET_SPECS[name], num_cores=2)
    assert resolve_config(config, PRESET_SPECS[name], num_cores=64) == config


def test_settings_of_the_algorithm_are_completed_and_checked() -> None:
    player: dict[str, object] = {"algorithm_settings": {"advantages": "vtrace"}}
    config = resolve(TWO_PLAYERS, populations={"player": player})
    expected = {
        "advantages": "vtrace",
        "advantage_normalization": "rollout",
        "normalize_returns": True,
        "bptt_length": None,
    }
    assert config.populations["player"].algorithm_settings == expected
    player["algorithm_settings"] = {"advantage": "gae"}
    with pytest.raises(ConfigError, match=r"populations\.player\.algorithm_settings\.advantage:"):
        resolve(TWO_PLAYERS, populations={"player": player})


def test_simple_tag_has_two_populations_on_two_sides() -> None:
    config = resolve_config(load_config("simple_tag"), TAG, num_cores=2)
    assert config.environment.sides == {
        "predators": ["adversary_0", "adversary_1", "adversary_2"],
        "prey": ["agent_0"],
    }
    assert config.populations["predator"].agents == ("adversary_0", "adversary_1", "adversary_2")
    assert config.populations["prey"].agents == ("agent_0",)
    assert config.environment.outcome == ThresholdOutcome(threshold=10.0, side="predators")


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (TWO_PLAYERS, ["player"]),
        (TAG, ["adversary", "agent"]),
        (make_spec(agent_0=1, agent_1=2), ["agent_0", "agent_1"]),
        (make_spec(first=1, second=1), ["player"]),
        (make_spec(first=1, second=1, a_0=2, b_0=2), ["population_0", "population_1"]),
        (make_spec(Red_0=1, Red_1=1), ["red"]),
        (make_spec(**{"0": 1, "1": 1}), ["player"]),
        (make_spec(**{"0": 1, "1": 2}), ["population_0", "population_1"]),
        (make_spec(unit_10=1, unit_11=1), ["unit"]),
    ],
)
def test_default_populations_are_named_by_their_common_prefix(
    spec: EnvironmentSpec, names: list[str]
) -> None:
    groups = group_agents(spec)
    assert list(groups) == names
    assert sorted(agent for group in groups.values() for agent in group) == sorted(spec.agents)


def test_a_population_may_change_one_key_and_keep_its_default_agents() -> None:
    config = resolve(TWO_PLAYERS, populations={"player": {"size": 3}})
    assert config.populations["player"].agents == ("player_0", "player_1")
    assert config.populations["player"].size == 3


def test_globs_are_expanded_in_the_environments_order() -> None:
    sides = resolve_sides({"b": ["agent_*"], "a": ["*_1", "adversary_[02]"]}, agents=TAG.agents)
    assert sides == {"b": ["agent_0"], "a": ["adversary_0", "adversary_1", "adversary_2"]}


@pytest.mark.parametrize(
    ("spec", "document", "message"),
    [
        (TWO_PLAYERS, {"environment": {"sides": {"a": ["player_*"], "b": ["player_1"]}}},
         "environment.sides: 'player_1' must be in exactly one of them, is in 'a' and 'b'"),
        (TWO_PLAYERS, {"environment": {"sides": {"a": ["player_0"]}}},
         "'player_1' must be in exactly one of them, is in none"),
        (TWO_PLAYERS, {"environment": {"sides": {"a": ["playr_0"], "b": ["player_1"]}}},
         "environment.sides.a: there is no agent 'playr_0'; did you mean 'player_0'?"),
        (TWO_PLAYERS, {"environment": {"sides": {"a": ["player_*"], "b": []}}},
         "environment.sides.b: must have at least one agent"),
        (TWO_PLAYERS, {"environment": {"outcome": {"threshold": 1.0, "side": "player_O"}}},
         "environment.outcome.side: there is no side 'player_O'; did you mean 'player_"),
        (TAG, {"environment": {"outcome": {"threshold": 1.0, "side": "agent_0"}}},
         "a threshold decides between two sides, got 4"),
        (TWO_PLAYERS, {"populations": {"playr": {}}},
         "populations.playr: must say its agents, or be named as a default population: player"),
        (TWO_PLAYERS, {"populations": {"a": {"agents": ["player_0"]}}},
         "populations: 'player_1' must be in exactly one of them, is in none"),
        (TWO_PLAYERS,
         {"populations": {"a": {"agents": ["*"]}, "b": {"agents": ["player_1"]}}},
         "populations: 'player_1' must be in exactly one of them, is in 'a' and 'b'"),
        (TAG, {"populations": {"all": {"agents": ["*"]}}},
         "populations.all.agents: must have equal observation and action spaces, but "
         "'adversary_0' and 'agent_0' differ"),
        (TAG, {"environment": {"sides": {"team": ["*"]}},
               "populations": {"adversary": {"size": 2}, "agent": {"size": 3}}},
         "populations: must have equal sizes where the environment has one side"),
        (TWO_PLAYERS, {"populations": {"player": {"hyperparameters": {"gamma": 2.0}}}},
         "populations.player.hyperparameters.gamma"),
        (TWO_PLAYERS, {"populations": {"player": {"search_space": {"gama": {}}}}},
         "populations.player.search_space.gama: no such hyperparameter; did you mean 'gamma'?"),
        (TWO_PLAYERS,
         {"populations": {"player": {"search_space": {"clip_coef": {"low": 0.1, "high": 3.0}}}}},
         "populations.player.search_space.clip_coef allows 3.0, but hyperparameters.clip_coef"),
        (TWO_PLAYERS,
         {"populations": {"player": {"search_space": {"num_epochs": {"choices": [0, 1]}}}}},
         "populations.player.search_space.num_epochs allows 0, but hyperparameters.num_epochs"),
        (TWO_PLAYERS, {"learners": {"plaver": 1}},
         "learners.plaver: there is no population 'plaver'; did you mean 'player'?"),
        (TAG, {"learners": {"adversary": 1}},
         "learners must name every population that learns, 'agent' is missing"),
        (TAG, {"populations": {"adversary": {}, "agent": {"player": "bot:a:B"}},
               "learners": {"adversary": 1, "agent": 1}},
         "learners.agent: nobody learns there, a player has its agents"),
        (TAG, {"populations": {"adversary": {}, "agent": {"player": "bot:a:B"}},
               "environment": {"sides": {"all": ["adversary_*"], "one": ["agent_0"]}},
               "matchmaking": {"rivals": "learning"}},
         "unless two populations that learn have a side each, got 'learning' with populations "
         "adversary and sides"),
        (TAG, {"populations": {"adversary": {}, "agent": {"player": "bot:a:B"}},
               "environment": {"sides": {"all": ["*"]}}},
         "populations.agent.player must be null where the environment has one side (policies of "
         "equal index are a team, and learn together): to train beside it, give it a side of its "
         "own"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_environment_is_refused(
    spec: EnvironmentSpec, document: dict[str, dict[str, object]], message: str
) -> None:
    environment = {"id": spec.id, **document.get("environment", {})}
    with pytest.raises(ConfigError) as error_info:
        resolve(spec, **{**document, "environment": environment})
    assert message in str(error_info.value)


def test_learners_default_to_the_smaller_of_cores_and_policies() -> None:
    for cores, size, learners in ((2, 8, 2), (16, 3, 3), (1, 1, 1)):
        config = validate_config(
            {"environment": {"id": "a"}, "populations": {"player": {"size": size}}}
        )
        assert resolve_config(config, TWO_PLAYERS, num_cores=cores).learners == learners
    assert resolve(TWO_PLAYERS, launcher="inline").learners == 1
    assert resolve(TAG, learners={"adversary": 2, "agent": 1}).learners == {
        "adversary": 2,
        "agent": 1,
    }


def test_a_population_with_a_player_has_nothing_about_learning() -> None:
    document = {"adversary": {"size": 2}, "agent": {"player": "bot:a:B( depth = 3 )"}}
    config = resolve(TAG, populations=document, learners={"adversary": 1})
    played = config.populations["agent"]
    assert (played.player, played.num_policies) == ("bot:a:B(depth=3)", 0)
    assert (played.hyperparameters, played.pbt) == ({}, None)
    assert config.rated_players == ("bot:a:B(depth=3)", "bot:random")
    # Only the policies of other populations count.
    assert (
        resolve_config(
            validate_config({"environment": {"id": "a"}, "populations": document}), TAG, num_cores=8
        ).learners
        == 2
    )
    again = validate_config(config.model_dump(mode="json"))
    assert resolve_config(again, TAG, launch_directory=".") == config


def test_a_deterministic_run_has_a_fixed_budget() -> None:
    assert resolve(TWO_PLAYERS).assignment.agent_steps is None
    assert resolve(TWO_PLAYERS, deterministic=True).assignment.agent_steps == 4 * 32 * 256
    fixed = resolve(TWO_PLAYERS, deterministic=True, assignment={"agent_steps": 77})
    assert fixed.assignment.agent_steps == 77


def test_a_null_hyperparameter_is_left_out() -> None:
    population = {"player": {"hyperparameters": {"target_kl": None, "num_epochs": 2}}}
    config = resolve(TWO_PLAYERS, populations=population)
    assert "target_kl" not in config.populations["player"].hyperparameters
    assert config.populations["player"].hyperparameters["num_epochs"] == 2


def test_resolving_reads_nothing_from_where_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = resolve(TWO_PLAYERS)
    monkeypatch.chdir(tmp_path)
    assert resolve(TWO_PLAYERS) == before


def test_convolutions_need_something_to_convolve() -> None:
    space = {"kind": "Box", "shape": [4], "dtype": "float32", "low": 0.0, "high": 1.0}
    facts = AgentSpec(observation=space, action={"kind": "Discrete", "n": 2, "start": 0}, mask=None)
    check_encoder("player", network=NetworkConfig(), facts=facts)
    with pytest.raises(ConfigError, match=r"populations\.player\.network\.encoder cnn needs a Box"):
        check_encoder("player", network=NetworkConfig(encoder="cnn"), facts=facts)


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        ({"evaluation": {"player": "bot:other:Bot", "score": 0.9}}, "evaluation.bots"),
        ({"evaluation": {"player": "bot:random"}}, "one of score and return"),
        ({"evaluation": {"player": "bot:random", "score": 1.0}}, "stop.evaluation.score"),
        ({"success_rate": 0.0}, "stop.success_rate"),
        ({"members": "most"}, "stop.members"),
    ],
)
def test_a_goal_that_breaks_a_rule_is_named(stop: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        validate_config({"environment": {"id": "a"}, "stop": stop})


@pytest.mark.parametrize("goal", [{"score": 0.9}, {"return": 10.0}])
def test_a_goal_is_written_as_it_is_read(goal: dict[str, float]) -> None:
    document = {"player": "bot:random", **goal}
    config = validate_config({"environment": {"id": "a"}, "stop": {"evaluation": document}})
    written = config.model_dump(mode="json")
    assert written["stop"]["evaluation"] == document
    assert validate_config(written) == config


def test_without_normalizers_there_is_nothing_to_warm_up() -> None:
    document = {
        "environment": {"id": "a.b:c"},
        "populations": {
            "player": {
                "network": {"normalize_observations": False},
                "normalizer_warm_up": {"agent_steps": 10},
            }
        },
    }
    with pytest.raises(
        ConfigError, match=r"normalizer_warm_up must be null where network\.normalize"
    ):
        validate_config(document)


def hooks_of(value: object) -> HooksConfig:
    config: RunConfig = validate_config({"environment": {"id": "a:b"}, "hooks": value})
    # A resume reads the same hooks from run.yaml.
    assert validate_config(config.model_dump(mode="json")) == config
    return config.hooks


def test_functions_and_commands_are_hooks_and_numbers_are_text() -> None:
    hooks = hooks_of({"on_end": ["a.b:c", ["notify", "--level", 3, 0.5]]})
    assert hooks.by_kind == {"on_end": ("a.b:c", ("notify", "--level", "3", "0.5"))}


def test_without_hooks_there_is_none() -> None:
    assert hooks_of({}).by_kind == {}


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("hooks={on_end: [x]}", "hooks.on_end.0: a hook must be package.module:function or a list"),
        ("hooks={on_end: [[]]}", "hooks.on_end.0: a hook must be package.module:function or a lis"),
        ("hooks={on_end: [[a, {b: 1}]]}", "each part text or a number, got ['a', {'b': 1}]"),
        ("hooks={on_end: [[a, true]]}", "each part text or a number, got ['a', True]"),
        ("hooks={on_end: [a:b, a:b]}", "hooks.on_end: each hook must be named once"),
        ("hooks={on_end: 'a:b'}", "hooks.on_end: must be a list"),
        ("hooks={on_edn: [a:b]}", "did you mean 'hooks.on_end'?"),
        ("hooks.time_limit_s=0", "hooks.time_limit_s: must be greater than 0, got 0"),
        ("hooks.queue=0", "hooks.queue: must be at least 1, got 0"),
    ],
)
def test_a_wrong_hook_is_refused_with_rule_and_value(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config("connect_four", [override])
    assert said in str(refused.value)
