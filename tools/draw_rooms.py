"""Draw the rooms of the package, floor by floor, to docs/figures/rooms.svg.

Run: python -m tools.draw_rooms
"""

from pathlib import Path

FLOORS = {
    "for people": "cli estimators reporting plots analysis",
    "running": "pretrained online training _engine callbacks io metrics prediction",
    "learning": "algorithms samplers",
    "particles": "kernels feynman_kac annealing resampling weights",
    "what is modeled": "model priors subsets likelihoods parameters networks",
    "contracts": "parallel _utils errors results types",
}
WIDTH, LEFT, ROOM, FLOOR, GAP = 900, 150, 34, 54, 26
INK, SOFT, BLUE = "#22303c", "#9aa5ad", "#0072B2"


def drawing() -> str:
    """Return the picture: a floor per group of rooms, imports pointing down."""
    height = len(FLOORS) * (FLOOR + GAP) - GAP + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="The rooms of the package; each imports only from rooms below it" '
        'font-family="DejaVu Sans, Verdana, sans-serif" font-size="14">',
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#fff"/>',
        f'<marker id="tip" markerWidth="8" markerHeight="8" refX="6" refY="4" orient="auto">'
        f'<path d="M0 0 8 4 0 8z" fill="{SOFT}"/></marker>',
    ]
    for floor, (name, rooms) in enumerate(FLOORS.items()):
        top = 10 + floor * (FLOOR + GAP)
        parts.append(
            f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - 12}" height="{FLOOR}" rx="6" '
            f'fill="#f3f6f8" stroke="{SOFT}"/>'
            f'<text x="{LEFT - 12}" y="{top + FLOOR / 2 + 5}" text-anchor="end" fill="{INK}">'
            f"{name}</text>"
        )
        names = rooms.split()
        widths = [8.6 * len(room) + 18 for room in names]
        space = (WIDTH - LEFT - 12 - sum(widths)) / (len(names) + 1)
        x = LEFT + space
        for room, width in zip(names, widths, strict=True):
            private = room.startswith("_")
            parts.append(
                f'<rect x="{x:.1f}" y="{top + (FLOOR - ROOM) / 2}" width="{width:.1f}" height="{ROOM}" '
                f'rx="4" fill="#fff" stroke="{SOFT if private else BLUE}"'
                f"{' stroke-dasharray=' + chr(34) + '4 3' + chr(34) if private else ''}/>"
                f'<text x="{x + width / 2:.1f}" y="{top + FLOOR / 2 + 5}" text-anchor="middle" '
                f'fill="{INK}">{room}</text>'
            )
            x += width + space
        if floor < len(FLOORS) - 1:
            middle = LEFT + (WIDTH - LEFT - 12) / 2
            parts.append(
                f'<path d="M{middle} {top + FLOOR + 2}V{top + FLOOR + GAP - 4}" stroke="{SOFT}" '
                'stroke-width="2" marker-end="url(#tip)"/>'
            )
            if floor == 0:
                parts.append(
                    f'<text x="{middle + 12}" y="{top + FLOOR + 18}" fill="{SOFT}" font-size="12">'
                    "imports</text>"
                )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    Path("docs/figures/rooms.svg").write_text(drawing())
