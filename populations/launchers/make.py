"""Construction of the configured launcher, with its learners' transport.

Tests: `tests/faults/test_addresses.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from arena.wire.address import default_endpoint, next_port
from arena.wire.in_memory import InMemoryHub
from arena.wire.keys import KEYS, ControllerKeys, make_keys
from arena.wire.transport import ControllerTransport
from arena.wire.zeromq import ZmqControllerTransport
from populations.config.run_config import RunConfig, ignore_notice
from populations.controller.server.run_directory import SETUP, OpenRun
from populations.core import Launcher
from populations.errors import StorageError
from populations.launchers.inline import InlineLauncher
from populations.launchers.local import LocalLauncher, slot_name
from populations.launchers.ray_launcher import RayLauncher
from populations.launchers.ray_session import ray_session
from populations.launchers.store_keeper import StoreKeeper

LINGER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """Ways between a controller and its learners.

    Attributes:
        transport: Messages.
        launcher: Processes.
        store_endpoint: Address at which checkpoints are served; None: all learners see them.
    """

    transport: ControllerTransport
    launcher: Launcher
    store_endpoint: str | None


@contextmanager
def make_launcher(
    run: OpenRun, *, notify: Callable[[str], None] = ignore_notice
) -> Iterator[Connections]:
    """Open transport, launcher and store for a run's next epoch; close all whatever happens.

    Args:
        run: Run that goes on.
        notify: Told of keys that had to be made anew.
    """
    make = {"inline": _inline, "local": _local, "ray": _on_ray}[run.run_file.config.launcher]
    with ExitStack() as stack:
        transport, launcher = stack.enter_context(make(run, notify))
        stack.callback(transport.close, linger_s=LINGER_S)
        stack.callback(launcher.close)
        store_endpoint = None
        if run.run_file.config.serves_store:
            store = StoreKeeper(
                setup_path=run.run_dir / SETUP,
                bind=_store_address(run.run_file.config, transport.endpoint),
                keys=run.run_dir / KEYS,
                log_path=run.run_dir / "logs" / "store.log",
            )
            store_endpoint = stack.enter_context(store).endpoint
        yield Connections(transport=transport, launcher=launcher, store_endpoint=store_endpoint)


Opened = tuple[ControllerTransport, Launcher]


@contextmanager
def _inline(run: OpenRun, notify: Callable[[str], None]) -> Iterator[Opened]:
    hub = InMemoryHub(run=run.run_file.run, epoch=_next_epoch(run))
    yield hub.controller, InlineLauncher(setup=run.setup, hub=hub)


@contextmanager
def _local(run: OpenRun, notify: Callable[[str], None]) -> Iterator[Opened]:
    endpoint = run.run_file.config.endpoint
    transport = ZmqControllerTransport(
        default_endpoint(run.run_file.run) if endpoint is None else endpoint,
        run=run.run_file.run,
        epoch=_next_epoch(run),
        keys=None if endpoint is None else _keys(run, slots=len(run.state.slots), notify=notify),
    )
    launcher = LocalLauncher(
        setup_path=run.run_dir / SETUP,
        endpoint=transport.endpoint,
        logs=run.run_dir / "logs",
        devices=run.run_file.config.devices,
        keys=None if endpoint is None else run.run_dir / KEYS,
    )
    yield transport, launcher


@contextmanager
def _on_ray(run: OpenRun, notify: Callable[[str], None]) -> Iterator[Opened]:
    config = run.run_file.config
    # Closed last: it ends what the launcher has left.
    with ray_session(run.run_file.run, config.ray) as session:
        transport = ZmqControllerTransport(
            config.endpoint or f"tcp://{session.host}:*",
            run=run.run_file.run,
            epoch=_next_epoch(run),
            # Each learner of a slot has a key of its own, which is in no file here.
            keys=_keys(run, slots=0, notify=notify),
        )
        launcher = RayLauncher(
            setup=run.setup,
            resources=config.ray,
            endpoint=transport.endpoint,
            logs=run.run_dir / "logs" if session.is_own else None,
            admit=transport.admit,
            forget=transport.forget,
        )
        yield transport, launcher


def _store_address(config: RunConfig, endpoint: str) -> str:
    """Return the address that the store listens on: beside the controller's, where none is set."""
    if config.store_endpoint is not None:
        return config.store_endpoint
    # The port that was asked for: one that the system has chosen has no neighbour to count on.
    asked = config.endpoint or endpoint
    return f"{asked.rsplit(':', 1)[0]}:*" if asked.endswith(":*") else next_port(asked)


def _next_epoch(run: OpenRun) -> int:
    """Return the epoch that the first event of the controller commits."""
    return run.state.tables.run.epoch + 1


def _keys(run: OpenRun, *, slots: int, notify: Callable[[str], None]) -> ControllerKeys:
    """Return the run's keys: those of earlier epochs, and new ones where keys are missing."""
    names = [slot_name(slot) for slot in range(slots)]
    names += [f"remote-{number}" for number in range(run.run_file.config.remote_learners)]
    directory = run.run_dir / KEYS
    try:
        keys = make_keys(directory, names=names)
    except OSError as error:
        raise StorageError(f"cannot write keys to {directory}: {error}") from error
    if keys.renewed:
        notify(
            f"warning: the controller's key was missing in {directory}, so the keys of "
            f"{', '.join(keys.renewed)} are made anew; files copied elsewhere must be copied again"
        )
    return keys
