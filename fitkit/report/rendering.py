"""From a template and its parts to one self-contained HTML document."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from fitkit.display import clip, printable

if TYPE_CHECKING:
    from fitkit.report.figures import Chart


def render(template: str, *, static: bool = False, **parts: Any) -> str:
    """Render a page; parts are escaped, and cleaned of what hides or reverses text.

    Parameters
    ----------
    static
        Draw charts as SVG, without a chart library.
    """
    import jinja2  # slow to import, and most programs draw no page

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fitkit.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["clip"] = clip
    environment.filters["is_command"] = _is_command
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.globals["drawing"] = _drawing() if static else None
    return environment.get_template(template).render(plotly_js=_library, **parts)


def _library() -> str:
    """The chart library, about 5 MB; only pages with charts ask for it."""
    from plotly.offline import get_plotlyjs

    found: str = get_plotlyjs()
    return found


def _drawing() -> Callable[[Chart], str]:
    """Draws charts as SVG whose identifiers differ."""
    from fitkit.report.svg import svg

    numbers = count(1)
    return lambda chart: svg(chart.figure, chart.height, chart.label, f"p{next(numbers)}")


def _is_command(name: object) -> bool:
    return str(name).lower() in ("command", "reproduce", "how to reproduce")


def _finalize(value: Any) -> Any:
    """Clean what the template prints, except its own markup, a subclass of ``str``."""
    return printable(value) if type(value) is str else value
