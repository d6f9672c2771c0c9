"""Reward weights as hyperparameters: from YAML into the genes of policies."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from arena.errors import ConfigError, ConfigFaults
from arena.wire.messages import Train
from populations.choices import number_of
from populations.config.overrides import apply_overrides
from populations.config.resolve import resolve_config
from populations.config.run_config import RunConfig, draft_config, load_config, validate_config
from populations.league.lineage import schedule_of
from populations.preset_files import preset_names
from populations.yaml_documents import write_document
from tests.populations.controller.simulated import DUEL, duel_spec, make_world

ENVIRONMENT: dict[str, object] = {
    "id": "tests.duel:env",
    "num_envs": 8,
    "reward_weights": {"win": 1, "distance": 0.1},
}
LOW, HIGH = 0.01, 1.0
SPACE: dict[str, object] = {
    "learning_rate": {"low": 1e-5, "high": 3e-3, "log": True},
    "reward_weights.distance": {"low": LOW, "high": HIGH, "log": True},
}


def document(**player: object) -> dict[str, object]:
    return {**DUEL, "environment": ENVIRONMENT, "populations": {"player": {"size": 4, **player}}}


def resolved(source: object) -> RunConfig:
    return resolve_config(validate_config(source), duel_spec(), launch_directory=".", num_cores=2)


def test_each_weight_is_a_hyperparameter_that_starts_as_configured() -> None:
    config = resolved(document(search_space=SPACE))
    player = config.populations["player"]
    own = {k: v for k, v in player.hyperparameters.items() if k.startswith("reward_weights")}
    assert own == {"reward_weights.win": 1.0, "reward_weights.distance": 0.1}
    # A weight is a float even if it is written as an integer.
    assert {type(value) for value in own.values()} == {float}
    assert player.hyperparameters["gamma"] == 0.99
    assert player.search_space == SPACE
    again = resolve_config(config, duel_spec(), launch_directory=".", num_cores=2)
    assert again == config
    assert resolved(config.model_dump(mode="json")) == config


def test_without_weights_hyperparameters_are_the_algorithms() -> None:
    hyperparameters = resolved(DUEL).populations["player"].hyperparameters
    assert not [name for name in hyperparameters if "reward" in name]


def test_a_population_may_start_from_weights_of_its_own() -> None:
    nested = {"reward_weights": {"distance": 0.5}}
    for written in ({"reward_weights.distance": 0.5}, nested):
        player = resolved(document(hyperparameters=written)).populations["player"]
        assert player.hyperparameters["reward_weights.distance"] == 0.5
        assert player.hyperparameters["reward_weights.win"] == 1.0


def test_weights_and_their_bounds_can_be_overridden_by_dotted_paths() -> None:
    changed = apply_overrides(
        document(search_space=SPACE),
        [
            "environment.reward_weights.win=2.5",
            "populations.player.hyperparameters.reward_weights.distance=0.3",
            "populations.player.search_space.reward_weights.distance={low: 0.2, high: 0.4}",
        ],
    )
    player = resolved(changed).populations["player"]
    assert player.hyperparameters["reward_weights.win"] == 2.5
    assert player.hyperparameters["reward_weights.distance"] == 0.3
    assert player.search_space["reward_weights.distance"] == {"low": 0.2, "high": 0.4}


@pytest.mark.parametrize(
    ("player", "message"),
    [
        (
            {"search_space": {"reward_weights.distanc": {"low": 0.1, "high": 1.0}}},
            r"populations\.player\.search_space\.reward_weights\.distanc: environment\."
            r"reward_weights has no component 'distanc'; did you mean 'distance'\?; "
            r"it has: win, distance$",
        ),
        (
            {"hyperparameters": {"reward_weights.wins": 1.0}},
            r"populations\.player\.hyperparameters\.reward_weights\.wins: .*'win'\?",
        ),
        (
            {
                "size": 1,
                "schedule": [{"agent_steps": 0, "hyperparameters": {"reward_weights.x": 1.0}}],
            },
            r"populations\.player\.schedule\.0\.reward_weights\.x: ",
        ),
        (
            {"hyperparameters": {"reward_weights.win": 1e7}},
            r"hyperparameters\.reward_weights\.win: must be at most 1000000, got",
        ),
        (
            {"search_space": {"reward_weights.win": {"low": 0.1, "high": 1e7}}},
            r"search_space\.reward_weights\.win allows 10000000\.0, but",
        ),
    ],
)
def test_errors_name_the_weight_and_the_rule(player: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolved(document(**player))


def test_weights_need_components_that_are_configured() -> None:
    player = {"search_space": {"reward_weights.win": {"low": 0.1, "high": 1.0}}}
    with pytest.raises(ConfigError, match=r"has no component 'win'; it is empty$"):
        resolved({**DUEL, "populations": {"player": player}})
    with pytest.raises(ConfigError, match=r"environment\.reward_weights\.win: .*got 'much'"):
        validate_config({"environment": {"id": "x", "reward_weights": {"win": "much"}}})
    with pytest.raises(ConfigError, match=r"environment\.backend must be auto or pettingzoo"):
        load_config("tictactoe", ["environment.backend=batched", "environment.reward_weights.x=1"])


def test_pbt_explores_weights_within_bounds_and_copies_them_with_the_weights() -> None:
    pbt: dict[str, object] = {**DUEL["pbt"], "reference": False}  # type: ignore[dict-item]
    world = make_world(
        {**document(search_space=SPACE), "pbt": pbt, "learners": 1},
        joined=1,
        learning=lambda trainee: (
            500 * number_of(trainee.hyperparameters["reward_weights.distance"])
        ),
    )
    world.run()
    tables = world.state.tables
    rows = sorted(tables.generations.values(), key=lambda row: (row.policy, row.generation))
    values = [row.hyperparameters["reward_weights.distance"] for row in rows]
    assert len(set(values)) > 6
    assert all(LOW <= number_of(value) <= HIGH for value in values)
    # A weight outside the search space does not change.
    assert {row.hyperparameters["reward_weights.win"] for row in rows} == {1.0}
    exploited = world.events("exploited")
    assert exploited
    for event in exploited:
        explored = event.data["new"]
        assert isinstance(explored, dict)
        weight = explored["reward_weights.distance"]
        assert isinstance(weight, float)
        assert LOW <= weight <= HIGH
        donors = event.data["donor_hyperparameters"]
        assert isinstance(donors, dict)
        assert LOW <= donors["reward_weights.distance"] <= HIGH
    # Learners get the weights that the policies have.
    told = [
        trainee.hyperparameters["reward_weights.distance"]
        for row in tables.assignments.values()
        if isinstance(row.message, Train)
        for trainee in row.message.trainees
    ]
    assert set(told) <= set(values)
    policy = next(iter(tables.policies.values()))
    assert "reward_weights.distance" in schedule_of(tables, policy.policy)[0].hyperparameters


READ_LATEST_RATIO = (
    "uniform or delta_uniform or window or pfsp or quality or rating_proximate or psro"
)


@pytest.fixture
def minimal(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text("environment: {id: a:b}\n")
    return path


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (
            ["populations={a: {}, b: {player: bot:x:Y, size: 3}}"],
            "populations.b.size has no effect where populations.b.player is 'bot:x:Y': nobody "
            "learns there",
        ),
        (
            ["matchmaking.delta=0.3"],
            "matchmaking.delta is read only where matchmaking.kind is delta_uniform, got 0.3 where "
            "matchmaking.kind is pfsp; leave it out, or at its default 0.5",
        ),
        (
            ["ghosts.window=16"],
            "ghosts.window is read only where matchmaking.kind is window, got 16 where "
            "matchmaking.kind is pfsp; leave it out, or at its default 32",
        ),
        (
            ["matchmaking.constants=paper"],
            "matchmaking.constants is read only where matchmaking.kind is alphastar, got 'paper' "
            "where matchmaking.kind is pfsp; leave it out, or at its default 'pseudocode'",
        ),
        (
            ["pbt.exploit=welch", "pbt.min_rating_gap=7"],
            "pbt.min_rating_gap is read only where pbt.exploit is truncation or binary_tournament, "
            "got 7.0 where pbt.exploit is welch; leave it out, or at its default 30.0",
        ),
        (
            ["pbt.explore=resample", "pbt.reset_probability=0.5"],
            "pbt.reset_probability is read only where pbt.explore is perturb or tpe or gp or "
            "cma_es or random or pb2, got 0.5 where pbt.explore is resample; leave it "
            "out, or at its default 0.0",
        ),
        (
            ["populations={player: {pbt: {exploit: none, significance: 0.01}}}"],
            "populations.player.pbt.significance is read only where populations.player.pbt.exploit "
            "is welch, got 0.01 where populations.player.pbt.exploit is none; leave it "
            "out, or at its default 0.05",
        ),
        (
            ["populations={player: {pbt: {significance: 0.01}}}"],
            "populations.player.pbt.significance is read only where pbt.exploit is welch, got 0.01 "
            "where pbt.exploit is truncation; leave it out, or at its default 0.05",
        ),
        (
            ["matchmaking.kind=latest", "matchmaking.latest_ratio=0.3"],
            f"matchmaking.latest_ratio is read only where matchmaking.kind is {READ_LATEST_RATIO}, "
            "got 0.3 where matchmaking.kind is latest; leave it out, or at its default 0.5",
        ),
        (
            ["matchmaking.kind=my.module:Rule", "matchmaking.latest_ratio=0.3"],
            f"matchmaking.latest_ratio is read only where matchmaking.kind is {READ_LATEST_RATIO}, "
            "got 0.3 where matchmaking.kind is my.module:Rule; leave it out, or at its default 0.5 "
            "(a class of your own reads matchmaking.options)",
        ),
        (
            ["matchmaking.kind=my.module:Rule", "matchmaking.delta=0.3"],
            "matchmaking.delta is read only where matchmaking.kind is delta_uniform, got 0.3 where "
            "matchmaking.kind is my.module:Rule; leave it out, or at its default 0.5 "
            "(a class of your own reads matchmaking.options)",
        ),
    ],
)
def test_a_setting_that_no_chosen_rule_reads_is_refused(
    minimal: Path, overrides: list[str], fault: str
) -> None:
    with pytest.raises(ConfigFaults) as caught:
        load_config(minimal, overrides)
    assert str(caught.value) == fault
    assert load_config(minimal, overrides, resumes=True) is not None


@pytest.mark.parametrize(
    "overrides",
    [
        ["matchmaking.kind=delta_uniform", "matchmaking.delta=0.3"],
        ["matchmaking.kind=window", "ghosts.window=16"],
        ["matchmaking.delta=0.5"],  # the default
        ["ghosts.thinning=my.module:Rule", "ghosts.window=16"],  # a user's rule may read every key
        ["matchmaking.kind=latest", "matchmaking.latest_ratio=0.5"],  # the default
        # allowed for every kind
        ["matchmaking.kind=my.module:Rule", "matchmaking.living_ratio=0.3"],
        ["pbt.exploit=my.module:Rule", "pbt.significance=0.01"],
        # perturb_factors apply until pb2 has enough data
        ["pbt.explore=pb2", "pbt.perturb_factors=[0.5, 2.0]"],
        ["matchmaking.constants=paper", "populations={player: {roles: {main_exploiter: 1}}}"],
        ["pbt.fraction=0.5", "pbt.exploit=welch"],  # evaluation reads the fraction, too
        # It is sufficient if one of two populations uses the key.
        ["pbt.significance=0.01", "populations={a: {}, b: {pbt: {exploit: welch}}}"],
        ["pbt.min_rating_gap=5", "populations={a: {pbt: {exploit: none}}, b: {}}"],
    ],
)
def test_a_setting_that_something_reads_passes(minimal: Path, overrides: list[str]) -> None:
    assert load_config(minimal, overrides) is not None


@pytest.mark.parametrize(
    "overrides",
    [
        ["pbt.min_rating_gap=10", "populations={a: {}, b: {pbt: {exploit: welch}}}"],
        [
            "pbt.perturb_factors=[0.5, 2.0]",
            "populations={a: {}, b: {pbt: {exploit: none, explore: none}}}",
        ],
    ],
)
def test_a_configuration_may_be_written_out_in_full_and_read_again(
    minimal: Path, overrides: list[str]
) -> None:
    """Each population then has all settings of PBT, the general ones too."""
    config = load_config(minimal, overrides)
    document = config.model_dump(mode="json")
    for population in document["populations"].values():
        own = {key: value for key, value in (population["pbt"] or {}).items() if value is not None}
        population["pbt"] = deepcopy(document["pbt"] | own)
    full = minimal.with_name("full.yaml")
    write_document(document, full)
    assert load_config(full).pbt == config.pbt


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["matchmaking.kind=windw", "ghosts.window=5"], "matchmaking.kind"),
        (["pbt.exploit=welsh", "pbt.significance=0.01"], "pbt.exploit"),
        (
            ["populations={player: {pbt: {exploit: welsh, significance: 0.01}}}"],
            "populations.player.pbt.exploit",
        ),
    ],
)
def test_a_rule_that_there_is_not_makes_no_second_fault(
    minimal: Path, overrides: list[str], key: str
) -> None:
    (fault,) = draft_config(minimal, overrides, notify=print).faults
    assert fault.startswith(key)


def test_other_faults_are_named_beside_it(minimal: Path) -> None:
    draft = draft_config(minimal, ["matchmaking.delta=0.3", "seed=-1"], notify=print)
    assert [fault.split()[0] for fault in draft.faults] == ["seed:", "matchmaking.delta"]


def test_what_a_run_has_written_is_read_as_it_stands() -> None:
    document = {"environment": {"id": "a:b"}, "matchmaking": {"delta": 0.3}}
    assert validate_config(document).matchmaking.model_dump()["delta"] == 0.3


@pytest.mark.parametrize("name", [name for name in preset_names() if name != "default"])
def test_presets_pass(name: str) -> None:
    assert draft_config(name, notify=print).faults == ()
