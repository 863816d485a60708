"""nmt-convert: what it writes, and what it refuses before it writes anything."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from nmt.apps.transformers.convert import choose_languages
from nmt.apps.transformers.families import family_of
from nmt.apps.transformers.folder import HubFolder
from nmt.apps.transformers.languages import match_language
from nmt.cli.convert import main
from nmt.config.entries import Direction
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.store.model import WEIGHTS, Model
from tests.apps.transformers import folders

pytest.importorskip("transformers")
CODES = "kas_Arab kas_Deva eng_Latn nob_Latn nno_Latn hrv_Latn srp_Cyrl"
Copy, Refused = Callable[[str], Path], Callable[..., str]
Damage = Callable[[Path], object]
EN_SW = ["--src-lang", "en", "--tgt-lang", "sw"]
MODEL, PICKLED = "model.safetensors", "pytorch_model.bin"


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of each family, which tests copy."""
    root = tmp_path_factory.mktemp("originals")
    for family, make in folders.FAMILIES.items():
        make(root / family)
    folders.marian(root / "tagged", tags=("fra", "glg"))
    return {path.name: path for path in root.iterdir()}


@pytest.fixture
def copy(originals: dict[str, Path], tmp_path: Path) -> Copy:
    def make(family: str) -> Path:
        return Path(shutil.copytree(originals[family], tmp_path / family))

    return make


def edit(path: Path, **values: Any) -> None:
    """Change keys of a JSON file; None removes one."""
    changed = json.loads(path.read_text()) | values
    folders.write_json(path, {key: value for key, value in changed.items() if value is not None})


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Return a function: a folder that is not converted -> its error; nothing is written."""

    def call(folder: Path, *options: str) -> str:
        output = folder.parent / "run"
        assert main([str(folder), "-o", str(output), *options]) == 2
        assert not output.exists()
        assert not [path for path in folder.parent.iterdir() if path.name.startswith(".")]
        return capsys.readouterr().err

    return call


def keys(file: str, **values: Any) -> Damage:
    return lambda folder: edit(folder / file, **values)


def config(**values: Any) -> Damage:
    return keys("config.json", **values)


def tokenizer(name: str | None) -> Damage:
    return keys("tokenizer_config.json", tokenizer_class=name)


def without(*names: str) -> Damage:
    return lambda folder: [(folder / name).unlink() for name in names]


def own_tokenizer(folder: Path) -> None:
    tokenizer(None)(folder)
    (folder / "tokenization_small100.py").touch()


def mbart_25(folder: Path) -> None:
    for file in ("tokenizer_config.json", "config.json"):
        edit(folder / file, tokenizer_class=None)
    (folder / "tokenizer.json").unlink()
    languages = {"additional_special_tokens": ["en_XX", "ro_RO"]}
    folders.write_json(folder / "special_tokens_map.json", languages)


def nan(folder: Path) -> None:
    tensors = load_file(folder / MODEL)
    tensors["model.encoder.layers.0.fc1.bias"][3] = torch.nan
    save_file(tensors, folder / MODEL)


def only_part(name: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / MODEL).unlink()
        index = {"weight_map": {"model.shared.weight": name}}
        folders.write_json(folder / f"{MODEL}.index.json", index)

    return damage


def heads(count: int | str) -> Damage:
    return config(encoder_attention_heads=count, decoder_attention_heads=count)


# family, what is done to its folder, what the error names
SLOW = [
    ("marian", config(model_type="t5"), "MADLAD-400"),
    ("marian", config(model_type="nllb-moe"), "mixture of experts"),
    ("marian", config(model_type="whisper"), "whisper"),
    ("marian", config(scale_embedding=False), "scale_embedding: False; fits: true"),
    ("marian", config(activation_function="gelu_new"), "activation_function: 'gelu_new'"),
    ("marian", config(activation_function=["swish"]), "activation_function: ['swish']"),
    ("marian", config(decoder_ffn_dim=32), "decoder_ffn_dim: 32; fits: 24"),
    ("marian", config(d_model=None), "d_model: None"),
    ("marian", config(d_model=10**30), f"d_model: {10**30}; fits: an integer"),
    ("marian", config(encoder_layers=-1), "encoder_layers: -1; fits: an integer"),
    ("marian", config(dropout="x"), "dropout: 'x'; fits: a number"),
    ("marian", heads("4"), "heads: '4'; fits"),
    ("marian", heads(3), "a divisor of d_model"),
    ("marian", config(d_model=8), "config.json says [448, 8]"),
    ("marian", config(encoder_layers=1), "model.encoder.layers.1"),
    ("marian", config(decoder_layers=3), "model.decoder.layers.2"),
    ("marian", config(encoder_ffn_dim=32, decoder_ffn_dim=32), "encoder.layers.0.ffn.fc1.weight"),
    ("marian", config(vocab_size=400), "config.json says [400, 16]"),
    ("marian", config(decoder_start_token_id=9999), "decoder_start_token_id is 9999"),
    ("marian", config(tie_word_embeddings=False), "lm_head.weight"),
    ("mbart50", tokenizer("MBartTokenizer"), "mBART-25"),
    ("m2m100", tokenizer("SMALL100Tokenizer"), "SMaLL-100"),
    ("m2m100", tokenizer("T5TokenizerFast"), "M2M100Tokenizer (M2M-100)"),
    ("m2m100", tokenizer("MarianTokenizer"), "NllbTokenizer (NLLB-200)"),
    ("marian", tokenizer("NllbTokenizer"), "MarianTokenizer (MarianMT"),
    ("nllb", keys("tokenizer_config.json", legacy_behaviour=True), "legacy_behaviour"),
]  # fmt: skip
FAST = [
    ("m2m100", own_tokenizer, "tokenization_small100.py"),
    ("mbart50", mbart_25, "sl_SI of mBART-50"),
    *(
        ("marian", keys(file, **{key: 5}), f"{file}: {key} is 5")
        for file in ("config.json", "generation_config.json")
        for key in ("eos_token_id", "pad_token_id")
    ),
    *(
        ("marian", without(name), name)
        for name in ("config.json", "target.spm", "vocab.json", MODEL)
    ),
    *(
        ("m2m100", without(name), name)
        for name in ("vocab.json", "sentencepiece.bpe.model", "special_tokens_map.json")
    ),
    ("marian", nan, "model.encoder.layers.0.fc1.bias"),
    ("marian", only_part("absent.safetensors"), "lacks absent.safetensors"),
    ("marian", only_part("../outside.safetensors"), "does not name"),
    ("marian", shutil.rmtree, "hf download"),
    *(
        (
            "marian",
            keys("generation_config.json", length_penalty=value),
            f"length_penalty: {value!r}",
        )
        for value in (-1.0, "x", 1e9)
    ),
]


@pytest.mark.parametrize(
    ("family", "damage", "named"),
    [*(pytest.param(*row, marks=pytest.mark.slow) for row in SLOW), *FAST],
)
def test_the_error_names_what_cannot_be_converted(family, damage, named, copy, refused):
    folder = copy(family)
    damage(folder)
    assert named in refused(folder, *([] if family == "marian" else EN_SW))


@pytest.mark.parametrize("family", folders.FAMILIES)
@pytest.mark.parametrize("name", [None, "TokenizersBackend", "Fast"])
def test_a_tokenizer_without_a_class_is_known_by_its_tokens(family, name, copy):
    folder = copy(family)
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())["tokenizer_class"]
    edit(folder / "config.json", tokenizer_class=None)
    name = tokenizer + name if name == "Fast" else name
    edit(folder / "tokenizer_config.json", tokenizer_class=name)
    assert family_of(HubFolder(folder)).tokenizer == tokenizer


@pytest.mark.slow
@pytest.mark.parametrize("family", ["nllb", "mbart50"])
def test_tokenizer_json_gives_the_pieces_of_the_model(family, copy, originals, tmp_path):
    folder = copy(family)
    (folder / "sentencepiece.bpe.model").unlink()
    runs = tmp_path / "json", tmp_path / "model"
    for run, path in zip(runs, (folder, originals[family]), strict=True):
        assert main([str(path), "-o", str(run), *EN_SW]) == 0
    codecs = [Translator.load(run, "cpu").codec for run in runs]
    pieces = [codec.vocab.pieces(range(len(codec.vocab))) for codec in codecs]
    assert pieces[0] == pieces[1]
    for line in folders.odd_lines(500):
        assert codecs[0].source_pieces(line) == codecs[1].source_pieces(line)


@pytest.mark.parametrize(
    "values",
    [
        {"model": {"type": "WordPiece", "vocab": {}}},
        {"model": {"type": "Unigram", "vocab": [["a"]]}},
        {"normalizer": {"type": "NFKC"}},
        {"added_tokens": [{"content": "a"}]},
    ],
)
def test_another_tokenizer_json_names_the_file_to_copy(values, copy, refused):
    folder = copy("mbart50")
    (folder / "sentencepiece.bpe.model").unlink()
    edit(folder / "tokenizer.json", **values)
    error = refused(folder, *EN_SW)
    assert "tokenizer.json" in error or "a file of the tokenizer" in error
    (folder / "tokenizer.json").unlink()
    assert "copy sentencepiece.bpe.model from the original" in refused(folder, *EN_SW)


@pytest.mark.parametrize("kind", ["marian", "m2m100", "nllb", "mbart50"])
@pytest.mark.parametrize("special", [False, True])
def test_ordinary_added_tokens_are_refused_by_name(kind, special, copy, refused, tmp_path):
    folder = copy(kind)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    decoder = settings.get("added_tokens_decoder", {})
    decoder["99999"] = {"content": "foo-bar", "special": special}
    edit(folder / "tokenizer_config.json", added_tokens_decoder=decoder)
    if special:
        langs = ["--src-lang", "en", "--tgt-lang", "fr" if kind == "marian" else "sw"]
        assert main([str(folder), "-o", str(tmp_path / "model"), *langs]) == 0
    else:
        assert "'foo-bar'" in refused(folder, *EN_SW)
        edit(folder / "tokenizer_config.json", added_tokens_decoder={})
        folders.write_json(folder / "added_tokens.json", {"baz": 99_999})
        assert "'baz'" in refused(folder, *EN_SW)


def test_a_vocabulary_by_name_is_one_by_id(copy, originals, tmp_path):
    folder = copy("marian")
    ids = json.loads((folder / "vocab.json").read_text())
    folders.write_json(folder / "vocab.json", dict(sorted(ids.items())))
    for path, run in ((folder, "one"), (originals["marian"], "two")):
        assert main([str(path), "-o", str(tmp_path / run)]) == 0
    assert (tmp_path / "one/vocab.txt").read_text() == (tmp_path / "two/vocab.txt").read_text()


def test_incomplete_weights_are_refused(copy: Copy, refused: Refused) -> None:
    folder = copy("marian")
    data = (folder / MODEL).read_bytes()
    size = f"{len(data):,}"
    for count in (4, 100, len(data) - 1):
        (folder / MODEL).write_bytes(data[:count])
        error = refused(folder)
        assert f"incomplete: it has {count:,} bytes" in error
        assert size in error or count < 200
    (folder / MODEL).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert "git lfs pull" in refused(folder)
    (folder / MODEL).unlink()
    for pickled in (b"", b"\0" * 150, b"PK\x03\x04" + data[:500]):
        (folder / PICKLED).write_bytes(pickled)
        error = refused(folder)
        assert PICKLED in error
        assert "damaged" in error


@pytest.mark.parametrize("zipped", [True, False])
def test_a_part_of_a_pickled_file_is_refused(zipped: bool, copy: Copy, refused: Refused) -> None:
    folder = copy("marian")
    tensors = load_file(folder / MODEL)
    (folder / MODEL).unlink()
    torch.save(tensors, folder / PICKLED, _use_new_zipfile_serialization=zipped)
    data = (folder / PICKLED).read_bytes()
    for count in (1, 10, 150, len(data) // 2, len(data) - 1):
        (folder / PICKLED).write_bytes(data[:count])
        assert PICKLED in refused(folder)


class Evil:
    """An object whose unpickling would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_never_runs_a_program(copy: Copy, refused: Refused, tmp_path: Path) -> None:
    folder, proof = copy("marian"), tmp_path / "proof"
    for data in (pickle.dumps(Evil(proof), protocol=2), None):
        if data is None:
            torch.save({"model.shared.weight": Evil(proof)}, folder / PICKLED)
        else:
            (folder / PICKLED).write_bytes(data)
        assert main([str(folder), "-o", str(tmp_path / "beside"), "--force"]) == 0  # safetensors
        (tmp_path / MODEL).write_bytes((folder / MODEL).read_bytes())
        (folder / MODEL).unlink()
        assert "it is not read" in refused(folder)
        shutil.copy(tmp_path / MODEL, folder / MODEL)
    assert not proof.exists()


@pytest.mark.slow
@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("parts", [1, 2])
def test_all_forms_of_weights_give_the_same_model(safe, parts, copy, originals):
    folder = copy("marian")
    tensors = load_file(folder / MODEL)
    (folder / MODEL).unlink()
    names = sorted(tensors)
    write = save_file if safe else torch.save
    base = MODEL if safe else PICKLED
    stem, ending = base.rsplit(".", 1)
    files = [base] if parts == 1 else [f"{stem}-0000{i + 1}-of-00002.{ending}" for i in range(2)]
    for i, file in enumerate(files):
        write({name: tensors[name].half() for name in names[i::parts]}, folder / file)
    if parts == 2:
        weight_map = {name: files[i % 2] for i, name in enumerate(names)}
        folders.write_json(folder / f"{base}.index.json", {"weight_map": weight_map})
    assert main([str(folder), "-o", str(folder.parent / "run")]) == 0
    assert main([str(originals["marian"]), "-o", str(folder.parent / "other")]) == 0
    weights = [load_file(folder.parent / run / WEIGHTS) for run in ("run", "other")]
    for name, tensor in weights[1].items():
        assert weights[0][name].dtype == torch.float32
        assert torch.equal(weights[0][name], tensor.half().float())


@pytest.mark.parametrize(
    ("family", "languages", "named"),
    [
        ("nllb", "", ["--src-lang: the model needs a language"]),
        ("nllb", "en", ["--tgt-lang: the model needs a language"]),
        ("nllb", "zh en", ["zho_Hans, zho_Hant"]),
        ("nllb", "en kea_Arab", ["--tgt-lang: ", "kea_Arab", "kea_Latn"]),
        ("nllb", "en en", ["are both en"]),
        ("nllb", "sw swh", ["sw and swh"]),
        ("tagged", "- sw", ["fra, glg"]),
        ("marian", "- sw", ["no language sw"]),
        ("marian", "sw", ["--src-lang"]),
    ],
)
def test_languages_are_asked_for_and_checked(family, languages, named, copy, refused):
    pairs = zip(("--src-lang", "--tgt-lang"), languages.split(), strict=False)
    options = [word for option, lang in pairs if lang != "-" for word in (option, lang)]
    error = refused(copy(family), *options)
    assert [part for part in named if part not in error] == []


@pytest.mark.parametrize(
    ("stated", "readme", "lang", "note"),
    [
        ("ROMANCE", "* source languages: fr,fr_BE,gl,pt_br\n", "gl", None),
        ("ROMANCE", "* source languages: fr,fr_BE,gl,pt_br\n", "sw", "no language sw"),
        ("mul", "* source language(s): abk glg zul\n", "gl", None),
        ("bnt", "no list", "sw", "whether the group bnt has sw"),
        ("gmw", "---\nlanguage:\n- af\n- no\n---\n", "af", None),
        ("NORTH_EU", "---\r\nlanguage: [da, no]\r\n---\r\n", "nb", None),
        ("cat_oci_spa", "", "ca", None),
        ("cat+oci", "", "oc", None),
        ("cat+oci", "", "fr", "no language fr"),
        ("en", "* source languages: en\n", "sw", "no language sw"),
    ],
)
def test_a_group_has_its_languages(stated, readme, lang, note, copy):
    path = copy("marian")
    edit(path / "tokenizer_config.json", source_lang=stated)
    (path / "README.md").write_bytes(readme.encode())
    folder = HubFolder(path)
    text = family_of(folder).text(folder)
    if note is not None and "no language" in note:
        with pytest.raises(UserError, match=note) as error:
            choose_languages(folder, text, lang, None)
        assert error.value.at == "--src-lang"
        return
    entry, langs, notes = choose_languages(folder, text, lang, None)
    assert (entry, langs) == ({}, (lang, "fra"))
    assert len(notes) == (note is not None)
    assert note is None or note in notes[0]


def test_a_part_of_a_language_is_named(copy: Copy) -> None:
    folder = HubFolder(copy("m2m100"))
    text = family_of(folder).text(folder)
    entry, langs, notes = choose_languages(folder, text, "en", "nb")
    assert entry == {"tag": "<en>", "tgt_tag": "<no>"}
    assert langs == ("en", "nb")
    assert notes == ["for nb, the model has no"]


@pytest.mark.parametrize(
    ("readme", "license_id"),
    [
        ("---\nlicense: [mit, cc-by-4.0]\n---\n", "mit, cc-by-4.0"),
        ("---\nlicense:\n- mit\n- cc-by-4.0\n---\n", "mit, cc-by-4.0"),
        ("---\r\nlicense: mit\r\n---\r\ntext\r\n", "mit"),
        ("\ufeff---  \nlicense: mit\n---\n", "mit"),
        ("---\nlicense:\n---\n", None), ("---\n[\n---\n", None), ("", None),
    ],
)  # fmt: skip
def test_the_license_is_that_of_the_readme(readme: str, license_id: str | None, copy: Copy) -> None:
    folder = copy("marian")
    (folder / "README.md").write_bytes(readme.encode())
    assert ", ".join(HubFolder(folder).front_matter("license")) == (license_id or "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stated", "source"),
    [
        ("hf_models/m2m100_418M", "marian"), ("./", "marian"), ("/tmp/a/b", "marian"),
        ("marian-models/opus", "marian"), (["a/b"], "marian"),
        ("/tmp/Helsinki-NLP/opus-mt-ru-en", "Helsinki-NLP/opus-mt-ru-en"),
        ("facebook/m2m100_418M", "facebook/m2m100_418M"),
    ],
)  # fmt: skip
def test_a_path_is_not_the_source(stated: Any, source: str, copy: Copy) -> None:
    folder = copy("marian")
    edit(folder / "config.json", _name_or_path=stated)
    assert main([str(folder), "-o", str(folder.parent / "run")]) == 0
    origin = Model.open(folder.parent / "run").about.origin
    assert origin is not None
    assert origin.source == source


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"num_beams": 6}, (6, 1.0, 0)),
        ({"length_penalty": 0.0}, (4, 0.0, 0)),
        ({"num_beams": 5, "length_penalty": 1.4, "early_stopping": True}, (5, 1.4, 0)),
        ({"no_repeat_ngram_size": 3}, (4, 1.0, 3)),
    ],
)
def test_the_search_is_that_of_the_model(values, expected, copy):
    folder = copy("marian")
    edit(folder / "generation_config.json", **values)
    assert main([str(folder), "-o", str(folder.parent / "run")]) == 0
    translator = Translator.load(folder.parent / "run", "cpu")
    decode = translator.info.decode
    assert (decode.beam, decode.length_alpha, decode.no_repeat_ngram) == expected
    assert (decode.length_penalty, decode.stop_rule) == ("mean", "count")
    assert translator.codec.usual.sentences == 1


@pytest.mark.parametrize(
    ("wanted", "codes", "found"),
    [
        ("swh_Latn", "swh_Latn eng_Latn", "swh_Latn"),
        ("SWH-latn", "swh_Latn eng_Latn", "swh_Latn"),
        ("sw", "swh_Latn eng_Latn", "swh_Latn"),
        ("swh_Latn", "sw en", "sw"),
        ("eng", "en_XX es_XX", "en_XX"),
        ("en_XX", "eng_Latn fra_Latn", "eng_Latn"),
        ("pt-BR", "por_Latn", "por_Latn"),
        ("ar", "arb_Arab ary_Arab arz_Arab", "arb_Arab"),
        ("zho_Hant", "zho_Hans zho_Hant", "zho_Hant"),
        ("kas_Deva", "kas_Arab kas_Deva", "kas_Deva"),
        ("az", "azj_Latn azb_Arab", "azj_Latn"),
        ("ps", "pbt_Arab pes_Arab", "pbt_Arab"),
        ("qu", "quy_Latn", "quy_Latn"),
        ("ff", "fuv_Latn", "fuv_Latn"),
        ("nb", "no sv", "no"),
        ("nn", "nob_Latn nno_Latn", "nno_Latn"),
        ("no", "nob_Latn sv", "nob_Latn"),
        ("prs", "fa_IR", "fa_IR"),
        ("fa", "pes_Arab prs_Arab", "pes_Arab"),
        ("yue", "zh en", "zh"),
        ("nso", "ns en", "ns"),
        ("lv", "lvs_Latn ltg_Latn", "lvs_Latn"),
        ("et", "est_Latn", "est_Latn"),
        ("ms", "zsm_Latn ind_Latn min_Latn", "zsm_Latn"),
        ("uz", "uzn_Latn", "uzn_Latn"),
    ],
)
def test_a_language_has_several_codes(wanted: str, codes: str, found: str) -> None:
    assert match_language(wanted, codes.split(), "--src-lang") == found


@pytest.mark.parametrize("wanted", ["kas", "xx", "eng_Cyrl", "", "no", "sh", "bs"])
def test_a_language_that_is_unknown_or_one_of_several_is_an_error(wanted: str) -> None:
    with pytest.raises(UserError) as error:
        match_language(wanted, CODES.split(), "--src-lang")
    assert error.value.at == "--src-lang"


def test_an_existing_folder_is_replaced_only_if_it_is_a_model(originals, tmp_path, capsys):
    output = tmp_path / "run"
    command = [str(originals["marian"]), "-o", str(output)]
    assert main(command) == 0
    assert main(command) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    (output / "model.json").unlink()
    assert main([*command, "--force"]) == 2
    assert (output / "vocab.txt").exists()


def test_a_model_has_the_source_the_license_and_the_direction(copy, tmp_path, capsys):
    folder = copy("nllb")
    (folder / "README.md").write_text("---\nlanguage:\n- ace\nlicense: cc-by-nc-4.0\n---\n# NLLB\n")
    edit(folder / "config.json", _name_or_path="facebook/nllb-200-distilled-600M")
    assert main([str(folder), "-o", str(tmp_path / "run"), *EN_SW]) == 0
    assert "cc-by-nc-4.0" in capsys.readouterr().err
    about = Model.open(tmp_path / "run").about
    origin = about.origin
    assert origin is not None
    assert origin.source == about.name == "facebook/nllb-200-distilled-600M"
    assert (origin.family, origin.license) == ("NLLB-200", "cc-by-nc-4.0")
    assert MODEL in origin.files
    assert about.directions == [Direction("en", "sw", "<eng_Latn>", "<swh_Latn>")]
    assert (about.src, about.tgt, about.data.normalize) == ("en", "sw", "none")
    named = ["--source", "x/y", "--license", "mit"]
    assert main([str(folder), "-o", str(tmp_path / "two"), *EN_SW, *named]) == 0
    origin = Model.open(tmp_path / "two").about.origin
    assert origin is not None
    assert origin.describe() == "x/y (NLLB-200; license: mit)"


@pytest.mark.slow
def test_language_tokens_with_rows_and_in_a_list_are_the_same(copy, originals, tmp_path):
    """The tokens have moved between versions of transformers: each file alone suffices."""
    folder = copy("nllb")
    added = {
        t["content"]: t["id"]
        for t in json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    }
    (folder / "tokenizer.json").unlink()
    runs = ["both", "list", "rows", "decoder"]
    assert main([str(originals["nllb"]), "-o", str(tmp_path / "both"), *EN_SW]) == 0
    assert main([str(folder), "-o", str(tmp_path / "list"), *EN_SW]) == 0
    (folder / "special_tokens_map.json").unlink()
    folders.write_json(folder / "added_tokens.json", added)
    assert main([str(folder), "-o", str(tmp_path / "rows"), *EN_SW]) == 0
    (folder / "added_tokens.json").unlink()
    decoder = {str(row): {"content": token} for token, row in added.items()}
    edit(folder / "tokenizer_config.json", added_tokens_decoder=decoder)
    assert main([str(folder), "-o", str(tmp_path / "decoder"), *EN_SW]) == 0
    files = [load_file(tmp_path / run / WEIGHTS) for run in runs]
    rows = []
    for run, file in zip(runs, files, strict=True):
        vocab = Translator.load(tmp_path / run, "cpu").codec.vocab
        ids = vocab.ids([" <eng_Latn>", " <swh_Latn>", " <zul_Latn>"])
        rows.append(file["embed.weight"][ids])
        assert len(vocab.tags) == 202
    assert all(torch.equal(row, rows[0]) for row in rows)
