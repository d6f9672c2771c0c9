"""Rules of PBT as the section ``pbt`` names them, its faults, and when each is due."""

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
from populations.pbt.scheduler import decisions_document, next_mark, num_due, num_marks
from populations.pbt.selection import Rule, Selection
from populations.pbt.settings import EXPLOIT_KINDS, EXPLORE_KINDS, PbtConfig
from populations.records.rows import PolicyRow, PostponedRow, RunRow
from tests.populations.rows import make_policy, tables_with


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


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"exploit": "trunc"}, "must be one of truncation, binary_tournament"),
        ({"explore": "x"}, "must be one of perturb, resample"),
        ({"perturb_factors": (0.8, 0.0)}, "every factor must be greater than 0"),
        ({"perturb_factors": ()}, "at least 1 item"),
        ({"fraction": 0.6}, "less than or equal to 0.5"),
        ({"confidence": 1.0}, "less than 1"),
    ],
)
def test_faults_name_the_rule(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PbtConfig.model_validate(values)


def test_players_of_immigration_are_written_as_from() -> None:
    section = PbtConfig.model_validate({"immigration": {"probability": 0.5, "from": ["runs/a"]}})
    assert section.immigration.players == ("runs/a",)
    assert section.model_dump()["immigration"] == {"probability": 0.5, "from": ("runs/a",)}


PBT = PbtConfig(ready_agent_steps=200, warm_up_agent_steps=400)


def policy(*, agent_steps: int, ready_at: int) -> PolicyRow:
    return make_policy("player/p001", index=1, agent_steps=agent_steps, ready_at=ready_at)


@pytest.mark.parametrize(
    ("agent_steps", "ready_at", "remaining", "marks"),
    [
        (0, 0, 400, 0),  # the warm-up is longer than the first period
        (250, 0, 150, 0),
        (399, 0, 1, 0),
        (400, 0, 0, 1),
        (599, 0, 0, 1),  # overdue
        (600, 0, 0, 2),  # it waited for a whole interval, so it missed a mark
        (430, 430, 200, 0),  # just decided
        (629, 430, 1, 0),
        (630, 430, 0, 1),
        (1030, 430, 0, 3),
        (350, 300, 150, 0),  # a period that ends after the warm-up
        (800, 800, 200, 0),  # a tenth of 800 is less than 200
        (4000, 4000, 400, 0),
        (4399, 4000, 1, 0),
        (4400, 4000, 0, 1),
        (4799, 4000, 0, 1),
        (4800, 4000, 0, 2),
    ],
)
def test_marks_by_hand(agent_steps: int, ready_at: int, remaining: int, marks: int) -> None:
    row = policy(agent_steps=agent_steps, ready_at=ready_at)
    assert (next_mark(row, PBT), num_marks(row, PBT)) == (remaining, marks)
    if ready_at:
        # Without growth intervals stay as they are.
        steady = PBT.model_copy(update={"ready_growth": 0.0})
        assert num_marks(row, steady) == (agent_steps - ready_at) // 200


def test_a_decision_that_waits_is_due_and_not_made() -> None:
    waiting = policy(agent_steps=600, ready_at=0)
    # Its weights were replaced while it waited, so its interval starts again.
    replaced = make_policy("player/p002", agent_steps=600, ready_at=600)
    tables = tables_with(run=RunRow(run="r", pbt_decisions=4, pbt_marks=7))
    for row in (waiting, replaced):
        tables.put(row)
        tables.put(PostponedRow(policy=row.policy, reason="unrated"))
    # The policy has passed its marks at 400 and 600.
    assert num_due(tables, pbt={"player": PBT}) == 7 + 2
    assert decisions_document(tables, pbt={"player": PBT}) == {
        "due": 9,
        "made": 4,
        "waiting": {waiting.policy: "unrated"},
    }
