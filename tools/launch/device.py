"""Check of the machine that a run is to use, before anything is started.

Tests: `tests/tools/launch/test_preflight.py`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from populations.config.run_config import RunConfig

_COUNT = "import torch; print(torch.cuda.device_count())"
# Importing torch from a slow disk takes long, and a broken driver may never answer.
_TIMEOUT_S = 120.0


def check_machine(config: RunConfig) -> None:
    """Refuse a device or a launcher that this machine lacks.

    Raises:
        ConfigError: Says what is missing.
    """
    from populations.launchers.ray_session import check_ray

    if config.launcher == "ray":
        # Devices are those of its nodes.
        check_ray(config.ray)
    else:
        check_devices(config.devices)


def check_devices(devices: Sequence[str]) -> None:
    """Refuse GPUs that torch cannot use here.

    Args:
        devices: Values of the configuration's key ``device``.

    Raises:
        ConfigError: Names the device and the GPUs that there are.
    """
    from arena.errors import ConfigError

    asked = [device for device in devices if device.startswith("cuda")]
    if not asked:
        return
    # Once for all: it takes a process that imports torch.
    num_gpus = count_gpus()
    for device in asked:
        if num_gpus == 0:
            raise ConfigError(
                f"device: {device} needs a GPU that torch can use, and torch finds none here (or "
                "does not answer); write device=cpu, or device=auto (a GPU where there is one)"
            )
        # "cuda" is the first one.
        index = int(device.partition(":")[2] or 0)
        if index >= num_gpus:
            last = f"cuda:{num_gpus - 1}"
            raise ConfigError(f"device: must be one of cuda:0 to {last} here, got {device}")


def count_gpus() -> int:
    """Count the GPUs that torch can use.

    0 also where torch cannot be imported, or does not answer within `_TIMEOUT_S`.
    """
    try:
        # A process of its own: the controller never imports torch.
        done = subprocess.run(
            [sys.executable, "-c", _COUNT],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 0
    # Warnings of drivers may be printed instead of a number.
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else 0
