"""Answer sheets: rows are matched with images by id or by file name, and never with another image."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from codline.core.errors import DataError
from codline.data import tables
from codline.data.answers import KnownImages, Sheet, is_rounded, read_sheet, refuse

CLASSES = ["cat", "dog"]
FIRST, SECOND, THIRD = 1234567890123456789, 8765432109876543210, 42
image_ids = st.integers(2**40, 2**63 - 1)


@pytest.fixture
def images(tmp_path: Path) -> KnownImages:
    """Two images with large ids, of which the second has two names; a third has none."""
    names = {"a.jpg": FIRST, "b.jpg": SECOND, "sub/copy of b.jpg": SECOND}
    tables.write_columns([list(names.values()), list(names)], tables.FILES, tmp_path / "files.parquet")
    ids = [FIRST, SECOND, THIRD]
    tables.write_columns([ids, ["hash"] * len(ids)], tables.POOL, tmp_path / "pool.parquet")
    return KnownImages(tmp_path / "files.parquet", tmp_path / "pool.parquet")


def read(tmp_path: Path, images: KnownImages, *rows: str, header: str = "file,label,id") -> Sheet:
    path = tmp_path / "c1.csv"
    path.write_text("\n".join([header, *rows]), encoding="utf-8")
    return read_sheet(path, images, CLASSES)


@pytest.mark.parametrize(
    ("row", "image"),
    [
        (f"a.jpg,cat,{FIRST}", FIRST),
        (f"renamed.jpg,cat,{FIRST}", FIRST),
        (f",cat,{THIRD}", THIRD),
        ("a.jpg,cat,", FIRST),
        ("sub/copy of b.jpg,cat,", SECOND),
        ("a.jpg,cat,1.23457E+18", FIRST),
        ("a.jpg,cat,1234567890123450000", FIRST),
        ("b.jpg,cat,8.765432109876543e+18", SECOND),
    ],
)
def test_read_sheet_finds_the_image_of_a_row(tmp_path: Path, images: KnownImages, row: str, image: int) -> None:
    sheet = read(tmp_path, images, row)
    assert {i: answer.label for i, answer in sheet.answers.items()} == {image: "cat"}
    assert (sheet.problems, sheet.unknown) == ([], [])


@pytest.mark.parametrize(
    "row", [f"a.jpg,cat,{FIRST + 2}", "a.jpg,cat,8.76543E+18", "c.jpg,cat,", ",cat,99999", "c.jpg,cat,1.23457E+18"]
)
def test_read_sheet_gives_no_image_to_a_row_with_other_content_or_an_unknown_name(
    tmp_path: Path, images: KnownImages, row: str
) -> None:
    sheet = read(tmp_path, images, row)
    assert ([found.line for found in sheet.unknown], sheet.answers, sheet.problems) == ([2], {}, [])


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (
            [f"b.jpg,cat,{FIRST}"],
            f"2: found id {FIRST} and the file b.jpg, which is another image (id {SECOND}); expec",
        ),
        (["a.jpg,cta,"], "2: found the label 'cta'; did you mean cat?"),
        (["a.jpg,Cat,"], "2: found the label 'Cat'; did you mean cat?"),
        (["a.jpg,cat,first"], "2: found the id 'first', expected a number"),
        (["b.jpg,cat,", "", "sub/copy of b.jpg,dog,"], "4: sub/copy of b.jpg is labelled dog, in line 2 cat; expected"),
        ([",cat,"], "2: found the label 'cat', but neither a file nor an id"),
    ],
)
def test_read_sheet_names_the_line_of_a_problem(
    tmp_path: Path, images: KnownImages, rows: list[str], problem: str
) -> None:
    (found,) = read(tmp_path, images, *rows).problems
    assert found.startswith(f"{tmp_path / 'c1.csv'}: line {problem}")


def test_read_sheet_takes_who_gave_a_label_and_rows_without_one(tmp_path: Path, images: KnownImages) -> None:
    rows = [f"Ann,cat,{FIRST}", f",dog,{SECOND}", f"Ann,,{THIRD}"]
    sheet = read(tmp_path, images, *rows, header=" Annotator , LABEL,id")
    assert {i: answer.annotator for i, answer in sheet.answers.items()} == {FIRST: "Ann", SECOND: "people"}
    assert list(sheet.rows) == [FIRST, SECOND, THIRD]


def test_read_sheet_accepts_the_same_label_twice(tmp_path: Path, images: KnownImages) -> None:
    sheet = read(tmp_path, images, "b.jpg,cat,", "sub/copy of b.jpg,cat,")
    assert (list(sheet.answers), sheet.problems) == ([SECOND], [])


def test_refuse_lists_the_first_problems_and_counts_the_others() -> None:
    refuse([])
    with pytest.raises(DataError, match=r"^p0; p1; .*; p9; and 3 more$"):
        refuse([f"p{i}" for i in range(13)])


@given(image_ids, st.integers(6, 17))
def test_is_rounded_recognises_what_spreadsheets_make_of_an_id(image_id: int, digits: int) -> None:
    unit = 10 ** max(len(str(image_id)) - digits, 0)
    for text in (f"{image_id:.{digits - 1}E}", str(image_id // unit * unit), repr(float(image_id))):
        assert int(float(text)) == image_id or is_rounded(text, image_id) or str(image_id) == text


@given(image_ids, image_ids, st.integers(6, 15))
def test_is_rounded_is_false_for_an_id_that_differs_in_the_first_digits(one: int, other: int, digits: int) -> None:
    differs = abs(one - other) > 2 * 10 ** (len(str(one)) - digits + 1)
    rounded = f"{one:.{digits - 1}E}".replace("0E", "1E")  # trailing zeros would leave fewer digits
    assert not (differs and is_rounded(rounded, other))
    assert one == other or not is_rounded(str(one // 10 * 10 + 1), other) or abs(one - other) <= 10
