"""nmt-suggest --parent: a recipe that fine-tunes another run."""

from __future__ import annotations

import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from nmt.apps.suggest import finetune, speed
from nmt.apps.suggest.corpus import CorpusPaths
from nmt.apps.suggest.finetune import ParentModel, _tags_of
from nmt.apps.suggest.speed import Setting
from nmt.apps.suggest.text import Expectation
from nmt.cli import suggest as command
from nmt.cli import train
from nmt.cli.convert import main as convert
from nmt.config.entries import Direction, Directions
from nmt.config.load import load_recipe
from nmt.config.recipe import Recipe
from nmt.config.sizes import CPU
from nmt.store.model import Origin
from tests.run_cases import edit_model
from tests.toy import toy_corpus, toy_recipe
from tests.trained import once

TAGS = {"tag": "<gl>", "tgt_tag": "<en>"}
GEORGIAN = str.maketrans("0123456789", "აბგდევზთიკ")


@pytest.fixture(autouse=True)
def one_precision(monkeypatch):
    monkeypatch.setattr(speed, "fast_precisions", lambda device: ["fp32"])


@pytest.fixture
def every_parent_is_large(monkeypatch):
    monkeypatch.setattr(finetune, "SMALL", replace(CPU[0], dim=1))


def train_tagged(folder: Path) -> None:
    toy_corpus(folder, {"train": 60, "dev": 4, "test": 4})
    keys = {
        "data": {"tokenized": False},
        "segment": {"kind": "sentencepiece", "vocab_size": 30},
        "train": {"validate_every": 1, "max_validations": 1},
    }
    recipe = toy_recipe(folder, keys)
    entry = f"data.train={{path: {folder / 'train'}, tag: <gl>, tgt_tag: <en>}}"
    assert train.main([str(recipe), entry]) == 0


@pytest.fixture(scope="session")
def tagged(tmp_path_factory) -> Path:
    """A run with SentencePiece and tags, of raw text."""
    return once(tmp_path_factory, "tagged", train_tagged) / "run"


def suggested(*arguments: str | Path) -> Recipe:
    assert command.main([*map(str, arguments), "-o", "mine.yaml", "--force"]) == 0
    return load_recipe("mine.yaml")


def text() -> str:
    return Path("mine.yaml").read_text(encoding="utf-8")


def words() -> str:
    """Return the recipe on one line, so that comments may be broken anywhere."""
    return " ".join(text().replace("#", "").split())


def test_a_small_parent_trains_as_from_random_weights(corpus, short_run, capsys):
    without = suggested(corpus)
    recipe = suggested(corpus, "--parent", short_run)
    assert (recipe.init.parent, recipe.init.vocab) == (str(short_run), "parent")
    assert not recipe.init.trim
    assert recipe.model.model_fields_set == {"dropout", "word_dropout"}
    for key in ("dropout", "word_dropout"):
        assert getattr(recipe.model, key) == getattr(without.model, key) > 0
    assert recipe.optim == without.optim
    # a quarter of 0.08 / sqrt(16), the dim of the parent, which has the same pair of languages
    assert recipe.schedule.peak == 0.005
    assert recipe.schedule.total_updates == without.schedule.total_updates == 40  # passes
    assert recipe.train == without.train
    assert recipe.decode == without.decode
    # the parent's text is tokenized, that of the corpus seems to be raw
    assert recipe.data.tokenized
    assert recipe.data.train[0].tokenized is recipe.data.dev[0].tokenized is False
    assert (
        "0.0% of the gl subwords and 0.0% of the en subwords are unknown to the parent" in words()
    )
    assert "Nearest measured runs without a parent" in text()
    assert "T below" not in text()
    keys = [line for line in text().splitlines() if re.match(r"[^#]*: \S", line)]
    assert [line for line in keys if "# " not in line] == []
    assert train.main(["mine.yaml", "--dry-run"]) == 0
    assert f"starting from {short_run} (gl-en, " in capsys.readouterr().err
    assert train.main(["mine.yaml", "device=cpu", "precision=fp32"]) == 0


@pytest.mark.slow
def test_little_time_gives_a_small_parent_smaller_batches(tmp_path, tagged, monkeypatch):
    toy_corpus(tmp_path / "corpus", {"train": 2000, "dev": 20, "test": 20})
    monkeypatch.chdir(tmp_path)
    expectation = Expectation("CPU", 7_480_020, {Setting("fp32", 1): 1000.0}, threads=1)
    monkeypatch.setattr(command, "_measure", lambda *arguments: expectation)
    monkeypatch.setattr(finetune, "size_for", lambda *arguments: CPU[2])
    long = suggested("corpus/train", "--parent", tagged)
    short = suggested("corpus/train", "--parent", tagged, "--hours", "0.03")
    assert (long.data.batch_tokens, short.data.batch_tokens) == (2048, 512)
    assert (long.model.dropout, short.model.dropout) == (0.1, 0)
    assert "as many as fit into 0.03 hours here" in words()
    longest = suggested("corpus/train", "--parent", tagged, "--hours", "9")
    assert (longest.model.dropout, longest.decode.beam) == (0.2, 8)
    assert longest.segment == short.segment == long.segment


@pytest.mark.usefixtures("every_parent_is_large")
def test_a_large_parent_is_fine_tuned(corpus, tagged):
    recipe = suggested(corpus, "--parent", tagged)
    assert (recipe.model.dropout, recipe.model.word_dropout) == (0.1, 0)
    assert (recipe.optim.kind, recipe.schedule.kind) == ("adamw", "linear")
    assert recipe.schedule.peak == 3e-5
    assert not recipe.train.recompute
    assert recipe.train.stop_patience == 3
    # one batch has all 40 pairs, so a pass is one update, and so is each of 8 validations
    assert recipe.schedule.total_updates == 8
    keys = [line for line in text().splitlines() if re.match(r"[^#]*: \S", line)]
    assert [line for line in keys if "# " not in line] == []
    assert train.main(["mine.yaml", "--dry-run"]) == 0


def test_the_path_of_the_parent_is_relative_to_the_recipe(corpus, short_run, tmp_path):
    Path("runs").symlink_to(short_run.parent)
    Path("recipes").mkdir()
    assert command.main([corpus, "--parent", "runs/run", "-o", "recipes/a.yaml"]) == 0
    assert "  from: ../runs/run " in Path("recipes/a.yaml").read_text()
    assert "{path: ../corpus/train, tokenized: false}" in Path("recipes/a.yaml").read_text()
    assert load_recipe("recipes/a.yaml").init.parent == str(tmp_path / "runs/run")


def test_tags_and_the_form_of_text_are_those_of_the_parent(corpus, tagged):
    recipe = suggested(corpus, "--parent", tagged)
    (entry,) = recipe.data.train
    assert (entry.tag, entry.tgt_tag, entry.tokenized) == ("<gl>", "<en>", None)
    assert recipe.directions.default_tags == TAGS
    assert not recipe.data.tokenized
    assert train.main(["mine.yaml", "--dry-run"]) == 0


def test_an_unknown_script_extends_the_vocabulary(corpus, tagged):
    for path in Path("corpus").glob("*.gl"):
        path.write_text(path.read_text().translate(GEORGIAN))
    recipe = suggested(corpus, "--parent", tagged)
    assert recipe.init.vocab == "extend"
    unknown = (
        r"vocab: extend (\d+\.\d)% of the gl subwords and 0\.0% of the en subwords are unknown"
    )
    (share,) = re.findall(unknown, words())
    assert float(share) > 40
    assert train.main(["mine.yaml", "--dry-run"]) == 0


def test_words_cannot_be_extended(corpus, short_run, capsys):
    for path in Path("corpus").glob("*.gl"):
        path.write_text(path.read_text().translate(GEORGIAN))
    assert command.main([corpus, "--parent", str(short_run), "-o", "mine.yaml"]) == 2
    error = capsys.readouterr().err
    assert (
        "100.0% of the gl subwords and 0.0% of the en subwords are unknown to the parent" in error
    )
    assert "so it cannot be extended\n  -> choose another parent" in error
    assert not Path("mine.yaml").exists()


def test_a_large_vocabulary_is_trimmed_if_most_of_it_goes(corpus, tagged, short_run, monkeypatch):
    monkeypatch.setattr(finetune, "LARGE_VOCAB", 5)
    assert not suggested(corpus, "--parent", tagged).init.trim  # the corpus has all its pieces
    assert not suggested(corpus, "--parent", short_run).init.trim  # words cannot be trimmed
    monkeypatch.setattr(finetune, "LEFT_BY_TRIM", 1.0)
    assert suggested(corpus, "--parent", tagged).init.trim
    assert re.search(r"trim: true +# \d+ of \d+ subwords", text())
    assert train.main(["mine.yaml", "--dry-run"]) == 0


@pytest.mark.usefixtures("every_parent_is_large")
def test_little_memory_gets_adafactor_and_activations_again(corpus, tagged, monkeypatch):
    monkeypatch.setattr(finetune, "free_memory", lambda device: 100_000)
    recipe = suggested(corpus, "--parent", tagged)
    assert (recipe.optim.kind, recipe.schedule.peak) == ("adafactor", 1e-3)
    assert recipe.train.recompute
    assert "of the 97.7 KB that are free" in words()
    assert train.main(["mine.yaml", "--dry-run"]) == 0
    monkeypatch.setattr(finetune, "free_memory", lambda device: None)
    assert suggested(corpus, "--parent", tagged).optim.kind == "adamw"


@pytest.mark.slow
@pytest.mark.usefixtures("every_parent_is_large")
def test_hours_set_the_updates(tmp_path, tagged, monkeypatch):
    toy_corpus(tmp_path / "corpus", {"train": 2000, "dev": 20, "test": 20})
    monkeypatch.chdir(tmp_path)
    measured = []

    def measure(recipe, *arguments):
        measured.append((recipe.model.dim, recipe.segment.kind))
        return Expectation("CPU", 7_480_020, {Setting("fp32", 1): 1000.0}, threads=1)

    monkeypatch.setattr(command, "_measure", measure)
    default = suggested("corpus/train", "--parent", tagged).schedule.total_updates
    assert measured == [(16, "sentencepiece")]  # of the parent
    most = suggested("corpus/train", "--parent", tagged, "--hours", "9").schedule.total_updates
    assert most == default
    few = suggested("corpus/train", "--parent", tagged, "--hours", "0.01").schedule.total_updates
    assert 0 < few < 0.7 * default
    assert "as many as fit into 0.01 hours here" in words()
    assert suggested("corpus/train", "--parent", tagged, "--hours", "1e-9").schedule is not None


def paths(src: str, tgt: str) -> CorpusPaths:
    return CorpusPaths(src, tgt, "train", "dev", None)


def test_another_language_on_one_side_is_a_note(tagged):
    assert ParentModel.open(str(tagged), paths("glg", "eng")).notes == []
    (source,) = ParentModel.open(str(tagged), paths("pt", "en")).notes
    assert "the parent translates gl-en and the corpus is pt-en; tag <gl> of" in source
    (target,) = ParentModel.open(str(tagged), paths("gl", "fr")).notes
    assert "tgt_tag <en> of data.train may be that of another language" in target


def test_a_note_is_printed_and_in_the_recipe(corpus, tagged, capsys):
    for path in Path("corpus").glob("*.gl"):
        path.rename(path.with_suffix(".pt"))
    suggested(corpus, "--parent", tagged)
    assert "note: the parent translates gl-en and the corpus is pt-en" in capsys.readouterr().err
    assert "the parent translates gl-en and the corpus is pt-en" in words()


def test_a_parent_of_another_pair_has_rate_and_segmentation_of_random_weights(
    corpus, tagged, short_run, capsys
):
    recipe = suggested(corpus, "--parent", tagged)
    assert (recipe.schedule.peak, recipe.init.vocab) == (0.005, "parent")
    for path in Path("corpus").glob("*.gl"):
        path.rename(path.with_suffix(".pt"))
    without = suggested(corpus)
    recipe = suggested(corpus, "--parent", tagged)
    assert (recipe.schedule.peak, recipe.init.vocab) == (0.02, "new")
    assert recipe.segment == without.segment
    capsys.readouterr()
    assert train.main(["mine.yaml", "--dry-run", "segment.vocab_size=30"]) == 0
    assert "subwords load the rows of the parent" in capsys.readouterr().err
    # the parent has words, of which only those that it knows have rows
    assert suggested(corpus, "--parent", short_run).init.vocab == "parent"


@pytest.fixture
def model(tagged: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tagged / "model", tmp_path / "parent"))


def test_several_tags_are_a_note(model):
    pairs = [{"src": "gl", "tgt": "en", "tag": tag, "tgt_tag": "<en>"} for tag in ("<gl>", "<pt>")]
    edit_model(model, directions=pairs)
    parent = ParentModel.open(str(model), paths("gl", "en"))
    assert parent.notes == [
        "each corpus of the parent has a tag: add one to data.train (<gl>, <pt>)"
    ]


def test_the_license_of_a_converted_parent_is_in_the_recipe(model):
    origin = Origin("facebook/nllb-200-distilled-600M", "NLLB-200", "cc-by-nc-4.0", {}, "1")
    edit_model(model, origin=asdict(origin))
    lines = ParentModel.open(str(model), paths("gl", "en")).lines
    assert "NLLB-200; license: cc-by-nc-4.0" in lines[1]


@pytest.mark.slow
def test_a_converted_parent_with_tags_and_learned_positions(tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers")  # makes the folder
    folders = pytest.importorskip("tests.apps.transformers.folders")
    monkeypatch.chdir(tmp_path)
    toy_corpus(Path("corpus"), {"train": 40, "dev": 2, "test": 2}, langs=("en", "sw"))
    folders.FAMILIES["mbart50"](Path("mbart50"))
    assert convert(["mbart50", "-o", "parent", "--src-lang", "en", "--tgt-lang", "sw"]) == 0
    recipe = suggested("corpus/train", "--parent", "parent", "--src-lang", "en", "--tgt-lang", "sw")
    assert recipe.directions.default_tags == {"tag": "<en_XX>", "tgt_tag": "<sw_KE>"}
    assert recipe.data.max_pieces == 512
    assert "mbart50 (mBART-50; license: not known); the license stays valid" in words()
    assert train.main(["mine.yaml", "--dry-run"]) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "--parent: parent: no such model or run folder"),
        (lambda folder: folder.mkdir(), "not a model or run folder"),
        (
            lambda folder: (folder.mkdir(), (folder / "config.json").write_text("{}")),
            "nmt-convert parent -o MODEL",
        ),
    ],
)
def test_a_parent_that_is_no_run(make, message, corpus, capsys):
    make(Path("parent"))
    assert command.main([corpus, "--parent", "parent", "-o", "mine.yaml"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("mine.yaml").exists()


def test_other_languages_are_an_error(corpus, tagged, capsys):
    arguments = [corpus, "--parent", str(tagged), "-o", "mine.yaml"]
    assert command.main([*arguments, "--src-lang", "en", "--tgt-lang", "gl"]) == 2
    error = capsys.readouterr().err
    assert "the parent translates gl-en and the corpus is en-gl: no side has the same" in error
    assert "the other direction of the corpus: --src-lang gl --tgt-lang en" in error


def test_the_recipe_must_not_train_in_the_folder_of_the_parent(corpus, tagged, capsys):
    Path("runs").mkdir()
    Path("runs/gl-en").symlink_to(tagged)
    arguments = [corpus, "--parent", str(tagged), "-o"]
    assert command.main([*arguments, "gl-en.yaml"]) == 2
    assert capsys.readouterr().err.endswith(
        "gl-en.yaml: a recipe with this name trains in runs/gl-en, which is the parent\n"
        "  -> choose another name, such as -o gl-en-tuned.yaml\n"
    )
    assert command.main([*arguments, "gl-en-tuned.yaml"]) == 0


MANY = [("es", "shp", None, "<shp>"), ("es", "gn", None, "<gn>"), ("qu", "gn", "<qu>", "<gn>")]
BEFORE = [("es", "shp", "<2shp>", None), ("es", "gn", "<2gn>", None), ("gn", "es", "<2es>", None)]
CODES = [("en", "zh_Hans", None, "<hans>"), ("en", "zh_Hant", None, "<hant>")]


@pytest.mark.parametrize(
    ("trained", "pair", "tags"),
    [
        (MANY, ("es", "shp"), {"tgt_tag": "<shp>"}),
        (MANY, ("spa", "gn"), {"tgt_tag": "<gn>"}),
        (MANY, ("qu", "gn"), {"tag": "<qu>", "tgt_tag": "<gn>"}),
        (MANY, ("pt", "shp"), {"tgt_tag": "<shp>"}),  # another source
        (MANY, ("qu", "shp"), {"tag": "<qu>", "tgt_tag": "<shp>"}),  # never seen together
        (MANY, ("es", "ay"), {}),  # another target: a note asks for its tag
        (BEFORE, ("es", "gn"), {"tag": "<2gn>"}),
        (BEFORE, ("pt", "es"), {"tag": "<2es>"}),
        (CODES, ("en", "zh_Hant"), {"tgt_tag": "<hant>"}),
        (CODES, ("en", "zh"), {}),  # not clear which
    ],
)
def test_tags_of_a_multilingual_parent_are_those_of_the_languages(trained, pair, tags):
    directions = Directions("es", "shp", tuple(Direction(*each) for each in trained))
    assert _tags_of(directions, paths(*pair)) == tags


def train_multilingual(folder: Path) -> None:
    toy_corpus(folder, {"train": 60, "dev": 4, "test": 4})
    toy_corpus(folder / "es", {"train": 60, "dev": 4, "test": 4}, langs=("gl", "es"))
    sets = {
        split: [
            {"path": str(folder / split), "tgt_tag": "<en>"},
            {"path": str(folder / "es" / split), "tgt": "es", "tgt_tag": "<es>"},
        ]
        for split in ("train", "dev", "test")
    }
    keys = {
        "data": {"tokenized": False, **sets},
        "segment": {"kind": "sentencepiece", "vocab_size": 30},
        "train": {"validate_every": 1, "max_validations": 1},
    }
    assert train.main([str(toy_recipe(folder, keys))]) == 0


@pytest.mark.slow
def test_a_child_of_a_multilingual_run_has_its_tag(corpus, tmp_path):
    train_multilingual(tmp_path / "multi")
    recipe = suggested(corpus, "--parent", tmp_path / "multi" / "run")
    assert [entry.tgt_tag for entry in recipe.data.train] == ["<en>"]
    assert recipe.directions.default_tags == {"tgt_tag": "<en>"}
    assert "add one to data.train" not in words()
    assert train.main(["mine.yaml", "--dry-run"]) == 0
