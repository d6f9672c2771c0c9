from __future__ import annotations

import importlib.metadata

from arena.learners.versions import RECORDED_PACKAGES, differences, installed, pip_command, told


def test_installed_versions_are_those_that_pip_knows_without_absent_packages() -> None:
    found = installed(("torch", "no-such-package"))
    assert found == {"torch": importlib.metadata.version("torch")}
    assert installed(RECORDED_PACKAGES).keys() >= {"arena-league", "torch", "numpy", "pettingzoo"}


def test_differences_are_those_of_recorded_packages() -> None:
    recorded = {"torch": "2.13.0", "numpy": "2.4.0", "mpe2": "0.0.1"}
    different = differences(recorded, {"torch": "2.12.1", "numpy": "2.4.0", "scipy": "1.0"})
    assert different == {"torch": ("2.13.0", "2.12.1"), "mpe2": ("0.0.1", None)}
    assert told(different, place="here") == "torch 2.13.0 (here 2.12.1), mpe2 0.0.1 (here none)"
    assert pip_command(different) == "pip install torch==2.13.0 mpe2==0.0.1"
