import numpy as np
import torch

from metareplay.data.dates import PART_WIDTHS, PARTS, encode_dates
from metareplay.data.encoding import widths_of
from metareplay.evaluation.strangers import strangers


def test_inputs_of_one_column_stay_together() -> None:
    generator = torch.Generator().manual_seed(0)
    colours = torch.eye(3)[torch.arange(60) % 3]  # one-hot (N, 3)
    x = torch.cat([torch.arange(60.0).unsqueeze(1), colours], dim=1)  # (N, 4)
    mixed = strangers(x, generator, widths=[1, 3])["mixed rows"]
    assert (mixed[:, 1:].sum(1) == 1).all()  # one colour each
    assert torch.equal(mixed.sort(0).values, x.sort(0).values)  # the same values
    rows = mixed[:, 0].long()
    assert not torch.equal(mixed[:, 1:], colours[rows])  # which come from different rows
    apart = strangers(x, generator)["mixed rows"]
    assert (apart[:, 1:].sum(1) != 1).any()  # without widths every input is a column


def test_one_column_of_several_inputs_has_nothing_to_mix() -> None:
    x, generator = torch.eye(3)[torch.arange(9) % 3], torch.Generator().manual_seed(0)
    assert "mixed rows" not in strangers(x, generator, widths=[3])
    assert "mixed rows" in strangers(x, generator, widths=[2])  # widths of something else are ignored


def test_widths_of_columns() -> None:
    described = [{"name": "size"}, {"name": "shop", "values": ["a", "b"]}, {"name": "day", "date": list(PARTS)}]
    dates = np.array(["2024-01-31", "2024-02-01"], dtype="datetime64[s]")
    assert widths_of(described) == [1, 2, encode_dates(dates, list(PARTS)).shape[1]]
    assert list(PART_WIDTHS) == list(PARTS)
    assert widths_of([{"name": "note", "text": 40}]) == [40]
