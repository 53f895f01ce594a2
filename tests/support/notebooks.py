"""The notebooks, read without Jupyter."""

from __future__ import annotations

from typing import Any

from tests.support.imports import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def sources(notebook: dict[str, Any], kind: str) -> list[str]:
    """The text of each cell of a kind: code or markdown."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def outputs(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """The outputs of all cells, in order."""
    return [output for cell in notebook["cells"] for output in cell.get("outputs", [])]


def texts(notebook: dict[str, Any]) -> list[str]:
    """The printed text of each cell that has printed something."""
    return ["".join(output["text"]) for output in outputs(notebook) if output["output_type"] == "stream"]
