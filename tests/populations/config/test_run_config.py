from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import get_args

import pytest
import yaml

from arena.config import EnvironmentConfig, Model
from arena.errors import ConfigError
from populations.config.run_config import RunConfig, load_config, validate_config
from populations.config.validation import known_paths
from populations.matchmaking.kinds import KINDS as MATCHMAKING_KINDS
from populations.matchmaking.pfsp import Weighting
from populations.matchmaking.settings import MatchmakingConfig
from populations.preset_files import preset_names
from populations.yaml_documents import read_document

MINIMAL = RunConfig(environment=EnvironmentConfig(id="classic/connect_four-v3"))
PRESETS = [
    "connect_four",
    "kuhn_poker",
    "leduc_poker",
    "rock_paper_scissors",
    "simple_spread",
    "simple_tag",
    "speaker_listener",
    "tictactoe",
]


def preset_text(name: str) -> str:
    return (resources.files("populations.presets") / f"{name}.yaml").read_text(encoding="utf8")


@pytest.fixture
def minimal(tmp_path: Path) -> Path:
    path = tmp_path / "minimal.yaml"
    path.write_text("environment: {id: classic/connect_four-v3}\n")
    return path


def test_only_the_environment_is_required(minimal: Path) -> None:
    assert load_config(minimal) == MINIMAL
    with pytest.raises(ConfigError, match=r"environment is required"):
        validate_config({})
    with pytest.raises(ConfigError, match=r"environment\.id is required"):
        validate_config({"environment": {}})


NULL_SECTIONS = (
    ("stop", "evaluation"),
    ("populations", "*", "normalizer_warm_up"),
    ("matchmaking", "learning_side_turns"),
)


def test_default_yaml_has_every_key_with_a_comment() -> None:
    text = preset_text("default")
    document = read_document(text, name="default")
    known = {
        path
        for path in known_paths(RunConfig)
        if "outcome" not in path[:-1]
        # The section is null by default; a comment lists its keys.
        and path[:-1] not in NULL_SECTIONS
        # A population's own settings have the keys of the section pbt.
        and path[:3] != ("populations", "*", "pbt")
    }
    written = {
        tuple("*" if len(path) > 1 and path[:1] == ("populations",) and i == 1 else part
              for i, part in enumerate(path))
        for path in paths(document)
    }  # fmt: skip
    assert known <= written
    uncommented = [
        line for line in text.splitlines() if re.match(r"\s*[a-z_]+:", line) and "#" not in line
    ]
    assert uncommented == []


def paths(document: object) -> set[tuple[str, ...]]:
    if not isinstance(document, dict):
        return set()
    return {(key,) for key in document} | {
        (key, *path) for key, value in document.items() for path in paths(value)
    }


def test_default_yaml_loads_to_the_defaults() -> None:
    config = load_config("default")
    # Sides and populations depend on the environment: test_resolution.py compares those.
    assert config.model_dump(exclude={"environment", "populations"}) == MINIMAL.model_dump(
        exclude={"environment", "populations"}
    )
    assert config.environment.model_dump(exclude={"sides"}) == MINIMAL.environment.model_dump(
        exclude={"sides"}
    )


def test_the_presets_are_those_that_are_documented() -> None:
    assert preset_names() == sorted([*PRESETS, "default"])


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_repeats_no_default(name: str) -> None:
    """What a preset says is what is special about it; a repeated default would go stale."""
    config = load_config(name)
    default = MINIMAL.model_dump()
    for section in ("matchmaking", "payoffs", "pbt", "checkpoints", "assignment", "metrics"):
        document = read_document(preset_text(name), name=name)
        assert isinstance(document, dict)
        for key, value in (document.get(section) or {}).items():
            if (section, key) in {("pbt", "min_rating_gap"), ("pbt", "min_matches")}:
                continue  # described together with PBT's other marks
            assert default[section][key] != value, f"{section}.{key}"
    assert config.evaluation.bots == ("bot:random",)


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("stop.agent_steps_per_policy=5e6", 5_000_000),
        ("populations.player.hyperparameters.learning_rate=1e-4", 1e-4),
        ("populations.player.hyperparameters.num_epochs=2", 2),
        ("evaluation.share=0", 0.0),
        ("learners={player: 2}", {"player": 2}),
        ("environment.outcome={threshold: 3, side: x}", {"threshold": 3.0, "side": "x"}),
        ("environment.outcome={info: winner}", {"info": "winner"}),
        ("environment.outcome={margin: 13}", {"margin": 13.0}),
        ("environment.outcome={margin: auto}", {"margin": "auto"}),
        ("environment.outcome=my.module:score", "my.module:score"),
        ("seed=7", 7),
        ("populations.player.search_space.rho_bar={low: 0.5, high: 2.0, factors: [0.995, 1.005]}",
         {"low": 0.5, "high": 2.0, "factors": [0.995, 1.005]}),
        ("device='cuda:1'", "cuda:1"),
        ("device=[cuda:0, cuda:1]", ("cuda:0", "cuda:1")),
    ],
)  # fmt: skip
def test_overrides_reach_any_key(minimal: Path, override: str, value: object) -> None:
    level: object = load_config(minimal, ["seed=3", override]).model_dump()
    for part in override.split("=")[0].split("."):
        assert isinstance(level, dict)
        level = level[part]
    assert level == value
    assert type(level) is type(value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("sede=3", "unknown key sede (= 3); did you mean 'seed'?"),
        ("populations.player.network.hidden=[1]",
         "did you mean 'populations.player.network.hidden_sizes'?"),
        ("size=3", "unknown key size (= 3); did you mean 'populations.<name>.size'?"),
        ("duration_s=3", "did you mean 'stop.duration_s'?"),
        (
            "populations.player.ready_agent_steps=3",
            "did you mean 'populations.player.pbt.ready_agent_steps'?",
        ),
        ("pbt.fraktion=0.1", "did you mean 'pbt.fraction'?"),
        ("seed=abc", "seed: must be a whole number, got 'abc'"),
        ("seed='3'", "seed: must be a whole number without quotes, for example 3, got '3'"),
        ("seed=true", "got True"),
        ("seed=1.5", "got 1.5"),
        ("stop.duration_s=.inf", "stop.duration_s"),
        ("populations.Player.size=1", "must match ^[a-z][a-z0-9_]{0,31}$, not 'Player'"),
        ("populations=3", "populations"),
        ("populations.player.search_space.gamma=[0.9, 0.99]",
         "gamma: must be {low, high} or {choices}, for example {low: 0.9, high: 0.99}, got [0.9"),
        ("environment.outcome={threshhold: 2}", "environment.outcome must be return"),
        ("environment.outcome=retrun", "environment.outcome must be return"),
        ("environment.outcome={margin: 0}", "environment.outcome must be return"),
        ("environment.outcome={margin: much}", "environment.outcome must be return"),
        ("learners={player: 0}", "learners must be null, a count, or a count for each population"),
        ("device=[cpu, gpu]", "device must be auto, cpu, cuda or cuda:N"),
        ("device=[]", "or a list of these, at least one, got []"),
        ("device=3", "device must be auto, cpu, cuda or cuda:N"),
        ("evaluation.bots=[]", "bot:random must be among them"),
        ("evaluation.bots=['bot:random', 'bot:rand']", "a bot is bot:random, bot:package.module"),
        ("evaluation.bots=[bot:random, bot:a:B(x=1, y=2)]", "put the id in quotes"),
        ("evaluation.bots=['bot:random', 'bot:a:B(x=open)']", "x of 'bot:a:B(x=open)' must be a l"),
        ("matchmaking.bots={'bot:a:B(x=1,)': 0.1, 'bot:a:B(x=1)': 0.2}", "each must be there once"),
        ("hooks=['a:b']", "hooks: must be a mapping of keys to values, got ['a:b']"),
        ("pbt.perturb_factors=[0.8, -1]", "greater than 0"),
        ("pbt.perturb_uniform=[1.1, 1.5]", "pbt.perturb_uniform: must be [a, b] with 0 < a < 1"),
        ("pbt={perturb_uniform: [0.5, 2], perturb_factors: [0.5]}",
         "pbt.perturb_uniform: must be null where perturb_factors are [0.5], got [0.5, 2]"),
        ("pbt.exploit=best", "pbt.exploit: must be one of truncation, binary_tournament, welch"),
        ("pbt.explore=tpo", "pbt.explore: must be one of perturb, resample, tpe, gp, cma_es"),
        ("pbt.confidence=1", "pbt.confidence: must be less than 1, got 1"),
        ("metrics.sinks=[jsonl, jsonl]", "metrics.sinks: each sink must be named once, got jsonl,"),
        ("alerts.fail=[no_episode]", "alerts.fail.0: must be 'no_episode_ended'"),
        ("populations.player.algorithm=PPO", "must be ppo or package.module:Name"),
        ("populations.player.hyperparameters.gamma=x", "populations.player.hyperparameters.gamma"),
    ],
)  # fmt: skip
def test_a_fault_names_key_rule_and_value(minimal: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as error_info:
        load_config(minimal, [override])
    assert message in str(error_info.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("2m", 120.0), ("1.5h", 5400.0), ("1h30m", 5400.0), ("1h2m3.5s", 3723.5),
     ("0.5s", 0.5), ("60", 60.0)],
)  # fmt: skip
def test_a_time_may_have_units(minimal: Path, text: str, seconds: float) -> None:
    assert load_config(minimal, [f"stop.duration_s={text}"]).stop.duration_s == seconds


@pytest.mark.parametrize(
    "text", ["", "'2'", "m", "2x", "-2m", "0s", "0h0m", "2m1h", "1e3s", "' 2m'", "nan", "2mm"]
)
def test_what_is_no_time_is_refused_with_its_value(minimal: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"stop.duration_s: must be a time above 0 with its unit"):
        load_config(minimal, [f"stop.duration_s={text or repr(text)}"])


def test_every_fault_is_named_at_once(minimal: Path) -> None:
    with pytest.raises(ConfigError) as error_info:
        load_config(minimal, ["sede=3", "pbt.fraction=2"])
    assert "did you mean 'seed'?" in str(error_info.value)
    assert "pbt.fraction" in str(error_info.value)


@pytest.mark.parametrize("bot", ["bot:rand", "", "bot:a.b:C(x=open)", "bot:a:C(x=1, x=2)"])
def test_a_bad_bot_is_shown_once_where_a_goal_names_it(minimal: Path, bot: str) -> None:
    goal = json.dumps({"player": bot, "score": 0.9})
    with pytest.raises(ConfigError) as error_info:
        load_config(minimal, [f"stop.evaluation={goal}"])
    message = str(error_info.value)
    assert message.startswith("stop.evaluation.player: ")
    assert message.count(repr(bot)) == 1


def test_a_deterministic_run_has_no_clock(minimal: Path) -> None:
    with pytest.raises(ConfigError, match=r"stop\.duration_s must be null.*got 3\.0"):
        load_config(minimal, ["deterministic=true", "stop.duration_s=3"])
    assert load_config(minimal, ["deterministic=true"]).deterministic


def test_learners_of_a_deterministic_run_compute_alike(minimal: Path) -> None:
    rule = "GPUs only or no GPU where deterministic is true .*got cpu, cuda:1"
    with pytest.raises(ConfigError, match=rule):
        load_config(minimal, ["deterministic=true", "device=[cpu, 'cuda:1']"])
    for fits in ("device=[cuda, 'cuda:1']", "device=[cpu, cpu]"):
        assert load_config(minimal, ["deterministic=true", fits]).deterministic
    assert len(load_config(minimal, ["device=[cpu, 'cuda:1']"]).devices) == 2


def test_whole_episodes_are_for_all_runs(minimal: Path) -> None:
    assert load_config(minimal, ["assignment.episodes=3"]).assignment.episodes == 3
    with pytest.raises(ConfigError, match=r"assignment\.episodes: must be at least 1, got 0"):
        load_config(minimal, ["deterministic=true", "assignment.episodes=0"])
    config = load_config(minimal, ["deterministic=true", "assignment.episodes=3"])
    assert config.assignment.episodes == 3


def test_an_inline_launcher_has_one_learner(minimal: Path) -> None:
    with pytest.raises(ConfigError, match="learners must be 1 where launcher is inline, got 2"):
        load_config(minimal, ["launcher=inline", "learners=2"])


@pytest.mark.parametrize(
    ("overrides", "rule"),
    [
        (["endpoint=tcp://0.0.0.0:5555"], "must be one address of one machine"),
        (["endpoint=tcp://*:5555"], "an endpoint must be"),
        (["endpoint=tcp://example.org:5555"], "an IP address of this machine"),
        (["endpoint=ipc:///tmp/socket"], "endpoint must be null"),
        (
            ["launcher=inline", "learner_nice=5"],
            "learner_nice must be 0 where launcher is not local",
        ),
        (["device=[cpu, cuda]", "learner_cores=2"], "learner_cores must be 1 on a GPU"),
        (
            ["environment.num_env_workers=1", "learner_cores=2"],
            "learner_cores must be 1 where environment.num_env_workers is above 0",
        ),
        (["remote_learners=2"], "remote_learners is 2, but endpoint is null"),
        (["store_endpoint=tcp://127.0.0.1:*"], "store_endpoint must be null where remote_learners"),
        (["endpoint=tcp://127.0.0.1:*", "launcher=inline"], "endpoint must be null where launcher"),
    ],
)
def test_learners_of_other_machines_need_an_address(
    minimal: Path, overrides: list[str], rule: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(rule)):
        load_config(minimal, overrides)


def test_an_address_is_kept_as_zeromq_takes_it(minimal: Path) -> None:
    config = load_config(minimal, ["endpoint=tcp://localhost:5555", "remote_learners=2"])
    assert config.endpoint == "tcp://127.0.0.1:5555"
    assert config.remote_learners == 2


def test_learners_on_ray_may_need_the_store(minimal: Path) -> None:
    assert not load_config(minimal).serves_store
    config = load_config(minimal, ["launcher=ray", "store_endpoint=tcp://127.0.0.1:5556"])
    assert config.serves_store


def test_a_source_is_a_preset_or_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no preset 'conect_four'; did you mean 'connect_four'"):
        load_config("conect_four")
    with pytest.raises(ConfigError, match=r"cannot read .*missing\.yaml: No such file"):
        load_config(tmp_path / "missing.yaml")
    (tmp_path / "list.yaml").write_text("[1]")
    with pytest.raises(ConfigError, match="must be a mapping"):
        load_config(str(tmp_path / "list.yaml"))


def test_a_dumped_config_loads_again() -> None:
    for name in PRESETS:
        config = load_config(name)
        text = yaml.safe_dump(config.model_dump(mode="json"))
        assert validate_config(read_document(text, name=name)) == config


def test_the_choices_are_those_that_there_are() -> None:
    def choices(section: type[Model], field: str) -> tuple[str, ...]:
        return get_args(section.model_fields[field].annotation)

    text = (Path(__file__).parents[3] / "configs/default.yaml").read_text(encoding="utf8")
    assert all(re.search(rf"\b{kind}\b", text) for kind in MATCHMAKING_KINDS)
    assert sorted(choices(MatchmakingConfig, "weighting")) == sorted(get_args(Weighting))


def test_bots_are_kept_in_their_one_spelling() -> None:
    config = load_config(
        "rock_paper_scissors",
        [
            "evaluation.bots=[\"bot:my.bots:Deep( name='x',depth = 3 )\", bot:random]",
            "matchmaking.bots={'bot:my.bots:Deep(z=1,a=[2])': 0.25, exports/champion: 0.25}",
        ],
    )
    assert config.evaluation.bots == ('bot:my.bots:Deep(depth=3, name="x")', "bot:random")
    assert config.matchmaking.bots == {
        "bot:my.bots:Deep(a=[2], z=1)": 0.25,
        "exports/champion": 0.25,
    }


@pytest.mark.parametrize(
    ("overrides", "rule"),
    [
        (
            ["populations={a: {player: bot:x:Y}}"],
            "populations.NAME.player must be null for one that learns, got {'a': 'bot:x:Y'}",
        ),
        (["populations={a: {}, b: {player: 'bot:'}}"], "populations.b.player: "),
        (
            ["evaluation.bots=[bot:random, my run, my_run]"],
            "names of players must differ in letters or digits of their last 150 characters, got "
            "'my run' and 'my_run'",
        ),
        (
            ["populations={a: {}, b: {player: one}}", "stop.evaluation={player: two, score: 0.5}"],
            "stop.evaluation.player must be one of evaluation.bots or a population's player "
            "(one, bot:random), got 'two'",
        ),
    ],
)
def test_players_from_outside_that_cannot_be_are_refused(overrides: list[str], rule: str) -> None:
    with pytest.raises(ConfigError) as error_info:
        load_config("default", ["populations.player=null", *overrides])
    assert rule in str(error_info.value)


@pytest.mark.parametrize(
    ("curriculum", "rule"),
    [
        ("[{kwargs: {size: 3}}]", "needs two lessons or more"),
        ("[{kwargs: {}}, {kwargs: {}}]", r"each lesson but the last needs until .*\[0\] has none"),
        ("[{until: {rating: 1}}, {until: {rating: 2}}]", r"the last lesson has no until"),
        ("[{until: {rating: 1, return: 2}}, {}]", "must have one of agent_steps, rating and"),
        ("[{until: {}}, {}]", "must have one of agent_steps, rating and return"),
        ("[{until: {agent_steps: 0}}, {}]", "must be at least 1, got 0"),
    ],
)
def test_lessons_end_but_the_last(minimal: Path, curriculum: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        load_config(minimal, [f"environment.curriculum={curriculum}"])


def test_a_lesson_that_can_never_end_is_refused(minimal: Path) -> None:
    steps = "environment.curriculum=[{until: {agent_steps: 500}}, {}]"
    rule = r"curriculum\[0\]\.until\.agent_steps must be below .* \(500\), got 500"
    with pytest.raises(ConfigError, match=rule):
        load_config(minimal, [steps, "stop.agent_steps_per_policy=500"])
    assert load_config(minimal, [steps, "stop.agent_steps_per_policy=501"])
    rating = "environment.curriculum=[{until: {rating: 5}}, {}]"
    with pytest.raises(ConfigError, match=r"share must be above 0 where .*\[0\]\.until\.rating"):
        load_config(minimal, [rating, "evaluation.share=0"])


def test_arguments_of_lessons_stand_before_those_of_the_environment(minimal: Path) -> None:
    lessons = "[{until: {return: 0.5}, kwargs: {size: 3}}, {kwargs: {size: 9}}]"
    given = ["environment.kwargs={size: 1, walls: true}"]
    config = load_config(minimal, [*given, f"environment.curriculum={lessons}"])
    small, large = {"size": 3, "walls": True}, {"size": 9, "walls": True}
    assert config.lessons == (small, large)
    assert config.kwargs_of_matches == large
    # The configuration survives the round trip through run.yaml.
    assert validate_config(config.model_dump(mode="json")) == config
    matches = load_config(minimal, [*given, "evaluation.kwargs={size: 20}"])
    assert matches.lessons == ({"size": 1, "walls": True},)
    assert matches.kwargs_of_matches == {"size": 20, "walls": True}
    assert load_config(minimal, given).lessons == ()
