"""``python -m arena.learners.process``: a learner as a process of its own.

Started by `arena.learners.spawn`, it does not outlive its parent (`arena.processes`).
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from pydantic import ValidationError

from arena.checkpoints.files import store_digest
from arena.config import LearnerSetup
from arena.errors import ArenaError, ConfigError
from arena.learners.loop import EXIT_CRASHED, LearnerLoop, MakeWork, make_worker, new_learner_id
from arena.learners.proof import check_code, prove
from arena.learners.remote import remote_work
from arena.learners.state import EXIT_DONE, EXIT_REFUSED, Patience
from arena.processes.bounded_log import open_shortened
from arena.processes.bursts import Bursts
from arena.processes.child import end_with_guard, give_way
from arena.processes.log import begin_log
from arena.rules import broken_rules
from arena.transfer.remote_store import Remote
from arena.wire.keys import load_learner_keys
from arena.wire.zeromq import ZmqLearnerTransport

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None, *, make_work: MakeWork = make_worker) -> int:
    """Run a learner from the command line; the exit code is returned."""
    options = _parse(argv)
    end_with_guard()
    begin_log()
    if options.nice:
        give_way(options.nice)
    faulthandler.enable()
    if options.stacks is not None:
        # The file stays open, because a hanging process can open no file and run no Python.
        faulthandler.register(signal.SIGUSR1, file=open_shortened(options.stacks), all_threads=True)
    try:
        setup = LearnerSetup.model_validate_json(Path(options.setup).read_bytes())
    except OSError as error:
        logger.error("%s is no learner's setup: %s", options.setup, error.strerror)
        return EXIT_REFUSED
    except ValidationError as error:
        logger.error("%s is no learner's setup: %s", options.setup, "; ".join(broken_rules(error)))
        return EXIT_REFUSED
    if options.device is not None:
        setup = setup.model_copy(update={"device": options.device})
    populations = tuple(name for name in options.populations.split(",") if name)
    remote = None
    if options.store is not None and store_digest(Path(setup.root)) is None:
        remote = Remote(endpoint=options.store, cache=options.cache, cache_mb=options.cache_mb)
    return serve(
        setup,
        endpoint=options.connect,
        populations=populations,
        keys=options.keys,
        remote=remote,
        make_work=make_work,
    )


def serve(
    setup: LearnerSetup,
    *,
    endpoint: str,
    populations: tuple[str, ...],
    keys: Path | None = None,
    remote: Remote | None = None,
    make_work: MakeWork = make_worker,
    patience: Patience | None = None,
) -> int:
    """Serve the controller at an endpoint; call it in the main thread of a process of its own.

    SIGTERM, SIGINT and SIGHUP end it with everything saved, a second one at once.

    Args:
        setup: Setup that `arena launch` wrote.
        endpoint: Endpoint of the controller.
        populations: Populations that it trains; empty: any.
        keys: Key file that `arena launch` made, where the controller wants keys.
        remote: Connection to the run's store; None: this process can read the run's directory.
        make_work: Function that makes the worker.
        patience: Waiting times.

    Returns:
        The exit code: 0 done, 128 + n done because of signal n, 75 to be started again (given up,
        of another epoch, or refused for a while), 2 refused or misconfigured, 1 anything else.
    """
    try:
        own = load_learner_keys(keys) if keys is not None else None
        if own is not None:
            # Check this before the worker is made, whose error would not name the directories
            # searched.
            check_code(setup)
        learner = new_learner_id(own.name if own is not None else None)
        if remote is not None:
            if own is None:
                raise ConfigError("a store on another machine needs a key (--keys)")
            make_work = remote_work(remote, make_work, learner=learner, keys=own)
        transport = ZmqLearnerTransport(endpoint, run=setup.run, learner=learner, keys=own)
        loop = LearnerLoop(
            setup,
            transport,
            populations,
            learner=learner,
            make_work=make_work,
            # Only runs with keys can be joined by others, so only they need a proof.
            prove=None if own is None else partial(prove, setup=setup),
            patience=patience,
            # Users' code in the working thread cannot be interrupted, so cleanup must not wait for
            # it.
            cut_off=os._exit,
        )
        told = stop_on_signals(loop)
        code = loop.run()
        # A process that a signal ended exits with 128 + n, even with everything saved.
        return 128 + told[0] if told and code == EXIT_DONE else code
    except ConfigError as error:
        logger.error("%s", error)
        return EXIT_REFUSED
    except ArenaError:
        logger.exception("the learner could not start")
        return EXIT_CRASHED


def stop_on_signals(loop: LearnerLoop) -> list[int]:
    """Request the loop's stop on termination signals; return the list of received signals.

    Main thread only.
    """
    told: list[int] = []
    bursts = Bursts()

    def stop(number: int, frame: FrameType | None) -> None:
        if not bursts.is_new(number):
            return
        told.append(number)
        loop.request_stop(signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    return told


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="arena.learners.process", allow_abbrev=False)
    parser.add_argument("--setup", required=True, help="a LearnerSetup as JSON")
    parser.add_argument("--connect", required=True, help="the controller's endpoint")
    parser.add_argument("--keys", type=Path, help="a learner's key file")
    parser.add_argument("--store", help="the store's endpoint, if the run's directory is not seen")
    parser.add_argument("--cache", type=Path, help="directory for copies of its checkpoints")
    parser.add_argument("--cache-mb", type=int, help="bound of these, in MB")
    parser.add_argument("--stacks", type=Path, help="SIGUSR1 appends all stacks to this file")
    parser.add_argument("--populations", default="", help="comma-separated; default: any")
    parser.add_argument("--device", help="device; default: the setup's")
    parser.add_argument("--nice", type=int, default=0, help="priority that it gives up, 0 to 19")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
