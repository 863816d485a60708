"""Entries of corpora in recipes: what may be written, and errors with their places."""

from __future__ import annotations

import pytest

from nmt.config.entries import CorpusEntry
from nmt.config.load import changed_keys, dump_recipe, load_recipe, recipe_from_text
from nmt.config.recipe import Recipe
from nmt.errors import UserError

HEAD = "src: gl\ntgt: en\n"


def read(data: str, *overrides: str) -> Recipe:
    return recipe_from_text(f"{HEAD}data:\n{data}", "r.yaml", overrides)


@pytest.mark.parametrize(
    "data",
    [
        "  train: a\n  dev: b\n",
        "  train: {path: a, src: pt}\n  dev: {path: b}\n  test: [c]\n",
        "  train: [a, {path: b, weight: 2.5, tag: <bt>, tokenized: no, src: none}]\n"
        "  dev: [b, {path: c, src: pt, tag: <bt>}]\n  test: none\n  temperature: 5\n",
    ],
)
def test_a_dumped_recipe_with_entries_reads_back_equal(data: str):
    recipe = read(data)
    assert recipe_from_text(dump_recipe(recipe), "config.yaml") == recipe


def test_a_path_is_an_entry_with_defaults():
    recipe = read("  train: [a, {path: b, src: pt, weight: 1e1}]\n  dev: b\n")
    assert recipe.data.train == [CorpusEntry(path="a"), CorpusEntry(path="b", src="pt", weight=10)]
    assert [entry.langs(recipe) for entry in recipe.data.train] == [("gl", "en"), ("pt", "en")]
    assert "  train:\n  - a\n  - path: b\n    src: pt\n    weight: 10.0\n  dev: b\n" in dump_recipe(
        recipe
    )


def test_paths_inside_entries_are_relative_to_the_recipe(tmp_path):
    file = tmp_path / "r.yaml"
    file.write_text(f"{HEAD}data: {{train: [{{path: a/b, src: pt}}, c], dev: {{path: d}}}}")
    data = load_recipe(file).data
    assert [entry.path for entry in [*data.train, *data.dev]] == [
        str(tmp_path / name) for name in ("a/b", "c", "d")
    ]


def test_overrides_take_entries():
    recipe = read("  train: a\n  dev: b\n", "data.train=[{path: /x, weight: 2}, /y]", "data.dev=/z")
    assert [entry.path for entry in recipe.data.train] == ["/x", "/y"]
    assert recipe.data.train[0].weight == 2
    assert read("  train: a\n  dev: b\n", "data.dev={path: /x, src: pt}").data.dev[0].src == "pt"


def test_a_key_that_an_override_sets_twice_is_an_error():
    with pytest.raises(UserError, match='key "weight" is set twice'):
        read("  train: a\n  dev: b\n", "data.train={path: /x, weight: 2, weight: 300}")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("train: [a, {path: b, weight: 0}]\n  dev: b", '4:32: data.train[1].weight: "0" is not a'),
        ("train: [a, {path: b, weight: 08}]\n  dev: b", "write 8"),
        ("train: {path: b, tag: bt}\n  dev: b", '4:25: data.train.tag: "bt" is not letters'),
        ("train: {path: b, tag: <a b>}\n  dev: b", "in angle brackets, such as <bt>"),
        ("train: {path: b, tag: <s>}\n  dev: b", "<s> is a special of the vocabulary"),
        ("train: [{path: b, wieght: 2}]\n  dev: b", 'data.train[0].wieght"; did you mean'),
        ("train: [{weight: 2}]\n  dev: b", 'required key "data.train[0].path" is missing'),
        ("train: []\n  dev: b", "data.train: [] is not a path prefix, a mapping that has path"),
        ("train: [[a]]\n  dev: b", "4:11: data.train: [a] is not a path prefix"),
        (
            "train: [{path: a, tag: <x>}]\n  dev: {path: b, tag: <y>}",
            "5:18: data.dev[0].tag: no entry of data.train has the tag <y>; the tags of data.train "
            "are <x>",
        ),
        ("train: a\n  dev: {path: b, tag: <y>}", "<y>; data.train has no tags"),
        (
            "train: [{path: a, tgt_tag: <x>}]\n  dev: {path: b, tgt_tag: <y>}",
            "5:18: data.dev[0].tgt_tag: no entry of data.train has the tgt_tag <y>; the tgt_tags",
        ),
        ("train: {path: a, tag: <y>}\n  dev: {path: b, tgt_tag: <y>}", "no tgt_tags; remove"),
        (
            "train: [{path: a, tgt_tag: <x>}, {path: c, tgt_tag: <y>}]\n  dev: b",
            "data.dev[0].tgt_tag is missing, but all of data.train has one; the tgt_tags of ",
        ),
        ("train: {path: b, tgt_tag: <s>}\n  dev: b", "tgt_tag: <s> is a special of the"),
        ("train: a\n  dev: [b, c]", "data.dev[1]: two sets are called gl-en; give each a name"),
        ("train: [{path: a, src: en}]\n  dev: b", "source and target language are both en"),
        ("train: a\n  dev: {path: b, select: false}", "data.dev: no set selects"),
        ("train: a\n  dev: b\n  test: {path: c, select: false}", "data.test[0].select has no"),
        (
            "train: a\n  dev: {path: b, src: en, tgt: en}",
            "data.dev[0].tgt: source and target language are both en",
        ),
        ("train: a\n  dev: b\n  temperature: 0.5", "a number from 1 to"),
        ("train: [{path: a, path: b}]\n  dev: b", 'key "data.train[0].path" is set twice'),
    ],
)
def test_errors_name_the_entry_and_its_place(data, message):
    with pytest.raises(UserError) as error:
        read(f"  {data}\n")
    assert message in str(error.value)
    assert str(error.value).startswith("r.yaml:")


@pytest.mark.parametrize("key", ["tag", "tgt_tag"])
def test_an_entry_has_no_pairs_in_a_language_model(key: str):
    text = f"task: causal_lm\nsrc: en\ndata: {{train: {{path: a, {key}: <x>}}, dev: b}}\n"
    with pytest.raises(
        UserError, match=rf"data\.train\[0\]\.{key} has no effect with task: causal_lm; remove it"
    ):
        recipe_from_text(text, "r.yaml")


def test_the_tags_that_all_training_data_has_are_those_of_dev_sets():
    one = "{path: a, tag: <x>, tgt_tag: <y>}"
    for train, default, dev_tags in (
        (one, {"tag": "<x>", "tgt_tag": "<y>"}, ("<x>", "<y>")),
        (f"{one}, {{path: b, tag: <z>, tgt_tag: <y>}}", {"tgt_tag": "<y>"}, (None, "<y>")),
        (f"{one}, {{path: b, tgt_tag: <y>}}", {"tgt_tag": "<y>"}, (None, "<y>")),
        (f"{one}, b", {}, (None, None)),
    ):
        recipe = read(f"  train: [{train}]\n  dev: b\n")
        assert recipe.directions.default_tags == default
        assert recipe.data.dev[0].direction(recipe).tags == dev_tags
    recipe = read(f"  train: [{one}]\n  dev: [{{path: b, tgt_tag: <y>, name: n}}]\n")
    assert recipe.data.dev[0].direction(recipe).tags == ("<x>", "<y>")


def test_the_tag_of_the_target_decides_the_target_language():
    entries = (
        "{path: a, tgt: fr, tag: <gl>, tgt_tag: <fr>}",
        "{path: b, tgt: es, tag: <gl>, tgt_tag: <es>}",
        "{path: c, tgt: pt, tag: <2pt>}",
        "{path: d, tgt: it, tgt_tag: <romance>}",
        "{path: e, tgt: ca, tgt_tag: <romance>}",
        "f",
    )
    recipe = read(f"  train: [{', '.join(entries)}]\n  dev: b\n")
    assert recipe.directions.tag_targets == {"<fr>": "fr", "<es>": "es", "<2pt>": "pt"}
    assert not recipe.directions.tgt_tag_required


def test_the_options_for_a_set_leave_out_what_is_the_default():
    train = "[a, {path: b, src: pt, tag: <x>}]"
    for entry, options in (
        ("d", {}),
        ("{path: d, src: gl}", {}),
        ("{path: d, src: pt, tag: <x>}", {"src": "pt", "tag": "<x>"}),
        ("{path: d, src: es}", {}),  # which the model was not trained on
    ):
        recipe = read(f"  train: {train}\n  dev: {entry}\n")
        assert recipe.options_for(recipe.data.dev[0]) == options


def test_what_changed_in_entries_besides_their_paths():
    old = read("  train: [a, {path: b, weight: 2, tag: <x>}]\n  dev: d\n")
    moved = "  train: [{path: c, src: gl, weight: 1}, {path: b, weight: 2, tag: <x>}]\n  dev: e\n"
    assert {*changed_keys(old, read(moved))} == {"data.train", "data.dev"}
    new = read("  train: [a, {path: b, weight: 3, src: pt}]\n  dev: {path: d, tokenized: yes}\n")
    changes = changed_keys(old, new)
    assert {key: change for key, change in changes.items() if "[" in key} == {
        "data.train[1].src": "gl -> pt",
        "data.train[1].tag": "<x> -> none",
        "data.train[1].weight": "2.0 -> 3.0",
        "data.dev[0].tokenized": "false -> true",
    }
