"""The kinds of thinning: a rule that is in this list can be named in a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from populations.core import Thinning
from populations.rule_kinds import RuleKind, by_name
from populations.thinning import oldest, spread

THINNINGS: Mapping[str, RuleKind[Any, Thinning]] = by_name(spread.KIND, oldest.KIND)
