import torch

from metareplay.inference.mixing import FEWEST_SAMPLES, alone, by_label, entropy, entropy_ratio, questions, shares


def test_only_tasks_that_matter_are_asked() -> None:
    probabilities = torch.tensor([[0.995, 0.003, 0.002], [0.6, 0.395, 0.005], [0.4, 0.3, 0.3]], dtype=torch.float64)
    asked = shares(probabilities, torch.tensor([0, 0, 0]))
    torch.testing.assert_close(asked.sum(1), torch.ones(3, dtype=torch.float64))
    assert (asked > 0).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert asked[0, 0] == 1.0
    torch.testing.assert_close(asked[2], probabilities[2])


def test_the_chosen_task_is_always_asked() -> None:
    asked = shares(torch.tensor([[0.999, 0.001]], dtype=torch.float64), torch.tensor([1]))
    assert (asked > 0).all()


def test_unlikely_tasks_need_few_weight_samples() -> None:
    asked = torch.tensor([[1.0, 0.0], [0.7, 0.3], [0.5, 0.5]], dtype=torch.float64)
    found = {(q.task, q.samples): q.rows.tolist() for q in questions(asked, torch.tensor([0, 0, 1]), 100)}
    assert found == {(0, 100): [0, 1, 2], (1, 100): [2], (1, 20): [1]}
    assert {q.samples for q in questions(asked, torch.tensor([0, 0, 1]), 20)} == {20, FEWEST_SAMPLES}
    assert {q.samples for q in questions(asked, torch.tensor([0, 0, 1]), 1)} == {1}


def test_one_task_alone() -> None:
    assert alone(torch.tensor([1, 0]), 2).tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_shared_labels_are_summed() -> None:
    probabilities = torch.tensor([[0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)
    merged = by_label(probabilities, torch.tensor([0, 1, 1, 2]))
    assert merged.tolist() == [[0.25, 0.5, 0.25]]
    assert entropy(merged) < entropy(probabilities)
    assert entropy(torch.tensor([[1.0, 0.0]])) == 0.0


def test_a_gain_changes_all_parts_of_uncertainty_alike() -> None:
    before = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    after = torch.tensor([[0.4, 0.1, 0.4, 0.1], [1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 0, 1])
    expected = entropy(torch.tensor([[0.8, 0.2]], dtype=torch.float64)) / torch.tensor(2.0, dtype=torch.float64).log()
    torch.testing.assert_close(entropy_ratio(before, after, labels), torch.tensor([float(expected), 1.0]).double())
    assert entropy_ratio(before, before, labels).tolist() == [1.0, 1.0]
