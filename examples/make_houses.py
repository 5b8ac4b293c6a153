"""Write three small tables of houses as half of Europe writes them, for a first hour with a table.

Semicolons between columns, decimal commas, letters in cp1252; dates, units, categories, gaps, a column
that counts the rows, and prices with a long tail. `houses_new.csv` has a town that is new.
"""

import sys
from pathlib import Path

import numpy as np


def main(folder: Path) -> None:
    """Write them to a folder."""
    random = np.random.default_rng(0)
    rows = 500
    size = random.lognormal(4.6, 0.35, rows)
    town = random.choice(["Köln", "Düren", "Bonn", "Aachen"], rows, p=[0.4, 0.3, 0.2, 0.1])
    day = random.integers(0, 1400, rows)
    garden = random.choice(["ja", "nein"], rows)
    worth = {"Köln": 0.5, "Düren": -0.3, "Bonn": 0.2, "Aachen": 0.0}
    log_price = (
        7.9
        + 1.05 * np.log(size)
        + [worth[name] for name in town]
        + 0.15 * (garden == "ja")
        + 0.00015 * day
        + 0.15 * random.normal(size=rows)
    )
    lines = []
    for row in range(rows):
        sold = np.datetime64("2021-01-01") + int(day[row])
        area = "" if random.random() < 0.06 else f"{size[row]:.1f} m²".replace(".", ",")
        price = f"{np.exp(log_price[row]):_.2f} €".replace(".", ",").replace("_", ".")
        lines.append(f"{row + 1};{area};{town[row]};{garden[row]};{sold};{price}")
    header = "Nr;Fläche;Ort;Garten;Verkauft am;Preis"
    new = [line.rpartition(";")[0] for line in lines[400:]]
    new[3] = new[3].replace(town[403], "Siegburg")
    for name, head, content in (
        ("houses.csv", header, lines[:400]),
        ("houses_later.csv", header, lines[400:]),
        ("houses_new.csv", header.rpartition(";")[0], new),
    ):
        (folder / name).write_bytes("\n".join([head, *content, ""]).encode("cp1252"))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
