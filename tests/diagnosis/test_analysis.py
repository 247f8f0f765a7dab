"""The analysis of a dataset: its headline, its answers, its shapes; runs that stand out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fitkit
from fitkit.dataset import Dataset
from fitkit.diagnosis import Analysis, analyse, outlying_runs
from fitkit.diagnosis.gathering import FRAMES
from fitkit.diagnosis.jumps import jumps
from fitkit.errors import InputError
from fitkit.records import Phase, Record, Run, SourceRow, Step

HOSTILE = "</script><script>alert(1)</script>\u202e"


def stored(path: Path, records: list[Record]) -> Dataset:
    store = Dataset(path)
    with store.writing():
        store.write(SourceRow("s", f"{HOSTILE}.log", "made", 1, 1, 0, "[]", "{}"), records)
    return store


def run_of(name: str, n_nodes: int, init_s: float, train_s: float, network: str) -> list[Record]:
    facts = {"network": network, "n_nodes": n_nodes, "n_workers": n_nodes, "local_batch": 8.0}
    times = {"total": init_s + train_s, "init": init_s, "train": train_s}
    return [Run(name, "s", **facts), *(Phase(name, what, s, 0) for what, s in times.items())]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Initialisation takes 60 s at every scale, training shrinks with it: 640 s, 80 s, 10 s."""
    records: list[Record] = []
    for n in (1, 8, 64):
        for k in range(5):
            # one run of 8 nodes is twice as long as its repetitions, in all that it does
            slow = 2.0 if (n, k) == (8, 4) else 1 + k / 1000
            records += run_of(f"n{n}-{k}", n, 60 * slow, 640 / n * slow, "net")
    records += run_of("other", 4, 1.0, 9.0, HOSTILE)
    records += [Step("other", 0, 1, 1.0, first_step=k) for k in range(3)]
    return stored(tmp_path_factory.mktemp("analysis") / "ds", records)


@pytest.fixture(scope="module")
def analysis(dataset: Dataset) -> Analysis:
    return analyse(dataset, where='network == "net"')


def test_the_headline_says_what_limits_the_largest_scale(analysis: Analysis) -> None:
    # 60 of 70 s; at 8 nodes 60 of 140
    assert analysis.headline == (
        "At 64 nodes initialisation takes 85.7 % of the total (5 runs); it passes half between 8 "
        "(42.9 %) and 64 nodes."
    )


def test_what_is_asked_first_is_answered(analysis: Analysis) -> None:
    answers = {one.question: (one.answer, one.beside) for one in analysis.answers}
    assert answers["What limits it at 64 nodes?"][0] == "initialisation"
    # at 64 times the nodes 10 times as fast
    efficiency, beside = answers["How efficient is it at 64 nodes?"]
    assert efficiency == "15.6 %"
    assert beside == (
        "of the ideal speed, whole runs (5 runs): 10 times as fast as at 1; if all did the same "
        "work: no log counts their samples; it falls below one half between 8 (62.5 %) and 64 nodes"
    )
    run, beside = answers["Which run is the outlier?"]
    assert run == "n8-4"
    assert beside == "it took 280 s, its 4 repetitions 140 s in the median: 99.7 % longer"
    assert "Where does scaling stop?" in answers


def test_what_no_log_tells_is_listed_with_what_to_record(analysis: Analysis) -> None:
    untold = dict(analysis.untold)
    assert {"What a step consists of", "Drift of the machine", "Layers that cost most"} <= set(
        untold
    )
    assert "Runs unlike their repetitions" not in untold
    assert "How it scales" not in untold


def test_every_frame_is_in_the_document(analysis: Analysis) -> None:
    document = json.loads(json.dumps(analysis.to_dict(), allow_nan=False))
    assert set(FRAMES) <= set(document)
    assert document["headline"] == analysis.headline
    assert document["n_runs"] == 15
    shares = {(row["at"], row["part"]): row["share"] for row in document["use"]}
    assert shares[1.0, "initialisation"] == pytest.approx(60 / 700)
    assert [row["run_id"] for row in document["outliers"]] == ["n8-4"]
    assert document["provenance"]["Sources"][0]["source_id"] == "s"


def test_it_is_saved_as_a_page_and_as_json(analysis: Analysis, tmp_path: Path) -> None:
    analysis.save(tmp_path / "a.html", static=True)
    page = (tmp_path / "a.html").read_text("utf-8")
    assert analysis.headline.replace(" %", "\u00a0%") in page
    assert "<script>alert" not in page
    analysis.save(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text("utf-8"))["n_runs"] == 15
    with pytest.raises(ValueError, match=r"as \.html or \.json"):
        analysis.save(tmp_path / "a.csv")


def test_pictures_are_drawn_by_name_and_a_notebook_shows_the_first(analysis: Analysis) -> None:
    assert {"run over the scale", "shares of a run, curve 1", "efficiency of a run"} <= set(
        analysis.pictures
    )
    html = analysis._repr_html_()
    assert "What limits it at 64 nodes?" in html
    assert "<svg" in html


def test_the_summary_is_short(analysis: Analysis) -> None:
    text = str(analysis.summary())
    assert analysis.headline in text.replace("\n", " ")
    assert len(text.splitlines()) < 25


def test_a_dataset_without_phases_says_so(dataset: Dataset) -> None:
    found = fitkit.analyse(dataset.path, where="n_nodes == 4")
    assert found.headline.startswith("At 4 nodes training takes 90.0 % of the total")
    assert found.outliers.empty
    assert "Runs unlike their repetitions" in dict(found.untold)


def test_what_is_not_there_is_an_error(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no dataset here"):
        analyse(tmp_path / "nothing")
    with pytest.raises(InputError, match="no run meets"):
        analyse(dataset, where="n_nodes == 3")
    with pytest.raises(ValueError, match="nodes"):
        analyse(dataset, where="nodes == 3")


@pytest.mark.parametrize(("seconds", "found"), [(10.4, []), (12.0, ["e"]), (8.0, ["e"])])
def test_a_run_stands_out_beyond_six_deviations_and_five_percent(
    tmp_path: Path, seconds: float, found: list[str]
) -> None:
    times = {"a": 10.0, "b": 10.0, "c": 10.05, "d": 9.95, "e": seconds}
    records = [one for name, s in times.items() for one in run_of(name, 2, 1.0, s - 1, "net")]
    outliers = outlying_runs(stored(tmp_path / "ds", records))
    assert outliers.run_id.tolist() == found
    if found:
        assert outliers.usual_s.item() == pytest.approx(10.0)
        assert outliers.off.item() == pytest.approx(seconds / 10 - 1)
        assert outliers.n.item() == 5


def test_three_runs_tell_no_outlier(tmp_path: Path) -> None:
    records = [one for n, s in enumerate((9.0, 10.0, 99.0)) for one in run_of(f"{n}", 2, 1, s, "n")]
    assert outlying_runs(stored(tmp_path / "ds", records)).empty


def steps_of(
    name: str, batch: float, n: int, comm_s: float, rest_s: float, n_nodes: int = 1
) -> list[Record]:
    facts: dict[str, Any] = {
        "network": "net", "n_workers": n, "n_nodes": n_nodes, "local_batch": batch,
    }  # fmt: skip
    parts = {"step": comm_s + rest_s, "comm": comm_s, "compute": rest_s}
    return [
        Run(name, "s", **facts),
        Step(name, 0, 1, comm_s + rest_s, first_step=0),
        *(
            Phase(name, part, s, 0, parent=None if part == "step" else "step", step=0)
            for part, s in parts.items()
        ),
    ]


@pytest.fixture(scope="module")
def cliff(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """Four batches on 1 to 8 workers, where the second node doubles and more what a step takes."""
    records: list[Record] = []
    for k, batch in enumerate((8.0, 16.0, 32.0, 64.0)):
        for n in range(1, 9):
            comm = 0.001 * n if n < 5 else 0.12 + 0.001 * n + 0.04 * k
            rest = 0.1 if batch < 64 else 0.3
            records += steps_of(f"{batch:g}-{n}", batch, n, comm, rest, 1 if n < 5 else 2)
    return analyse(stored(tmp_path_factory.mktemp("cliff") / "ds", records))


def test_a_jump_that_curves_share_is_told(cliff: Analysis) -> None:
    (jump,) = cliff.jumps.to_dict("records")
    assert (jump["after"], jump["reached"], jump["n_curves"], jump["n_jumping"]) == (4, 5, 4, 4)
    assert (jump["nodes_after"], jump["nodes_reached"]) == (1, 2)
    # from 104 to 225, 265, 305 ms, and of the largest batch from 304 to 545 ms
    assert (jump["low"], jump["high"]) == pytest.approx((545 / 304, 305 / 104))
    (said,) = [one for one in cliff.findings if one.startswith("From")]
    assert said.startswith(
        "From 4 to 5 workers (from 1 node to 2) the step time is multiplied by 1.79 to 2.93 in 4 "
        "of 4 curves; between other neighbouring scales by 1.0"
    )


def test_a_headline_of_single_runs_says_so_and_how_other_curves_differ(cliff: Analysis) -> None:
    # 8 workers: 128, 168, 208 of 228, 268, 308 ms; of the largest batch 248 of 548 ms
    assert cliff.headline == (
        "At 8 workers communication takes 67.5 % of the step (1 run); it passes half between 4 "
        "(3.8 %) and 5 workers; it takes most in 3 of the 4 curves measured there, 45.3 % to "
        "67.5 %. Curve: net · weak, batch 32."
    )
    assert "of 4 curves with times of parts" in cliff.why
    answers = {one.question: one.beside for one in cliff.answers}
    assert answers["What limits it at 8 workers?"] == (
        "67.5 % of the step (208 ms); 1 run; then compute, 32.5 %"
    )
    communication = answers["How much of a step is communication?"]
    assert "no log tells what computing hides besides" in communication
    assert "1 worker " not in communication


def test_what_is_not_clear_is_said_so(tmp_path: Path) -> None:
    records = [
        one for n, comm in ((1, 0.02), (2, 0.05), (4, 0.11))
        for one in steps_of(f"{n}", 8.0, n, comm, 0.1)
    ]  # fmt: skip
    found = analyse(stored(tmp_path / "ds", records))
    assert found.headline == (
        "At 4 workers communication takes 52.4 % of the step (1 run, not clear: compute, 47.6 %, "
        "comes next)."
    )


def test_no_jump_is_told_of_a_noisy_curve_or_of_few(cliff: Analysis) -> None:
    names = sorted(cliff.efficiency.series.unique())
    few = cliff.efficiency[cliff.efficiency.series.isin(names[:2])]
    assert jumps(few).empty
    noisy = cliff.efficiency.assign(
        measured_s=lambda rows: rows.measured_s * np.where(rows["at"] % 2, 1.0, 2.5)
    )
    assert jumps(noisy).empty
