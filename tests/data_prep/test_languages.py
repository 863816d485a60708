"""One language has many codes; a corpus is found by any of them, and a slip is told."""

from pathlib import Path

import pytest

from data_prep.common import Request
from data_prep.languages import both, find, names
from nmt.errors import UserError


@pytest.mark.parametrize(
    ("code", "there", "found"),
    [
        ("gl", {"gl", "glg"}, "gl"),
        ("gl", {"glg", "en"}, "glg"),
        ("glg", {"gl", "en"}, "gl"),
        ("gl", {"glg_Latn", "eng_Latn"}, "glg_Latn"),
        ("eng_Latn", {"en"}, "en"),
        ("sw", {"swh", "eng"}, "swh"),
        ("swa", {"swh_Latn"}, "swh_Latn"),
        ("pt-br", {"pt", "pt-br"}, "pt-br"),
    ],
)
def test_found(code, there, found):
    assert find(code, there, "here") == found


@pytest.mark.parametrize(
    ("code", "there", "near"),
    [
        ("zh", {"zho_Hans", "zho_Hant"}, "use one of: zho_Hans zho_Hant"),  # two scripts
        ("pt_br", {"pt-br", "gl"}, "did you mean pt-br?"),
        ("xx", {"gl"}, "use one of: gl"),
    ],
)
def test_not_found(code, there, near):
    with pytest.raises(UserError) as caught:
        find(code, there, "here")
    assert near in str(caught.value)


def test_both_are_two():
    request = Request(Path("x"), "glg", "en")
    assert both(request, ["gl", "en"], "here") == ("gl", "en")
    with pytest.raises(UserError, match="the same language"):
        both(Request(Path("x"), "glg", "gl"), ["gl", "en"], "here")


def test_no_code_is_of_two_rows():
    assert names("ara") == ["ara", "ara", "ar", "ara", "arb"]
    assert len(names("en")) == 4
