"""How long an environment's episodes are, how fast it steps, how large it is: what sizes follow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What random play of one environment shows.

    A step is what a batch steps: one decision where agents take turns, one of each agent where they
    decide at once.

    Attributes:
        episode_length: Mean length of an episode in steps.
        is_lower_bound: Whether no episode ended, so that this is how many steps were played.
        step_s: Seconds of a step, resets included.
        env_bytes: Memory of one environment; 0: too little to be seen.
        is_batched: Whether a batched game takes the environment's place in training.
        machine_bytes: Memory of the machine, or what a process may have of it.
        largest_margin: Half of the game's range of utilities where it says that, else half of the
            largest difference between the returns of two agents in an episode; 0: none was seen.
        is_margin_known: Whether the game said it.
        has_stakes: Whether an agent's return was something else than -1, 0 or 1.
    """

    episode_length: float
    is_lower_bound: bool
    step_s: float
    env_bytes: int
    is_batched: bool
    machine_bytes: int
    largest_margin: float = 0.0
    is_margin_known: bool = False
    has_stakes: bool = False
