"""From a template and its parts to one self-contained HTML document."""

from __future__ import annotations

from typing import Any

from fitkit.display import clip, printable


def render(template: str, **parts: Any) -> str:
    """Render a page; parts are escaped, and cleaned of what hides or reverses text."""
    # Both are slow to import, and most programs draw no page.
    import jinja2
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fitkit.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["clip"] = clip
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template(template).render(plotly_js=get_plotlyjs, **parts)


def _finalize(value: Any) -> Any:
    """Clean what the template prints, except its own markup, a subclass of ``str``."""
    return printable(value) if type(value) is str else value
