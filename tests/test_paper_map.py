"""docs/paper_map.md has a row for every method that a table of the paper names, and every equation and table."""

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
LABELS = """
eq:avb:discriminator:loss eq:cl:wo:cs:approx eq:hessian:fisher:prior eq:hessian:sum eq:hnet:reg
eq:hnet:reg:analytic:divergence eq:hnet:reg:l2 eq:kirkpatrick eq:kirkpatrick:multi eq:nll:classification
eq:nll:regression eq:post:two:tasks eq:sample:approx sm:eq:coresets sm:eq:elbo sm:eq:elbo:grad
sm:eq:entropy:decomposition sm:eq:ewc:constructed sm:eq:fisher:hessian:relation sm:eq:hnet:reg:distribution:space
sm:eq:kl:taylor sm:eq:pred:dist:mc sm:eq:reg:tgt sm:eq:reparam:trick sm:eq:reparam:trick:radial sm:eq:ssge
sm:eq:taylor sm:tab:acronyms sm:tab:gmm sm:tab:gral:hpsearch sm:tab:perm100 sm:tab:perm10:arch:large:mlp
sm:tab:perm10:arch:small:mlp sm:tab:regression sm:tab:runtimes sm:tab:split:arch:default:mlp
sm:tab:split:arch:default:mlp:ku sm:tab:split:arch:lenet sm:tab:split:arch:small:mlp sm:tab:split:cifar
sm:tab:split:cifar100 sm:tab:split:cifar:wrn tab:gmm tab:split:cifar tab:split:mnist
"""
"""All equations and tables of the paper that have a label."""
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


def test_every_equation_and_table_of_the_paper_is_named() -> None:
    named = set(re.findall(r"[a-z]+(?::[a-z0-9]+)+", PAGE))
    assert [label for label in LABELS.split() if label not in named] == []


def test_every_row_has_files_a_measured_figure_and_the_papers() -> None:
    """The figure comes from the records, so that it says by itself whether the row was run."""
    for name, line in rows().items():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        assert len(cells) == 5, name
        assert ".py" in cells[2] or "the same" in cells[2], name
        assert "<!--row:" in cells[3], name
        assert re.search(r"\d", re.sub(r"[a-z]+-[a-z0-9-]+", "", cells[4])), name


def test_files_and_names_of_the_systems_exist() -> None:
    """A file that was moved has to be moved in the table, too."""
    source = Path(__file__).parents[1] / "src" / "metareplay"
    for name, line in rows().items():
        for file in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", line):
            assert (source / file).is_file(), (name, file)
