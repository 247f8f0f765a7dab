"""Where the nodes of a run lay: columns for the runs whose jobs are known.

A topology file says which hosts share a switch. As TOML, a rule for numbered hosts or lists of
them, as in the column ``hosts`` of ``jobs``::

    hosts_per_switch = 2          # Cray Gemini: nids 2k and 2k + 1 share one

    [switches]
    rack1 = "node[001-036]"
    rack2 = "node[037-072],login1"

As CSV, a line for each host, below the line ``host,switch``.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from fitkit.errors import ParseError
from fitkit.parsers.host_lists import expand_hosts

_FILES = "topology.toml", "topology.csv"
_HOST = re.compile(r"(?P<prefix>.*?)0*(?P<number>[0-9]{1,18})", re.DOTALL)
_JOB = ["job_id", "attempt"]
_HINT = 'a topology holds hosts_per_switch = 2, or [switches] with lines such as r1 = "n[01-36]"'


@dataclass(frozen=True)
class Topology:
    """Which hosts share a switch.

    Attributes
    ----------
    switches
        Switch of each host.
    hosts_per_switch
        Of numbered hosts that are not named there: so many numbers, from a multiple of it on,
        share one. None: their switch is not known.
    """

    switches: Mapping[str, str] = field(default_factory=dict)
    hosts_per_switch: int | None = None

    def switch(self, host: str) -> str | None:
        """Switch of a host; None if it is not known."""
        if host in self.switches:
            return self.switches[host]
        prefix, number = _split(host)
        if number is None or self.hosts_per_switch is None:
            return None
        return f"{prefix}{number // self.hosts_per_switch}"


def with_placement(
    frame: pd.DataFrame,
    links: pd.DataFrame,
    jobs: pd.DataFrame,
    topology: Topology | None = None,
) -> pd.DataFrame:
    """The frame with what is known of each run's hosts, in the same order.

    The job of a run is the one of its surest link. A null ``n_nodes`` is told by the job.

    Parameters
    ----------
    frame
        Rows with ``run_id``.
    links, jobs
        The tables: of jobs ``job_id``, ``attempt``, ``n_nodes``, ``hosts`` and ``hosts_hash``;
        of both ``system``, where numbers are those of several machines.

    Returns
    -------
    DataFrame
        Without further columns if no run has a job, else with ``hosts_hash``; ``n_same_hosts``,
        the runs of the frame on the same set of hosts; ``n_host_runs`` and ``host_spread``, see
        `placements`; with a topology, ``n_switches`` and ``nodes_per_switch``.
    """
    known = links[links.run_id.isin(frame.run_id)].sort_values(
        ["score", *_JOB], ascending=[False, True, False], kind="stable"
    )
    found = known.drop_duplicates("run_id").merge(jobs, on=_JOB, suffixes=("", "_of_job"))
    if "system_of_job" in found:  # a number may be that of a job on another machine, too
        is_other = (found.system != found.system_of_job).to_numpy(dtype=bool)
        found = found.iloc[np.argsort(is_other, kind="stable")]
    found = found.drop_duplicates("run_id")
    places = placements(found, topology).drop(columns=_JOB).assign(run_id=found.run_id)
    if places.empty:
        return frame
    same = places.groupby("hosts_hash").run_id.transform("nunique")
    places = places.assign(n_same_hosts=same).rename(columns={"n_nodes": "job_nodes"})
    told = frame.merge(places, on="run_id", how="left", validate="many_to_one")
    job_nodes = told.pop("job_nodes")
    told["n_nodes"] = told["n_nodes"].fillna(job_nodes) if "n_nodes" in told else job_nodes
    return told.set_index(frame.index)


def placements(jobs: pd.DataFrame, topology: Topology | None = None) -> pd.DataFrame:
    """Where the hosts of each job lie; null where the job does not list them.

    Returns
    -------
    DataFrame
        ``job_id, attempt, n_nodes, hosts_hash`` as they are; ``n_host_runs``, the runs of
        consecutive host numbers (1: one block); ``host_spread``, the numbers from the first host
        to the last, by the number of hosts (1: none between them is another job's); with a
        topology ``n_switches`` and ``nodes_per_switch``, null where a host's switch is not known.
    """
    hosts = [_hosts(text) for text in jobs.hosts]
    new = {
        "n_host_runs": [n_host_runs(names) if names else None for names in hosts],
        "host_spread": [host_spread(names) for names in hosts],
    }
    if topology is not None:
        switches = [_n_switches(names, topology) for names in hosts]
        new["n_switches"] = switches
        new["nodes_per_switch"] = [
            len(set(names)) / n if n else None for names, n in zip(hosts, switches, strict=True)
        ]
    columns = {name: pd.Series(values, jobs.index, dtype=float) for name, values in new.items()}
    return jobs[[*_JOB, "n_nodes", "hosts_hash"]].assign(**columns)


def n_host_runs(hosts: Iterable[str]) -> int:
    """Runs of consecutive numbers among some hosts; one without a number is a run of its own.

    Examples
    --------
    >>> n_host_runs(["26742", "26743", "26728", "26729"])
    2
    """
    numbered = {_split(host) for host in hosts}
    return sum(
        number is None or (prefix, number - 1) not in numbered for prefix, number in numbered
    )


def host_spread(hosts: Iterable[str]) -> float | None:
    """Numbers from the first host to the last, by their count; None unless all are of one kind.

    Examples
    --------
    >>> host_spread(["26742", "26743", "26728", "26729"])
    4.0
    """
    kinds: dict[str, set[int]] = {}
    for prefix, number in map(_split, hosts):
        if number is None:
            return None
        kinds.setdefault(prefix, set()).add(number)
    if len(kinds) != 1:
        return None
    (numbers,) = kinds.values()
    return (max(numbers) - min(numbers) + 1) / len(numbers)


def _n_switches(hosts: Sequence[str], topology: Topology) -> int | None:
    switches = {topology.switch(host) for host in hosts}
    return None if not switches or None in switches else len(switches)


def _hosts(text: object) -> list[str]:
    """Hosts of a job; none if it lists none."""
    return expand_hosts(text) if isinstance(text, str) else []


def _split(host: str) -> tuple[str, int | None]:
    """Name before the number of a host, and the number; None if it does not end in one."""
    found = _HOST.fullmatch(host)
    return (found["prefix"], int(found["number"])) if found else (host, None)


# -- the file --------------------------------------------------------------------------------------


def topology_in(folder: Path) -> Topology | None:
    """The topology of the systems of a dataset: ``topology.toml`` or ``topology.csv`` in it.

    Raises
    ------
    ParseError
        If the file cannot be read.
    """
    found = [folder / name for name in _FILES if (folder / name).is_file()]
    return read_topology(found[0]) if found else None


def read_topology(path: Path) -> Topology:
    """Read a topology file, CSV by its suffix, else TOML.

    Raises
    ------
    ParseError
        If it is not as the module describes.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        return _from_csv(text) if path.suffix == ".csv" else _from_toml(tomllib.loads(text))
    except OSError as error:
        raise ParseError(path.name, 0, error.strerror or str(error)) from error
    except (ValueError, csv.Error) as error:
        raise ParseError(path.name, 0, str(error), _HINT) from error


def _from_toml(content: Mapping[str, object]) -> Topology:
    per_switch, lists = content.get("hosts_per_switch"), content.get("switches", {})
    unknown = sorted(content.keys() - {"hosts_per_switch", "switches"})
    if unknown:
        raise ValueError(f"no key of a topology: {', '.join(unknown)}")
    if not isinstance(lists, dict) or not all(isinstance(text, str) for text in lists.values()):
        raise ValueError("[switches]: expected a list of hosts as text for each switch")
    pairs = [(host, name) for name, text in lists.items() for host in expand_hosts(text)]
    return Topology(_unique(pairs), None if per_switch is None else _count(per_switch))


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"hosts_per_switch = {value!r}: expected a whole number from 1")
    return value


def _from_csv(text: str) -> Topology:
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if row]
    if not rows or rows[0] != ["host", "switch"]:
        raise ValueError("the first line is not host,switch")
    odd = next((row for row in rows if len(row) != 2 or not all(row)), None)
    if odd is not None:
        raise ValueError(f"not a host and its switch: {','.join(odd)}")
    return Topology(_unique([(host, switch) for host, switch in rows[1:]]))


def _unique(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    switches: dict[str, str] = {}
    for host, switch in pairs:
        if switches.setdefault(host, switch) != switch:
            raise ValueError(f"host {host} is on two switches: {switches[host]} and {switch}")
    return switches
