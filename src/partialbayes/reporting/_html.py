"""Self-contained HTML pages: one file with its pictures inside, that needs nothing from elsewhere."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from partialbayes._utils.atomic import write_atomically
from partialbayes.errors import CheckpointError

_STYLE = """
:root { color-scheme: light dark; --text: #22303c; --quiet: #5b6973; --line: #d5dce1; --back: #fff;
        --box: #f4f6f8; --link: #0b5cad; --bar: #0072b2; --alarm: #b3261e; --alarm-back: #fdecea;
        --right: 0, 114, 178; --wrong: 213, 94, 0; }
@media (prefers-color-scheme: dark) {
  :root { --text: #dde4ea; --quiet: #9dabb6; --line: #3a4650; --back: #14191e; --box: #1f272e;
          --link: #7db8f5; --bar: #56b4e9; --alarm: #ff8a80; --alarm-back: #3b1715;
          --right: 86, 180, 233; --wrong: 230, 120, 30; }
  img { filter: invert(.93) hue-rotate(180deg); mix-blend-mode: lighten; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
a { color: var(--link); }
h1 { font-size: 1.7rem; line-height: 1.25; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin-top: 1.6rem; }
h1, h2, h3, p, li { overflow-wrap: anywhere; }
.lead { font-size: 1.1rem; }
.alarm { color: var(--alarm); background: var(--alarm-back); border-left: 4px solid var(--alarm);
         padding: .6rem .9rem; font-weight: 600; }
table { border-collapse: collapse; }
td, th { padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top;
         overflow-wrap: anywhere; }
td.number, th.number { font-variant-numeric: tabular-nums; text-align: right; white-space: nowrap; }
.wide { overflow-x: auto; } .wide th { font-weight: 600; color: var(--quiet); }
.wide td, .wide th { overflow-wrap: normal; } .facts th { min-width: 6rem; }
.scores td:first-child { white-space: nowrap; } .scores td.note { min-width: 13rem; }
.rows td:first-child, .confusion th { white-space: nowrap; }
.confusion td, .confusion th { padding: .3rem .7rem; }
.confusion td.right { background: rgba(var(--right), calc(.55 * var(--share))); }
.confusion td.wrong { background: rgba(var(--wrong), calc(.75 * var(--share))); }
.bars { width: 100%; } .bars td.bar { width: 60%; min-width: 6rem; vertical-align: middle; }
.bars span { display: block; height: .8rem; background: var(--bar); border-radius: 2px; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; background: #fff; }
figcaption, .note { color: var(--quiet); font-size: .9rem; }
pre { background: var(--box); padding: .8rem; overflow-x: auto; font-size: .85rem; }
@media (max-width: 40rem) {
  .confusion td, .confusion th { padding: .3rem .35rem; font-size: .9rem; }
  .rows td, .rows th { padding-right: .5rem; font-size: .9rem; }
  .scores tr { display: grid; grid-template-columns: 1fr auto 5.5rem; }
  .scores td.note, .scores th.note { grid-column: 1 / -1; padding-top: 0; }
  .scores td:first-child { white-space: normal; } }
summary { cursor: pointer; color: var(--link); padding: .3rem 0; }
.inside { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: .6rem; }
.row { display: flex; flex-wrap: wrap; gap: 1rem; } .row figure { flex: 1 1 20rem; min-width: 0; }
.row figure img { width: 100%; max-width: 30rem; }
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

    Raises:
        CheckpointError: The disk refused.
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
    try:
        write_atomically(path, page.encode(), mode=0o644)
    except OSError as error:
        raise CheckpointError(
            f"{path} could not be written ({error.strerror}); free some space or choose another place."
        ) from error


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


def short(value: Any, group: str = "") -> str:
    """A number with the digits that count, and no exponent where there need not be one.

    Args:
        value: The number.
        group: What to put between thousands.
    """
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
