"""Stand-in for the package `arena` where Python finds this folder in its place.

That is so beside a clone that is called `arena`: the folder has the name of the package in it.
"""

import importlib.util
import sys
from pathlib import Path

if __name__ == "arena":
    package = Path(__file__).parent / "arena"
    spec = importlib.util.spec_from_file_location(
        "arena", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    # The import that is under way returns what it finds here at its end.
    sys.modules["arena"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["arena"])
