"""Bad luck of networks, hosts and disks, one regime each."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.faults.hosts.network import CONTROLLER
from experiments.faults.hosts.sandbox import fill_disk
from experiments.faults.hosts.world import OVERRIDES, PORT, World

CUT_S = 60.0
STORE = "arena.transfer.process"
STORE_EVERY_S = 3.0
NUM_KILLS = 3
LOSS_PERCENT = 2
SLOW_KBIT = 1000
BIG = tuple(change for change in OVERRIDES if "hidden_sizes" not in change)
"""With the preset's networks, whose checkpoints have a megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """Events in a run, and their place.

    Attributes:
        body: Function that does it; the run goes on before and after.
        num_hosts: Hosts of learners, beside the controller's.
        delay_ms: Delay of each frame, each way.
        run_disk_mb: Size of the run's disk; None: the machine's.
        cache_disk_mb: Size of the learners' disks; None: the machine's.
        overrides: Changes of the preset.
    """

    body: Callable[[World], None]
    num_hosts: int = 2
    delay_ms: float = 0.0
    run_disk_mb: int | None = None
    cache_disk_mb: int | None = None
    overrides: Sequence[str] = OVERRIDES


def nothing(world: World) -> None:
    """Let it train."""
    world.pause(1.0)


def lose_frames(world: World) -> None:
    """Lose some frames of every host, both ways."""
    for host in world.learners:
        world.network.drop(at=CONTROLLER, source=host, percent=LOSS_PERCENT)
        world.network.drop(at=host, source=CONTROLLER, percent=LOSS_PERCENT)
    world.pause(1.0)


def slow_link(world: World) -> None:
    """Give one host a slow line."""
    world.network.limit(_first(world), kbit=SLOW_KBIT)
    world.pause(1.0)


def partition(world: World) -> None:
    """Cut one host off for a minute."""
    _without(world, lambda: world.network.cut(_first(world)))


def one_way(world: World) -> None:
    """Lose all that goes to one host for a minute, and then all that comes from it."""
    host = _first(world)
    _without(world, lambda: world.network.drop(at=host, source=CONTROLLER), share=0.5)
    _without(world, lambda: world.network.drop(at=CONTROLLER, source=host), share=0.5)


def cut_store(world: World) -> None:
    """Let one host reach the controller but not the checkpoints, for a minute and a half."""
    host = _first(world)
    _without(
        world,
        lambda: world.network.drop(at=CONTROLLER, source=host, port=PORT + 1),
        seconds=1.5 * CUT_S,
    )


def flapping(world: World) -> None:
    """Cut all hosts off for a quarter of a minute, again and again."""
    for _ in range(max(round(2 * world.minutes), 1)):
        for host in world.learners:
            world.network.cut(host)
        world.pause_s(CUT_S / 4)
        world.network.heal()
        world.pause_s(CUT_S / 4)
    world.note("back_s", world.await_work())


def kill_host(world: World) -> None:
    """Kill all processes of one host at once."""
    for _ in range(NUM_KILLS):
        world.pause(1.0 / NUM_KILLS)
        world.note("killed", world.network.kill_all(_first(world)))
        world.note("back_s", world.await_work())


def kill_controller(world: World) -> None:
    """Kill the controller, its learner and the store's process with it, and resume."""
    for _ in range(NUM_KILLS):
        world.pause(1.0 / NUM_KILLS)
        world.run.kill("controller", random.Random(0))
        world.note("back_s", world.await_work())


def kill_store(world: World) -> None:
    """Kill the store's process every few seconds."""
    killed = 0
    for _ in range(int(60.0 * world.minutes / STORE_EVERY_S)):
        world.pause_s(STORE_EVERY_S)
        for process in world.network.processes(CONTROLLER):
            if STORE in process.cmdline():
                process.kill()
                killed += 1
    world.note("killed", killed)
    world.note("back_s", world.await_work())


def fill_learners_disk(world: World) -> None:
    """Leave one learner no room for checkpoints, for a third of the time."""
    _without_room(world, lambda: fill_disk(world.learners[_first(world)].cache))


def fill_runs_disk(world: World) -> None:
    """Leave the run no room, for a third of the time."""
    _without_room(world, lambda: fill_disk(world.run.run.parent))


def _first(world: World) -> str:
    return next(iter(world.learners))


def _without(
    world: World, cut: Callable[[], None], *, share: float = 1.0, seconds: float = CUT_S
) -> None:
    """Let a cut last for a while, and see when all hosts work again."""
    world.pause(0.25 * share)
    before = world.finished()
    cut()
    world.pause_s(seconds)
    meanwhile = world.finished()
    world.network.heal()
    world.note("meanwhile", dict(meanwhile - before))
    world.note("back_s", world.await_work())
    world.pause(0.25 * share)


def _without_room(world: World, fill: Callable[[], Path]) -> None:
    """Fill a disk for a third of the time, and see when all hosts work again."""
    world.pause(1 / 3)
    before = world.finished()
    ballast = fill()
    world.pause(1 / 3)
    world.note("meanwhile", dict(world.finished() - before))
    ballast.unlink()
    world.note("back_s", world.await_work())
    world.pause(1 / 3)


REGIMES = {
    "none": Regime(body=nothing),
    "delay": Regime(body=nothing, delay_ms=40.0),
    "loss": Regime(body=lose_frames),
    "slow": Regime(body=slow_link, overrides=BIG),
    "partition": Regime(body=partition),
    "one_way": Regime(body=one_way, num_hosts=1),
    "store_cut": Regime(body=cut_store),
    "flapping": Regime(body=flapping),
    "host_killed": Regime(body=kill_host),
    "controller_killed": Regime(body=kill_controller),
    "store_killed": Regime(body=kill_store),
    "learner_disk": Regime(body=fill_learners_disk, cache_disk_mb=64),
    "run_disk": Regime(body=fill_runs_disk, run_disk_mb=256),
}
