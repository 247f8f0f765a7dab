"""The notebooks: stored without output, executed from top to bottom, and what they answer.

Their cells are executed here in this process, as a kernel would: Jupyter is not needed, which saves
28 packages.
"""

from __future__ import annotations

import ast
import json
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parents[1] / "notebooks"
TOUR, SCALING = "from_logs_to_report", "scaling_questions"
BERT = "train_v2.0|NVIDIA|bert|A100|dgxa100_pytorch"
MLPERF, REAL_RUNS = "mlperf/mlperf_runs.csv.gz", "cntk/real_runs"


def stored(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))


def code(name: str) -> Iterator[tuple[str, str]]:
    """Identifier and text of each cell that is executed."""
    for cell in stored(name)["cells"]:
        if cell["cell_type"] == "code":
            yield cell["id"], "".join(cell["source"])


@dataclass
class Executed:
    """What a user sees below the cells, and the names that are there in the end."""

    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    shown: dict[str, str] = field(default_factory=dict)
    printed: dict[str, str] = field(default_factory=dict)
    complaints: str = ""

    def run(self, cell: str, source: str) -> None:
        """Execute a cell; its last expression is shown, if it has a value."""
        tree, last = ast.parse(source), None
        if isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            exec(compile(tree, cell, "exec"), self.names)  # noqa: S102
            value = eval(compile(last, cell, "eval"), self.names) if last else None  # noqa: S307
            if value is not None:
                self.shown[cell] = value._repr_html_()
        self.printed[cell] = out.getvalue()
        self.complaints += err.getvalue()

    @property
    def drawn(self) -> set[str]:
        """Cells below which there is a picture."""
        return {cell for cell, html in self.shown.items() if "<svg" in html}


def execute(name: str, folder: Path, shared: Path) -> Executed:
    """Run a notebook in an empty folder; a warning is an error, as in every test."""
    done = Executed()
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        patch.setenv("FITKIT_SHARED", str(shared))
        patch.setattr(tempfile, "tempdir", str(folder))
        for cell, source in code(name):
            done.run(cell, source)
    assert done.complaints == ""
    return done


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    folder = tmp_path_factory.mktemp("tour")
    return execute(TOUR, folder, folder / "nowhere")


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Executed:
    return execute(SCALING, tmp_path_factory.mktemp("scaling"), shared)


@pytest.mark.parametrize("name", [TOUR, SCALING])
def test_notebooks_are_stored_without_output(name):
    book = stored(name)
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    identifiers = [cell["id"] for cell in book["cells"]]
    assert len(set(identifiers)) == len(identifiers)
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
    # As Jupyter writes it, so that a notebook that is saved changes where it was edited only.
    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    assert text == json.dumps(book, indent=1, ensure_ascii=False) + "\n"


# -- from logs to a report -------------------------------------------------------------------


def test_the_tour_has_its_pictures_and_pages(tour):
    assert tour.drawn >= {"time", "layers", "validate", "skill"}
    pages = tour.printed["analyse"].split()
    assert [Path(page).name for page in pages] == ["analysis.html", "errors.html"]
    assert all("</html>" in Path(page).read_text(encoding="utf-8") for page in pages)


def test_the_tour_says_where_a_step_goes(tour):
    """Against the sums of the tables; the warm-up that the analysis leaves out is in them."""
    tables = {name: tour.names["dataset"].read(name) for name in ("runs", "steps", "phases")}
    runs = tables["runs"].query("instrument == 'recorder' and n_workers == 2 and local_batch == 1")
    assert len(runs) == 2
    steps = tables["steps"][tables["steps"].run_id.isin(runs.run_id)]
    comm = tables["phases"].query("phase == 'comm' and parent == 'backward'")
    comm = comm[comm.run_id.isin(runs.run_id)]
    found = tour.names["recorded"].use
    found = found[(found["view"] == "step") & (found["at"] == 2) & (found.part == "communication")]
    expected = comm.duration_s.sum() / steps.duration_s.sum()
    assert found.share.iloc[0] == pytest.approx(expected, abs=0.02)


def test_the_tour_predicts_between_its_neighbours_and_refuses(tour):
    found = tour.names["predicted"]
    assert found.status.tolist() == ["inside", "inside", "inside", "refused"]
    steps = tour.names["dataset"].read("steps").merge(tour.names["runs"], on="run_id")
    steps = steps[steps.instrument == "none"]
    medians = steps.groupby(["n_workers", "local_batch"]).duration_s.median()
    for row, (workers, below, above) in enumerate([(1, 4, 8), (1, 8, 12), (2, 2, 4)]):
        assert medians[workers, below] < found.predicted_s[row] < medians[workers, above]


def test_the_tour_says_how_wrong_it_is(tour):
    rows = tour.names["report"].rows
    mape = float(np.mean(np.abs(rows.predicted_s / rows.measured_s - 1)))
    assert mape < 0.10
    assert f"{100 * mape:.1f} % on average" in tour.printed["validate"]
    assert f"kept: MAPE {100 * mape:.1f} %, within the limit of 10.0 %" in tour.printed["gates"]
    assert "BROKEN" not in tour.printed["gates"]


# -- where scaling stops ---------------------------------------------------------------------


def test_the_questions_of_scaling_have_their_pictures(scaled):
    assert scaled.drawn >= {"start", "start-second", "stop", "cntk", "cntk-shares", "picture"}
    assert scaled.printed["read"] == ""


@pytest.fixture(scope="module")
def bert(shared: Path) -> pd.DataFrame:
    """NVIDIA's runs of BERT, straight from the table."""
    frame = pd.read_csv(shared / MLPERF)
    return frame[frame.family == BERT].assign(total_s=lambda f: f.init_s + f.run_s)


def test_the_share_of_the_start_is_that_of_the_table(scaled, bert):
    share = (bert.init_s / bert.total_s).groupby(bert.nodes).mean()
    assert share[8] < 0.5 < share[128]
    said = (
        f"initialisation passes half of the total between 8 and 128 nodes: "
        f"{100 * share[8]:.1f} % at 8 (10 runs), {100 * share[128]:.1f} % at 128 (10 runs)"
    )
    assert said in scaled.printed["start-figures"]
    assert f"({100 * share[128]:.1f} % at 128)" in scaled.shown["start"]
    starts = scaled.names["starts"]
    starts = starts[starts.series.str.contains(BERT, regex=False)].set_index("at")
    assert starts.share.to_dict() == pytest.approx(share.to_dict(), abs=0.005)


def test_what_is_left_of_the_ideal_speed_is_that_of_the_table(scaled, bert):
    median = bert.groupby("nodes").total_s.median()
    found = scaled.names["large"].efficiency
    found = found[(found["view"] == "run") & found.series.str.contains(BERT, regex=False)]
    expected = {at: median[1] / (at * median[at]) for at in (1, 8, 128)}
    assert found.set_index("at").efficiency.to_dict() == pytest.approx(expected, rel=0.01)
    words = scaled.names["large"].knees.query("name == 'fastest'").text
    assert words.str.startswith("it still gets faster up to 128 nodes").all()


def test_the_knee_of_the_synthetic_server_is_found_but_not_by_runs_that_end_at_it(scaled):
    beyond, short = (row for _, row in scaled.names["answers"].iterrows())
    assert beyond.knee_low < 16 < beyond.knee_high
    assert (beyond.knee_status, short.knee_status) == ("knee", "none")
    # The knee again, by trying all of them: the least squares of the logarithms of the times.
    table = scaled.names["planted"](24)
    n, logs = table.n_workers.to_numpy(), np.log(table.step_s.to_numpy())
    knees = np.linspace(4, 23, 191)
    left = [np.var(logs - np.log(np.maximum(1, n / knee))) for knee in knees]
    assert beyond.knee == pytest.approx(knees[np.argmin(left)], rel=0.05)


def test_twenty_draws_say_how_sure_a_knee_is(scaled):
    beyond, short = (row for _, row in scaled.names["draws"].iterrows())
    assert beyond["a knee is found"] >= 19
    assert (beyond["lowest"], beyond["highest"]) == pytest.approx((16, 16), rel=0.25)
    assert 15 <= beyond["its 90 % interval holds 16"] <= 20
    assert short["a knee is found"] == 0


def test_without_the_folder_it_says_what_it_skips_and_goes_on(tmp_path):
    done = execute(SCALING, tmp_path, tmp_path / "nowhere")
    lines = done.printed["read"].splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "skipped: CNTK on 3 and 4 workers", "skipped: MLPerf",
    ]  # fmt: skip
    assert all(str(tmp_path / "nowhere" / name) in done.printed["read"] for name in
               (REAL_RUNS, MLPERF))  # fmt: skip
    assert done.names["large"] is done.names["small"]
    assert done.drawn >= {"start", "start-second", "stop", "cntk", "cntk-shares", "picture"}
