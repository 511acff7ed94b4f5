"""What every Ray worker of a run does first, on whichever node it is started.

Ray runs `enter_project_folder` by name (`worker_process_setup_hook`). It imports nothing, so it
costs nothing.
"""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def enter_project_folder() -> None:
    """Work in the project's folder: paths in a recipe are relative to it.

    A worker of a Ray that was started by hand begins in the folder where that was done.
    """
    os.chdir(ROOT)
