"""One map over work: the same results in the same order, however many processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from fitkit.parallel import parallel_map


@pytest.mark.parametrize("n_jobs", [1, 2, -1])
def test_results_come_in_the_order_of_the_items(n_jobs: int) -> None:
    assert list(parallel_map(divmod_seven, range(20), n_jobs)) == [divmod(i, 7) for i in range(20)]


def divmod_seven(number: int) -> tuple[int, int]:
    return divmod(number, 7)


def test_no_items_give_no_results() -> None:
    assert list(parallel_map(str, [])) == []
    assert list(parallel_map(str, [], 2)) == []


def test_one_job_stays_in_this_process_and_works_as_it_is_asked() -> None:
    done: list[int] = []

    def items() -> Iterator[int]:
        for i in range(3):
            done.append(i)
            yield i

    results = parallel_map(lambda i: (i, os.getpid()), items())
    assert done == []
    assert next(results) == (0, os.getpid())
    assert done == [0]


def test_two_jobs_leave_this_process() -> None:
    assert os.getpid() not in set(parallel_map(process, range(4), 2))


def process(_: Any) -> int:
    return os.getpid()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_comes_through(n_jobs: int) -> None:
    with pytest.raises(ZeroDivisionError):
        list(parallel_map(invert, [1, 0, 2], n_jobs))


def invert(number: int) -> float:
    return 1 / number


def test_no_jobs_are_refused_before_anything_is_done() -> None:
    with pytest.raises(ValueError, match="n_jobs must not be 0"):
        parallel_map(str, [1], 0)
