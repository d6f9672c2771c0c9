"""Kinds of matchmaking, by the names that ``matchmaking.kind`` accepts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from populations.core import Matchmaker
from populations.matchmaking import (
    alphastar,
    pfsp,
    psro,
    quality,
    rating_proximate,
    window,
)
from populations.matchmaking.drawing import Rule
from populations.rule_kinds import RuleKind, by_name

KINDS: Mapping[str, RuleKind[Any, Rule | Matchmaker]] = by_name(
    window.LATEST,
    window.UNIFORM,
    window.DELTA_UNIFORM,
    window.WINDOW,
    pfsp.KIND,
    quality.KIND,
    rating_proximate.KIND,
    psro.KIND,
    alphastar.KIND,
)
