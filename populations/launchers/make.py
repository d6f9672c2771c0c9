"""Construction of the configured launcher, with its learners' transport.

Tests: `tests/faults/test_addresses.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from arena.wire.address import default_endpoint
from arena.wire.in_memory import InMemoryHub
from arena.wire.keys import KEYS, ControllerKeys, make_keys
from arena.wire.transport import ControllerTransport
from arena.wire.zeromq import ZmqControllerTransport
from populations.config.run_config import ignore_notice
from populations.controller.server.run_directory import SETUP, OpenRun
from populations.core import Launcher
from populations.errors import StorageError
from populations.launchers.inline import InlineLauncher
from populations.launchers.local import LocalLauncher, slot_name

LINGER_S = 1.0


@contextmanager
def make_launcher(
    run: OpenRun, *, notify: Callable[[str], None] = ignore_notice
) -> Iterator[tuple[ControllerTransport, Launcher]]:
    """Open transport and launcher for a run's next epoch; close both whatever happens.

    Args:
        run: Run that goes on.
        notify: Told of keys that had to be made anew.
    """
    run_id = run.run_file.run
    # The epoch that the first event of the controller commits.
    epoch = run.state.tables.run.epoch + 1
    transport: ControllerTransport
    launcher: Launcher
    if run.run_file.config.launcher == "inline":
        hub = InMemoryHub(run=run_id, epoch=epoch)
        transport = hub.controller
        launcher = InlineLauncher(setup=run.setup, hub=hub)
    else:
        endpoint = run.run_file.config.endpoint
        transport = ZmqControllerTransport(
            default_endpoint(run_id) if endpoint is None else endpoint,
            run=run_id,
            epoch=epoch,
            keys=None if endpoint is None else _keys(run, notify=notify),
        )
        launcher = LocalLauncher(
            setup_path=run.run_dir / SETUP,
            endpoint=transport.endpoint,
            logs=run.run_dir / "logs",
            devices=run.run_file.config.devices,
            keys=None if endpoint is None else run.run_dir / KEYS,
        )
    try:
        yield transport, launcher
    finally:
        launcher.close()
        transport.close(linger_s=LINGER_S)


def _keys(run: OpenRun, *, notify: Callable[[str], None]) -> ControllerKeys:
    """Return the run's keys: those of earlier epochs, and new ones where keys are missing."""
    names = [slot_name(slot) for slot in range(len(run.state.slots))]
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
