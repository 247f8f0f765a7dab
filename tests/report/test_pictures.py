"""Charts by themselves: in notebooks, and as files."""

from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

from fitkit.report.pictures import Picture
from fitkit.report.scaling_figures import stacked

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '<script>alert("1")</script>'


def read(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314 - our own


@pytest.fixture
def picture() -> Picture:
    parts = pd.DataFrame({
        "at": [1, 1, 2, 2], "part": ["compute", HOSTILE] * 2, "seconds": [3.0, 1.0, 2.0, 2.0]
    })  # fmt: skip
    chart = stacked(parts, "n_nodes", "<b>bert</b>")
    assert chart is not None
    return Picture(chart)


def test_the_file_is_xml_with_a_bar_for_every_part_and_scale(picture: Picture, tmp_path: Path):
    picture.save(tmp_path / "new" / "time.svg")
    root = read((tmp_path / "new" / "time.svg").read_text("utf-8"))
    assert root.tag == f"{SVG}svg"
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert (float(root.attrib["width"]), float(root.attrib["height"])) == (width, height)
    bars = [one for one in root.iter(f"{SVG}rect") if one.get("class") == "mark"]
    heights = [float(bar.attrib["height"]) for bar in bars]
    assert [h / min(heights) for h in heights] == pytest.approx([3, 2, 1, 2], rel=0.02)
    words = "".join(root.itertext())
    assert "nodes" in words
    assert not list(root.iter(f"{SVG}script"))


def test_a_file_of_another_kind_is_refused(picture: Picture, tmp_path: Path):
    with pytest.raises(ValueError, match=r"saved as \.svg"):
        picture.save(tmp_path / "time.png")


def test_a_notebook_shows_the_drawing_and_what_it_says(picture: Picture):
    html = picture._repr_html_()
    assert html.count("<svg") >= 1
    assert picture.caption.startswith("<b>bert</b>: at 2 nodes")
    assert "&lt;b&gt;bert&lt;/b&gt;: at 2 nodes" in html
    assert "<script" not in html
    assert "<b>" not in html
    assert "currentColor" in html  # the ink of the notebook, light or dark
    assert "src=" not in html
    assert "url(http" not in html
    read(html)


def test_two_pictures_in_a_notebook_share_no_identifiers(picture: Picture):
    parts = pd.DataFrame({"at": [1], "part": [f"part {n}" for n in range(8)], "seconds": [1.0] * 8}
                         | {"at": [1] * 8})  # fmt: skip
    charts = [stacked(parts.assign(seconds=s), "n_nodes") for s in (1.0, 2.0)]
    found = [
        {one.attrib["id"] for one in read(Picture(chart)._repr_html_()).iter()
         if "id" in one.attrib}
        for chart in charts if chart
    ]  # fmt: skip
    assert all(found)
    assert not found[0] & found[1]
