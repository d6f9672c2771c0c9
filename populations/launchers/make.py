"""The launcher that the configuration names, with the transport that its learners use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from arena.wire.address import default_endpoint
from arena.wire.in_memory import InMemoryHub
from arena.wire.transport import ControllerTransport
from arena.wire.zeromq import ZmqControllerTransport
from populations.controller.run import SETUP, OpenRun
from populations.core import Launcher
from populations.launchers.inline import InlineLauncher
from populations.launchers.local import LocalLauncher

LINGER_S = 1.0


@contextmanager
def make_launcher(run: OpenRun) -> Iterator[tuple[ControllerTransport, Launcher]]:
    """Open transport and launcher for a run's next epoch; close both whatever happens."""
    run_id = run.run_file.run
    epoch = run.state.tables.run.epoch + 1
    transport: ControllerTransport
    launcher: Launcher
    if run.run_file.config.launcher == "inline":
        hub = InMemoryHub(run=run_id, epoch=epoch)
        transport = hub.controller
        launcher = InlineLauncher(setup=run.setup, hub=hub)
    else:
        transport = ZmqControllerTransport(default_endpoint(run_id), run=run_id, epoch=epoch)
        launcher = LocalLauncher(
            setup_path=run.run_dir / SETUP,
            endpoint=transport.endpoint,
            logs=run.run_dir / "logs",
        )
    try:
        yield transport, launcher
    finally:
        launcher.close()
        transport.close(linger_s=LINGER_S)
