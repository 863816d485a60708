"""The families of models that become run folders, as data: files, keys, vocabulary.

| family | what it shares with a model of this toolkit |
|---|---|
| MarianMT | the Transformer of V with swish, and a SentencePiece model for each side |
| M2M-100, NLLB-200 | PreNorm, positions of fairseq, one SentencePiece model, language tokens |
| mBART-50 | PreNorm, learned positions, a norm of the embeddings, language tokens |

A language token is a tag here: it has a type, and no text can produce it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from nmt.apps.transformers.folder import CONFIG_JSON, DOWNLOAD, GENERATION, HubFolder, damaged
from nmt.data.segmenters.sentencepiece import SentencePiece, load_model, make_model
from nmt.data.vocab import TAG_MARK
from nmt.errors import UserError
from nmt.text.tokenizer import Moses

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
PIECES, PIECES_JSON = "sentencepiece.bpe.model", "tokenizer.json"
MOST_NAMED = 5  # tokens in an error
_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")  # fairseq's, by id
_NO_BIAS = "its attention adds learned biases of relative positions, which this model lacks"
REFUSED = {
    "t5": f"T5 and MADLAD-400: {_NO_BIAS}",
    "mt5": f"mT5: {_NO_BIAS}",
    "umt5": f"umT5: {_NO_BIAS}",
    "nllb-moe": "NLLB-MoE: a mixture of experts; choose a dense size of NLLB-200",
    "bart": "BART: its pieces are bytes, not those of SentencePiece",
}
REFUSED_TOKENIZERS = {
    "MBartTokenizer": "mBART-25 has its language token at the end of a sentence",
    "SMALL100Tokenizer": "SMaLL-100 has the language token of the target before the source",
}
# of transformers, for models of any kind
ANY_TOKENIZER = {
    "None", "PreTrainedTokenizer", "PythonBackend", "SentencePieceBackend", "TokenizersBackend",
}  # fmt: skip


class Side(NamedTuple):
    """The vocabulary of one side: the rows of its embedding.

    Attributes:
        rows: by piece, and by type for language tokens.
        eos, unk: rows of these specials.
    """

    rows: dict[str, int]
    eos: int
    unk: int


class Text(NamedTuple):
    """The text of a model: segmenter, vocabularies, languages.

    Attributes:
        src, tgt: the sides; the same object if they share a vocabulary.
        tags: language token by the code of its language, such as swh_Latn: <swh_Latn>.
        tag_on_target: the target begins with its language token, and the source with its own;
            false = the source begins with that of the target, if the model has any.
        langs: source and target language as the tokenizer states them; empty = not stated.
    """

    segmenter: SentencePiece
    src: Side
    tgt: Side
    tags: dict[str, str]
    tag_on_target: bool
    langs: tuple[str, str]


class Family(NamedTuple):
    """Models of one architecture and one kind of tokenizer.

    Attributes:
        model_type: in config.json.
        tokenizer: its class in transformers.
        mark: a token by which it is known if the class is not stated; empty = no other family has
            this model_type.
        keys: of ``model`` in a recipe, which all of its models have.
        text: reads the tokenizer.
    """

    name: str
    model_type: str
    tokenizer: str
    mark: str
    files: tuple[str, ...]
    keys: Mapping[str, Any]
    text: Callable[[HubFolder], Text]


def family_of(folder: HubFolder) -> Family:
    """Return the family of a model.

    Raises:
        UserError: it has none, or files of its tokenizer are missing.
    """
    kind = str(folder.config.get("model_type"))
    near = [family for family in FAMILIES if family.model_type == kind]
    known = ", ".join(family.name for family in FAMILIES)
    if not near:
        reason = REFUSED.get(kind, f"a model of type {kind}")
        raise UserError(
            f"cannot be converted: {reason}", at=str(folder.path), fix=f"choose one of: {known}"
        )
    settings = folder.read_json("tokenizer_config.json")
    name = str(settings.get("tokenizer_class") or folder.config.get("tokenizer_class"))
    name = name.removesuffix("Fast")
    own = sorted(path.name for path in folder.path.glob("tokenization_*.py"))
    if own and name not in REFUSED_TOKENIZERS:
        name = own[0]
    if name in ANY_TOKENIZER:
        tokens = _added_tokens(folder, 0)
        chosen = [family for family in near if not family.mark or family.mark in tokens]
        marks = ", ".join(f"{family.mark} of {family.name}" for family in near)
        reason = f"neither its class nor one of its tokens ({marks}) names its tokenizer"
    else:
        chosen = [family for family in near if family.tokenizer == name]
        fitting = ", ".join(f"{family.tokenizer} ({family.name})" for family in near)
        reason = REFUSED_TOKENIZERS.get(
            name, f"its tokenizer is {name}; for model_type {kind} it must be {fitting}"
        )
    if not chosen:
        fix = f"choose one of: {known}"
        raise UserError(f"cannot be converted: {reason}", at=str(folder.path), fix=fix)
    if settings.get("legacy_behaviour") is True:
        what = "cannot be converted: legacy_behaviour puts the language token after the source"
        fix = "choose a model that was trained with it before the source"
        raise UserError(what, at=str(folder.path / "tokenizer_config.json"), fix=fix)
    folder.require(chosen[0].files)
    return chosen[0]


def _marian(folder: HubFolder) -> Text:
    settings = folder.read_json("tokenizer_config.json")
    models = [_model(folder, name) for name in ("source.spm", "target.spm")]
    names = ["vocab.json"]
    if settings.get("separate_vocabs"):
        names.append("target_vocab.json")
        folder.require(names)
    sides: list[Side] = []
    tags: dict[str, str] = {}
    for name in names:
        ids = _ids(folder, name)
        tokens = {token[2:-2]: token for token in ids if re.fullmatch(">>[^<>]+<<", token)}
        side = _side(folder, name, ids, {"<pad>", *tokens.values()})
        if not sides:  # language tokens are on the source
            tags = {code: f"<{code}>" for code in tokens}
            side.rows.update({TAG_MARK + tag: ids[tokens[code]] for code, tag in tags.items()})
        sides.append(side)
    langs = (str(settings.get("source_lang") or ""), str(settings.get("target_lang") or ""))
    _check_ids(folder, names[-1], ids)
    _refuse_ordinary_tokens(folder, ">>[^<>]+<<")
    return Text(_segmenter(*models), sides[0], sides[-1], tags, False, langs)


def _m2m100(folder: HubFolder) -> Text:
    ids = _ids(folder, "vocab.json")
    side = _side(folder, "vocab.json", ids, _SPECIALS)
    _check_ids(folder, "vocab.json", ids)
    return _multilingual(folder, _model(folder, PIECES), side, len(ids), "__([A-Za-z_]+)__")


def _nllb(folder: HubFolder) -> Text:
    return _fairseq(folder, "([a-z]{3}_[A-Z][a-z]{3})")


def _mbart50(folder: HubFolder) -> Text:
    return _fairseq(folder, "([a-z]{2}_[A-Z]{2})")


def _fairseq(folder: HubFolder, language: str) -> Text:
    """Read a tokenizer whose ids are those of SentencePiece plus 1: four specials, not three.

    transformers 5 saves its pieces in tokenizer.json alone.
    """
    name = PIECES if folder.has(PIECES) else PIECES_JSON
    if not folder.has(name):
        fix = f"copy {PIECES} from the original model, or " + DOWNLOAD
        raise UserError(f"lacks {PIECES}", at=str(folder.path), fix=fix)
    if name == PIECES:
        model = _model(folder, PIECES)
        processor = load_model(model)
        pieces = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
        if pieces[:3] != ["<unk>", "<s>", "</s>"]:
            raise damaged("its first pieces are not <unk>, <s> and </s>", folder.path / PIECES)
        ids = {piece: row for row, piece in enumerate([*_SPECIALS, *pieces[3:]])}
    else:
        model, ids = _pieces_of_json(folder)
    side = _side(folder, name, ids, _SPECIALS)
    _check_ids(folder, name, ids)
    return _multilingual(folder, model, side, len(ids), language)


def _pieces_of_json(folder: HubFolder) -> tuple[bytes, dict[str, int]]:
    """Make the SentencePiece model of tokenizer.json; return it and the row of each piece."""
    values = folder.read_json(PIECES_JSON)
    try:
        model = values["model"]
        added = {_content(token) for token in values["added_tokens"]} - {*_SPECIALS}
        if model["type"] == "Unigram":
            scores = {piece: float(score) for piece, score in model["vocab"]}
            ids = {piece: row for row, (piece, _) in enumerate(model["vocab"])}
        else:
            ids = dict(sorted(model["vocab"].items(), key=lambda item: item[1]))
            pairs = (m.split(" ") if isinstance(m, str) else m for m in model["merges"])
            # a better rank of a merge is a higher score of the piece that it makes
            ranks = {piece: -rank for rank, piece in enumerate(dict.fromkeys(map("".join, pairs)))}
            scores = {piece: float(ranks.get(piece, -len(ids))) for piece in ids}
        ids = {piece: row for piece, row in ids.items() if piece not in added}
        if [*ids][:4] != [*_SPECIALS] or model["type"] not in ("Unigram", "BPE"):
            raise ValueError
        pieces = {piece: scores[piece] for piece in [*ids][4:]}
        return make_model(model["type"].lower(), pieces, _charsmap(values["normalizer"])), ids
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = "the SentencePiece model cannot be made from it"
        fix = f"copy {PIECES} from the original model into this folder"
        raise UserError(what, at=str(folder.path / PIECES_JSON), fix=fix) from error


def _charsmap(normalizer: Any) -> bytes:
    """Return the table of SentencePiece's normalizer; ValueError if it is another one."""
    steps = normalizer.get("normalizers", [normalizer]) if normalizer else []
    if [step for step in steps if step["type"] not in ("Precompiled", "Replace")]:
        raise ValueError
    tables = [step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"]
    return base64.b64decode(tables[0]) if tables else b""


def _multilingual(folder: HubFolder, model: bytes, side: Side, first: int, language: str) -> Text:
    """Add the language tokens of a model.

    Args:
        first: row of the first of them, if the folder has only their list.
        language: pattern of a token; its group is the code.
    """
    tokens = _added_tokens(folder, first)
    found = {match[1]: row for t, row in tokens.items() if (match := re.fullmatch(language, t))}
    if not found:
        what = "no file of the tokenizer names its languages"
        fix = f"it needs special_tokens_map.json, as the hub has it; {DOWNLOAD}"
        raise UserError(what, at=str(folder.path), fix=fix)
    _refuse_ordinary_tokens(folder, language)
    tags = {code: f"<{code}>" for code in found}
    side.rows.update({TAG_MARK + tag: found[code] for code, tag in tags.items()})
    return Text(_segmenter(model), side, side, tags, True, ("", ""))


def _added_tokens(folder: HubFolder, first: int) -> dict[str, int]:
    """Return the rows of the tokens that are not pieces.

    They have moved between versions of transformers. A file with rows counts more than a list,
    which has its first language at row ``first``.
    """
    try:
        settings = folder.read_json("tokenizer_config.json")
        added = folder.read_json("tokenizer.json").get("added_tokens", [])
        rows = {_content(token): token["id"] for token in added}
        for row, token in settings.get("added_tokens_decoder", {}).items():
            rows.setdefault(_content(token), int(row))
        for token, row in folder.read_json("added_tokens.json").items():
            rows.setdefault(token, int(row))
        for values in (folder.read_json("special_tokens_map.json"), settings):
            for key in ("additional_special_tokens", "extra_special_tokens"):
                names = dict.fromkeys(map(_content, values.get(key) or ()))
                for row, name in enumerate(names, first):
                    rows.setdefault(name, row)
        return rows
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = "a file of the tokenizer does not list its tokens as transformers does"
        raise damaged(what, folder.path) from error


def _refuse_ordinary_tokens(folder: HubFolder, language: str) -> None:
    """Refuse tokens at which transformers divides any text, and nmt would not.

    Args:
        language: pattern of the language tokens.
    """
    tokens = _added_tokens(folder, 0)
    settings = folder.read_json("tokenizer_config.json")
    listed = folder.read_json("tokenizer.json").get("added_tokens", [])
    flagged = [*listed, *settings.get("added_tokens_decoder", {}).values()]
    special = {_content(token) for token in flagged if token.get("special")} | {*_SPECIALS}
    for values in (folder.read_json("special_tokens_map.json"), settings):
        for key, value in values.items():
            if key.endswith("special_tokens"):
                special.update(map(_content, value or ()))
            elif key.endswith("_token") and value:
                special.add(_content(value))
    pattern = re.compile(rf"{language}|<mask>|madeupword\d+")
    ordinary = [t for t in tokens if t not in special and not pattern.fullmatch(t)]
    if ordinary:
        more = f" and {len(ordinary) - MOST_NAMED:,} more" if len(ordinary) > MOST_NAMED else ""
        raise UserError(
            "cannot be converted: its tokenizer divides text at tokens that are not pieces of "
            f"SentencePiece: {', '.join(map(repr, ordinary[:MOST_NAMED]))}{more}",
            at=str(folder.path),
            fix="choose the model that it was made from, which lacks these tokens",
        )


def _content(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


def _model(folder: HubFolder, name: str) -> bytes:
    model = folder.read(name)
    try:
        load_model(model)
    except ValueError as error:
        raise damaged(str(error), folder.path / name) from error
    return model


def _segmenter(model: bytes, target: bytes | None = None) -> SentencePiece:
    return SentencePiece(Moses(False, exact=True), model, target, raw=True)


def _ids(folder: HubFolder, name: str) -> dict[str, int]:
    values = folder.read_json(name)
    if not all(type(row) is int and row >= 0 for row in values.values()):
        raise damaged("not a vocabulary: token and id", folder.path / name)
    return dict(sorted(values.items(), key=lambda item: item[1]))  # some files are by name


def _check_ids(folder: HubFolder, name: str, ids: Mapping[str, int]) -> None:
    """Raise UserError if the settings of the model have other ids of specials than a vocabulary."""
    for file in (CONFIG_JSON, GENERATION):
        settings = folder.read_json(file)
        for key, token in (("eos_token_id", "</s>"), ("pad_token_id", "<pad>")):
            stated, row = settings.get(key), ids.get(token)
            if stated is not None and row is not None and stated not in (row, [row]):
                what = f"{key} is {stated}, and {token} has the id {row} in {name}"
                raise damaged(what, folder.path / file)


def _side(folder: HubFolder, name: str, ids: dict[str, int], others: Collection[str]) -> Side:
    """Return the vocabulary of a file.

    Tokens that vocab.txt cannot hold are left out: they begin with a space, or have a tab or a line
    end inside. SentencePiece has no such piece, so no text gives them.

    Args:
        others: tokens that are not pieces, besides </s> and <unk>.
    """
    for token in ("</s>", "<unk>"):
        if token not in ids:
            raise damaged(f"has no {token}", folder.path / name)
    special = {"</s>", "<unk>", *others}
    pieces = {
        piece: row
        for piece, row in ids.items()
        if piece not in special
        and not (piece.startswith(" ") or {"\t", "\n"} & set(piece) or not piece)
    }
    return Side(pieces, ids["</s>"], ids["<unk>"])


FAMILIES = (
    Family(
        "MarianMT (OPUS-MT)",
        "marian",
        "MarianTokenizer",
        "",
        ("source.spm", "target.spm", "vocab.json"),
        {"norm_place": "post"},
        _marian,
    ),
    Family(
        "M2M-100",
        "m2m_100",
        "M2M100Tokenizer",
        "__en__",
        (PIECES, "vocab.json"),
        {"norm_place": "pre", "positions": "fairseq"},
        _m2m100,
    ),
    Family(
        "NLLB-200",
        "m2m_100",
        "NllbTokenizer",
        "eng_Latn",
        (),
        {"norm_place": "pre", "positions": "fairseq"},
        _nllb,
    ),
    Family(
        "mBART-50",
        "mbart",
        "MBart50Tokenizer",
        "sl_SI",  # not in mBART-25
        (),
        {"norm_place": "pre", "positions": "learned", "embed_norm": True},
        _mbart50,
    ),
)
