"""The notebooks as they lie in the repository: complete outputs, public names, links that lead somewhere."""

from __future__ import annotations

import ast
import json
import re

import pytest

from tests.support.imports import PACKAGES, ROOT
from tests.support.notebooks import NOTEBOOKS, outputs, sources

PUBLIC = {"sharegroup", "sharegroup.testing"}
PICTURES = {
    "01_first_steps": 1,
    "02_watching_a_group": 2,
    "03_poison_and_dead_letters": 1,
    "04_scoring_with_a_slow_service": 1,
}


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_all_cells_have_run_in_order_without_an_error(path, notebook):
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert {output["output_type"] for output in outputs(notebook)} <= {"stream", "display_data"}
    assert not [output for output in outputs(notebook) if output.get("name") == "stderr"]
    pictures = [output for output in outputs(notebook) if "image/png" in output.get("data", {})]
    assert len(pictures) == PICTURES.get(path.stem, 0)


def test_no_output_names_a_path_or_a_process(notebook):
    said = json.dumps([{**each, "data": ""} for each in outputs(notebook)])
    assert not re.search(r"/(?:tmp|home|root|work|var)/|pid|0x[0-9a-f]{6}", said)


def test_a_notebook_imports_public_names_alone(notebook):
    ours = (*PACKAGES, "tests")
    found = set()
    for code in sources(notebook, "code"):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module)
    assert {module for module in found if module.split(".")[0] in ours} <= PUBLIC


def test_links_lead_somewhere(path, notebook):
    targets = re.findall(r"\]\(([^)#\s]+)", "\n".join(sources(notebook, "markdown")))
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_readme_names_each_notebook():
    readme = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\((\d\d_\w+\.ipynb)\)", readme) == [path.name for path in NOTEBOOKS]
