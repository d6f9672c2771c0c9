"""The oldest ghosts go: what a window of opponents never draws again."""

from __future__ import annotations

from populations.core import ThinningRequest
from populations.rule_kinds import NoSettings, RuleKind


class Oldest:
    """Rule of those that came first."""

    def choose(self, request: ThinningRequest) -> tuple[int, ...]:
        """Return the first ones that may go, in order of coming."""
        going = [place for place, needed in enumerate(request.is_needed) if not needed]
        return tuple(going[: request.num_to_go])


KIND = RuleKind(name="oldest", settings=NoSettings, make=lambda settings: Oldest())
