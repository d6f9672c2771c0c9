"""The line of `arena launch` about the time between a limit of ``stop`` and the run's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .headline import duration

if TYPE_CHECKING:
    from populations.config.run_config import RunConfig


def finals_line(config: RunConfig, *, num_learners: int) -> str:
    """Say that final matches follow when a limit is reached, and for how long at most."""
    from populations.controller.evaluation.finals import FINAL_S, FINAL_SHARE

    begin = "when a limit of stop is reached, training ends and final matches follow"
    if config.deterministic:
        return f"{begin}, until all ratings are sure (deterministic: no limit in seconds)"
    least_s = FINAL_S / num_learners
    text = f"{begin}: for at most {FINAL_SHARE:.0%} of the time that training took"
    longest_s = config.stop.duration_s
    if longest_s is not None:
        # Learners share them: each takes the run's seconds times its share.
        most_s = max(FINAL_SHARE * longest_s, least_s)
        return f"{text}, here {duration(most_s)}"
    return f"{text}, or {duration(least_s)} if that is more"
