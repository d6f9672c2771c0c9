"""Inspection of an environment in a child process, and optionally a measurement of its pace.

A short-lived child makes the environment (``python -m arena.envs.inspect``: a request as JSON on
standard input, the answers as JSON on standard output, a line for the facts and one for the pace).
The controller thus stays free of PettingZoo and survives whatever an environment does. The facts
come first, so that they are kept even if random play ends the child. This module imports nothing
heavy. The child also reports digests of the users' modules that it has imported.

Tests: `tests/arena/envs/test_inspect.py`, `tests/arena/envs/probe/test_users_modules.py`.
"""

from __future__ import annotations

import hashlib
import json
import sys
import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal

from arena.environment_spec import AgentSpec, EnvironmentRequest, EnvironmentSpec
from arena.envs.probe.pace import Pace
from arena.errors import (
    ArenaError,
    ConfigError,
    EnvironmentFault,
    EnvironmentUnavailable,
    NotTrusted,
)
from arena.files import read_regular
from arena.processes.child import serve
from arena.processes.parent import Child
from arena.resolve import resolve
from arena.types import Digest, canonical_digest
from arena.users_code import owner_of

ERRORS: Mapping[str, type[ArenaError]] = {
    error.__name__: error
    for error in (ConfigError, EnvironmentFault, EnvironmentUnavailable, NotTrusted)
}
Play = Literal["timed", "counted"]
"""Amount of play: a few seconds, or a number of steps, so that an episode's length is measured
equally on every machine.
"""

MAKING_S = 60.0
"""Time limit for making an environment."""

COUNTED_PLAY_S = 300.0
"""Time limit of play that counts steps instead of seconds."""

MAX_MODULE_BYTES = 1 << 26
"""Size limit of a module's file for a digest; the file may be a compiled module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """Results of a child process.

    Attributes:
        spec: Environment's spec.
        code: Digests of the code outside of installed packages that was imported, by module or
            package (`arena.envs.inspect`).
        pace: Pace of random play. None: not requested, or ended too early.
        why: Reason for the lack of a requested pace.
    """

    spec: EnvironmentSpec
    code: Mapping[str, Digest] = field(default_factory=dict)
    pace: Pace | None = None
    why: str = ""


def inspect_environment(
    request: EnvironmentRequest, *, timeout_s: float = MAKING_S
) -> EnvironmentSpec:
    """Inspect an environment.

    Args:
        request: Environment, and what to look at.
        timeout_s: Time limit.

    Raises:
        EnvironmentUnavailable: If there is no such id, or a package is missing.
        ConfigError: If it cannot be made, or has agents or spaces that Arena cannot train, or lacks
            a state that is read.
        EnvironmentFault: If its reset fails, or the child dies or takes too long.
    """
    return inspect_and_play(request, play=None, timeout_s=timeout_s).spec


def inspect_and_play(
    request: EnvironmentRequest,
    *,
    play: Play | None = "timed",
    code: Mapping[str, str] = MappingProxyType({}),
    timeout_s: float | None = None,
) -> Inspected:
    """Inspect an environment and measure its pace by a few seconds of random play.

    Args:
        request: Environment, and what to look at.
        play: Amount of play. None: none.
        code: Other users' code to import, too: references by the configuration keys that name them.
        timeout_s: Time limit. None: a minute, and five more where steps are counted.

    Raises:
        EnvironmentUnavailable: If there is no such id, or a package is missing.
        ConfigError: As for `inspect_environment`, or if other code cannot be imported.
        EnvironmentFault: As for `inspect_environment`. A fault in play only ends the play.
    """
    if timeout_s is None:
        counts_steps = play == "counted" or request.asks_chance
        timeout_s = MAKING_S + (COUNTED_PLAY_S if counts_steps else 0.0)
    try:
        # NaN and infinities are no JSON, but json would write them by default.
        asked = {"facts": asdict(request), "code": dict(code), "play": play}
        question = json.dumps(asked, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"environment.kwargs must be plain data: {error}") from None
    with Child("arena.envs.inspect", log="temporary", talks="output") as child:
        lines, exit_code = child.ask(question.encode(), timeout_s)
        # After a timeout the facts may have arrived already.
        ending = None if exit_code is None else child.ending
    late = f"within {timeout_s:g} s"
    # The last line may be incomplete, because the child may die while writing.
    answers = [_answer_in(line) for line in lines]
    if not answers or answers[0] is None:
        how = (
            f"was not made and reset {late}"
            if ending is None
            else f"ended the process that inspected it {ending}"
        )
        raise EnvironmentFault(f"environment {request.environment_id} {how}")
    if "error" in answers[0]:
        # The error has its original class, so that callers need not know about the child.
        raise ERRORS[answers[0]["error"]](answers[0]["message"])
    found = Inspected(spec=_spec_from_json(answers[0]["spec"]), code=answers[0]["code"])
    if play is None:
        return found
    # The facts are valid even if the play failed.
    played = answers[1] if len(answers) > 1 else None
    if played is None:
        why = f"was not over {late}" if ending is None else f"ended the process {ending}"
        return replace(found, why=f"random play {why}")
    if "pace" in played:
        return replace(found, pace=Pace(**played["pace"]))
    return replace(found, why=played["message"])


def inspect_lessons(
    spec: EnvironmentSpec, lessons: Sequence[Mapping[str, object]], *, request: EnvironmentRequest
) -> EnvironmentSpec:
    """Inspect the lessons of an environment, and return its spec with them.

    Args:
        spec: Environment that matches are played in.
        lessons: Arguments of the factory in training, by lesson; empty: those of matches.
        request: Request that the spec answers.

    Raises:
        ConfigError: If a lesson has other agents or spaces than matches have, or as for
            `inspect_environment`.
        EnvironmentFault: As for `inspect_environment`.
    """
    looked_at = [spec.kwargs]
    for kwargs in lessons:
        if kwargs in looked_at:
            continue
        looked_at.append(kwargs)
        found = inspect_environment(replace(request, environment_id=spec.id, kwargs=kwargs))
        for name, played, trained in _must_agree(spec, found):
            if trained != played:
                raise ConfigError(
                    f"environment {spec.id}: {name} must be the same in training with "
                    f"{dict(kwargs)} and in matches with {dict(spec.kwargs)}, got {trained} and "
                    f"{played}"
                )
    return replace(spec, lessons=tuple(lessons))


def _must_agree(
    spec: EnvironmentSpec, other: EnvironmentSpec
) -> Iterator[tuple[str, object, object]]:
    """Yield the facts in which two variants of an environment must agree: name, and both values."""
    yield "the API", spec.api, other.api
    yield "the agents", spec.agents, other.agents
    # Both have the same agents from here on, because a difference was yielded above.
    for agent, one in spec.agent_specs.items():
        two = other.agent_specs[agent]
        yield f"the observations of {agent}", one.observation, two.observation
        yield f"the actions of {agent}", one.action, two.action
        yield f"the place of action masks of {agent}", one.mask, two.mask
    yield "the state", spec.state, other.state


def _answer_in(line: bytes) -> dict[str, Any] | None:
    try:
        answer: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return answer


def _spec_from_json(spec: dict[str, Any]) -> EnvironmentSpec:
    return EnvironmentSpec(
        id=spec["id"],
        kwargs=spec["kwargs"],
        api=spec["api"],
        agents=tuple(spec["agents"]),
        agent_specs={name: AgentSpec(**facts) for name, facts in spec["agent_specs"].items()},
        versions=spec["versions"],
        state=spec["state"],
        chance=spec["chance"],
    )


def _facts(request: EnvironmentRequest, code: Mapping[str, str]) -> Inspected | dict[str, object]:
    """Return the facts, or the error if there are none."""
    # These imports are made only in the child, because the controller must not import PettingZoo.
    from arena.envs.describe import environment_facts
    from arena.users_code import own_lines, pass_interrupt, raised

    try:
        spec = environment_facts(request)
        import_all(code, launch_directory=request.launch_directory)
        # Digests are computed before play, which may import more modules.
        found = Inspected(spec=spec, code=module_digests())
        if not request.asks_chance:
            return found
        from arena.envs.probe.chance import find_chance

        return replace(found, spec=replace(spec, chance=find_chance(spec, request)))
    except tuple(ERRORS.values()) as error:
        return {"error": type(error).__name__, "message": str(error)}
    except BaseException as error:
        pass_interrupt(error)
        # This is the child's outermost frame, and users' environments may raise anything anywhere.
        message = raised(f"inspecting environment {request.environment_id}", error)
        if not own_lines(error):
            message += f"\n{''.join(traceback.format_exception(error))}"
        return {"error": EnvironmentFault.__name__, "message": message}


def _pace(spec: EnvironmentSpec, request: EnvironmentRequest, *, play: Play) -> dict[str, object]:
    """Return the pace, or a message with the reason why there is none."""
    # These imports are made only in the child, as in `_facts`.
    from arena.envs.probe.play import find_pace
    from arena.users_code import named, pass_interrupt

    try:
        pace = find_pace(
            spec,
            launch_directory=request.launch_directory,
            backend=request.backend,
            reads_state=request.reads_state,
            deterministic=play == "counted",
        )
    except BaseException as error:
        pass_interrupt(error)
        # Users' code may raise anything here, too; a fault in random play must not refuse a
        # launch.
        return {"message": named(error)}
    return {"pace": asdict(pace)}


def _answers(requests: Iterator[str]) -> Iterator[str]:
    """Answer the only request, as the child."""
    question = json.loads(next(requests))
    request = EnvironmentRequest(**question["facts"])
    found = _facts(request, question["code"])
    answer = asdict(found) if isinstance(found, Inspected) else found
    # The facts are sent before play, which may end the process.
    yield json.dumps(answer, allow_nan=False)
    if isinstance(found, Inspected) and question["play"] is not None:
        yield json.dumps(_pace(found.spec, request, play=question["play"]), allow_nan=False)


def import_all(references: Mapping[str, str], *, launch_directory: str) -> None:
    """Import all objects that a configuration names.

    Args:
        references: ``package.module:Name`` by the key that names it.
        launch_directory: Directory to put first on ``sys.path``.

    Raises:
        ConfigError: Names each key whose object is missing or cannot be imported.
    """
    faults = []
    for key, reference in references.items():
        try:
            resolve(reference, launch_directory=launch_directory)
        except ConfigError as error:
            faults.append(f"{key}: {error}")
    if faults:
        raise ConfigError("; ".join(faults))


def module_digests() -> dict[str, Digest]:
    """Return a digest of the source of each imported package or single module of users.

    Users' modules are those outside of installed packages, of Python and of Arena. A digest covers
    the
    imported modules of a package, not its other files.
    """
    files: dict[str, dict[str, Digest]] = defaultdict(dict)
    # The list is a copy, because an attribute access may import a lazy module.
    for name, module in list(sys.modules.items()):
        # `vars` is used, because a user's module may define `__getattr__`.
        path = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        # The child itself belongs to Arena; multiprocessing gives its module a second name.
        is_own = module is sys.modules["__main__"]
        if isinstance(path, str) and not is_own and owner_of(name, path) == "user":
            files[name.partition(".")[0]][name] = _digest(Path(path))
    return {name: canonical_digest(files[name]) for name in sorted(files)}


def _digest(path: Path) -> Digest:
    try:
        return Digest(hashlib.sha256(read_regular(path, limit_bytes=MAX_MODULE_BYTES)).hexdigest())
    # A module in an archive, or whose file was deleted, has no source to compare.
    except OSError:
        return Digest("")


if __name__ == "__main__":
    serve(_answers)
