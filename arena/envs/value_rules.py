"""Rules for single values from an environment.

Broken rules are returned, not raised, together with the usable part of the value, so that play can
continue. Rules and messages equal those of the batch. Shapes: n numbers of an action mask.

Tests: `tests/arena/envs/checks/test_check.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.environment_spec import MaskPlace
from arena.envs.findings import MENDS
from arena.envs.spaces.masks import MASK_KINDS, legal_choices
from arena.envs.spaces.observations import flatten_leaf, is_bounded, part_of, reward_rule
from arena.errors import EnvironmentFault
from arena.spaces import ActionLayout, ObservationLayout
from arena.users_code import named, pass_interrupt

STEP = ("observations", "rewards", "terminations", "truncations", "infos")
"""Return values of a ParallelEnv's step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """Rule that a value breaks.

    Attributes:
        rule: Name of the rule; two values that break the same rule have the same mistake.
        text: Message.
        agent: Agent of the value.
        in_doubt: Whether later faults in the episode may be consequences.
    """

    rule: str
    text: str
    agent: str | None = None
    in_doubt: bool = False


def seen_part(observation: object, *, place: MaskPlace | None) -> object:
    """Return an observation without its mask.

    Raises:
        EnvironmentFault: If it is missing.
    """
    if place != "observation":
        return observation
    try:
        part: object = observation["observation"]  # type: ignore[index]
    except BaseException as error:
        pass_interrupt(error)
        # A user's object may be no dictionary.
        raise EnvironmentFault(
            "an observation['observation'] must be there, it is not, in "
            f"{type(observation).__name__}"
        ) from error
    return part


def observation_faults(
    agent: str, observation: object, *, layout: ObservationLayout, place: MaskPlace | None
) -> Iterator[Broken]:
    """Yield the rules that an observation breaks, for each part of it.

    Args:
        agent: Agent of the observation.
        observation: Observation from the environment.
        layout: Layout of the observation, without the mask.
        place: Place of the mask.
    """
    try:
        seen = seen_part(observation, place=place)
    except EnvironmentFault as fault:
        yield _broken(agent, "observation", str(fault))
        return
    # The row is temporary, because only the errors of writing into it matter.
    row = np.zeros(layout.size, dtype=layout.dtype)
    for leaf in layout.leaves:
        try:
            flatten_leaf(leaf, row[leaf.place], part_of(leaf, seen))
        except EnvironmentFault as fault:
            yield _broken(agent, f"observation{leaf.keys}", str(fault))
        except BaseException as error:
            pass_interrupt(error)
            yield _broken(agent, f"observation{leaf.keys}", f"an observation raised {named(error)}")


def read_mask(
    agent: str, mask: object, *, layout: ActionLayout
) -> tuple[npt.NDArray[np.bool_] | None, Broken | None]:
    """Return a mask's legal choices, and the rule that it breaks.

    Returns:
        Legal choices bool [n], or None where they are unknown.
    """
    legal, text = _legal(mask, layout=layout)
    if legal is not None and not layout.allows(legal[None]).all():
        # A mask that allows nothing cannot choose an action, so play continues without a mask.
        legal, text = None, text or "an action mask must allow an action, got none"
    if not text:
        return legal, None
    return legal, Broken(
        rule=f"mask {_kind(text)}",
        text=f"agent {agent!r}: {text}",
        agent=agent,
        # Without a usable mask, the next action may be illegal.
        in_doubt=legal is None,
    )


def _legal(mask: object, *, layout: ActionLayout) -> tuple[npt.NDArray[np.bool_] | None, str]:
    try:
        return legal_choices(layout, mask), ""
    except EnvironmentFault as fault:
        text, cause = str(fault), fault.__cause__
    if cause is not None:
        return None, text
    values = np.asarray(mask)
    # With the right size, the meaning is clear in spite of a wrong shape or a float dtype.
    readable = values.size == layout.num_logits and values.dtype.kind in f"{MASK_KINDS}f"
    return (values.reshape(-1).astype(np.bool_) if readable else None), text


def reward_faults(rewards: Mapping[Any, object], *, known: Collection[str]) -> Iterator[Broken]:
    """Yield the rules that rewards break."""
    for agent, reward in rewards.items():
        if agent not in known:
            yield _stranger(agent, "a reward")
        elif not is_bounded(reward):
            text = f"a reward must be {reward_rule(reward)}, got {reward!r}"
            yield _broken(agent, "reward", text)


def flag_faults(name: str, flags: Mapping[Any, object]) -> Iterator[Broken]:
    """Yield the rules that terminations or truncations break."""
    for agent, flag in flags.items():
        if not isinstance(flag, Real | np.bool_):
            yield _broken(str(agent), name, f"{name} must be True or False, got {flag!r}")


def stranger_faults(
    agents: Collection[Any], *, has: str, known: Collection[str]
) -> Iterator[Broken]:
    """Yield a broken rule for each unknown agent."""
    return (_stranger(agent, has) for agent in agents if agent not in known)


def reset_told(result: object) -> tuple[Mapping[str, Any], Mapping[str, Any], list[Broken]]:
    """Return observations and infos from a ParallelEnv's reset, and the rules that it breaks.

    Raises:
        EnvironmentFault: If there are no observations in it.
    """
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Mapping):
        if isinstance(result[1], Mapping):
            return result[0], result[1], []
        text = f"reset: infos must be a dictionary by agent, got {type(result[1]).__name__}"
        return result[0], {}, [Broken(rule="reset infos", text=text)]
    text = f"reset must return (observations, infos), got {described(result)}"
    if isinstance(result, Mapping):
        return result, {}, [Broken(rule="reset", text=text)]
    raise EnvironmentFault(text)


def step_told(
    result: object, *, acted: Collection[str]
) -> tuple[tuple[Mapping[str, Any], ...], list[Broken]]:
    """Return the five dictionaries from a ParallelEnv's step, and the rules that it breaks.

    Args:
        result: Return value of step.
        acted: Agents that must have results.

    Raises:
        EnvironmentFault: If they are missing.
    """
    broken = []
    parts = list(result) if isinstance(result, tuple) else []
    if len(parts) != len(STEP):
        text = f"step must return ({', '.join(STEP)}), got {described(result)}"
        if len(parts) != len(STEP) - 1:
            raise EnvironmentFault(text)
        # Before truncations were separate, PettingZoo's step returned four values.
        parts.insert(STEP.index("truncations"), dict.fromkeys(acted, False))
        broken.append(Broken(rule="step", text=text))
    for at, (name, part) in enumerate(zip(STEP, parts, strict=True)):
        if not isinstance(part, Mapping):
            text = f"step: {name} must be a dictionary by agent, got {type(part).__name__}"
            if name == "observations":
                raise EnvironmentFault(text)
            broken.append(Broken(rule=f"step {name}", text=text))
            # False also serves as a reward of 0.
            parts[at] = dict.fromkeys(acted, False) if name != "infos" else {}
    # Observations and infos may omit agents, so only rewards and the flags are checked.
    for name, part in list(zip(STEP, parts, strict=True))[1:4]:
        broken += [
            Broken(
                rule=f"no {name}",
                text=f"step returned no {name} of agent {agent!r}, who had acted; it has those of "
                f"{', '.join(map(repr, part)) or 'nobody'}",
                agent=agent,
            )
            for agent in acted
            if agent not in part
        ]
    return tuple(parts), broken


def described(value: object) -> str:
    """Describe a value in a few words."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}: {', '.join(type(part).__name__ for part in value)}"
    return "nothing" if value is None else f"one {type(value).__name__}"


def _broken(agent: str, what: str, text: str) -> Broken:
    return Broken(rule=f"{what} {_kind(text)}", text=f"agent {agent!r}: {text}", agent=agent)


def _stranger(agent: object, has: str) -> Broken:
    return Broken(
        rule=f"stranger {agent!r}", text=f"agent {agent!r} has {has} but is no possible agent"
    )


def _kind(text: str) -> str:
    """Return the kind of mistake in a message, which selects the way to fix it."""
    # The fragment is returned, because the text has the values of one occurrence.
    return next((fragment for fragment, _ in MENDS if fragment in text), text)
