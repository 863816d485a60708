"""A converted model has the ids, logits and translations of the model in transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import regex
import torch
from safetensors.torch import load_file

from nmt.apps.transformers.convert import convert
from nmt.cli.export import main as export
from nmt.data.lines import is_blank
from nmt.data.vocab import EOS, SPECIALS, UNK, Vocab, tag_piece
from nmt.decoding.ctranslate2.folder import export as export_ctranslate2
from nmt.decoding.translator import Translator
from nmt.store.model import Model
from tests.apps.transformers import folders
from tests.model_cases import batch_of

transformers = pytest.importorskip("transformers")

# the tokens of their languages, and their names
LANGUAGES = {
    "marian": ("", ""),
    "nllb": ("eng_Latn", "swh_Latn"),
    "m2m100": ("en", "sw"),
    "mbart50": ("en_XX", "sw_KE"),
}
# The tokenizers of these in transformers do not use SentencePiece, with which the models were
# trained. At the end of a line they leave a lone U+2581 for what SentencePiece removes. And they
# normalize a character with its marks as one only if it has less than 6 bytes.
FAST = ("nllb", "mbart50")
ENDS = " \t\u00a0\u3000\u202f\u200b\u200e\u200c\ufeff\u2028\u202b\u2581"


class Case(NamedTuple):
    """A model in transformers, and converted."""

    family: str
    path: Path
    theirs: Any
    tokenizer: Any
    ours: Translator

    @property
    def tags(self) -> tuple[list[str], list[str]]:
        """The language tokens before a source and a target of ours, as pieces."""
        src, tgt = (tag_piece(f"<{name}>" if name else None) for name in LANGUAGES[self.family])
        return src, tgt


def made(family: str, folder: Path, dtype: torch.dtype = torch.float32, **options: Any) -> Case:
    """Write a folder of a family, and convert it."""
    theirs = folders.FAMILIES[family](folder / "hub", dtype, **options)
    src, tgt = LANGUAGES[family]
    if tags := options.get("tags"):
        tgt = tags[0]
    convert(folder / "hub", folder / "run", src=src or None, tgt=tgt or None)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "hub")
    if family in LANGUAGES and src:
        tokenizer.src_lang, tokenizer.tgt_lang = src, tgt
    return Case(
        family, folder, theirs, tokenizer, Translator.load(folder / "run", "cpu", engine="torch")
    )


@pytest.fixture(scope="module", params=LANGUAGES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return made(request.param, tmp_path_factory.mktemp(request.param))


def compare_pieces(case: Case, side: str, lines: list[str]) -> int:
    """Require the pieces of their tokenizer; return how many lines could be compared."""
    codec = case.ours.codec
    segment = codec.source_pieces if side == "src" else codec.target_pieces
    compared = 0
    for line in lines:
        if case.family in FAST:
            line = line.rstrip(ENDS)
        if line and is_blank(line):  # here, a line of signs that are not seen has no translation
            continue
        tokens = _tokens(case.tokenizer, **{"text" if side == "src" else "text_target": line})
        mark = case.tags[side == "tgt"]
        # a piece of the other side alone has the row of UNK
        pieces = _display(codec.vocab, segment(line), codec.vocab.types_of(side))
        expected = [*(name.strip(" <>") for name in mark), *pieces]
        assert [token.strip("_") for token in tokens[: len(mark)]] == expected[: len(mark)]
        same = tokens[len(mark) :] == [*expected[len(mark) :], "</s>"]
        assert same or (case.family in FAST and _has_long_character(line)), ascii(line)
        compared += same
    return compared


def _has_long_character(line: str) -> bool:
    return any(len(c) > 1 and len(c.encode()) >= 6 for c in regex.findall(r"\X", line))


def _tokens(tokenizer: Any, **text: str) -> list[str]:
    ids = tokenizer(**text).input_ids
    if not getattr(tokenizer, "separate_vocabs", False):
        return tokenizer.convert_ids_to_tokens(ids)
    rows = tokenizer.encoder if "text" in text else tokenizer.target_encoder
    names = {row: token for token, row in rows.items()}
    return [names[i] for i in ids]


def _display(vocab: Vocab, pieces: list[str], possible: Any = None) -> list[str]:
    ids = vocab.ids(pieces)
    return vocab.pieces(ids if possible is None else [i if possible[i] else UNK for i in ids])


@pytest.mark.slow
@pytest.mark.parametrize("family", ["marian", "nllb"])
def test_an_output_layer_of_its_own_is_kept(family: str, tmp_path: Path) -> None:
    case = made(family, tmp_path, tie_word_embeddings=False)
    assert case.ours.transformer.config.tie == "none"
    _compare_logits(case)


def _compare_logits(case: Case, tags: tuple[str, ...] = ()) -> float:
    """Compare the logits of given translations, for all pieces that both have.

    Their probabilities are those of all rows, also of <pad>. So log-probabilities are compared
    among the pieces.

    Args:
        tags: of Marian's source.

    Returns:
        The largest difference of two log-probabilities.
    """
    codec, model, tokenizer = case.ours.codec, case.ours.transformer, case.tokenizer
    vocab = codec.vocab
    pairs = list(zip(folders.lines(7)[:12], folders.lines(8)[:12], strict=True))
    marks = (tag_piece(f"<{tags[0]}>"), []) if tags else case.tags
    text = f">>{tags[0]}<<" if tags else ""
    sources, targets = [], []
    for src, tgt in pairs:
        sources.append([*vocab.ids([*marks[0], *codec.source_pieces(src)]), EOS])
        targets.append(vocab.ids([*marks[1], *codec.target_pieces(tgt)]))
        assert not {UNK, *vocab.reserved_ids} & {*sources[-1][len(marks[0]) :]}
    batch = batch_of(sources, targets)
    with torch.no_grad():
        ours = model(batch.src, batch.src_layout, batch.tgt_in, batch.tgt_layout)
    ids, rows = _common(case, vocab)
    assert len(ids) > 200
    start = case.theirs.config.decoder_start_token_id
    found = []
    for src, tgt in pairs:
        given = tokenizer(text_target=tgt).input_ids
        inputs = tokenizer(text + src, return_tensors="pt")
        with torch.no_grad():
            out = case.theirs(**inputs, decoder_input_ids=torch.tensor([[start, *given[:-1]]]))
        found.append(out.logits[0])
    theirs = torch.cat(found)
    torch.testing.assert_close(ours[:, ids], theirs[:, rows], rtol=0, atol=1e-4)
    log_probs = ours[:, ids].log_softmax(-1), theirs[:, rows].log_softmax(-1)
    return float((log_probs[0] - log_probs[1]).abs().max())


def _common(case: Case, vocab: Vocab) -> tuple[list[int], list[int]]:
    """Return the ids of the target's pieces here and there; those of the specials are EOS alone."""
    types = vocab.pieces(range(len(SPECIALS), len(vocab)))
    numbers = {piece: number for number, piece in enumerate(types, len(SPECIALS))}
    theirs = getattr(case.tokenizer, "target_encoder", None) or case.tokenizer.get_vocab()
    possible = vocab.types_of("tgt")
    pairs = [
        (numbers[p], row) for p, row in theirs.items() if p in numbers and possible[numbers[p]]
    ]
    ids, rows = zip((EOS, theirs["</s>"]), *pairs, strict=True)
    return list(ids), list(rows)


@pytest.mark.slow
@pytest.mark.parametrize(("beam", "alpha"), [(1, 1.0), (4, 0.0), (4, 2.0)])
def test_translations_are_theirs(beam: int, alpha: float, tmp_path: Path) -> None:
    lines = folders.lines(3)[:60]
    case = made("marian", tmp_path)
    assert compare_translations(case, lines, beam=beam, length_alpha=alpha) > 10


def compare_translations(case: Case, lines: list[str], prefix: str = "", **options: Any) -> int:
    """Require the n best translations of transformers, and their scores.

    Args:
        prefix: before each source, in transformers.
        options: of the search, here.

    Returns:
        How many of the best are different ones.
    """
    tokenizer, codec, offset = case.tokenizer, case.ours.codec, 8
    lines = [line for line in lines if UNK not in _ids(case, line)]
    decode = case.ours.info.decode.model_copy(update=options)
    assert (decode.length_penalty, decode.stop_rule) == ("mean", "count")
    options.update(max_len_offset=offset, n_best=decode.beam)
    ours = dict(zip(lines, case.ours.stream(lines, split="line", **options), strict=True))
    ids, rows = _common(case, codec.vocab)
    names = dict(zip(rows, codec.vocab.pieces(ids), strict=True))
    form = "__{}__" if case.family == "m2m100" else "{}"
    languages = [form.format(tag.strip("<>")) for tag in codec.vocab.tgt_tags]
    others = [tokenizer.unk_token_id, *tokenizer.convert_tokens_to_ids(languages)]
    assert len({*others}) == len(languages) + 1
    language = _tokens(tokenizer, text_target="a")[:1] if case.tags[1] else []
    search = {}
    if decode.beam > 1:
        search = {
            "early_stopping": True,
            "length_penalty": decode.length_alpha,
            "output_scores": True,
        }

    def ban(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Allow the types that we choose, of those that we have, and no end at first."""
        if ids.shape[-1] <= len(language):
            return scores
        ours = scores[:, [*rows, *others]].logsumexp(-1, keepdim=True)
        banned = torch.full_like(scores, -torch.inf)
        banned[:, rows] = (scores - ours)[:, rows]
        if ids.shape[-1] == 1 + len(language):
            banned[:, tokenizer.eos_token_id] = -torch.inf
        return banned

    for length, same_length in _by_length(tokenizer, lines, prefix):
        output = case.theirs.generate(
            **tokenizer([prefix + line for line in same_length], return_tensors="pt"),
            forced_bos_token_id=(tokenizer.convert_tokens_to_ids(language) or [None])[0],
            num_beams=decode.beam,
            max_new_tokens=length + offset + len(language),
            logits_processor=transformers.LogitsProcessorList([ban]),
            forced_eos_token_id=None,
            renormalize_logits=False,  # the processor does it
            do_sample=False,
            num_return_sequences=decode.beam,
            return_dict_in_generate=True,
            **search,
        )
        found = [one for line in same_length for one in ours[line]]
        for one, ids in zip(found, output.sequences.tolist(), strict=True):
            chosen = [i for i in ids[1 + len(language) :] if i != tokenizer.eos_token_id]
            assert one.pieces == [names[i] for i in chosen if i in names]
        if decode.beam > 1:
            scores = output.sequences_scores.tolist()
            assert [one.score for one in found] == pytest.approx(scores, rel=1e-5, abs=1e-4)
    return len({best[0].text for best in ours.values()})


def _ids(case: Case, line: str) -> list[int]:
    return case.ours.codec.vocab.ids(case.ours.codec.source_pieces(line))


def _by_length(
    tokenizer: Any, lines: list[str], prefix: str = ""
) -> Iterator[tuple[int, list[str]]]:
    """Yield lines of the same length in tokens, EOS included: they have the same limit."""
    groups: dict[int, list[str]] = {}
    for line in lines:
        groups.setdefault(len(tokenizer(prefix + line).input_ids), []).append(line)
    yield from groups.items()


def test_an_export_for_transformers_has_the_tensors_of_the_original(tmp_path: Path) -> None:
    case = made("marian", tmp_path, tags=("fra", "pt_BR"))
    again = tmp_path / "again"
    assert export([str(tmp_path / "run"), "--format", "transformers", "-o", str(again)]) == 0
    before, after = (load_file(path / "model.safetensors") for path in (tmp_path / "hub", again))
    sines = {name for name in after if "embed_positions" in name}
    by_row = {"model.shared.weight", "final_logits_bias"}
    assert after.keys() - sines == before.keys()
    for name in before.keys() - by_row:
        assert torch.equal(before[name], after[name]), name
    old, new = (json.loads((path / "vocab.json").read_text()) for path in (tmp_path / "hub", again))
    assert old.keys() | {"<s>"} == new.keys()
    tokens = sorted(old.keys() - {"<pad>"})
    rows = [[ids[token] for token in tokens] for ids in (old, new)]
    tables = [file["model.shared.weight"] for file in (before, after)]
    assert torch.equal(tables[0][rows[0]], tables[1][rows[1]])
    assert torch.equal(tables[0][old["<pad>"]], tables[1][new["<s>"]])  # the decoder's start
    chosen = [token for token in tokens if not token.startswith(">>")]
    biases = [file["final_logits_bias"][0] for file in (before, after)]
    assert biases[0][[old[t] for t in chosen]].equal(biases[1][[new[t] for t in chosen]])
    tokenizer = transformers.AutoTokenizer.from_pretrained(again)
    for line in folders.odd_lines(200):
        for side in ("text", "text_target"):
            assert _tokens(tokenizer, **{side: line}) == _tokens(case.tokenizer, **{side: line})
    assert tokenizer(">>fra<<a").input_ids[0] == new[">>fra<<"]


@pytest.mark.slow
@pytest.mark.cpu
def test_an_export_for_ctranslate2_translates_as_its_own_conversion(case: Case) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    converter = ctranslate2.converters.TransformersConverter(str(case.path / "hub"))
    theirs = ctranslate2.Translator(converter.convert(str(case.path / "theirs"), force=True))
    export_ctranslate2(Model.open(case.path / "run"), case.path / "ours", force=True)
    ours = ctranslate2.Translator(str(case.path / "ours" / "ctranslate2"))
    lines = folders.lines(3)[:100]
    codec = case.ours.codec
    known = [_display(codec.vocab, codec.source_pieces(line)) for line in lines]
    tokens = [_tokens(case.tokenizer, text=line) for line in lines]
    first = _tokens(case.tokenizer, text_target="a")[:1]
    options = {"beam_size": 4, "max_decoding_length": 12, "disable_unk": True, "length_penalty": 0}
    names = json.loads((case.path / "theirs" / "shared_vocabulary.json").read_text())
    banned = [[name] for name in set(names) - set(codec.vocab.pieces(range(4, len(codec.vocab))))]
    banned.remove(["</s>"])
    outputs = []
    tags = [[piece] for piece in codec.vocab.pieces(codec.vocab.reserved_ids)]
    for engine, sources, mark, suppressed in (
        (ours, [[*case.tags[0], *pieces] for pieces in known], case.tags[1], tags or None),
        (theirs, tokens, first if case.tags[1] else [], banned),
    ):
        found = engine.translate_batch(
            sources,
            target_prefix=[mark] * len(lines) if mark else None,
            suppress_sequences=suppressed,
            **options,
        )
        outputs.append([one.hypotheses[0][len(mark) :] for one in found])
    assert outputs[0] == outputs[1]
    assert len({tuple(one) for one in outputs[0]}) > 5
