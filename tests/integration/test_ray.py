"""Runs whose learners are actors of Ray: nothing is left, nothing is lost, nobody can tell."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from experiments.faults.killing import counters
from populations.config.run_file import RUN_FILE, RunFile
from populations.launchers.ray_session import own_directory
from tests.faults.runs import events, finished
from tests.integration.conftest import ARENA, Command, launch_arguments, start
from tests.support import end_process, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.xdist_group("processes"),
    # The module is only looked up: every worker collects this file, and importing Ray takes a
    # second.
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
]

TIMEOUT_S = 120.0
GONE_S = 10.0
ON_RAY = ("launcher=ray", "--learners", "2")
FOR_EVER = "stop.agent_steps_per_policy=100000000"


def works(run: Path, process: subprocess.Popen[str]) -> None:
    """Wait until more is done."""
    before = finished(run)
    wait_until(
        lambda: finished(run) > before + 2 or process.poll() is not None, timeout_s=TIMEOUT_S
    )
    assert process.poll() is None, process.communicate()


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    found = psutil.Process(process.pid).children(recursive=True)
    names = " ".join(one.name() for one in found)
    assert "raylet" in names, names
    assert "gcs_server" in names, names
    assert any("arena.learners.process" in one.cmdline() for one in found)
    return found


def check_nothing_left(run: Path, processes: list[psutil.Process]) -> None:
    _, left = psutil.wait_procs(processes, timeout=GONE_S)
    assert not left
    directory = own_directory(RunFile.load(run / RUN_FILE).run)
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        assert str(directory) not in line, line
        assert str(run) not in line, line
    wait_until(lambda: not directory.exists(), timeout_s=GONE_S)


def test_a_run_on_a_ray_of_its_own_ends_as_any_other_and_leaves_nothing(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = start(launch_arguments(run, *ON_RAY, FOR_EVER))
    works(run, process)
    # Ray starts actors one by one, so the second one may come long after the first one's results.
    wait_until(lambda: len(events(run, "learner_joined")) == 2, timeout_s=TIMEOUT_S)
    directory = own_directory(RunFile.load(run / RUN_FILE).run)
    assert directory.stat().st_mode & 0o777 == 0o700
    processes = descendants(process)
    # All listening sockets are on loopback: Ray's, the controller's and the learners'.
    listening = [
        connection.laddr[0]
        for one in [psutil.Process(process.pid), *processes]
        if one.is_running()
        for connection in one.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    check_nothing_left(run, processes)
    arena("verify", run)
    rows = arena_json("league", run, "learners")["learners"]
    assert {row["slot"] for row in rows} == {0, 1}
    assert all(row["learner"].startswith(("slot0-", "slot1-")) for row in rows)
    assert (run / "logs" / "learner-1.log").exists()


def test_with_its_controller_a_ray_of_its_own_ends_and_the_run_goes_on_without_it(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = start(launch_arguments(run, *ON_RAY, FOR_EVER))
    works(run, process)
    processes = descendants(process)
    process.kill()
    process.communicate()
    check_nothing_left(run, processes)
    arena("verify", run)
    before = finished(run)
    more = ("launcher=local", "stop.agent_steps_per_policy=20000")
    arena("launch", "--resume", "--run-dir", run, *more)
    arena("verify", run)
    assert finished(run) > before
    assert arena_json("league", run, "status")["state"] == "finished"
    (changed,) = events(run, "configuration_changed")[:1]
    assert changed.data == {"launcher": ["ray", "local"]}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster without room for learners."""
    from ray.cluster_utils import Cluster

    # An earlier test in this process may have started Ray, which sets this variable to 0 and reads
    # it at import, so that no other node could join.
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "1")
    monkeypatch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", True)
    cluster = Cluster(initialize_head=True, head_node_args=node(num_cpus=0))
    yield cluster
    cluster.shutdown()


def node(**resources: object) -> dict[str, object]:
    return {"object_store_memory": 80 * 2**20, "include_dashboard": False, **resources}


GAME = """
from pettingzoo.classic import tictactoe_v3


def make(**kwargs):
    return tictactoe_v3.env(**kwargs)
"""


def unshared(hidden: Path, *command: str) -> list[str]:
    """A command that does not see a directory, as on another machine."""
    rights = () if os.geteuid() == 0 else ("--map-root-user",)
    hide = 'mount -t tmpfs none "$0" && exec "$@"'
    return ["unshare", "--mount", *rights, "sh", "-c", hide, str(hidden), *command]


@contextlib.contextmanager
def node_without(hidden: Path, *, address: str, cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A node that does not see a directory, and has the user's code in another one."""
    command = unshared(
        hidden,
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
        *("--address", address, "--num-cpus", "2", "--object-store-memory", str(80 * 2**20)),
        *("--min-worker-port", "0", "--max-worker-port", "0"),
        *("--resources", '{"simulator": 2}'),
    )
    process = subprocess.Popen(command, cwd=cwd, start_new_session=True)
    try:
        yield process
    finally:
        everything = psutil.Process(process.pid).children(recursive=True)
        for one in everything:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.kill()
        process.wait()
        psutil.wait_procs(everything, timeout=GONE_S)


@pytest.mark.skipif(
    subprocess.run(unshared(Path("/mnt"), "true"), capture_output=True, check=False).returncode
    != 0,
    reason="a directory is hidden in a mount namespace, which this user or system cannot have",
)
def test_on_nodes_that_see_nothing_of_the_run_weights_travel_by_the_store(
    arena: Command,
    arena_json: Callable[..., dict[str, Any]],
    cluster: Any,
    tmp_path: Path,
) -> None:
    hidden = tmp_path / "hidden"
    here, there = hidden / "here", tmp_path / "there"
    for directory in (here, there):
        directory.mkdir(parents=True)
        (directory / "my_game.py").write_text(GAME)
    run = here / "run"
    own = (
        *("environment.id=my_game:make", "environment.num_envs=4", "ray.custom={simulator: 1}"),
        # Young policies are hardly distinguishable, so copies would come late with a gate.
        "pbt.confidence=0",
    )
    with (
        node_without(hidden, address=cluster.address, cwd=there) as host,
        contextlib.ExitStack() as stack,
    ):
        process = subprocess.Popen(
            [*ARENA, *map(str, launch_arguments(run, *ON_RAY, FOR_EVER, *own))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=here,
            env={**os.environ, "RAY_ADDRESS": cluster.address},
        )
        stack.callback(end_process, process)

        def has_copied() -> bool:
            row = counters(run) if (run / RUN_FILE).exists() else None
            return process.poll() is not None or (row is not None and row.exploits > 0)

        wait_until(has_copied, timeout_s=2 * TIMEOUT_S)
        assert process.poll() is None, process.communicate()
        works(run, process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 130
        # The node is still present.
        left = psutil.Process(host.pid).children(recursive=True)
        assert left
        assert not [one for one in left if "arena.learners.process" in " ".join(one.cmdline())]
        session = Path(cluster.head_node.get_session_dir_path())
        wait_until(lambda: not list(session.glob("arena-*/*/learner")), timeout_s=GONE_S)
        (log, *_) = session.glob("logs/arena-*-learner-*.log")
        assert "Traceback" not in log.read_text()
    arena("verify", run)
    assert not events(run, "learner_refused", "learner_start_failed", "quarantined")
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for name in ("store/fetched_bytes", "store/given_bytes"):
        assert sum(float(row.get(name, 0.0)) for row in metrics) > 0.0
    assert "Traceback" not in (run / "logs" / "store.log").read_text()


def test_a_learner_whose_node_goes_waits_for_another_one(
    arena: Command,
    arena_json: Callable[..., dict[str, Any]],
    cluster: Any,
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    arguments = launch_arguments(run, *ON_RAY, FOR_EVER, "ray.custom={simulator: 1}")
    # The process runs as in a driver that `ray job submit` started.
    process = subprocess.Popen(
        [*ARENA, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "RAY_ADDRESS": cluster.address},
    )

    def waiting() -> object:
        path = run / "status.json"
        return json.loads(path.read_text()).get("learners_waiting") if path.exists() else None

    wait_until(lambda: waiting() == 2, timeout_s=TIMEOUT_S)
    shown = arena("league", run, "status").stdout
    assert "learners waiting" in shown
    assert "2 for a place to run" in shown
    assert "2 more wait for a place to run" in arena("league", run, "learners").stdout
    first = cluster.add_node(**node(num_cpus=2, resources={"simulator": 1}))
    wait_until(lambda: waiting() == 1, timeout_s=TIMEOUT_S)
    works(run, process)
    cluster.remove_node(first)
    wait_until(lambda: waiting() == 2, timeout_s=TIMEOUT_S)
    second = cluster.add_node(**node(num_cpus=2, resources={"simulator": 2}))
    wait_until(lambda: waiting() == 0, timeout_s=TIMEOUT_S)
    works(run, process)
    # The node is removed without a chance to report that it leaves.
    cluster.remove_node(second, allow_graceful=False)
    wait_until(lambda: waiting() == 2, timeout_s=TIMEOUT_S)
    cluster.add_node(**node(num_cpus=2, resources={"simulator": 2}))
    wait_until(lambda: waiting() == 0, timeout_s=TIMEOUT_S)
    works(run, process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 143
    arena("verify", run)
    assert {event.data["reason"] for event in events(run, "learner_lost")} == {"its node was lost"}
    assert not events(run, "learner_start_failed", "quarantined", "learner_dismissed")
    # The cluster still exists and has no learners.
    import ray

    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    try:
        wait_until(lambda: ray.available_resources().get("simulator") == 2.0, timeout_s=TIMEOUT_S)
    finally:
        ray.shutdown()
