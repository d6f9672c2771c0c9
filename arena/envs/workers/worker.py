"""Commands to a process that steps environments, carried out there. Torch-free.

Tests: `tests/arena/envs/workers/test_worker_envs.py`.
"""

from __future__ import annotations

import mmap
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from arena.envs.one_by_one.envs import OneByOne
from arena.envs.one_by_one.steppers import make_one_by_one
from arena.envs.workers.messages import (
    Answer,
    Channel,
    Close,
    Command,
    Error,
    ErrorKind,
    Make,
    Play,
)
from arena.envs.workers.shared_arrays import SharedArrays
from arena.envs.workers.shares import SharedRows, shared_rows
from arena.errors import ConfigError, EnvironmentFault, EnvironmentNotMade
from arena.users_code import encodable, is_exhaustion, message_of, pass_interrupt

MAX_TRACEBACK = 16_384
"""Number of characters of a traceback that are sent, from its end."""


class RecordedFaults:
    """Recorder of a share's faults in one call; the parent counts those of the whole batch.

    Attributes:
        most: Number of faults at which the call ends, because no more can be tolerated.
        found: Faults of this call.
    """

    def __init__(self) -> None:
        self.most = 0
        self.found: list[Error] = []

    def clear(self) -> None:
        """Do nothing, because each call begins with its own record."""

    def begin(self, most: int) -> None:
        """Begin a call."""
        self.most = most
        self.found = []

    def bear(self, fault: EnvironmentFault, *, stage: int, num_played: int) -> None:
        """Record a fault.

        Raises:
            EnvironmentFault: If the limit is exceeded.
        """
        self.found.append(_error(fault, stage=stage, num_played=num_played))
        if len(self.found) > self.most:
            raise fault


@dataclass(slots=True, kw_only=True)
class Share:
    """A share of a batch, as a worker holds it.

    Attributes:
        shared: Rows and actions of the share.
        envs: Environments of the share.
        faults: Faults of these environments.
    """

    shared: SharedRows
    envs: OneByOne
    faults: RecordedFaults


def serve(channel: Channel) -> None:
    """Carry out commands until the other end is closed; then close all environments."""
    shares: dict[int, Share] = {}
    try:
        while True:
            try:
                command, fd = channel.receive()
            except EOFError:
                break
            channel.send(_carry_out(command, fd, shares))
    finally:
        for share in shares.values():
            share.envs.close()
        channel.close()


def _carry_out(command: Command, fd: int | None, shares: dict[int, Share]) -> Answer:
    try:
        if isinstance(command, Make):
            assert fd is not None
            shares[command.batch] = _make(command, fd)
            return Answer()
        if isinstance(command, Close):
            # The share is removed first, so that environments that fail to close are not closed
            # again.
            if (closed := shares.pop(command.batch, None)) is not None:
                closed.envs.close()
            return Answer()
    # Environments are users' code and may also raise SystemExit.
    except BaseException as error:
        pass_interrupt(error)
        return Answer(error=_error(error))
    return _play(command, shares[command.batch])


def _make(command: Make, fd: int) -> Share:
    request = command.request
    memory = mmap.mmap(fd, 0)
    os.close(fd)
    arrays = SharedArrays(memory, num_envs=command.num_envs, first=command.first)
    shared = shared_rows(request, arrays, first=command.first)
    faults = RecordedFaults()
    envs = make_one_by_one(
        request, shared.buffers, faults=faults, on_step=_counter(shared.num_steps)
    )
    return Share(shared=shared, envs=envs, faults=faults)


def _counter(num_steps: npt.NDArray[np.int64]) -> Callable[[], object]:
    def count() -> None:
        num_steps[0] += 1

    return count


def _play(command: Play, share: Share) -> Answer:
    buffers, error = share.shared.buffers, None
    share.faults.begin(command.max_faults)
    try:
        share.envs.halt(command.halted)
        share.envs.resume(command.resumed)
        if command.phases:
            share.envs.tell(command.phases)
        if command.seeds is None:
            share.envs.step(share.shared.actions)
        else:
            share.envs.reset(command.seeds)
    except BaseException as raised:
        pass_interrupt(raised)
        error = _error(raised)
    return Answer(
        faults=tuple(share.faults.found),
        figures=tuple(buffers.figures.reports),
        has_void=buffers.has_void,
        num_played=share.envs.num_played,
        error=error,
    )


def _error(error: BaseException, *, stage: int = 0, num_played: int = 0) -> Error:
    return Error(
        kind=_kind(error),
        text=encodable(message_of(error)),
        traceback=encodable("".join(traceback.format_exception(error))[-MAX_TRACEBACK:]),
        stage=stage,
        num_played=num_played,
    )


def _kind(error: BaseException) -> ErrorKind:
    if is_exhaustion(error):
        return "exhaustion"
    if isinstance(error, EnvironmentNotMade):
        return "making"
    if isinstance(error, EnvironmentFault):
        return "environment"
    return "config" if isinstance(error, ConfigError) else "other"
