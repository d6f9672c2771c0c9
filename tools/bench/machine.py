"""Facts about the machine that a table of ratios was measured on.

Tests: `tests/tools/bench/test_command.py`.
"""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from arena.config import NetworkConfig
from arena.learning.acting import product_dtype
from populations.config.resolve import usable_cores


def machine_facts(device: torch.device) -> dict[str, object]:
    """Return plain data: processor, cores this process may use, versions, bfloat16, GPU."""
    return {
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "bfloat16": has_bfloat16(device),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def has_bfloat16(device: torch.device) -> bool:
    """Return whether the hardware multiplies bfloat16 matrices itself; in software it is slower."""
    # "auto" takes bfloat16 only where the hardware has it.
    return product_dtype("auto", network=NetworkConfig(), device=device) is torch.bfloat16


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf8").splitlines()
    # Only Linux has this file.
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
