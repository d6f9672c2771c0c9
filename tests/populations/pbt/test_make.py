from __future__ import annotations

from pathlib import Path

import pytest

from arena.errors import ConfigError
from populations.pbt.exploit import (
    BinaryTournament,
    NoExploit,
    PredictedWin,
    SignificantlyBetter,
    Truncation,
)
from populations.pbt.explore import NoExplore, Perturb, PerturbSettings, Resample
from populations.pbt.make import make_exploit, make_explore
from populations.pbt.model_based import ModelBased
from populations.pbt.pb2 import Pb2
from populations.pbt.selection import Rule, Selection
from populations.pbt.settings import EXPLOIT_KINDS, EXPLORE_KINDS, PbtConfig


def test_every_kind_of_exploit_with_its_settings() -> None:
    rules: dict[str, Rule] = {
        "truncation": Truncation(fraction=0.3, min_rating_gap=7.0, confidence=0.8),
        "binary_tournament": BinaryTournament(min_rating_gap=7.0, confidence=0.8),
        "welch": SignificantlyBetter(significance=0.01),
        "predicted_win": PredictedWin(win_rate_threshold=0.2, confidence=0.8),
    }
    assert {*rules, "none"} == set(EXPLOIT_KINDS)
    for kind in EXPLOIT_KINDS:
        section = PbtConfig.model_validate(
            {
                "exploit": kind,
                "fraction": 0.3,
                "min_matches": 9,
                "min_rating_gap": 7.0,
                "confidence": 0.8,
                "significance": 0.01,
                "win_rate_threshold": 0.2,
                "mutate_others": False,
            }
        )
        made = make_exploit(section)
        if kind == "none":
            assert isinstance(made, NoExploit)
        else:
            assert made == Selection(rule=rules[kind], min_matches=9, mutate_others=False)


def test_every_kind_of_explore_with_its_settings() -> None:
    perturb = PerturbSettings(
        perturb_factors=(0.5,),
        resample_probability=0.1,
        mutation_probability=0.2,
        reset_probability=0.3,
    )
    rules = {
        "pb2": Pb2(fallback=perturb),
        "tpe": ModelBased(sampler="tpe", fallback=perturb),
        "gp": ModelBased(sampler="gp", fallback=perturb),
        "cma_es": ModelBased(sampler="cma_es", fallback=perturb),
        "random": ModelBased(sampler="random", fallback=perturb),
    }
    others = {"perturb": Perturb, "resample": Resample, "none": NoExplore}
    assert rules.keys() | others.keys() == set(EXPLORE_KINDS)
    for kind in EXPLORE_KINDS:
        section = PbtConfig.model_validate(
            {
                "explore": kind,
                "perturb_factors": (0.5,),
                "resample_probability": 0.1,
                "mutation_probability": 0.2,
                "reset_probability": 0.3,
            }
        )
        made = make_explore(section)
        assert isinstance(made, others[kind]) if kind in others else made == rules[kind]
        if isinstance(made, Perturb):
            assert made.settings == perturb


def test_the_defaults_are_those_of_the_rules() -> None:
    assert make_exploit(PbtConfig()) == Selection(rule=Truncation())
    made = make_explore(PbtConfig())
    assert isinstance(made, Perturb)
    assert made.settings == PerturbSettings()


def test_a_users_own_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_pbt_rules.py").write_text(
        "class Mine:\n"
        "    def __init__(self, section):\n"
        "        self.section = section\n"
        "NOT_A_CLASS = 3\n"
    )
    section = PbtConfig(exploit="my_pbt_rules:Mine", explore="my_pbt_rules:Mine")
    for made in (
        make_exploit(section, launch_directory=str(tmp_path)),
        make_explore(section, launch_directory=str(tmp_path)),
    ):
        assert vars(made)["section"] is section
    with pytest.raises(ConfigError, match="my_pbt_rules:NOT_A_CLASS is no class"):
        make_explore(PbtConfig(explore="my_pbt_rules:NOT_A_CLASS"), launch_directory=str(tmp_path))
    with pytest.raises(ConfigError, match="has no 'Other'"):
        make_exploit(PbtConfig(exploit="my_pbt_rules:Other"), launch_directory=str(tmp_path))


def test_errors_list_the_kinds() -> None:
    unknown = PbtConfig.model_construct(exploit="x", explore="x")
    with pytest.raises(ConfigError, match=r"pbt.exploit must be one of truncation, .* got 'x'"):
        make_exploit(unknown)
    with pytest.raises(ConfigError, match=r"pbt.explore must be one of perturb, .* got 'x'"):
        make_explore(unknown)
