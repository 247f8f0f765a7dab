"""Chromium without a window, driven over its DevTools protocol, and pages of sample runs."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--remote-debugging-port=0", "about:blank",
)  # fmt: skip
DRAWN = """new Promise(done => {
  const look = () => [...document.querySelectorAll(".chart")].every(
    chart => chart.querySelector("svg")) ? done(true) : setTimeout(look, 50);
  document.readyState === "complete" ? look() : addEventListener("load", look);
})"""

# Of each chart: size of its drawing, and how many marks with an extent lie in it.
CHARTS = """[...document.querySelectorAll(".chart, .drawn")].map(chart => {
  const drawing = chart.matches(".drawn") ? chart : chart.querySelector("svg");
  const box = drawing.getBoundingClientRect();
  const marks = [...chart.querySelectorAll(
      ".point path, path.point, .js-line, .points path, .mark, .dot")]
    .filter(mark => { const seen = mark.getBoundingClientRect();
                      return seen.width > 0 || seen.height > 0; });
  return [box.width, box.height, marks.length];
})"""
# What reaches beyond the window, but inside of what scrolls by itself.
BEYOND = """[...document.querySelectorAll("body *")].filter(one =>
  !one.closest(".scroll, svg, .hidden") && getComputedStyle(one).display !== "none" &&
  one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(one => one.outerHTML.slice(0, 80))"""
# Texts of charts that the drawing cuts off.
CUT_OFF = """[...document.querySelectorAll(
    ".chart .main-svg .xtick text, .chart .main-svg .ytick text, .drawn text")].filter(text => {
  const svg = text.closest("svg.main-svg, svg.drawn").getBoundingClientRect();
  const box = text.getBoundingClientRect();
  return box.left < svg.left - 1.5 || box.right > svg.right + 1.5;
}).map(text => text.textContent)"""
FAULTS = """axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations
  .filter(fault => ["serious", "critical"].includes(fault.impact))
  .map(fault => [fault.id, fault.nodes.length, fault.nodes[0].html.slice(0, 300),
                 fault.nodes[0].failureSummary]))"""

# Two branches that join: each layer's times on 1, 2 and 4 GPUs, and what a change of them costs.
NETWORK = {
    "model": "branches",
    "global_batch": 32,
    "layers": [
        {"id": k, "name": name, "prev": before, "gpus": [1, 2, 4], "sync_us": [0, 40, 80],
         "compute_us": [one, 0.6 * one, 0.4 * one], "no_parallel_us": one}
        for k, (name, before, one) in enumerate(
            [("stem", [], 900), ("left", [0], 1500), ("right", [0], 1200), ("join", [1, 2], 400)]
        )
    ],
    "edges": [
        {"src": src, "dst": dst, "xfer_us": [[0, 30, 40], [30, 0, 30], [40, 30, 0]]}
        for src, dst in [(0, 1), (0, 2), (1, 3), (2, 3)]
    ],
}  # fmt: skip


def absent(reason: str) -> None:
    """Skip, unless this is continuous integration, which has to have it."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class Tab:
    """A page in the browser: what it said, what it asked for, what it looks like."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.numbers = itertools.count(1)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; what happens meanwhile is noted."""
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (message := json.loads(self.socket.recv())).get("id") != number:
            self._note(message.get("method", ""), message.get("params", {}))
        assert "error" not in message, message
        return message["result"]

    def _note(self, event: str, told: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"])[:500])
        elif event == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(told["args"])[:500])
        elif event == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(told["entry"]["text"])
        elif event == "Page.javascriptDialogOpening":
            self.complaints.append(f"dialog: {told['message'][:80]}")
            self.socket.send(
                json.dumps({"id": next(self.numbers), "method": "Page.handleJavaScriptDialog",
                            "params": {"accept": True}})
            )  # fmt: skip
        elif event == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])

    def run(self, script: str) -> Any:
        """Value of an expression, a promise's when it is kept."""
        found = self.ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def look_at(self, path: Path, width: int = 1280, scheme: str = "light") -> None:
        """Open a file at a width, and wait until every chart is drawn."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)
        self.complaints.clear()
        self.requests.clear()
        self.ask("Page.navigate", url=path.as_uri())
        assert self.run(DRAWN)

    def picture(self, path: Path) -> None:
        """Save the whole page as PNG: what a person sees."""
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextlib.contextmanager
def open_browser(folder: Path) -> Iterator[Tab]:
    """A tab of a browser of its own, which keeps what it writes in a folder."""
    try:
        import websocket
    except ImportError:
        absent("needs websocket-client, which the extra `test` brings")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        absent("needs Chromium: apt-get install chromium")
        return
    command = [program, f"--user-data-dir={folder}", *FLAGS]
    with (folder / "stderr.txt").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        address = _address(folder / "DevToolsActivePort")
        with contextlib.closing(
            websocket.create_connection(address, timeout=60, suppress_origin=True)
        ) as socket:
            yield Tab(socket)
    finally:
        process.terminate()
        process.wait(20)


def _address(told: Path) -> str:
    for _ in range(600):
        lines = told.read_text().split() if told.exists() else []
        if len(lines) == 2:
            with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json") as answer:
                pages = [one for one in json.load(answer) if one["type"] == "page"]
            if pages:
                return pages[0]["webSocketDebuggerUrl"]
        time.sleep(0.1)
    raise AssertionError("Chromium did not start")


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """The browser's only tab; each test opens its page in it."""
    with open_browser(tmp_path_factory.mktemp("chromium")) as tab:
        yield tab


@pytest.fixture(scope="session")
def axe() -> str:
    """Script of axe-core, under MPL-2.0, from a package that carries it: we ship no copy."""
    try:
        files = metadata.distribution("axe-playwright-python").files or ()
    except metadata.PackageNotFoundError:
        files = ()
    for file in files:
        if file.name == "axe.min.js":
            return Path(str(file.locate())).read_text(encoding="utf-8")
    absent("needs axe-core: pip install --no-deps axe-playwright-python")
    raise AssertionError


@pytest.fixture
def drawn(tab: Tab) -> Callable[[Path, int], int]:
    """Opens a page at a width, where it has to be whole and quiet; the number of its charts."""

    def look(path: Path, width: int) -> int:
        tab.look_at(path, width)
        charts = tab.run(CHARTS)
        for drawn_width, height, marks in charts:
            # Four fifths of a narrow window; a column of a wide one.
            assert min(0.8 * width, 300) < drawn_width <= width
            assert height >= 100
            assert marks >= 1
        assert tab.run("document.documentElement.scrollWidth") <= width
        assert tab.run(BEYOND) == []
        assert tab.run(CUT_OFF) == []
        assert tab.complaints == []
        assert tab.requests == [path.as_uri()]
        return len(charts)

    return look


@pytest.fixture
def faults(tab: Tab, axe: str) -> Callable[..., list[Any]]:
    """Serious faults that axe-core finds in a page, with all of it unfolded."""

    def ask(path: Path, scheme: str = "light") -> list[Any]:
        tab.look_at(path, scheme=scheme)
        tab.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        tab.run(axe + ";0")
        found: list[Any] = tab.run(FAULTS)
        return found

    return ask


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory, data: Path) -> dict[str, Path]:
    """Pages of sample runs by name, as a user would write them; those with static are SVG."""
    import fitkit

    folder = tmp_path_factory.mktemp("pages")
    dataset = fitkit.ingest(sorted(data.glob("pytorch/tinygpt_*")), folder / "runs")
    asked = {
        "step": {"folds": 4, "where": 'instrument == "none"'},
        "phases": {"leave_out": "local_batch", "where": 'instrument == "recorder"'},
    }
    found = {}

    for recipe, split in asked.items():
        report = fitkit.validate(dataset, recipe=recipe, **split)
        report.command = f"fitkit validate runs --recipe {recipe}"
        for name, static in ((recipe, False), (f"{recipe} static", True)):
            found[name] = folder / f"{name}.html"
            report.to_html(found[name], static=static)
    (folder / "network.json").write_text(json.dumps(NETWORK))
    plan = fitkit.plan(folder / "network.json", n_gpus=4, frontier=True)
    for name, static in (("plan", False), ("plan static", True)):
        found[name] = folder / f"{name}.html"
        plan.to_html(found[name], static=static)
    return found
