"""Requests that wait at the same time are predicted together, by one worker that calls the predictor once for all.

While the worker predicts, further requests gather. A prediction has costs that do not depend on its rows, so clients
that have just been answered are given a moment to send another request, a tenth of the time that the last prediction
took: otherwise the clients would split into two halves that are served in turn. A client that is alone never waits.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from metareplay.serve.answers import Row, answer_rows
from metareplay.serve.live import Generation
from metareplay.serve.refusals import RequestError

PATIENCE = 0.1
"""The share of the last prediction's time that answered clients have to send another request."""


class Question(NamedTuple):
    """What must be equal for requests to be predicted at once."""

    generation: Generation
    task: str | None = None
    criterion: str | None = None


@dataclass(frozen=True, eq=False)
class _Waiting:
    question: Question
    x: Tensor
    answer: asyncio.Future[list[Row]]


class Batcher:
    """A bounded queue before one worker."""

    def __init__(
        self, capacity: int, most_rows: int, observe: Callable[[int, int], None] = lambda requests, rows: None
    ):
        self.capacity, self.most_rows, self._observe = capacity, most_rows, observe
        self._waiting: deque[_Waiting] = deque()
        self._wake = asyncio.Event()
        self._expected, self._patience = 0, 0.0
        self._worker = ThreadPoolExecutor(1, "predict")

    @property
    def depth(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    async def ask(self, question: Question, x: Tensor) -> list[Row]:
        """The answer to inputs (N, ...); refused at once if too many wait already."""
        if self.depth >= self.capacity:
            raise RequestError(
                503,
                f"{self.capacity} requests are already waiting (--queue {self.capacity}); try again in a second",
                {"Retry-After": "1"},
            )
        waiting = _Waiting(question, x, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._wake.set()
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            raise

    async def run(self) -> None:
        """Answer until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._gather(loop)
                group = self._next_group()
                if not group:
                    continue
                self._observe(len(group), sum(len(waiting.x) for waiting in group))
                began = loop.time()
                outcomes = await loop.run_in_executor(self._worker, _predict, group)
                self._expected = len(group) + len(self._waiting)  # who asks now and who may ask again
                self._patience = PATIENCE * (loop.time() - began)
                for waiting, outcome in zip(group, outcomes, strict=True):
                    if waiting.answer.done():  # nobody waits any more
                        continue
                    if isinstance(outcome, Exception):
                        waiting.answer.set_exception(outcome)
                    else:
                        waiting.answer.set_result(outcome)
        finally:
            self._worker.shutdown(wait=False, cancel_futures=True)

    async def _gather(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for a request, and for a moment for others that are expected with it."""
        until = loop.time() + self._patience
        while not self._waiting or (len(self._waiting) < self._expected and loop.time() < until):
            self._wake.clear()
            try:
                async with asyncio.timeout_at(until if self._waiting else None):
                    await self._wake.wait()
            except TimeoutError:
                return

    def _next_group(self) -> list[_Waiting]:
        """The first request and those that ask the same, up to a number of rows; the others keep their turn."""
        if not self._waiting:
            return []  # given up meanwhile
        first = self._waiting.popleft()
        group, rows, others = [first], len(first.x), deque[_Waiting]()
        while self._waiting and rows < self.most_rows:
            waiting = self._waiting.popleft()
            if waiting.question == first.question and rows + len(waiting.x) <= self.most_rows:
                group.append(waiting)
                rows += len(waiting.x)
            else:
                others.append(waiting)
        self._waiting.extendleft(reversed(others))
        return group


def _predict(group: Sequence[_Waiting]) -> list[list[Row] | Exception]:
    """One prediction for all; if it fails, one for each, so that only the request at fault is refused."""
    generation, task, criterion = group[0].question
    try:
        x = group[0].x if len(group) == 1 else torch.cat([waiting.x for waiting in group])  # (n, ...) each -> (N, ...)
        rows = answer_rows(generation.estimator.predict_full(x, task, criterion=criterion), generation.estimator)
    except Exception as error:
        return [error] if len(group) == 1 else [_predict([waiting])[0] for waiting in group]
    shares: list[list[Row] | Exception] = []
    start = 0
    for waiting in group:
        shares.append(rows[start : start + len(waiting.x)])
        start += len(waiting.x)
    return shares
