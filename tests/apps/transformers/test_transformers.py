"""nmt-export --format transformers: the same logits and translations, or an error with the keys."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch

from nmt.cli.export import main
from nmt.config.recipe import SentencePieceConfig
from nmt.data.segmenters import Segmenter
from nmt.data.vocab import BOS, EOS, Vocab
from tests.decoding.ctranslate2.cases import made, model_folder, pairs
from tests.decoding.untrained import learned
from tests.model_cases import batch_of, log_probs, short
from tests.run_cases import edit_model

LINES = [line for line, _ in pairs()[:10]]
FITTING: list[dict[str, Any]] = [
    {"norm_place": "post"},
    {"norm_place": "pre", "fixnorm": False, "activation": "gelu", "bias": False},
    {"norm_place": "post", "head_scale": True, "activation": "relu2", "res_scale": "scalar"},
    {"norm_place": "pre", "logit_mask": False, "out_bias": False},
]


@pytest.fixture(scope="module")
def words() -> tuple[Segmenter, Vocab]:
    return learned(SentencePieceConfig(vocab_size=200), pairs())


@pytest.mark.slow
@pytest.mark.parametrize("keys", FITTING, ids=short)
def test_transformers_computes_the_same(keys, words, tmp_path):
    """Ids of text, log-probabilities of given translations, and greedy translations."""
    transformers = pytest.importorskip("transformers")
    translator = made(words=words, norm="layernorm", **keys)
    run = model_folder(translator, tmp_path / "run")
    folder = tmp_path / "model"
    assert main([str(run), "--format", "transformers", "--output", str(folder)]) == 0
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs, loading = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        folder, output_loading_info=True
    )
    kind = "Marian" if keys["norm_place"] == "post" else "Pegasus"
    assert type(theirs).__name__.startswith(kind)
    assert not loading["unexpected_keys"]
    assert not loading["missing_keys"]
    segmenter, vocab = words
    sources, targets = [], []
    for src, tgt in pairs()[:10]:
        sources.append([*vocab.ids(segmenter.encode(src, "gl")), EOS])
        targets.append(vocab.ids(segmenter.encode(tgt, "en")))
    batch = tokenizer(LINES, padding=True, return_tensors="pt")
    for ids, mask, source in zip(batch.input_ids, batch.attention_mask, sources, strict=True):
        assert ids[mask.bool()].tolist() == source
    longest = max(map(len, targets))
    given = torch.tensor([[BOS, *t, *[EOS] * (longest - len(t))] for t in targets])
    with torch.no_grad():
        logits = theirs(**batch, decoder_input_ids=given).logits
    found = torch.cat(
        [rows[: len(t) + 1] for rows, t in zip(logits.log_softmax(-1), targets, strict=True)]
    )
    expected = log_probs(translator.transformer, batch_of(sources, targets))
    possible = expected > -1000  # masked types have about -1e4, and its rounding
    torch.testing.assert_close(found[possible], expected[possible], rtol=0, atol=1e-4)
    assert bool((found[~possible] < -1000).all())
    for line, source, translation in zip(
        LINES, sources, translator.translate(LINES, beam=1), strict=True
    ):
        inputs = tokenizer([line], return_tensors="pt")
        limit = len(source) + translator.info.decode.max_len_offset
        output = theirs.generate(**inputs, num_beams=1, max_new_tokens=limit)
        assert tokenizer.decode(output[0], skip_special_tokens=True) == translation


def test_files_say_how_to_use_them_and_are_replaced_only_with_force(words, tmp_path, capsys):
    run = model_folder(made(words=words, norm="layernorm"), tmp_path / "run")
    decode = json.loads((run / "model.json").read_text())["decode"]
    edit_model(run, decode={**decode, "no_repeat_ngram": 3})
    argv = [str(run), "--format", "transformers"]
    assert main(argv) == 0
    folder = run / "transformers"
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer_config.json",
        "vocab.json", "source.spm", "target.spm", "README.md", "nmt-export.json",
    }  # fmt: skip
    assert "PegasusForConditionalGeneration" in (folder / "README.md").read_text()
    generation = json.loads((folder / "generation_config.json").read_text())
    assert (generation["decoder_start_token_id"], generation["eos_token_id"]) == (BOS, EOS)
    assert generation["no_repeat_ngram_size"] == 3
    assert main(argv) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*argv, "--force"]) == 0
    for option in (["--quantization", "int8"], ["--hub", "x"]):
        assert main([*argv, *option]) == 2
        assert f"{option[0]} is not for --format transformers" in capsys.readouterr().err


def test_an_error_names_every_key_and_what_fits(tmp_path, capsys):
    """The model has byte-pair codes, and nothing that transformers could compute."""
    keys: dict[str, Any] = {
        "norm": "scalenorm", "norm_eps": 1e-3, "activation": "geglu", "tie": "none",
        "normformer": True, "head_scale": True, "post_attn_norm": True, "ffn_norm": True,
        "qkv_norm": True, "res_scale": "all",
    }  # fmt: skip
    run = model_folder(made(**keys), tmp_path / "run")
    assert main([str(run), "--format", "transformers"]) == 2
    found = re.findall(r"^  ([\w.]+): (\S+); fits: (.+)$", capsys.readouterr().err, re.MULTILINE)
    assert found == [
        ("model.norm", "scalenorm", "layernorm"),
        ("model.norm_eps", "0.001", "1e-05"),
        ("model.activation", "geglu", "relu, gelu, relu2 or swish"),
        ("model.tie", "none", "src_tgt_out"),
        ("model.ffn_norm", "true", "false"),
        ("model.post_attn_norm", "true", "false"),
        ("model.qkv_norm", "true", "false"),
        ("model.res_scale", "all", "none or scalar"),
        ("segment.kind", "fastbpe", "sentencepiece"),
    ]
    assert not (run / "transformers").exists()
