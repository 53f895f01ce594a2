"""Runs the notebooks from top to bottom, and writes them with their outputs.

Rule: an output has nothing that differs in the next run for no reason: no times, no random ids, no log of Spark.

    python tools/run_notebooks.py                       # all of notebooks/, in place: make notebooks
    python tools/run_notebooks.py --to FOLDER 01_first_steps.ipynb"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
CELL_TIMEOUT_S = 1500


def main():
    parser = argparse.ArgumentParser(description="run the notebooks and write their outputs")
    parser.add_argument("--to", type=Path, default=NOTEBOOKS, help="the folder to write to")
    parser.add_argument("names", nargs="*", help="notebooks, all by default")
    given = parser.parse_args()
    for name in given.names or sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            try:
                execute(notebook, folder)
            except CellExecutionError as error:
                print("{}: {}".format(name, error), file=sys.stderr)
                return 1
        nbformat.write(tidy(notebook), given.to / name)
        print("{} is written".format(name))
    return 0


def execute(notebook, folder):
    """Run all cells in a new kernel, whose working directory is ``folder``."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    client = NotebookClient(
        notebook, timeout=CELL_TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    client.execute(env=environment)


def tidy(notebook):
    """Returns the notebook without anything that differs in each run."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = "cell-{}".format(number)
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = merged([output for output in cell.outputs if output.get("name") != "stderr"])
    return notebook


def merged(outputs):
    """Returns the outputs, with neighbouring pieces of standard output joined."""
    found = []
    for output in outputs:
        if found and output.output_type == found[-1].output_type == "stream":
            found[-1].text += output.text
        else:
            found.append(output)
    return found


if __name__ == "__main__":
    sys.exit(main())
