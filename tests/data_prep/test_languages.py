"""A corpus is found by any code of its language; an unknown code names the nearest one."""

import pytest

from data_prep.languages import check_choice, iso639_3, match_language, match_pair
from nmt.errors import UserError


@pytest.mark.parametrize(
    ("code", "available", "matched"),
    [
        ("gl", {"gl", "glg"}, "gl"),
        ("gl", {"glg", "en"}, "glg"),
        ("glg", {"gl", "en"}, "gl"),
        ("gl", {"glg_Latn", "eng_Latn"}, "glg_Latn"),
        ("eng_Latn", {"en"}, "en"),
        ("sw", {"swh", "eng"}, "swh"),
        ("swa", {"swh_Latn"}, "swh_Latn"),
        ("swh", {"sw"}, "sw"),
        ("ar", {"ara", "arb"}, "ara"),  # the language itself before its standard variety
        ("pt-br", {"pt", "pt-br"}, "pt-br"),
        ("por", {"pt", "pt-br"}, "pt"),
        ("fa", {"pes_Arab", "prs_Arab"}, "pes_Arab"),  # CLDR calls Dari (prs) fa-AF
        ("tw", {"aka_Latn", "twi_Latn"}, "twi_Latn"),  # Twi is a variety of Akan
        ("ff", {"fuv_Latn"}, "fuv_Latn"),
        ("no", {"nob_Latn", "nno_Latn"}, "nob_Latn"),
        ("ps", {"pbt_Arab"}, "pbt_Arab"),
        ("qu", {"quy"}, "quy"),
        ("que", {"quy_Latn"}, "quy_Latn"),
    ],
)
def test_matched(code, available, matched):
    assert match_language(code, available, "here") == matched


@pytest.mark.parametrize(
    ("code", "available", "message"),
    [
        ("zh", {"zho_Hans", "zho_Hant", "eng"}, "use one of: zho_Hans zho_Hant"),  # two scripts
        ("pt_br", {"pt-br", "gl"}, "did you mean pt-br?"),
        ("pt", {"pt-br"}, "did you mean pt-br?"),
        ("fr-ca", {"fr"}, "use one of: fr"),
        ("quz", {"quy"}, "did you mean quy?"),  # another variety of Quechua
        ("emk", {"mnk"}, "use one of: mnk"),  # another variety of Mandingo
        ("xx", {"gl"}, "use one of: gl"),
        ("", {"gl"}, "use one of: gl"),
    ],
)
def test_not_matched(code, available, message):
    with pytest.raises(UserError) as caught:
        match_language(code, available, "here")
    assert str(caught.value).endswith(message) or message in str(caught.value).splitlines()[0]


def test_a_pair_has_two_languages():
    assert match_pair("glg", "en", ["gl", "en"], "here") == ("gl", "en")
    with pytest.raises(UserError, match="the same language"):
        match_pair("glg", "gl", ["gl", "en"], "here")


@pytest.mark.parametrize(
    ("code", "expected"),
    [("gl", "glg"), ("glg_Latn", "glg"), ("tl", "tgl"), ("toki", "toki"), ("pt-br", "pt-br")],
)
def test_iso639_3(code, expected):
    assert iso639_3(code) == expected


@pytest.mark.parametrize("value", ["OPUS-x-v1-eng-glg", "nothing like them"])
def test_of_many_names_the_nearest_three_are_listed(value):
    names = [f"OPUS-{name}-v1-eng-glg" for name in "abcdefghijklmnopqrstuvw"]
    with pytest.raises(UserError) as caught:
        check_choice(value, names, "ID", "here")
    assert sum(name in caught.value.fix for name in names) == 3
