"""The kinds of selection and of exploring, each made from its defaults."""

from __future__ import annotations

import numpy as np
import pytest

from populations.choices import number_of
from populations.pbt.kinds import EXPLOITS, EXPLORES
from populations.pbt.selection import Rule
from populations.pbt.settings import PbtConfig

SPACE = {"learning_rate": {"low": 1e-5, "high": 1e-2, "log": True}}


@pytest.mark.parametrize("name", EXPLORES)
def test_every_kind_of_exploring_stays_inside_the_space(name: str) -> None:
    rule = EXPLORES[name].from_sections(PbtConfig())
    rng = np.random.default_rng(0)
    found = rule.explore({"learning_rate": 1e-3, "gamma": 0.9}, SPACE, rng=rng)
    assert found.old == {"learning_rate": 1e-3, "gamma": 0.9}
    assert found.new["gamma"] == 0.9
    assert 1e-5 <= number_of(found.new["learning_rate"]) <= 1e-2


def test_every_kind_of_selection_but_none_is_a_rule() -> None:
    made = {name: kind.from_sections(PbtConfig()) for name, kind in EXPLOITS.items()}
    assert [name for name, rule in made.items() if not isinstance(rule, Rule)] == ["none"]


def test_settings_by_kind_are_those_of_before() -> None:
    """A rule that loses one breaks configurations."""
    perturb = {
        "perturb_factors", "perturb_uniform", "resample_probability", "mutation_probability",
        "reset_probability",
    }  # fmt: skip
    read = {n: set(kind.settings.model_fields) for n, kind in {**EXPLOITS, **EXPLORES}.items()}
    assert read == {
        "truncation": {"fraction", "min_rating_gap", "confidence"},
        "binary_tournament": {"min_rating_gap", "confidence"},
        "welch": {"significance"},
        "predicted_win": {"win_rate_threshold", "confidence"},
        "perturb": perturb,
        "resample": set(),
        "tpe": perturb,
        "gp": perturb,
        "cma_es": perturb,
        "random": perturb,
        "pb2": perturb,
        "none": set(),
    }
