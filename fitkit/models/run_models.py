"""The models of recipe ``run``: one for each part of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fitkit.models.estimator import Estimator
from fitkit.models.forms import form_named
from fitkit.models.linear import LinearModel
from fitkit.models.nonlinear import NonlinearModel
from fitkit.models.pooled_composition import PooledComposition
from fitkit.models.pooling import PooledModel
from fitkit.models.residual import BoostedModel
from fitkit.models.run_composition import RunComposition
from fitkit.models.selection import MIN_ROWS, ChosenModel, Question

_START = (
    "fixed", "launch_tree", "launch_in_turn", "sharded_reading", "node_share", "own_reading",
    "reading_in_turn", "broadcast_reading",
)  # fmt: skip
_STEP = (
    "fixed", "per_sample", "synchronised_tree", "synchronised_ring", "synchronised_turns",
    "gradient_ring", "gradient_tree", "gradient_between_nodes", "gradient_double_tree",
    "quantised_gradient", "slowest_worker",
)  # fmt: skip
_EPOCH = ("worker_share", "fixed", "log_workers", "server_fan_in")  # Ernest's, the work first
_EVALUATION = ("fixed", "worker_share", "server_fan_in")
_UNLESS = {"epoch": "step"}  # an epoch is told apart into steps where they are known
# What a proven knee is, by the part that has it; and if it is steeper than a server can make it.
_KNEES = {"init": "shared_file_system", "step": "serial_server"}
_STEEP_KNEES = {"step": "hinge"}


def knee_form(part: str, *, is_steep: bool) -> str | None:
    """The form of a part with a proven knee; None where none is known."""
    return (_STEEP_KNEES if is_steep else _KNEES).get(part)


def run_model(
    question: Question, knees: Mapping[str, str] | None = None, n_configurations: int = 0
) -> RunComposition:
    """The unfitted model of a run.

    Parameters
    ----------
    question
        What it will be asked, see `ChosenModel`.
    knees
        By part of which a knee is proven, see `fitkit.models.knees.find_knee`, the form: no other
        has one. Below 30 configurations, where held-out rows cannot choose, it stands alone.
    n_configurations
        How many there are to choose by, if known. A form of as many coefficients leaves none of
        them to judge its noise by, and is no candidate.
    """
    overlapped = NonlinearModel("overlapped_step")
    can_overlap = not 0 < n_configurations <= len(form_named(overlapped.form).coefficients)
    parts: dict[str, dict[str, Estimator]] = {
        "init": {"terms": _terms(_START)},
        "step": {"terms": _terms(_STEP), **({"overlapped": overlapped} if can_overlap else {})},
    }
    found = {
        part: _with_knee(candidates, (knees or {}).get(part), question, n_configurations)
        for part, candidates in parts.items()
    }
    read = ["local_batch", "n_workers", "n_nodes", "devices_per_node"]
    return RunComposition(
        once={"init": found["init"]},
        each_epoch={
            "epoch": _terms(_EPOCH),
            "eval": _terms(_EVALUATION),
            "checkpoint": _terms(_EVALUATION),
            "rest": _terms(_EVALUATION),
        },
        each_step={"step": BoostedModel(found["step"], read)},
        lacking="drop",
        unless=_UNLESS,
    )


def pooled_run(by: Sequence[str], related: Sequence[str]) -> PooledComposition:
    """The unfitted model of families of few runs, see `PooledComposition`."""

    def pooled(*terms: str) -> PooledModel:
        return PooledModel(by, related, terms)

    return PooledComposition(
        once={"init": pooled("fixed", "launch_tree", "launch_in_turn")},
        each_epoch={
            "epoch": pooled("worker_share", "fixed", "log_workers"),
            "eval": pooled("worker_share", "fixed"),
            "checkpoint": pooled("fixed"),
            "rest": pooled("worker_share", "fixed"),
        },
        each_step={"step": pooled("per_sample", "fixed", "log_workers")},
        lacking="drop",
        unless=_UNLESS,
    )


def _terms(names: Sequence[str]) -> LinearModel:
    return LinearModel(list(names), "select", undetermined="drop")


def _with_knee(
    candidates: dict[str, Estimator], knee: str | None, question: Question, n_rows: int
) -> Estimator:
    """A choice among the candidates and, where a knee is proven, the form that has one."""
    if knee and n_rows < MIN_ROWS:
        return NonlinearModel(knee)
    every = {knee: NonlinearModel(knee), **candidates} if knee else candidates
    return ChosenModel(every, question) if len(every) > 1 else next(iter(every.values()))
