"""The README's Python, as printed, in a notebook."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from experiments.faults.killing import processes_of

README = Path(__file__).parents[3] / "README.md"


def printed() -> str:
    (code,) = re.findall(
        r"```python\n(import numpy as np\nimport arena\n.*?)```", README.read_text(), re.S
    )
    return str(code)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(300)
def test_the_readmes_python_runs_in_a_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    # A cell for each paragraph, as one would type it.
    cells = [nbformat.v4.new_code_cell(cell) for cell in printed().split("\n\n")]
    last = "import json; print(json.dumps([curve, copies, masks.shape, result['matches']]))"
    cells.append(nbformat.v4.new_code_cell(last))
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = [
        "".join(output.text for output in cell.outputs if output.name == "stdout")
        for cell in notebook.cells
    ]
    assert said[1] == "running\n"
    assert len(said[2].splitlines()) == 3
    actions, value = said[3].splitlines()[0].split("] [")
    assert len(actions.strip("[").split()) == len(value.strip("]").split()) == 5
    assert said[4].split()[0] in ("runs/notebook", "bot:random")
    assert said[5].endswith("[5, 9], 100]\n")
    assert not processes_of(tmp_path / "runs" / "notebook")
