"""Write self-contained HTML pages: one file, with its pictures inside."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

from partialbayes._utils.atomic import write_atomically
from partialbayes.errors import CheckpointError


def write_page(
    path: Path, title: str, body: Iterable[str], *, style: str = "", script: str = ""
) -> None:
    """Write a page of HTML elements atomically, with more CSS and JavaScript if given."""
    name = html.escape(title)
    own_style = resources.files("partialbayes.reporting").joinpath("page.css").read_text("utf-8")
    ending = f"<script>{script}</script>\n" if script else ""
    page = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{name}</title>'
        f"<style>\n{own_style}{style}</style></head>\n"
        f"<body><h1>{name}</h1>\n" + "\n".join(body) + f"\n{ending}</body></html>\n"
    )
    try:
        write_atomically(path, page.encode(), mode=0o644)
    except OSError as error:
        raise CheckpointError(
            f"{path} could not be written ({error.strerror}); free some space or choose another path."
        ) from error


def picture(png: bytes, caption: str, description: str | None = None, file: str | None = None) -> str:
    """Return a figure element with the picture inside and a caption below it.

    ``description`` is for readers who do not see it, the caption by default. ``file`` is a separate file
    of the picture to link to, relative to the page.
    """
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    text = html.escape(description or caption)
    image = f'<img src="{source}" alt="{text}">'
    if file is not None:
        image = f'<a href="{html.escape(file)}">{image}</a>'
    return f"<figure>{image}<figcaption>{html.escape(caption)}</figcaption></figure>"


def short(value: Any, group: str = "") -> str:
    """Format a number with its significant digits; ``group`` separates thousands."""
    number = float(value)
    if not math.isfinite(number):
        return str(number)
    size = math.floor(math.log10(abs(number))) if abs(number) >= 1e-4 else -4
    if size >= 12:
        return f"{number:.3e}"
    text = f"{number:.{min(4, max(0, 3 - size))}f}"
    if size >= 4:
        return f"{number:,.0f}".replace(",", group)
    return text.removeprefix("-") if float(text) == 0 else text
