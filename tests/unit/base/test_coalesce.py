"""Calls that arrive while one is in progress are executed together."""

import asyncio
from collections.abc import Sequence

import pytest

from penstock.base.aio import spawn
from penstock.base.coalesce import Coalescer

MAX = 100


class Teller:
    """Answers in batches, each of which waits until it is released, and records the calls."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.started: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def answer(self, batch: Sequence[int]) -> Sequence[str | Exception]:
        self.batches.append(list(batch))
        may_end = asyncio.Event()
        self.started.put_nowait(may_end)
        await may_end.wait()
        return [f"answer {asked}" for asked in batch]


async def turns_of_the_loop() -> None:
    """Let every task that is ready run, a few times over."""
    for _ in range(5):
        turned = asyncio.Event()
        asyncio.get_running_loop().call_soon(turned.set)
        await turned.wait()


async def test_a_single_call_is_answered_alone() -> None:
    async def double(batch: Sequence[int]) -> Sequence[int]:
        return [2 * asked for asked in batch]

    line = Coalescer(double, batch_max=MAX)

    assert [await line.ask(1), await line.ask(2)] == [2, 4]


async def test_each_call_gets_its_own_answer() -> None:
    async def double(batch: Sequence[int]) -> Sequence[int]:
        await turns_of_the_loop()
        return [2 * asked for asked in batch]

    line = Coalescer(double, batch_max=7)

    answers = await asyncio.gather(*(line.ask(number) for number in range(100)))

    assert answers == [2 * number for number in range(100)]


async def test_calls_made_while_one_is_in_progress_share_the_next_batch() -> None:
    teller = Teller()
    line = Coalescer(teller.answer, batch_max=MAX)

    async with asyncio.TaskGroup() as group:
        first = spawn(group, line.ask(0))
        may_end = await teller.started.get()
        others = [spawn(group, line.ask(number)) for number in range(1, 10)]
        await turns_of_the_loop()
        assert teller.batches == [[0]]
        may_end.set()
        (await teller.started.get()).set()

    assert teller.batches == [[0], list(range(1, 10))]
    assert first.result() == "answer 0"
    assert [task.result() for task in others] == [f"answer {number}" for number in range(1, 10)]


async def test_no_answer_is_older_than_its_call() -> None:
    """A call made while a batch runs must not be part of it: the data may have changed since."""
    version = 1
    started, may_end = asyncio.Event(), asyncio.Event()

    async def read(batch: Sequence[str]) -> Sequence[int]:
        seen = version
        started.set()
        await may_end.wait()
        return [seen] * len(batch)

    line = Coalescer(read, batch_max=MAX)
    async with asyncio.TaskGroup() as group:
        early = spawn(group, line.ask("same"))
        await started.wait()
        version = 2
        late = spawn(group, line.ask("same"))
        await turns_of_the_loop()
        may_end.set()

    assert (early.result(), late.result()) == (1, 2)


async def test_a_batch_has_a_maximum() -> None:
    teller = Teller()
    line = Coalescer(teller.answer, batch_max=3)

    async with asyncio.TaskGroup() as group:
        tasks = [spawn(group, line.ask(number)) for number in range(8)]
        while not all(task.done() for task in tasks):
            (await teller.started.get()).set()
            await turns_of_the_loop()

    assert teller.batches == [[0, 1, 2], [3, 4, 5], [6, 7]]


async def test_one_batch_runs_at_a_time() -> None:
    running = most = 0

    async def count(batch: Sequence[int]) -> Sequence[int]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await turns_of_the_loop()
        running -= 1
        return batch

    line = Coalescer(count, batch_max=2)
    await asyncio.gather(*(line.ask(number) for number in range(20)))

    assert most == 1


async def test_a_batch_that_fails_fails_only_its_own_calls() -> None:
    async def answer(batch: Sequence[int]) -> Sequence[int]:
        await turns_of_the_loop()
        if 3 in batch:
            raise LookupError
        return batch

    line = Coalescer(answer, batch_max=3)

    answers = await asyncio.gather(
        *(line.ask(number) for number in range(9)), return_exceptions=True
    )

    assert [answers[index] for index in (0, 1, 2, 6, 7, 8)] == [0, 1, 2, 6, 7, 8]
    assert all(isinstance(answers[index], LookupError) for index in (3, 4, 5))
    assert await line.ask(9) == 9


async def test_an_exception_may_be_the_answer_to_one_call() -> None:
    async def answer(batch: Sequence[int]) -> Sequence[int | Exception]:
        return [LookupError() if asked % 2 else asked for asked in batch]

    line = Coalescer(answer, batch_max=MAX)

    answers = await asyncio.gather(
        *(line.ask(number) for number in range(4)), return_exceptions=True
    )

    assert (answers[0], answers[2]) == (0, 2)
    assert isinstance(answers[1], LookupError)
    assert isinstance(answers[3], LookupError)


async def test_a_call_cancelled_while_it_waits_is_left_out() -> None:
    teller = Teller()
    line = Coalescer(teller.answer, batch_max=MAX)

    async with asyncio.TaskGroup() as group:
        first = spawn(group, line.ask(0))
        may_end = await teller.started.get()
        gone, stays = spawn(group, line.ask(1)), spawn(group, line.ask(2))
        await turns_of_the_loop()
        gone.cancel()
        await turns_of_the_loop()
        may_end.set()
        (await teller.started.get()).set()

    assert teller.batches == [[0], [2]]
    assert gone.cancelled()
    assert (first.result(), stays.result()) == ("answer 0", "answer 2")


async def test_a_call_cancelled_during_its_batch_affects_no_other() -> None:
    """Also the call that started the batch: the other answers are still expected."""
    teller = Teller()
    line = Coalescer(teller.answer, batch_max=MAX)

    async with asyncio.TaskGroup() as group:
        first, second = spawn(group, line.ask(0)), spawn(group, line.ask(1))
        may_end = await teller.started.get()
        first.cancel()
        await turns_of_the_loop()
        may_end.set()

    assert teller.batches == [[0, 1]]
    assert first.cancelled()
    assert second.result() == "answer 1"


async def test_after_all_calls_are_cancelled_the_next_one_is_answered() -> None:
    teller = Teller()
    line = Coalescer(teller.answer, batch_max=MAX)

    async with asyncio.TaskGroup() as group:
        gone = spawn(group, line.ask(0))
        may_end = await teller.started.get()
        waiting = spawn(group, line.ask(1))
        await turns_of_the_loop()
        gone.cancel()
        waiting.cancel()
        await turns_of_the_loop()
        may_end.set()
        await turns_of_the_loop()
        last = spawn(group, line.ask(2))
        (await teller.started.get()).set()

    assert last.result() == "answer 2"
    assert teller.batches == [[0], [2]]


@pytest.mark.parametrize("batch_max", [1, 2, 1_000])
async def test_a_thousand_callers_are_all_answered(batch_max: int) -> None:
    async def echo(batch: Sequence[int]) -> Sequence[int]:
        await turns_of_the_loop()
        return batch

    line = Coalescer(echo, batch_max=batch_max)

    answers = await asyncio.gather(*(line.ask(number) for number in range(1_000)))

    assert answers == list(range(1_000))
