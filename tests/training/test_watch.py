"""Notices of a loss that jumps or does not fall."""

from metareplay.training.watch import LossWatch, Notice


def followed(losses: list[float], *, resume_at: int | None = None) -> list[Notice]:
    watch, notices = LossWatch(1.0, len(losses)), []
    for step, loss in enumerate(losses):
        if step == resume_at:
            stored, watch = watch.tensors(), LossWatch(1.0, len(losses))
            watch.restore(stored)
        if (notice := watch.after_step(loss)) is not None:
            notices.append(notice)
    return notices


def test_a_loss_that_falls_is_not_remarked_on() -> None:
    assert followed([1.2 * 0.98**step for step in range(400)]) == []
    assert followed([30.0] * 5 + [0.1] * 400) == []  # a bad start is none of its business
    assert followed(([0.2] * 20 + [3.0]) * 20) == []  # nor are single batches


def test_a_loss_that_jumps_is_noticed_once() -> None:
    losses = [0.1] * 100 + [9.0] * 10 + [0.1] * 100 + [9.0] * 50
    notices = followed(losses)
    assert [notice.kind for notice in notices] == ["jump"]
    assert "jumped" in notices[0].text
    assert "training.learning_rate" in notices[0].text
    assert followed(losses, resume_at=105) == notices == followed(losses, resume_at=150)


def test_a_loss_that_does_not_fall_is_noticed_half_way() -> None:
    assert [notice.kind for notice in followed([1.0, 1.01] * 150)] == ["flat"]
    assert "after 150 steps" in followed([1.0, 1.01] * 150)[0].text
    assert followed([1.0] * 50) == []  # too short to say
    assert followed([0.7] * 300) == []


def test_a_loss_that_is_still_falling_from_far_above_is_not_flat() -> None:
    falling = [6.0 * 0.978**step for step in range(100)] + [0.5] * 100
    assert followed(falling) == [] == followed(falling, resume_at=70)
    fallen = [6.0] * 10 + [1.0] * 990
    assert [notice.kind for notice in followed(fallen)] == ["flat"]


def test_a_checkpoint_without_the_earlier_loss_is_read() -> None:
    watch = LossWatch(1.0, 300)
    for _ in range(149):
        assert watch.after_step(1.0) is None
    again = LossWatch(1.0, 300)
    again.restore({"numbers": watch.tensors()["numbers"][:4]})
    notice = again.after_step(1.0)
    assert notice is not None
    assert notice.kind == "flat"
