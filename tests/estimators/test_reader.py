"""Files as people have them."""

import gzip
import zipfile

import pandas as pd
import pytest

from partialbayes.errors import TableError
from partialbayes.estimators._reader import Format, read_table, write_table

GERMAN = "größe;preis;ort\n1,5;1.200,00 €;Köln\n2,5;3.000,50 €;Düren\n"


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("content", "names", "said"),
    [
        ("a,b\n1,2\n", ["a", "b"], ""),
        (
            GERMAN.encode("cp1252"),
            ["größe", "preis", "ort"],
            "semicolons between columns, decimal commas and letters written as cp1252",
        ),
        (GERMAN.encode("utf-16"), ["größe", "preis", "ort"], "utf-16"),
        (b"\xef\xbb\xbf" + GERMAN.encode(), ["größe", "preis", "ort"], "decimal commas"),
        ("a\tb\n1\t2,5\n", ["a", "b"], "tabs between columns and decimal commas"),
        ("a|b\n1|2\n", ["a", "b"], "bars"),
        ("a b  c\n1 2  3\n4 5  6\n", ["a", "b", "c"], "spaces"),
        ('a,b\n"x;y;z;w",2\n"u;v;w;x",3\n', ["a", "b"], ""),
        ("a;b\n1,234;2\n", ["a", "b"], "'1,234' is read with a decimal comma"),
        ("1,2\n3,4\n", ["1", "2"], "does it lack a header?"),
        ("a,a\n1,2\n", ["a", "a.1"], "two columns 'a'"),
        ("# by hand\na,b\n1,2\n", ["a", "b"], "begins with 1 lines of comment"),
        ("sep=;\na;b\n1;2\n", ["a", "b"], "semicolons"),
        ("My sales\n\na,b\n1,2\n", ["a", "b"], "the first 2 lines of t.csv are no header"),
        ("Umsatz\na;b\n1,5;2\n", ["a", "b"], "the first 1 lines of t.csv are no header"),
        ("größe;ort\n1,5;Köln\n2,5;Bonn\n", ["größe", "ort"], "semicolons"),  # 1,5 is not two cells
        ("a,b\n1,2,\n3,4,\n", ["a", "b", "Unnamed: 2"], ""),
        ('a,b\n"two\nlines",2\n', ["a", "b"], ""),
    ],
)
def test_text_files_are_found_out(tmp_path, content, names, said):
    table = read_table(written(tmp_path, "t.csv", content))
    assert list(table.frame) == names
    assert said in " ".join(table.notes)
    assert bool(table.notes) == bool(said)


def test_what_is_said_goes_before_what_is_found(tmp_path):
    path = written(tmp_path, "t.csv", "a;b;c,d\n1;2;3,4\n")
    assert list(read_table(path).frame) == ["a", "b", "c,d"]
    assert list(read_table(path, Format(sep=",")).frame) == ["a;b;c", "d"]
    assert read_table(path, Format(decimal=".")).decimal == "."
    latin = written(tmp_path, "l.csv", "ort\nKöln\n".encode("latin-1"))
    assert read_table(latin, Format(encoding="latin-1")).frame["ort"][0] == "Köln"


def test_other_kinds_of_files(tmp_path):
    frame = pd.DataFrame({"a": [1.5, 2.5], "b": ["x", None]})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_feather(tmp_path / "t.feather")
    written(tmp_path, "t.jsonl", '{"a": 1.5, "b": "x"}\n{"a": 2.5, "b": null}\n')
    written(tmp_path, "t.json", '[{"a": 1.5, "b": "x"}, {"a": 2.5, "b": null}]')
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n1.5,x\n2.5,\n"))
    for path in tmp_path.iterdir():
        table = read_table(path)
        assert list(table.frame) == ["a", "b"], path
        assert [float(value) for value in table.frame["a"]] == [1.5, 2.5]


def test_columns_in_one_object_of_json(tmp_path):
    table = read_table(written(tmp_path, "t.json", '{"a": [1, 2], "b": ["x", null]}'))
    assert table.frame["a"].tolist() == [1, 2]


def test_what_cannot_be_read_says_what_to_do(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.xlsx", "w") as file:
        file.writestr("xl/workbook.xml", "")
    with pytest.raises(TableError, match="needs openpyxl: pip install openpyxl, or save it as CSV"):
        read_table(tmp_path / "t.xlsx")
    path = written(tmp_path, "t.csv", 'a,b\n1,"2\n3,4\n')
    with pytest.raises(TableError, match=r"a quotation mark in row 1 of .* is never closed"):
        read_table(path)


def test_what_is_written_is_read_again(tmp_path):
    frame = pd.DataFrame({"a": ["ä", "b"], "b": [1, 2]})
    for name in ("t.csv", "t.tsv", "t.jsonl", "t.parquet"):
        write_table(tmp_path / name, frame)
        back = read_table(tmp_path / name).frame
        assert back.astype(str).to_numpy().tolist() == [["ä", "1"], ["b", "2"]]
    (tmp_path / "file").write_text("")
    with pytest.raises(TableError, match="cannot be written"):
        write_table(tmp_path / "file" / "t.csv", frame)
