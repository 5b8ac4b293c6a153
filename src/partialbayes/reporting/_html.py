"""Self-contained HTML pages: one file with its pictures inside, that needs nothing from elsewhere."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable
from pathlib import Path

from partialbayes._utils.atomic import write_atomically

_STYLE = """
:root { color-scheme: light dark; --text: #22303c; --quiet: #5b6973; --line: #d5dce1; --back: #fff;
        --box: #f4f6f8; --link: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --text: #dde4ea; --quiet: #9dabb6; --line: #3a4650; --back: #14191e; --box: #1f272e;
          --link: #7db8f5; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
a { color: var(--link); }
h1 { font-size: 1.7rem; line-height: 1.25; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
h1, h2, h3, p, li { overflow-wrap: anywhere; }
table { border-collapse: collapse; }
td, th { padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top;
         overflow-wrap: anywhere; }
td.number { font-variant-numeric: tabular-nums; text-align: right; white-space: nowrap; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; background: #fff; }
figcaption, .note { color: var(--quiet); font-size: .9rem; }
pre { background: var(--box); padding: .8rem; overflow-x: auto; font-size: .85rem; }
.row { display: flex; flex-wrap: wrap; gap: 1rem; } .row figure { flex: 1 1 20rem; min-width: 0; }
"""


def write_page(
    path: Path, title: str, body: Iterable[str], *, style: str = "", script: str = ""
) -> None:
    """Write a page; it appears whole or not at all.

    Args:
        path: The file.
        title: Any text, at the top and in the window's title.
        body: Elements, as HTML.
        style: CSS after that of every page.
        script: JavaScript to run at the end; there is no script element without.
    """
    name = html.escape(title)
    ending = f"<script>{script}</script>\n" if script else ""
    page = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{name}</title>'
        f"<style>{_STYLE}{style}</style></head>\n"
        f"<body><h1>{name}</h1>\n" + "\n".join(body) + f"\n{ending}</body></html>\n"
    )
    write_atomically(path, page.encode(), mode=0o644)


def picture(png: bytes, caption: str, description: str | None = None, file: str | None = None) -> str:
    """A picture inside the page.

    Args:
        png: The file's content.
        caption: Any text, below the picture.
        description: For those who do not see it; the caption by default.
        file: Where the picture is by itself, seen from the page: a click on it leads there.
    """
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    text = html.escape(description or caption)
    image = f'<img src="{source}" alt="{text}">'
    if file is not None:
        image = f'<a href="{html.escape(file)}">{image}</a>'
    return f"<figure>{image}<figcaption>{html.escape(caption)}</figcaption></figure>"
