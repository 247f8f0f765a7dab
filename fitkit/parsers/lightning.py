"""``metrics.csv`` of Lightning's CSVLogger, which has times only with the ThroughputMonitor.

That callback logs seconds, batches and samples since the training began on one device, without the
evaluations; and those of each evaluation.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from statistics import median

from fitkit.errors import ParseError
from fitkit.parsers.source import Source, SourceFile, group_by_file
from fitkit.parsers.values import MANY, count, disagree, number
from fitkit.records import Phase, Record, Run, Step

# Names of metrics: whatever a program calls them, but neither prose nor numbers.
_NAME = re.compile(r"[A-Za-z_][\w ./|:@%()\[\]+-]{0,200}")
_ENOUGH, _ROWS_TO_KNOW = 1 << 16, 6
_Row = Mapping[str, str]


@dataclass(frozen=True)
class _Group:
    """Steps between two rows of the callback."""

    first_step: int
    n_steps: int
    seconds: float
    epoch: int | None
    n_samples: float | None  # on one device
    stated: float | None  # samples a second, of the last batches


@dataclass
class _Measured:
    """What the callback says."""

    groups: list[_Group] = field(default_factory=list)
    evals: list[float] = field(default_factory=list)  # seconds
    n_devices: int | None = None


class LightningParser:
    """Tables of metrics that the CSVLogger of PyTorch Lightning writes."""

    name = "lightning"
    version = 1

    def recognises(self, head: bytes) -> bool:
        """Whether it is a table of metrics by ``epoch`` and ``step``."""
        *lines, _ = head[:_ENOUGH].decode("utf-8", "replace").split("\n")  # the rest may be cut
        names = _cells(lines[0]) if lines else []
        rows = [_cells(line) for line in lines[1:_ROWS_TO_KNOW]]
        if not _are_names(names) or not all(map(_NAME.fullmatch, names)):
            return False
        return bool(rows) and all(
            len(row) == len(names) and _place(dict(zip(names, row, strict=True))) for row in rows
        )

    def group(self, files: Sequence[SourceFile]) -> list[tuple[SourceFile, ...]]:
        """One run is one file."""
        return group_by_file(files)

    def parse(self, source: Source) -> Iterator[Record]:
        """Yield the run and, where the callback measured them, its steps and evaluations.

        Raises
        ------
        ParseError
            If a row has not a cell for each name, or no step.
        """
        for file in source.files:
            found = _measured(list(_rows(source, file)))
            run = _run(source, found)
            yield run
            for group in found.groups:
                n_samples = run.n_workers and group.n_samples and run.n_workers * group.n_samples
                yield Step(
                    run.run_id, 0, group.n_steps, group.seconds, group.epoch, group.first_step,
                    round(n_samples) if n_samples and n_samples < MANY else None,
                )  # fmt: skip
            for seconds in found.evals:
                yield Phase(run.run_id, "eval", seconds, parent="train")
            for code, text in _oddities(found):
                source.problems.note(file, None, code, text)


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _are_names(names: Sequence[str]) -> bool:
    return {"epoch", "step"} < set(names) and len(set(names)) == len(names)


def _place(row: _Row) -> tuple[int, int | None] | None:
    """Step and epoch of a row, as logged: from 0; None if it is no row of metrics."""
    step, epoch = number(row["step"]), number(row["epoch"] or "-1")
    if step is None or epoch is None or step != int(step) or not 0 <= step < MANY:
        return None
    return int(step), int(epoch) if 0 <= epoch < MANY else None


def _rows(source: Source, file: SourceFile) -> Iterator[_Row]:
    names: list[str] = []
    for line_number, line in source.lines(file):
        cells = _cells(line)
        if not names:
            names = cells
            if not _are_names(names):
                raise ParseError(file.label, line_number, "no columns epoch and step")
        elif line.strip():
            row = dict(zip(names, cells, strict=False))
            if len(cells) == len(names) and _place(row) and "\0" not in line:
                yield row
            else:
                source.problems.bad_line(file, line_number, line)


def _measured(rows: Sequence[_Row]) -> _Measured:
    found = _Measured()
    found.groups = list(_groups(rows))
    seconds = [number(row.get("validate/time")) for row in rows]
    passes = [s for s in seconds if s is not None and 0 <= s < MANY]
    # The clock of each evaluation begins at zero.
    found.evals = [s for s, after in zip_longest(passes, passes[1:], fillvalue=-1.0) if after < s]
    found.n_devices = _devices(rows)
    return found


def _rates(rows: Sequence[_Row], name: str) -> list[float]:
    return [rate for row in rows if (rate := number(row.get(name))) and rate > 0]


def _devices(rows: Sequence[_Row]) -> int | None:
    """Of the training: the rate of all over that of one; a single one has no rate of all."""
    of_one, of_all = (_rates(rows, f"train/{name}samples_per_sec") for name in ("device/", ""))
    if not of_one:
        return None
    ratio = median(of_all) / median(of_one) if of_all else 1.0
    return count(round(ratio)) if ratio < MANY else None


def _groups(rows: Sequence[_Row]) -> Iterator[_Group]:
    """Steps between rows; those before the first one of a training that was resumed are unknown."""
    done, seconds, samples, last_batches = 0, 0.0, 0.0, 0.0
    for row in rows:
        now, batches = number(row.get("train/time")), number(row.get("train/batches"))
        place = _place(row)
        if now is None or batches is None or place is None:
            continue
        # Row 49 is written after 50 steps.
        steps, total = place[0] + 1, number(row.get("train/samples"))
        is_anew = now < seconds or batches < last_batches
        n_steps = steps - done
        if 0 < n_steps <= batches - last_batches and now > seconds and not is_anew:
            n_samples = None if total is None or total < samples else total - samples
            epoch = None if place[1] is None else place[1] + 1
            stated = number(row.get("train/device/samples_per_sec"))
            yield _Group(done, n_steps, now - seconds, epoch, n_samples, stated)
        done, seconds, samples, last_batches = steps, now, total or 0.0, batches


def _run(source: Source, found: _Measured) -> Run:
    meta = source.metadata
    n_workers = meta.get("n_workers") or found.n_devices  # what the others follow from
    known = [group.n_samples / group.n_steps for group in found.groups if group.n_samples]
    local = median(known) if known else None
    batch = round(local * n_workers) if local and n_workers and local * n_workers < MANY else None
    run = Run(
        run_id=source.run_id,
        source_id=source.source_id,
        framework="pytorch",
        n_workers=found.n_devices,
        n_effective_workers=n_workers,
        global_batch=batch,
        local_batch=local,
    )
    return source.complete(run)


def _oddities(found: _Measured) -> Iterator[tuple[str, str]]:
    if not found.groups:
        yield "no_times", "no column states a time: the callback ThroughputMonitor adds them"
    # The callback's rates are means over the last batches; together they are that of all.
    known = [group for group in found.groups if group.n_samples and group.stated]
    seconds = sum(group.seconds for group in known)
    samples = sum(group.n_samples or 0.0 for group in known)
    stated = sum((group.stated or 0.0) * group.seconds for group in known)
    if known and disagree(stated, samples):
        what = f"train/device/samples_per_sec makes {stated:.0f} samples in {seconds:.6g} s"
        yield "throughput_mismatch", f"{what}, where train/samples has {samples:.0f}"
