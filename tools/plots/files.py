"""Files of plots: equal documents give equal bytes.

Tests: `tests/tools/plots/test_files.py`.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import matplotlib as mpl

from arena.errors import ConfigError

from .kinds import Documents, Plot
from .style import STYLE

# Without them a file would say when it was made.
METADATA: dict[str, dict[str, str | None]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def write_plot(plot: Plot, documents: Documents, file: Path) -> None:
    """Draw a plot into a file, which is replaced at once if it exists.

    Args:
        plot: Plot to draw.
        documents: Documents that it takes.
        file: File whose suffix is one of `SUFFIXES`.

    Raises:
        ConfigError: If there is nothing to draw yet, or the file cannot be written.
    """
    kind = file.suffix.lower().removeprefix(".")
    # Two commands may write at once, and a reader sees the old file or the new one.
    temporary = file.with_name(f".{file.name[:100]}.{os.getpid()}.tmp")
    with mpl.rc_context(), warnings.catch_warnings():
        # A user's matplotlibrc would change the file.
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        # A name in a script that the font lacks is shown as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        figure = plot.draw(documents)
        try:
            figure.savefig(temporary, format=kind, metadata=METADATA[kind])
            os.replace(temporary, file)
        except OSError as error:
            raise ConfigError(f"--plot {file} cannot be written: {error.strerror}") from error
        finally:
            temporary.unlink(missing_ok=True)
