"""Progress lines of every dialect: what each says, and that nothing else is taken for one."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fitkit.parsers.cntk.dialects import (
    EpochEnd,
    Other,
    TableRow,
    Window,
    looks_like_progress,
    read_common_window,
    read_progress,
)
from fitkit.parsers.cntk.lines import Line, ranks_of_names, read_lines, without_prefixes
from fitkit.parsers.source import Source, SourceFile

WINDOWS = {
    "2015": (
        (" Epoch[ 2 of 4]-Minibatch[  11-  20 of 160]: SamplesSeen = 1280; TrainLossPerSample = "
        " 4.25000000; EvalErr[0]PerSample = 0.75000000; TotalTime = 1.5s; "
        "TotalTimePerSample = 1.1718ms; SamplesPerSecond = 853"),
        Window(2, 11, 20, 1280, 1.5, False, 160, 4),
    ),
    "2015, epoch size unknown": (
        ("Epoch[ 1 of 3]-Minibatch[   1-  10 of  0%]: SamplesSeen = 640; TrainLossPerSample = "
        "4.5; TotalTime = 0.5s; TotalTimePerSample = 0.78ms; SamplesPerSecond = 1280"),
        Window(1, 1, 10, 640, 0.5, False, None, 3),
    ),
    "1.1": (
        (" Epoch[ 1 of 3]-Minibatch[   1-  10, 3.12%]: SamplesSeen = 640; TrainLossPerSample = "
        "4.5; EvalErr[0]PerSample = 0.9; TotalTime = 1.25s; SamplesPerSecond = 512.0"),
        Window(1, 1, 10, 640, 1.25, False, None, 3),
    ),
    "1.5, bare count": (
        (" Epoch[ 1 of 2]-Minibatch[ 101- 110 of 320]: * 2560; ce =  1.65; err = 0.5; "
        "TotalTime = 0.8s; TotalTimePerSample = 0.3ms; SamplesPerSecond = 3200"),
        Window(1, 101, 110, 2560, 0.8, False, 320, 2),
    ),
    "1.5 to 2.7": (
        (" Epoch[10 of 25]-Minibatch[   1-  10, 2.50%]: CE.a[b]+c*d/e = 0.7 * 250; errs = "
        "30.050% * 250; time = 1.5000e-005s; samplesPerSecond = 12368.3"),
        Window(10, 1, 10, 250, 1.5e-5, False, None, 25),
    ),
    "first minibatches, no samples": (
        ("  Epoch[ 1 of 1]-Minibatch[ -48-   1, 131.25%]: ce = 1.#QNAN * 0; time = 0.1s; "
        "samplesPerSecond = 0.0"),
        Window(1, -48, 1, 0, 0.1, True, None, 1),
    ),
    "decimal comma": (
        (" Epoch[ 1 of 1]-Minibatch[   1-  10]: ce = 1,5 * 640; time = 0,25s; "
        "samplesPerSecond = 2560,0"),
        Window(1, 1, 10, 640, 0.25, False, None, 1),
    ),
    "Python": (
        " Minibatch[   5-   8]: loss = 2.3 * 1024, metric = 90.23% * 1024;",
        Window(None, 5, 8, 1024, None),
    ),
    "Python without a metric": (
        " Minibatch[ 1- 1]: loss = -nan * 64;", Window(None, 1, 1, 64, None, True)
    ),
    "Python without a loss": (
        "Minibatch[   1-   4]: metric = 0.5 * 64;", Window(None, 1, 4, None, None)
    ),
}  # fmt: skip

EPOCHS = {
    "2015": (
        ("Finished Epoch[ 1 of 3]: [Training Set] TrainLossPerSample = 3.01; EvalErrPerSample = "
        "0.73; AvgLearningRatePerSample = 0.015625; EpochTime=67.710531"),
        EpochEnd(1, None, 67.710531, n_epochs=3, learning_rate=0.015625),
    ),
    "1.1": (
        ("Finished Epoch[12 of 15]: [Training Set] TrainLossPerSample = 0.5; TotalSamplesSeen = "
        "20480; EvalErrPerSample = 0.1; AvgLearningRatePerSample = 0.003125; EpochTime=5.5"),
        EpochEnd(12, None, 5.5, n_epochs=15, total_samples=20480, learning_rate=0.003125),
    ),
    "1.1, one count": (
        ("Finished Epoch[ 1 of 2]: [Training] ce = 1.65 * 4096; err = 0.47; "
        "learningRatePerSample = 0.003125000047; EpochTime=32.141459"),
        EpochEnd(1, 4096, 32.141459, n_epochs=2, learning_rate=0.003125000047),
    ),
    "1.5 to 2.7": (
        ("Finished Epoch[ 1 of 4]: [Training] CE = 1.75 * 10000; errs = 5.5% * 10000; "
        "totalSamplesSeen = 30000; learningRatePerSample = 2e-06; epochTime=0.910396s"),
        EpochEnd(1, 10000, 0.910396, False, False, 4, 30000, 2e-6),
    ),
    "validation of 2015": (
        "Finished Epoch[ 1 of 3]: [Validation Set] TrainLossPerSample = 2.2; EvalErrPerSample = 1",
        EpochEnd(1, None, None, is_validation=True, n_epochs=3),
    ),
    "validation": (
        "Finished Epoch[ 1 of 3]: [Validate] ce = 2.25 * 83050; errs = 61.6% * 83050",
        EpochEnd(1, 83050, None, is_validation=True, n_epochs=3),
    ),
    "Python beta 1": (
        "Finished Epoch [3]: loss = 0.5 * 4096, metric = 12.3% * 4096",
        EpochEnd(3, 4096, None, is_brainscript=False),
    ),
    "Python beta 4": (
        ("Finished Epoch [3]: loss = nan * 4096, metric = 12.3% * 4096 4.123s "
        "(993.5 samples per second)"),
        EpochEnd(3, 4096, 4.123, True, is_brainscript=False),
    ),
    "Windows": (
        ("Finished Epoch[1]: loss = -1.#IND00 * 60, metric = 1.#QNAN% * 60 1.500000e-005s "
        "(1.#INF samples/s);"),
        EpochEnd(1, 60, 1.5e-5, True, is_brainscript=False),
    ),
    "a new Windows": (
        "Finished Epoch[1]: loss = -nan(ind) * 60 2s ( inf samples/s);",
        EpochEnd(1, 60, 2.0, True, is_brainscript=False),
    ),
    "Python beta 9": (
        ("Finished Epoch[3 of 300]: [Training] loss = 0.5 * 4096, metric = 0.123 * 4096 4.5s "
        "( 910.2 samples/s);"),
        EpochEnd(3, 4096, 4.5, n_epochs=300, is_brainscript=False),
    ),
}  # fmt: skip

NOT_TRAINING = [
    "  AdaptiveMinibatchSearch: Epoch[ 2 of 3]-Minibatch[   1-  10, 3.12%]: ce = 1 * 2; time = 1s",
    "  BaseAdaptiveMinibatchSearch: Epoch[ 2 of 3]: anything",
    " Finished Mini-Epoch[2]: Criterion = 2.5",
    "Best epoch per criterion so far: [Validate] ce = 0.5 (epoch 1 of 3)",
    "Final Results: Minibatch[1-79]: CE = 1.8 * 10000; perplexity = 6.0; Err = 0.6 * 10000",
    "Finished Evaluation [1]: Minibatch[1-2]: metric = 88.77% * 1024;",
    "PROGRESS: 12.50%",
]


class TestLines:
    @pytest.mark.parametrize(("line", "expected"), WINDOWS.values(), ids=WINDOWS)
    def test_groups_of_minibatches(self, line, expected):
        assert read_progress(line) == expected

    @pytest.mark.parametrize(("line", "expected"), EPOCHS.values(), ids=EPOCHS)
    def test_ends_of_epochs(self, line, expected):
        assert read_progress(line) == expected

    @pytest.mark.parametrize("line", NOT_TRAINING)
    def test_what_looks_like_training_and_is_none(self, line):
        found = read_progress(line)
        assert isinstance(found, Other)
        assert found.is_trial == ("Adaptive" in line or "Mini-Epoch" in line)

    def test_rows_of_the_table_with_doubling_distances(self):
        assert read_progress("     2.51       2.51      0.922      0.922            64") == (
            TableRow(64, False)
        )
        assert read_progress("      nan        2.3            192") == TableRow(192, True)

    @pytest.mark.parametrize(
        "line", [line for lines in (WINDOWS, EPOCHS) for line, _ in lines.values()]
    )
    def test_a_cut_line_is_never_read_as_another_number_of_steps_or_seconds(self, line):
        whole = read_progress(line)
        for length in range(1, len(line)):
            found = read_progress(line[:length])
            if isinstance(found, Window) and found.seconds is not None:
                assert found == whole
            elif isinstance(found, EpochEnd) and found.seconds is not None:
                # Old lines end in the seconds: the reader knows the last line of a cut file.
                assert found.seconds == whole.seconds or "EpochTime=" in line

    @given(st.text(alphabet="Epoch[]-Minibatch: =;*0123456789.%s ,", max_size=80))
    @example("Epoch[ 1 of 2]-Minibatch[ 1- 2]: = 1; time = s")
    def test_no_line_raises(self, text):
        for head in ("", " Epoch[ 1 of 2]-Minibatch[ 1- 10]: ", "Finished Epoch[1 of 2]: "):
            read_progress(head + text)
            looks_like_progress(head + text)


PIECES = {
    "new": (
        "MPI Rank 1: 12/31/2016 23:59:59:  ", "Epoch[ ", "1", " of ", "4", "]-Minibatch[   ", "1",
        "-  ", "10", ", 12.50%", "]: ", "ce", " = ", "1.5", " * ", "640", "; ", "err", " = ",
        "12.5", "%", " * 640", "; ", "time", " = ", "0.0512", "s; ", "samplesPerSecond", " = ",
        "12500.0", "",
    ),
    "old": (
        "[1,12]<stdout>: MPI Rank 2: ", "Epoch[", "2", " of ", "12", "]-Minibatch[  ", "11", "-  ",
        "20", " of 160", "]: ", "SamplesSeen", " = ", "1280", "; ", "TrainLossPerSample", " =  ",
        "4.25", "; ", "EvalErr[0]PerSample", " = ", "0.75", "; ", "TotalTime", " = ", "1.5",
        "s; TotalTimePerSample = ", "1.1718", "ms; ", "SamplesPerSecond", " = ", "853", ";",
    ),
}  # fmt: skip
ODD = (
    "", " ", "  ", "=", ";", "; ", "*", "%", "-", "0", "-1", "1e-05", "1,5", "1.2.3", "nan",
    "1.#QNAN", "9" * 12, "9" * 13, "1" * 11 + ".5", "a b", "top5", "time", "Time", "TOTALTIME",
    "epochTime", "SamplesSeen = 5; ", "e", "s", "ms", "MPI Rank: ", "99/99/9999 99:99:99: ", "x",
)  # fmt: skip


class TestCommonWindows:
    @settings(max_examples=150)
    @given(
        pieces=st.sampled_from([*PIECES.values()]),
        odd=st.dictionaries(st.integers(0, 29), st.sampled_from(ODD), max_size=2),
    )
    def test_they_are_read_as_all_progress_is(self, pieces, odd):
        self.check("".join(odd.get(place, piece) for place, piece in enumerate(pieces)))

    @pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES)
    def test_both_dialects_of_long_logs_are_among_them(self, pieces):
        assert self.check("".join(pieces))

    def check(self, line) -> bool:
        if (found := read_common_window(line)) is not None:
            expected = without_prefixes(None, 1, line, None)
            rank, window = found
            assert window == read_progress(expected.text)
            assert (None if rank is None else int(rank)) == expected.rank
        return found is not None

    def test_most_lines_of_the_public_logs_are_such_ones(self, shared):
        n_windows = n_common = 0
        for path in sorted((shared / "cntk" / "public_baselines").glob("*.gz")):
            text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
            lines = [line for line in re.split(r"\r\n|\n|\r", text) if "Minibatch[" in line]
            n_common += sum(map(self.check, lines))
            n_windows += sum(isinstance(read_progress(line.text), Window) for line in _lines(path))
        assert (n_common, n_windows) == (2664, 2668)


class TestRealLogs:
    """The counts of a plain search, by the command line's grep or by `re`."""

    @pytest.fixture
    def logs(self, shared):
        folder = shared / "cntk" / "public_baselines"
        return {path.name: path for path in sorted(folder.glob("*.gz"))}

    def test_every_epoch_and_minibatch_line_of_the_public_logs_is_read(self, logs):
        assert len(logs) == 17
        for path in logs.values():
            text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
            lines = re.split(r"\r\n|\n|\r", text)
            finished = [line for line in lines if "Finished Epoch" in line]
            both = [line for line in lines if "Epoch[" in line and "Minibatch[" in line]
            trials = sum("MinibatchSearch: Epoch[" in line for line in both)
            found = [read_progress(line.text) for line in _lines(path)]
            assert sum(isinstance(one, EpochEnd) for one in found) == len(finished) > 0
            assert sum(isinstance(one, Window) for one in found) == len(both) - trials
            validated = sum(isinstance(one, EpochEnd) and one.is_validation for one in found)
            assert validated == len(re.findall(r"Epoch\[.*\[Validat", text))

    def test_no_line_of_a_real_log_is_left_unread(self, shared, logs):
        ours = [
            path
            for path in (shared / "cntk" / "real_runs").glob("*/*")
            if "logrank" in path.name or path.suffix == ".txt"
        ]
        assert len(ours) > 100
        for path in (*logs.values(), *ours):
            unread = [
                line.text for line in _lines(path)
                if looks_like_progress(line.text) and read_progress(line.text) is None
                and "aggregation stats)" not in line.text
            ]  # fmt: skip
            assert unread == [], path


def _lines(path: Path) -> list[Line]:
    file = SourceFile(path, path.name)
    return list(read_lines(Source(path.name, (file,)), file, None, "."))


class TestPrefixes:
    def read(self, tmp_path, text, rank=None):
        path = tmp_path / "x.log"
        path.write_bytes(text.encode())
        file = SourceFile(path, path.name)
        lines = read_lines(Source(path.name, (file,)), file, rank, ".")
        return [(line.text, line.rank, line.at and line.at.isoformat()) for line in lines]

    def test_launcher_driver_and_clock_are_taken_off(self, tmp_path):
        text = (
            "[1,3]<stdout>: Minibatch[\n[1,0]<stderr>:a\n"
            "Mon Nov 30 11:19:37 2026[1,2]<stderr>:b \nMPI Rank 1: 12/31/2016 23:59:59: c\n"
            "MPI Rank 12: \t d\n02/30/2016 00:00:00: e\nplain\n"
        )
        assert self.read(tmp_path, text, 7) == [
            ("Minibatch[", 3, None), ("a", 0, None), ("b", 2, None),
            ("c", 1, "2016-12-31T23:59:59"), ("\t d", 12, None), ("e", 7, None),
            ("plain", 7, None),
        ]  # fmt: skip

    def test_every_style_of_rank_file_is_known(self):
        assert ranks_of_names(["P_train.logrank0", "P_train.logrank11", "notes.txt"]) == {
            "P_train.logrank0": 0, "P_train.logrank11": 11,
        }  # fmt: skip
        assert ranks_of_names(["train.log", "train.log.rank1", "other"]) == {
            "train.log": 0, "train.log.rank1": 1,
        }  # fmt: skip
        assert ranks_of_names(["trainrank0", "trainrank1"]) == {"trainrank0": 0, "trainrank1": 1}
        assert ranks_of_names(["stderr_a.log", "stdout"]) == {}
