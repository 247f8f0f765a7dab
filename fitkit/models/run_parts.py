"""What a run's seconds leave for each of its parts, where a log tells some of them only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

PARTS = ("init", "epoch", "eval", "checkpoint", "rest", "step")
SECONDS = tuple(f"{part}_s" for part in PARTS)
_KNOWN = (
    *SECONDS, "train_s", "total_s", "n_epochs", "steps_per_epoch", "local_batch",
)  # fmt: skip
_NOTHING = 0.02  # share of the training: parts that add up so well leave no rest


def with_parts(frame: pd.DataFrame, groups: Sequence[str]) -> pd.DataFrame:
    r"""Add the columns that the others of a run imply.

    With :math:`E` epochs (one where none is counted) of :math:`S` steps, the training is

    .. math:: t_\mathrm{train} = E (S t_\mathrm{step} + t_\mathrm{eval} + t_\mathrm{checkpoint}
        + t_\mathrm{rest})

    and the total is the initialisation and the training. Where no step was timed but their number
    is known, the rest of the training is shared out among them; where it is not, ``epoch_s`` is
    the rest of an epoch. Where the steps alone take all the training, evaluations and checkpoints
    are inside of them. A rest of less than 2 % in the median of a group is none.
    ``worker_samples`` are what a worker trains on in the whole run.

    Parameters
    ----------
    frame
        A run a row: any of ``total_s, train_s, init_s, step_s, eval_s, checkpoint_s, n_epochs``
        and ``steps_per_epoch``.
    groups
        Columns that tell apart what has parameters of its own.
    """
    given, x, group = _given(frame), _numbers(frame), _groups(frame, groups)
    # A total holds its start: what is said to take longer is something else.
    init = x.init_s.mask(x.init_s > x.total_s)
    epochs = x.n_epochs.where(x.n_epochs.notna().groupby(group).transform("any"), 1.0)
    steps = x.steps_per_epoch
    start = init.fillna(0.0)
    train = x.train_s.fillna((x.total_s - start).where(lambda left: left > 0))
    epoch = train / epochs
    told = x.eval_s.fillna(0.0) + x.checkpoint_s.fillna(0.0)
    is_inside = (epoch - steps * x.step_s - told < -_NOTHING * epoch) & (told > 0)
    beside = told.mask(is_inside, 0.0)
    step = x.step_s.fillna(((epoch - beside) / steps).where(lambda each: each > 0))
    parts = steps * step + beside
    seconds = {
        "init_s": init,
        "eval_s": x.eval_s.mask(is_inside),
        "checkpoint_s": x.checkpoint_s.mask(is_inside),
        "step_s": step.where(steps.notna()),
        "epoch_s": x.epoch_s.fillna((epoch - beside).where(steps.isna())),
        "rest_s": x.rest_s.fillna(_rest(epoch, parts, group)),
        "total_s": x.total_s.fillna(start + train.fillna(epochs * (parts + x.rest_s.fillna(0.0)))),
    }
    known = {name: values.where(values > 0) for name, values in seconds.items()}
    counts = {"n_epochs": epochs, "steps_per_epoch": steps}
    # What is given as a count stays as it is given: be it none, others will say so.
    counts = {name: given[name].where(given[name].notna(), v) for name, v in counts.items()}
    return frame.assign(**known, **counts, worker_samples=epochs * steps * x.local_batch)


def _given(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with all columns that are looked at; null where it has none."""
    return frame.reindex(columns=[*dict.fromkeys((*frame.columns, *_KNOWN))])


def _numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Those columns as numbers; words, and seconds that are none, as null."""
    import pandas as pd  # here, so that predicting needs numpy alone

    found = _given(frame)[[*_KNOWN]].apply(pd.to_numeric, errors="coerce").astype(float)
    times = [name for name in _KNOWN if name.endswith("_s")]
    return found.assign(**{name: found[name].where(found[name] > 0) for name in times})


def _groups(frame: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """Number of the group of each row."""
    import pandas as pd

    if not names:
        return pd.Series(0, frame.index)
    return frame.groupby([*names], dropna=False, sort=False).ngroup()


def _rest(epoch: pd.Series, parts: pd.Series, group: pd.Series) -> pd.Series:
    """Seconds of an epoch beyond its parts; null in groups where they are hardly any."""
    rest = epoch - parts
    typical = (rest / epoch).groupby(group).transform("median")
    return rest.where(typical > _NOTHING)
