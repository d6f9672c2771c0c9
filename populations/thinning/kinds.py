"""The kinds of thinning: a rule that is in this list can be named in a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arena.config import Model
from populations.core import Thinning, ThinningRequest
from populations.rule_kinds import RuleKind, by_name
from populations.thinning import spread


class Oldest:
    """Rule of those that came first."""

    def choose(self, request: ThinningRequest) -> tuple[int, ...]:
        """Return the first ones that may go, in order of coming."""
        going = [place for place, needed in enumerate(request.is_needed) if not needed]
        return tuple(going[: request.num_to_go])


OLDEST = RuleKind(name="oldest", settings=Model, make=lambda settings: Oldest())


THINNINGS: Mapping[str, RuleKind[Any, Thinning]] = by_name(spread.KIND, OLDEST)
