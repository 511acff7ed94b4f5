"""What every Ray worker of a run does first, on every node.

Ray runs `enter_project_folder` by name (`worker_process_setup_hook`). The module imports no
library, so this takes no time.
"""

import os

from seal import ROOT


def enter_project_folder() -> None:
    """Work in the project's folder, because paths in a recipe are relative to it.

    If Ray was started by hand, its workers begin in the folder where that was done.
    """
    os.chdir(ROOT)
