"""Construction of the configured launcher, with its learners' transport.

Tests: `tests/faults/test_two_at_once.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

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


Connections = tuple[ControllerTransport, Launcher, StoreKeeper | None]
"""Transport of messages, launcher of learners, and the process that serves checkpoints; None: all
learners can read the run's directory."""


@contextmanager
def make_launcher(
    run: OpenRun, *, notify: Callable[[str], None] = ignore_notice
) -> Iterator[Connections]:
    """Open transport, launcher and store for a run's next epoch, and close all of them at the end.

    Args:
        run: Run that begins or is resumed.
        notify: Function that gets a message if keys had to be made anew.
    """
    connect = {"inline": _inline, "local": _local, "ray": _on_ray}[run.run_file.config.launcher]
    with ExitStack() as stack:
        transport, launcher, store = connect(run, stack, notify)
        # The stack unwinds in reverse order, so learners end before transport and store.
        stack.callback(launcher.close)
        yield transport, launcher, store


def _inline(run: OpenRun, stack: ExitStack, notify: Callable[[str], None]) -> Connections:
    hub = InMemoryHub(run=run.run_file.run, epoch=_next_epoch(run))
    stack.callback(hub.controller.close, linger_s=LINGER_S)
    launcher = InlineLauncher(setup=run.setup, hub=hub)
    return hub.controller, launcher, None


def _local(run: OpenRun, stack: ExitStack, notify: Callable[[str], None]) -> Connections:
    config = run.run_file.config
    endpoint = config.endpoint
    transport = ZmqControllerTransport(
        default_endpoint(run.run_file.run) if endpoint is None else endpoint,
        run=run.run_file.run,
        epoch=_next_epoch(run),
        keys=None
        if endpoint is None
        else _keys(run, slots=len(run.state.crew.slots), notify=notify),
    )
    stack.callback(transport.close, linger_s=LINGER_S)
    store = _store(run, transport, stack) if config.serves_store else None
    launcher = LocalLauncher(
        setup_path=run.run_dir / SETUP,
        endpoint=transport.endpoint,
        logs=run.run_dir / "logs",
        devices=config.devices,
        nice=config.learner_nice,
        keys=None if endpoint is None else run.run_dir / KEYS,
    )
    return transport, launcher, store


def _on_ray(run: OpenRun, stack: ExitStack, notify: Callable[[str], None]) -> Connections:
    config = run.run_file.config
    # The session is entered first, so that it is closed last: it ends what the launcher left over.
    host, is_own = stack.enter_context(ray_session(run.run_file.run, config.ray))
    transport = ZmqControllerTransport(
        config.endpoint or f"tcp://{host}:*",
        run=run.run_file.run,
        epoch=_next_epoch(run),
        # Each started learner gets its own key by `admit`, so no key files of slots are needed.
        keys=_keys(run, slots=0, notify=notify),
    )
    stack.callback(transport.close, linger_s=LINGER_S)
    store = _store(run, transport, stack)

    def admit(name: str) -> str:
        text = transport.admit(name)
        store.admit_only(transport.admitted)
        return text

    def forget(name: str) -> None:
        transport.forget(name)
        store.admit_only(transport.admitted)

    launcher = RayLauncher(
        setup=run.setup,
        resources=config.ray,
        endpoint=transport.endpoint,
        store=store.endpoint,
        logs=run.run_dir / "logs" if is_own else None,
        admit=admit,
        forget=forget,
    )
    return transport, launcher, store


def _store(run: OpenRun, transport: ZmqControllerTransport, stack: ExitStack) -> StoreKeeper:
    """Start the process that serves checkpoints to learners which cannot read the run directory."""
    keeper = StoreKeeper(
        setup_path=run.run_dir / SETUP,
        bind=_store_address(run.run_file.config, transport.endpoint),
        keys=run.run_dir / KEYS,
        admitted=transport.admitted,
        log_path=run.run_dir / "logs" / "store.log",
    )
    return stack.enter_context(keeper)


def _store_address(config: RunConfig, endpoint: str) -> str:
    """Return the address of the store: as configured, or the port after the controller's."""
    if config.store_endpoint is not None:
        return config.store_endpoint
    # Next to a port chosen by the system the following one may be in use, so it is chosen, too.
    if config.endpoint is None or config.endpoint.endswith(":*"):
        return f"{endpoint.rpartition(':')[0]}:*"
    return next_port(config.endpoint)


def _next_epoch(run: OpenRun) -> int:
    """Return the epoch of the controller that is about to start."""
    return run.state.tables.run.epoch + 1


def _keys(run: OpenRun, *, slots: int, notify: Callable[[str], None]) -> ControllerKeys:
    """Return the run's keys: existing ones from earlier epochs, and new ones for missing keys."""
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
