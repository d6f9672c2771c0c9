"""Settings that no chosen rule reads: refused in a new configuration, ignored at a resume."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from arena.errors import ConfigFaults
from populations.config.run_config import draft_config, load_config, validate_config
from populations.preset_files import preset_names
from populations.yaml_documents import write_document

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
        ["ghosts.thinning=my.module:Rule", "ghosts.window=16"],  # may read everything
        ["matchmaking.kind=latest", "matchmaking.latest_ratio=0.5"],  # the default
        ["matchmaking.kind=my.module:Rule", "matchmaking.living_ratio=0.3"],  # whatever the kind
        ["pbt.exploit=my.module:Rule", "pbt.significance=0.01"],
        ["pbt.explore=pb2", "pbt.perturb_factors=[0.5, 2.0]"],  # until it has seen enough
        ["matchmaking.constants=paper", "populations={player: {roles: {main_exploiter: 1}}}"],
        ["pbt.fraction=0.5", "pbt.exploit=welch"],  # evaluation reads it, too
        # One of two populations is enough.
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
