"""Runs every notebook of this folder from top to bottom, each in a fresh kernel and a temporary folder.

    python notebooks/execute.py [NAME ...]

The notebooks in the repository hold no outputs. An error in a cell ends the run with that cell's traceback.
"""

import pathlib
import sys
import tempfile
import time

import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).parent


def main(names: list[str]) -> int:
    """Executes the notebooks whose file names contain one of `names`, or all of them."""
    notebooks = [path for path in sorted(FOLDER.glob("*.ipynb")) if not names or any(n in path.name for n in names)]
    for path in notebooks:
        started = time.monotonic()
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}}).execute()
        print(f"{path.name}: {time.monotonic() - started:.0f} s", flush=True)
    return 0 if notebooks else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
