"""Numbers as people read them, and summaries as text and HTML."""

import pytest

from fitkit.display import (
    Summary,
    Table,
    clip,
    format_number,
    format_quantity,
    format_share,
)


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.00123, "0.12 %"),
        (0.00001, "< 0.01 %"),
        (-0.00001, "> −0.01 %"),
        (0.00996, "1.0 %"),
        (14.3, "1,430 %"),
        (0.0, "0 %"),
        (-0.05, "−5.0 %"),
        (float("nan"), "–"),
    ],
)
def test_format_share(fraction, text):
    assert format_share(fraction) == text
    signed = text.replace("< ", "< +") if "<" in text else ("+" if fraction > 0 else "") + text
    assert format_share(fraction, signed=True) == signed


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (22.1e-12, "s/FLOP", "22.1 ps/FLOP"),
        (9.05e-6, "s", "9.05 µs"),
        (999.9e-9, "s", "1.00 µs"),
        (4e-15, "s/FLOP", "0.00400 ps/FLOP"),
        (75.3, "s", "75.3 s"),
        (5400.0, "s", "5,400 s"),
        (1.935e12, "byte/s", "1.94 TB/s"),
        (0.5, "", "0.500"),
        (3.2e-12, "layers", "3.20×10⁻¹² layers"),
        (-2e-3, "s", "−2.00 ms"),
        (float("nan"), "s", "–"),
    ],
)
def test_format_quantity(value, unit, text):
    assert format_quantity(value, unit) == text


def test_number():
    values = [3.0, 1234567.0, 0.25, 2.5e9, float("nan")]
    assert [format_number(value) for value in values] == [
        "3",
        "1,234,567",
        "0.250",
        "2.50×10⁹",
        "–",
    ]


def test_clip_keeps_both_ends():
    assert clip("features.0.conv", 20) == "features.0.conv"
    assert clip("features.denseblock4.denselayer16.conv2", 20) == "features.d…r16.conv2"
    assert len(clip("x" * 10_000)) == 80


def test_summary_is_text_and_html_with_hostile_cells_as_they_are():
    table = Table(("name", "n"), (("[bold]<b>x</b>\x1b[31m", "3"),), "Rows")
    summary = Summary("Title", {"fact": "value"}, [table], ["mind this"])
    text = str(summary)
    assert "[bold]<b>x</b>�[31m" in text
    assert text.splitlines()[0] == "Title"
    assert text.splitlines()[-1] == "! mind this"
    html = summary._repr_html_()
    assert "<td>[bold]&lt;b&gt;x&lt;/b&gt;" in html
    assert "<dt>fact</dt><dd>value</dd>" in html
