"""A dataset: a folder of Parquet files, one file for each table and source.

``DATASET/<table>/<source id>.parquet``; a table that is computed from the others is one file. A
source's row in ``sources/`` is written last and removed first, so it says which of the other files
count: `Dataset` never reads half a source, and what an interrupted writer left behind is cleared by
the next one.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from fitkit.errors import InputError, SchemaError
from fitkit.records import TABLE_OF, TABLES, Record, SourceRow
from fitkit.schema import arrow_schema, table_of, to_arrow

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
_MARK = "_fitkit.json"
_LOCK = "_fitkit.lock"
_ELSEWHERE = "ingest the logs again into a new folder"
_COMPUTED = ("links",)
_ONE_FILE = "computed"
_ROWS_IN_MEMORY = 1 << 13  # of each table that is being written
_EMPTY_LOCK_S = 60.0  # nobody takes longer to write its name into a lock that it has made


def is_dataset(folder: Path) -> bool:
    """Whether a folder is a dataset, as far as we may look."""
    try:
        return (folder / _MARK).is_file()
    except PermissionError:
        return False


class Dataset:
    """A folder of Parquet tables, written source by source.

    Parameters
    ----------
    path
        The folder. It is created by the first write.

    Raises
    ------
    SchemaError
        If a newer fitkit wrote the folder.
    InputError
        If the folder exists and is something else than a dataset.

    Examples
    --------
    >>> ds = Dataset("runs-parquet")                       # doctest: +SKIP
    >>> ds.read("steps").groupby("run_id").duration_s.sum()  # doctest: +SKIP
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if self.path.is_file():
            raise InputError(f"{self.path}: is a file, not a dataset", "name a folder")
        if self.path.is_dir():
            self._check_mark()

    def __repr__(self) -> str:
        return f"Dataset({str(self.path)!r})"

    @property
    def exists(self) -> bool:
        """Whether anything was written yet."""
        return is_dataset(self.path)

    def _check_mark(self) -> None:
        if not self.exists:
            # A first writer that was interrupted leaves a lock and hidden files.
            if any(path.name != _LOCK and path.name[0] != "." for path in self.path.iterdir()):
                raise InputError(
                    f"{self.path}: a folder that is not a fitkit dataset",
                    "name a new folder, or one that fitkit ingest wrote",
                )
            return
        try:
            version = int(json.loads((self.path / _MARK).read_text(encoding="utf-8"))["format"])
        except (ValueError, KeyError, TypeError) as error:
            raise SchemaError(
                f"{self.path / _MARK}: not readable as a dataset mark", _ELSEWHERE
            ) from error
        if version > FORMAT:
            raise SchemaError(
                f"{self.path}: dataset format {version}, this fitkit reads up to {FORMAT}",
                f"update fitkit, or {_ELSEWHERE}",
            )

    # -- reading -------------------------------------------------------------------------

    def source_ids(self) -> list[str]:
        """Identifiers of the sources that the dataset holds, sorted."""
        return sorted(path.stem for path in (self.path / "sources").glob("[!.]*.parquet"))

    def arrow(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a table of all sources as Arrow, in the order of the source identifiers.

        Raises
        ------
        ValueError
            If there is no such table or column.
        SchemaError
            If a file of it cannot be read as this version writes it.
        """
        if table not in TABLES:
            raise ValueError(f"no table {table!r}; the tables are {', '.join(TABLES)}")
        schema = arrow_schema(table)
        for name in columns or ():
            if name not in schema.names:
                raise ValueError(f"no column {name!r} in {table}: {', '.join(schema.names)}")
        names = schema.names if columns is None else list(columns)
        parts = [_read(path, schema, names) for path in self._files(table, self.source_ids())]
        return pa.concat_tables(parts) if parts else schema.empty_table().select(names)

    def read(self, table: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read a table of all sources as a DataFrame; missing counts are NaN."""
        frame: pd.DataFrame = self.arrow(table, columns).to_pandas()
        return frame

    def counts(self) -> dict[str, int]:
        """Rows of every table."""
        ids = self.source_ids()
        return {table: sum(map(_n_rows, self._files(table, ids))) for table in TABLES}

    def _files(self, table: str, source_ids: Sequence[str]) -> list[Path]:
        stems = (_ONE_FILE,) if table in _COMPUTED else source_ids
        paths = (self.path / table / f"{stem}.parquet" for stem in stems)
        return [path for path in paths if path.is_file()]

    # -- writing -------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the dataset for writing; clear what an interrupted writer left behind.

        Raises
        ------
        InputError
            If another process is writing to the same folder.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        lock = self.path / _LOCK
        _acquire(lock)
        try:
            self._prepare()
            yield
        finally:
            lock.unlink(missing_ok=True)

    def _prepare(self) -> None:
        self._mark()
        ids = self.source_ids()
        for table in TABLES:
            for path in (self.path / table).glob(".*.tmp"):
                path.unlink()
            known = set(self._files(table, ids))
            for path in (self.path / table).glob("[!.]*.parquet"):
                if path not in known:
                    path.unlink()

    def _mark(self) -> None:
        if not self.exists:
            self.path.mkdir(parents=True, exist_ok=True)
            mark = self.path / f".{_MARK}.tmp"
            mark.write_text(json.dumps({"format": FORMAT}) + "\n", encoding="utf-8")
            mark.replace(self.path / _MARK)

    def write(
        self, source: SourceRow, records: Iterable[Record | pa.Table], replaces: Sequence[str] = ()
    ) -> dict[str, int]:
        """Store all rows of one source, replacing what it had; all tables or none.

        Memory does not grow with the number of rows.

        Parameters
        ----------
        source
            Its row; it gets the number of its diagnostics.
        records
            Its other rows, in any order; many of one table may come as an Arrow table of its
            schema.
        replaces
            Identifiers of stored sources that this one takes the place of.

        Returns
        -------
        dict
            Rows written by table.

        Raises
        ------
        SchemaError
            If a value is not of its column's type; nothing is written then.
        """
        self._mark()
        files = _HiddenFiles(self.path, source.source_id)
        try:
            for record in records:
                files.add(record)
            counts = files.close()
            files.add(replace(source, n_diagnostics=counts.get("diagnostics", 0)))
            files.close()
        except Exception:
            files.discard()
            raise
        for source_id in (source.source_id, *replaces):
            self.remove(source_id)
        files.show()
        return counts

    def rewrite(self, table: str, records: Sequence[Record]) -> None:
        """Replace a table that is computed from the others; one that is the same stays as it is.

        Raises
        ------
        SchemaError
            If a value is not of its column's type.
        """
        content = to_arrow(table, records)
        path = self.path / table / f"{_ONE_FILE}.parquet"
        if not records:
            path.unlink(missing_ok=True)
        elif not path.is_file() or not self.arrow(table).equals(content):
            path.parent.mkdir(exist_ok=True)
            hidden = path.with_name(f".{_ONE_FILE}.{os.getpid()}.tmp")
            pq.write_table(content, hidden, compression="zstd")
            hidden.replace(path)

    def remove(self, source_id: str) -> None:
        """Take a source and all its rows out."""
        for table in ("sources", *(name for name in TABLES if name != "sources")):
            (self.path / table / f"{source_id}.parquet").unlink(missing_ok=True)


class _HiddenFiles:
    """The tables of one source in files that nobody reads yet.

    Parameters
    ----------
    folder
        Of the dataset.
    """

    def __init__(self, folder: Path, source_id: str) -> None:
        self._folder = folder
        self._source_id = source_id
        self._rows: dict[str, list[Record]] = defaultdict(list)  # that are in no file yet
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._counts: Counter[str] = Counter()

    def add(self, record: Record | pa.Table) -> None:
        """Take in a row, or many of a table."""
        if isinstance(record, pa.Table):
            self._write_rows(table_of(record), record)
            return
        table = TABLE_OF[type(record)]
        rows = self._rows[table]
        rows.append(record)
        if len(rows) == _ROWS_IN_MEMORY:
            self._write(table)

    def _path(self, table: str) -> Path:
        # The process id keeps two writers of the same source apart.
        return self._folder / table / f".{self._source_id}.{os.getpid()}.tmp"

    def _write(self, table: str) -> None:
        self._write_rows(table, to_arrow(table, self._rows.pop(table)))

    def _write_rows(self, table: str, content: pa.Table) -> None:
        if table not in self._writers:
            path = self._path(table)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writers[table] = pq.ParquetWriter(path, content.schema, compression="zstd")
        self._writers[table].write_table(content)
        self._counts[table] += len(content)

    def close(self) -> dict[str, int]:
        """Write what is left, and return the number of rows by table."""
        for table in [*self._rows]:
            self._write(table)
        for writer in self._writers.values():
            writer.close()
        return {table: self._counts[table] for table in TABLES if table in self._counts}

    def show(self) -> None:
        """Give the files their names; that of the source is the last."""
        for table in sorted(self._writers, key="sources".__eq__):
            self._path(table).replace(self._folder / table / f"{self._source_id}.parquet")

    def discard(self) -> None:
        """Remove the files."""
        for table, writer in self._writers.items():
            writer.close()
            self._path(table).unlink(missing_ok=True)


def _read(path: Path, schema: pa.Schema, columns: list[str]) -> pa.Table:
    try:
        # Not read_table: it takes folders named "key=value" above the file for columns.
        with pq.ParquetFile(path) as file:
            if file.schema_arrow.names == schema.names:
                table = file.read(columns).select(columns)
                wanted = pa.schema(map(schema.field, columns), metadata=schema.metadata)
                return table.cast(wanted)
    except (pa.ArrowException, OSError) as error:
        raise SchemaError(f"{path}: not readable: {error}", _ELSEWHERE) from error
    raise SchemaError(f"{path}: columns of another fitkit version", _ELSEWHERE)


def _n_rows(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise SchemaError(f"{path}: not readable: {error}", _ELSEWHERE) from error


def _acquire(lock: Path) -> None:
    owner = f"{socket.gethostname()} {os.getpid()}"
    for _ in range(2):
        try:
            with lock.open("x", encoding="utf-8") as file:
                file.write(owner)
        except FileExistsError:
            if not _is_stale(lock):
                break
            lock.unlink(missing_ok=True)
        else:
            return
    raise InputError(
        f"{lock.parent}: another fitkit is writing to it",
        f"wait for it; if none is running, delete {lock}",
    )


def _is_stale(lock: Path) -> bool:
    """Whether the process that holds the lock ran on this host and is gone."""
    try:
        owner, age_s = lock.read_text(encoding="utf-8"), time.time() - lock.stat().st_mtime
    except FileNotFoundError:
        return True  # given back in this moment
    host, _, process = owner.rpartition(" ")
    if not owner:
        return age_s > _EMPTY_LOCK_S
    if host != socket.gethostname() or not process.isdigit() or os.name != "posix":
        return False
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return False
