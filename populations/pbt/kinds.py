"""Kinds of selection and of exploring, by the names that the section ``pbt`` accepts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from populations.core import Exploit, Explore
from populations.pbt import exploit, explore, model_based, pb2
from populations.pbt.selection import Rule
from populations.rule_kinds import RuleKind, by_name

EXPLOITS: Mapping[str, RuleKind[Any, Rule | Exploit]] = by_name(
    exploit.TRUNCATION,
    exploit.BINARY_TOURNAMENT,
    exploit.WELCH,
    exploit.PREDICTED_WIN,
    exploit.NONE,
)

EXPLORES: Mapping[str, RuleKind[Any, Explore]] = by_name(
    explore.PERTURB,
    explore.RESAMPLE,
    model_based.TPE,
    model_based.GP,
    model_based.CMA_ES,
    model_based.RANDOM,
    pb2.KIND,
    explore.NONE,
)

ORDERED_ONLY = ("gp", "pb2")
"""Rules whose model places the choices of a hyperparameter on a line, in the order given."""
