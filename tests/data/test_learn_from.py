"""``segment.learn_from``: the texts that a segmentation is learned on."""

from __future__ import annotations

import pytest
import yaml

from nmt.config.load import load_recipe, recipe_from_text
from nmt.data.prepare import prepare
from nmt.data.segmenters import segmenter_hash
from nmt.errors import UserError


def test_parent_and_child_learn_one_segmentation(tmp_path):
    """From both corpora, which have other languages, in both runs."""
    both = []
    for src, lines in {"pt": "carro casa casas", "gl": "carro coche coches"}.items():
        for split in ("train", "dev"):
            path = tmp_path / src / split
            path.parent.mkdir(exist_ok=True)
            text = "".join(f"{line} {split} {i}\n" for line in lines.split() for i in range(20))
            path.with_suffix(f".{src}").write_text(text)
            path.with_suffix(".en").write_text(text.upper())
        both.append({"path": f"{src}/train", "src": src})
    hashes, alone = [], []
    for src in ("pt", "gl"):
        recipe = {
            "src": src, "tgt": "en", "out": str(tmp_path / f"run-{src}"),
            "data": {"train": f"{src}/train", "dev": f"{src}/dev", "checks": "off"},
            "segment": {"merges": 15, "learn_from": both},
        }  # fmt: skip
        file = tmp_path / f"{src}.yaml"
        file.write_text(yaml.safe_dump(recipe))
        for overrides, found in (([], hashes), (["segment.learn_from=none"], alone)):
            prepared = prepare(load_recipe(file, overrides))
            found.append(segmenter_hash(prepared.segmenter))
    assert len(set(hashes)) == 1
    assert len({*hashes, *alone}) == 3
    for language in ("pt", "gl"):
        for side in (language, "en"):
            (tmp_path / language / f"empty.{side}").write_text("\n\n")
    empty = f"segment.learn_from=[{{path: {tmp_path}/gl/empty}}]"
    with pytest.raises(UserError, match="no pair has text on both sides"):
        prepare(load_recipe(tmp_path / "gl.yaml", [empty]))
    (tmp_path / "gl" / "train.gl").write_text("")
    with pytest.raises(UserError, match=r"train\.gl"):
        prepare(load_recipe(tmp_path / "pt.yaml"))


def test_a_language_model_learns_its_segmentation_on_other_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path, text in {"train.en": "low lower", "dev.en": "low", "train.gl": "casa casas"}.items():
        (tmp_path / path).write_text(f"{text}\n\n" * 20)
    recipe = {
        "task": "causal_lm", "src": "en", "out": str(tmp_path / "run"),
        "data": {"train": "train", "dev": "dev", "checks": "off"}, "segment": {"merges": 4},
    }  # fmt: skip
    file = tmp_path / "lm.yaml"
    file.write_text(yaml.safe_dump(recipe))
    both = "segment.learn_from=[train, {path: train, src: gl}]"
    alone, joint = (prepare(load_recipe(file, given)) for given in ([], [both]))
    assert segmenter_hash(alone.segmenter) != segmenter_hash(joint.segmenter)
    (tmp_path / "train.gl").write_text("\n\n")
    with pytest.raises(UserError, match=r"learn_from \(.*train\.gl\): no line has text"):
        prepare(load_recipe(file, ["segment.learn_from=[{path: train, src: gl}]"]))
    with pytest.raises(UserError, match=r"learn_from\[0\]\.tgt has no effect with task: causal_lm"):
        load_recipe(file, ["segment.learn_from=[{path: train, tgt: gl}]"])


@pytest.mark.parametrize(
    ("segment", "message"),
    [
        ({"learn_from": [{"path": "a", "tag": "<x>"}]}, r"learn_from\[0\].tag has no effect"),
        ({"learn_from": [{"path": "a", "tgt_tag": "<x>"}]}, r"\[0\].tgt_tag has no effect"),
        ({"learn_from": "a", "codes": "b"}, "learn_from has no effect with segment.codes"),
        ({"learn_from": [{"path": "a", "scr": "pt"}]}, r'learn_from\[0\].scr"; did you mean "src"'),
        ({"learn_from": [{"path": "a", "weight": 0}]}, r"learn_from\[0\].weight: \"0\" is not a"),
        ({"kind": "whitespace", "learn_from": "a"}, "is a key of kind: fastbpe or sentencepiece"),
    ],
)
def test_wrong_corpora_to_learn_from(segment, message):
    recipe = {"src": "gl", "tgt": "en", "data": {"train": "t", "dev": "d"}, "segment": segment}
    with pytest.raises(UserError, match=message):
        recipe_from_text(yaml.safe_dump(recipe), "recipe")
