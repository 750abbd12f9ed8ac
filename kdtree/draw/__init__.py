"""Draw a draft tree: `text` for a terminal, `svg` for a paper or a browser, `html` for a notebook."""

from .as_svg import html, svg
from .as_text import text

__all__ = ["html", "svg", "text"]
