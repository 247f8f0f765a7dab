"""fitkit.ingest: the dataset, or an error that names what failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fitkit
from fitkit.dataset import Dataset
from fitkit.errors import InputError

LogText = Callable[..., str]


def test_ingest_returns_the_dataset(logs: Path, ds: Path) -> None:
    store = fitkit.ingest(str(logs), str(ds))
    assert store.counts()["runs"] == 2
    assert fitkit.ingest([logs / "wide"], store) is store


def test_ingest_raises_for_a_failed_source_and_keeps_the_others(
    logs: Path, ds: Path, log_text: LogText
) -> None:
    for name in ("a", "b"):
        (logs / name).mkdir()
        (logs / name / "t.log").write_text(log_text(3).replace("50.0", "fifty"))
    with pytest.raises(InputError, match=r"^a/t\.log:3: .* \(and 1 more sources\)$") as caught:
        fitkit.ingest(logs, ds)
    assert "--on-bad-lines" in caught.value.hint
    assert Dataset(ds).counts()["runs"] == 2


def test_ingest_raises_when_nothing_is_recognised(tmp_path: Path, ds: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "poem.txt").write_text("roses are red\n")
    with pytest.raises(InputError, match=r"poem\.txt: unknown format") as caught:
        fitkit.ingest(tmp_path / "logs", ds)
    assert "cntk, hugging_face, kineto" in caught.value.hint
    (tmp_path / "logs" / "prose.txt").write_text("violets are blue\n")
    with pytest.raises(InputError, match="no logs of a known format among 2 files"):
        fitkit.ingest(tmp_path / "logs", ds)
