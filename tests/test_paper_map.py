"""docs/paper_map.md has a row for every method that a table of the paper names."""

import re
from pathlib import Path

import pytest

from metareplay.learner.methods import METHODS
from metareplay.paper.tables import paper_tables

PAGE = (Path(__file__).parents[1] / "docs" / "paper_map.md").read_text(encoding="utf-8")
SYSTEMS = """
PR-Dirac, PR-Exp, PR-Imp, EWC-growing, EWC-multihead, VCL-multihead, SP-Dirac, SP-Exp, PR-Exp-BW, PR-Exp-CS, DGR,
HNET+R, EBM, PR-BbB, PR-Radial, PR-AVB, PR-SSGE, EWC, VCL, PF-AVB, PF-SSGE, SP-BbB, SP-AVB, PF-AVB-multihead,
PF-SSGE-multihead, EWC-shared, PR-BbB-BW, PR-BbB-CS, Exp-Replay, PR-Dirac-SR, PR-BbB-SR, SP-SSGE, SP-TC-Dirac,
SP-TC-BbB, SI-growing, HNET+TIR, Fine-Tuning, VCL-growing, EWC-Dirac, HNET Fine-Tuning
"""
"""The methods of all tables of the paper; footnotes (a star, a number) only say where a figure comes from."""
NAMES = [name.strip() for name in SYSTEMS.replace("\n", " ").split(",")]


def rows() -> dict[str, str]:
    """The names of the table of systems, each with its row."""
    section = PAGE.partition("## Systems\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return {name.strip(): line for line in lines for name in line.split("|")[1].split(",")}


@pytest.mark.parametrize("name", NAMES)
def test_every_method_of_the_paper_has_a_row(name: str) -> None:
    assert name in rows()


def test_rows_name_methods_that_exist() -> None:
    for name, line in rows().items():
        for method in re.findall(r"`([a-z0-9+-]+)`", line.split("|")[2]):
            assert method in METHODS, name


def test_the_list_has_every_row_that_can_be_reproduced() -> None:
    of_tables = {row.paper.strip("*") for table in paper_tables().values() for row in table.rows}
    known = {*NAMES, "Uncertainty and loss"}  # task boundaries, which are not a method
    assert sorted(of_tables - known) == []
