"""Work on several cores: one map over it, and fits that do not fight for them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(
    function: Callable[[Item], Result], items: Iterable[Item], n_jobs: int = 1
) -> Iterator[Result]:
    """Apply ``function`` to every item and yield the results in the order of the items.

    Parameters
    ----------
    function
        A function that can be pickled when ``n_jobs`` is not 1.
    n_jobs
        Processes to use; 1 stays in this process, -1 takes every core, and there are never more
        than cores.

    Raises
    ------
    ValueError
        If ``n_jobs`` is 0.
    """
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0: 1 for this process, -1 for every core")
    if n_jobs == 1:
        return map(function, items)
    from joblib import Parallel, delayed  # 0.2 s that one process does not need

    n_jobs = min(n_jobs, os.cpu_count() or 1)
    results: Iterator[Result] = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(function)(item) for item in items
    )
    return results


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold the linear algebra libraries to one thread.

    The matrices of a fit are small: on several threads, or where a neighbour computes, the
    threads wait for each other far longer than they save.
    """
    import scipy.linalg  # noqa: F401 - its library must be loaded to be held

    with _libraries(len(sys.modules)).limit(limits=1):
        yield


@lru_cache(maxsize=1)
def _libraries(n_modules: int) -> ThreadpoolController:
    """The loaded libraries: looking for them takes longer than many a fit.

    Whoever imports a module may load another one, so they are looked for again then.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
