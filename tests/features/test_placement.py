"""Where the nodes of a run lay: worked out by hand for a few host lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fitkit
from fitkit.errors import ParseError
from fitkit.features.placement import (
    Topology,
    host_spread,
    n_host_runs,
    placements,
    read_topology,
    topology_in,
    with_placement,
)
from fitkit.features.runs import run_facts

GEMINI = Topology(hosts_per_switch=2)


def jobs(*hosts: str | None) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "job_id": [f"{i}.bw" for i in range(len(hosts))],
            "attempt": 1,
            "n_nodes": np.nan,
            "hosts": hosts,
            "hosts_hash": [None if text is None else f"hash of {text}" for text in hosts],
        }
    )


def links(*pairs: tuple[str, int, str, float]) -> pd.DataFrame:
    return pd.DataFrame(pairs, columns=["job_id", "attempt", "run_id", "score"])


def test_hosts_of_the_real_job_lie_in_two_blocks_on_two_geminis() -> None:
    (row,) = placements(jobs("26742-26743,26728-26729"), GEMINI).to_dict("records")
    assert (row["n_host_runs"], row["host_spread"]) == (2.0, 4.0)  # 26728 to 26743 are 16
    assert (row["n_switches"], row["nodes_per_switch"]) == (2.0, 2.0)


def test_a_number_of_two_machines_is_that_of_the_link() -> None:
    two = jobs("1-2", "7").assign(job_id="5", system=["a", "b"])
    linked = links(("5", 1, "x", 1.0), ("5", 1, "y", 1.0)).assign(system=["b", "a"])
    frame = with_placement(pd.DataFrame({"run_id": ["x", "y"]}), linked, two)
    assert frame.hosts_hash.tolist() == ["hash of 7", "hash of 1-2"]


@pytest.mark.parametrize(
    ("hosts", "n_runs", "spread", "n_switches"),
    [
        ("3-6", 1, 1.0, 3),  # 3 | 4 5 | 6
        ("4,6,8", 3, 5 / 3, 3),
        ("7", 1, 1.0, 1),
        ("node[08-10]", 1, 1.0, 2),  # 8 9 | 10
        ("a1,b2", 2, np.nan, 2),
        ("login", 1, np.nan, np.nan),
        (None, np.nan, np.nan, np.nan),
    ],
)
def test_a_placement(hosts: str | None, n_runs: float, spread: float, n_switches: float) -> None:
    (row,) = placements(jobs(hosts), GEMINI).to_dict("records")
    found = [row["n_host_runs"], row["host_spread"], row["n_switches"]]
    np.testing.assert_allclose(found, [n_runs, spread, n_switches])


def test_a_named_host_is_where_the_file_says_and_an_unknown_one_is_nowhere() -> None:
    topology = Topology({"n1": "r1", "n2": "r1", "n3": "r2"})
    found = placements(jobs("n[1-3]", "n[1-4]"), topology)
    assert found.n_switches.tolist()[0] == 2
    assert found.nodes_per_switch.tolist()[0] == 1.5
    assert found.n_switches.isna().tolist() == [False, True]


def test_a_run_gets_the_hosts_of_its_surest_job() -> None:
    frame = pd.DataFrame({"run_id": ["a", "b", "c", "d"], "n_nodes": [9.0, np.nan, np.nan, 5.0]})
    table = jobs("3-6", "4-5", "4-5").assign(n_nodes=[4.0, 2.0, 2.0])
    known = links(("0.bw", 1, "a", 0.5), ("1.bw", 1, "a", 1.0), ("2.bw", 1, "b", 1.0),
                  ("0.bw", 1, "c", 0.9), ("9.bw", 1, "d", 1.0))  # fmt: skip
    found = with_placement(frame, known, table, GEMINI)
    assert found.run_id.tolist() == ["a", "b", "c", "d"]
    assert found.n_switches.fillna(-1).tolist() == [1, 1, 3, -1]
    assert found.n_same_hosts.fillna(-1).tolist() == [2, 2, 1, -1]
    assert found.n_nodes.tolist() == [9, 2, 4, 5]  # what the run's own log says stands
    assert found.hosts_hash.tolist()[:3] == ["hash of 4-5", "hash of 4-5", "hash of 3-6"]


def test_without_links_a_frame_stays_as_it_is() -> None:
    frame = pd.DataFrame({"run_id": ["a"]}, index=[7])
    assert with_placement(frame, links(), jobs("3-6")) is frame
    found = with_placement(frame, links(("0.bw", 1, "a", 1.0)), jobs("3-6"))
    assert found.index.tolist() == [7]
    assert "n_switches" not in found


@given(st.sets(st.integers(0, 60), min_size=1))
@settings(max_examples=50, deadline=None)
def test_runs_and_spread_of_any_numbers(numbers: set[int]) -> None:
    ordered = sorted(numbers)
    names = [f"nid{number:05d}" for number in ordered]
    assert n_host_runs(names) == 1 + int((np.diff(ordered) > 1).sum())
    assert host_spread(names) == pytest.approx((ordered[-1] - ordered[0] + 1) / len(ordered))


def test_files_say_the_same_in_both_forms(tmp_path: Path) -> None:
    toml, table = tmp_path / "topology.toml", tmp_path / "topology.csv"
    toml.write_text('hosts_per_switch = 2\n[switches]\nr1 = "n[01-02]"\nr2 = "n03,login"\n')
    table.write_text("host,switch\nn01,r1\nn02, r1\n\nn03,r2\nlogin,r2\n")
    switches = {"n01": "r1", "n02": "r1", "n03": "r2", "login": "r2"}
    assert read_topology(toml) == Topology(switches, 2)
    assert read_topology(table) == Topology(switches)
    assert topology_in(tmp_path) == Topology(switches, 2)
    assert topology_in(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.toml", "hosts_per_switch = 0", "expected a whole number from 1"),
        ("t.toml", "hosts_per_switch = true", "expected a whole number from 1"),
        ("t.toml", "switch = 2", "no key of a topology: switch"),
        ("t.toml", "[switches]\na = 2", "expected a list of hosts"),
        ("t.toml", '[switches]\na = "n[2-1]"', "not a range of numbers"),
        ("t.toml", '[switches]\na = "n1"\nb = "n1"', "host n1 is on two switches: a and b"),
        ("t.toml", "=", "(at line 1, column 1)"),
        ("t.csv", "n1,r1\n", "the first line is not host,switch"),
        ("t.csv", "host,switch\nn1\n", "not a host and its switch: n1"),
        ("t.csv", "host,switch\nn1,a\nn1,b\n", "host n1 is on two switches: a and b"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    tmp_path.joinpath(name).write_text(text)
    with pytest.raises(ParseError) as raised:
        read_topology(tmp_path / name)
    assert said in str(raised.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="No such file"):
        read_topology(tmp_path / "t.toml")


def test_runs_of_a_dataset_have_the_columns_of_their_jobs(tmp_path: Path) -> None:
    hosts = "26742/0-31+26743/0-31+26728/0-31"
    record = (
        "03/18/2017 00:01:15;E;7.bw;user=a group=b jobname=c queue=normal ctime=1489668573 "
        f"qtime=1489668600 etime=1489668700 start=1489668730 exec_host={hosts} session=1 "
        "end=1489669730 Exit_status=0\n"
    )
    step = "Epoch: [0]  [{}/40]  eta: 0:01:00  time: 0.5000  data: 0.0100\n"
    for name in ("linked", "alone"):
        folder = tmp_path / "logs" / name
        folder.mkdir(parents=True)
        head = "PBS_JOBID=7.bw\n" if name == "linked" else "\n"
        (folder / "train.log").write_text(head + step.format(1) + step.format(2))
    (tmp_path / "logs" / "20170318").write_text(record)
    dataset = fitkit.ingest(tmp_path / "logs", tmp_path / "ds")
    (tmp_path / "ds" / "topology.toml").write_text("hosts_per_switch = 2\n")
    sources = dataset.read("sources", ["source_id", "path"])
    runs = dataset.read("runs", ["run_id", "source_id"]).merge(sources, on="source_id")
    facts = run_facts(dataset).merge(runs, on="run_id").set_index("path")
    linked = facts.loc["linked/train.log"]
    # Two blocks (26728, 26742-26743) on two switches of two; 16 numbers hold the three hosts.
    assert (linked.n_nodes, linked.n_host_runs, linked.n_switches) == (3, 2, 2)
    assert linked.nodes_per_switch == 1.5
    assert linked.host_spread == pytest.approx(16 / 3)
    assert facts.loc["alone/train.log"][["n_host_runs", "n_switches"]].isna().all()
