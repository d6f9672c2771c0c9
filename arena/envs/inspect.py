"""Finds the facts about an environment without importing it here.

A short-lived child makes the environment (``python -m arena.envs.inspect``: a request as JSON on
standard input, the answer as JSON on standard output), so that the controller stays free of
PettingZoo and survives whatever an environment does. This module imports nothing heavy.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from arena.envs.spec import AgentSpec, EnvironmentSpec
from arena.errors import ArenaError, ConfigError, EnvironmentFault, EnvironmentUnavailable

ERRORS: Mapping[str, type[ArenaError]] = {
    error.__name__: error for error in (ConfigError, EnvironmentFault, EnvironmentUnavailable)
}
NUM_LAST_LINES = 20
"""Of the child's standard error that are shown if it dies."""


def inspect_environment(
    environment_id: str,
    *,
    kwargs: Mapping[str, object],
    launch_directory: str,
    backend: str = "auto",
    possible_agents: Sequence[str] | None = None,
    reads_state: bool = False,
    timeout_s: float = 60.0,
) -> EnvironmentSpec:
    """Find the facts about an environment.

    Args:
        environment_id: A PettingZoo registry id, or ``package.module:factory``.
        kwargs: For its factory; plain data.
        launch_directory: First on the child's ``sys.path``.
        backend: ``environment.backend``, which must be there.
        possible_agents: ``environment.possible_agents``.
        reads_state: Whether a value network reads ``state()``.
        timeout_s: For all of it.

    Raises:
        EnvironmentUnavailable: If there is no such id, or a package is missing.
        ConfigError: If it cannot be made, or has agents or spaces that Arena cannot train, or no
            state where one is read.
        EnvironmentFault: If its reset fails, or the child dies or takes too long.
    """
    try:
        request = json.dumps(
            {
                "environment_id": environment_id,
                "kwargs": dict(kwargs),
                "launch_directory": launch_directory,
                "backend": backend,
                "possible_agents": None if possible_agents is None else list(possible_agents),
                "reads_state": reads_state,
            },
            allow_nan=False,
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"environment.kwargs must be plain data: {error}") from None
    answer = _ask_child(request, environment_id=environment_id, timeout_s=timeout_s)
    if "error" in answer:
        raise ERRORS[answer["error"]](answer["message"])
    return _spec_from_json(answer["spec"])


def _ask_child(request: str, *, environment_id: str, timeout_s: float) -> dict[str, Any]:
    child = subprocess.Popen(
        [sys.executable, "-m", "arena.envs.inspect"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf8",
        errors="replace",
        # A group of its own: what the environment starts goes when the child goes.
        start_new_session=True,
    )
    try:
        output, errors = child.communicate(request, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise EnvironmentFault(
            f"environment {environment_id} was not made and reset within {timeout_s:g} s"
        ) from None
    finally:
        _kill_group(child)
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError:
        raise EnvironmentFault(
            f"environment {environment_id} ended the process that inspected it "
            f"({_ending(child.returncode)}): {_last_lines(errors)}"
        ) from None
    return answer


def _kill_group(child: subprocess.Popen[str]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # all of them have ended
    finally:
        child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()


def _ending(returncode: int) -> str:
    return f"exit code {returncode}" if returncode >= 0 else signal.Signals(-returncode).name


def _last_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-NUM_LAST_LINES:]) or "it said nothing"


def _spec_from_json(spec: dict[str, Any]) -> EnvironmentSpec:
    return EnvironmentSpec(
        id=spec["id"],
        kwargs=spec["kwargs"],
        api=spec["api"],
        agents=tuple(spec["agents"]),
        agent_specs={name: AgentSpec(**facts) for name, facts in spec["agent_specs"].items()},
        versions=spec["versions"],
        state=spec["state"],
    )


def _answer(request: Mapping[str, Any]) -> dict[str, object]:
    from arena.envs.facts import environment_facts

    try:
        spec = environment_facts(**request)
    except tuple(ERRORS.values()) as error:
        return {"error": type(error).__name__, "message": str(error)}
    except Exception as error:
        # The child's boundary: a user's environment may raise anything from anywhere.
        trace = "".join(traceback.format_exception(error))
        message = f"inspecting environment {request['environment_id']} failed:\n{trace}"
        return {"error": EnvironmentFault.__name__, "message": message}
    return {"spec": asdict(spec)}


def _serve() -> None:
    """Be the child. Whatever the environment prints goes to standard error."""
    with os.fdopen(os.dup(1), "w", encoding="utf8") as output:
        os.dup2(2, 1)
        answer = _answer(json.load(sys.stdin))
        json.dump(answer, output, allow_nan=False)
    # An environment may leave threads behind that would keep the interpreter from ending.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    _serve()
