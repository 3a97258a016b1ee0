"""Where the lines of a table's cells may end."""

import pytest

from website.hooks import broken_between_words


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("<td>0.0222 ± 0.0040</td>", "<td>0.0222\u00a0±\u00a00.0040</td>"),
        ("<td>95.3 / 93.9, 1.0 s</td>", "<td>95.3\u00a0/\u00a093.9, 1.0 s</td>"),
        ("<td>given / inferred</td>", "<td>given / inferred</td>"),
        ("<td><code>posterior.prior_scale</code></td>", "<td><code>posterior.<wbr>prior_<wbr>scale</code></td>"),
    ],
)
def test_figures_stay_with_their_errors_and_names_break_between_words(cell: str, shown: str) -> None:
    assert broken_between_words(cell) == shown
