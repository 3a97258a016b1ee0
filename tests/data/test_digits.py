import torch

from metareplay.data.sources import load_digits


def test_digits_have_their_shapes_and_scale() -> None:
    digits = load_digits()
    assert digits.image_shape == (1, 8, 8)
    assert len(digits.train_x) + len(digits.test_x) == 1797
    assert digits.max_value == 16
    assert digits.train_x.max() == 16
    assert digits.train_x.min() == 0


def test_digits_are_split_two_to_one_in_every_class() -> None:
    digits = load_digits()
    train, test = digits.train_y.bincount(), digits.test_y.bincount()
    assert len(train) == len(test) == 10
    assert torch.equal(test, (train + test) // 3)


def test_the_two_sets_together_are_the_whole_data_set() -> None:
    from sklearn.datasets import load_digits as load_embedded

    digits, whole = load_digits(), load_embedded()
    ours = torch.cat(
        [torch.cat([digits.train_x, digits.test_x]).flatten(1), torch.cat([digits.train_y, digits.test_y])[:, None]],
        dim=1,
    )
    theirs = torch.cat([torch.from_numpy(whole.data), torch.from_numpy(whole.target)[:, None]], dim=1)
    # disjoint: no row twice, none lost
    assert sorted(map(tuple, ours.tolist())) == sorted(map(tuple, theirs.long().tolist()))


def test_the_split_is_always_the_same() -> None:
    assert load_digits().checksums() == {
        "train": "a2152013824e378d9918e581ba349b88283b075b49c87e61d2945247ca7b5eea",
        "test": "2cddb09c4ed129ba118b4d7e0cf1ad9cd5fd3bd43b0579976dd97d2222aceee0",
    }
