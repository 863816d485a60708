"""Translate text with the model in this folder. README.md lists the packages to install.

    python translate.py [options] < input.txt > output.txt

Each line of input gives one line of output. A line with more sentences than usual in the training
data is translated in parts. In Python::

    from translate import Translator
    text = Translator("path/to/this/folder").translate("A sentence.")
"""

import argparse
import hashlib
import io
import json
import runpy
import sys
import unicodedata
from pathlib import Path

import ctranslate2

LONGEST_LINE = 100_000  # characters
# by their paths, because this program may be imported from anywhere
unicode = runpy.run_path(str(Path(__file__).with_name("unicode.py")))
sentences = runpy.run_path(str(Path(__file__).with_name("sentences.py")))


class Words:
    """Words as pieces: split by Moses' rules or, in a model of tokenized text, at white space."""

    def __init__(self, folder: Path, settings: dict) -> None:
        moses = runpy.run_path(str(Path(__file__).with_name("moses.py")))
        self.rules, self.exact = settings["rules"], settings["segmentation"]["exact"]
        self.split = moses["exact_words" if self.exact else "words_of"]
        self.tokenized = settings["segmentation"]["tokenized"]
        self.detokenize = moses["detokenize"]

    def encode(self, line: str, lang: str) -> list[str]:
        """Split a line into pieces."""
        return line.split() if self.tokenized else self.split(line, self.rules[lang])

    def decode(self, pieces: list[str], lang: str) -> str:
        """Join pieces into text."""
        return self.detokenize(pieces, self.rules[lang], self.exact)


class BytePairs(Words):
    """Byte-pair encoding of words: each piece but the last of a word ends with @@."""

    def __init__(self, folder: Path, settings: dict) -> None:
        from subword_nmt.apply_bpe import BPE

        super().__init__(folder, settings)
        # fastBPE adds a count to each merge, subword-nmt expects a version instead
        merges = (folder / "codes.txt").read_text(encoding="utf-8").splitlines()
        codes = ["#version: 0.2", *(merge.rpartition(" ")[0] for merge in merges)]
        kept_file = folder / "kept.txt"  # the frequent pieces; rarer ones are split again
        kept = None
        if kept_file.exists():
            kept = set(kept_file.read_text(encoding="utf-8").splitlines())
        self.bpe = BPE(io.StringIO("\n".join(codes)), vocab=kept)

    def encode(self, line: str, lang: str) -> list[str]:
        """Split a line into words, and these into pieces."""
        return self.bpe.segment_tokens(super().encode(line, lang))

    def decode(self, pieces: list[str], lang: str) -> str:
        """Join pieces into words, and these into text."""
        words = (" ".join(pieces) + " ").replace("@@ ", "")
        return super().decode(words.split(), lang)


class SentencePiece:
    """SentencePiece; a model of tokenized text also needs Moses' detokenizer."""

    def __init__(self, folder: Path, settings: dict) -> None:
        from sentencepiece import SentencePieceProcessor

        self.model = SentencePieceProcessor(model_file=str(folder / "spm.model"))
        self.byte_fallback = settings["segmentation"]["byte_fallback"]
        self.raw = settings["segmentation"]["raw"]
        self.words = Words(folder, settings) if settings["segmentation"]["tokenized"] else None

    def encode(self, line: str, lang: str) -> list[str]:
        """Split a line into pieces; the language changes nothing."""
        return self.model.encode(line if self.raw else " ".join(line.split()), out_type=str)

    def decode(self, pieces: list[str], lang: str) -> str:
        """Join pieces into text."""
        if self.byte_fallback:
            text = self.model.decode(pieces)  # joins bytes to characters
        else:
            text = "".join(pieces).replace("\u2581", " ")
        return self.words.decode(text.split(), lang) if self.words else text.strip()


SEGMENTERS = {"fastbpe": BytePairs, "sentencepiece": SentencePiece, "whitespace": Words}


class Translator:
    """The model of an exported folder, from text to text."""

    def __init__(self, folder: str | Path, device: str = "auto") -> None:
        folder = Path(folder)
        self.settings = read_settings(folder)
        kind = self.settings["segmentation"]["kind"]
        self.segmenter = SEGMENTERS[kind](folder, self.settings)
        self.engine = ctranslate2.Translator(str(folder / "ctranslate2"), device=device)
        self.most = self.settings["usual_line"].get("sentences")  # of a part; None = not known
        learned = self.settings["usual_line"].get("abbreviations", {})
        self.abbreviations = {lang: frozenset(words) for lang, words in learned.items()}

    def translate(
        self,
        line: str,
        tag: str | None = None,
        src: str | None = None,
        split: str = "auto",
        tgt_tag: str | None = None,
    ) -> str:
        """Return the best translation of a line.

        Args:
            tag: what goes before the pieces of a sentence, such as <bt>; None = the tag that all
                training data had, if it was one, else nothing.
            src: language of the line, for the rules of the tokenizer; None = ``src`` of model.json.
            split: auto = a line with more sentences than usual in the training data is translated
                in parts; line = as a whole.
            tgt_tag: what the translation begins with in the model; the text does not show it. None
                = as for ``tag``.

        Raises:
            ValueError: the line is too long, the model does not have the tag or the source
                language, or it needs a target tag.
        """
        tag, tgt_tag = self.check_options(tag, src, tgt_tag)
        unseen = unicode["is_shapeless"]
        line = "".join(" " if unicodedata.category(c) in ("Cc", "Cs") else c for c in line)
        line = unicode["normalize"](line, self.settings["segmentation"]["normalize"])
        if all(c.isspace() or unicodedata.category(c) == "Cf" or unseen(c) for c in line):
            return ""
        if len(line) > LONGEST_LINE:
            raise ValueError(f"{len(line):,} characters, at most {LONGEST_LINE:,} are allowed")
        src = src or self.settings["src"]
        parts, most = [line], self.most
        if most is not None and split == "auto":
            lang = self.settings["rules"][src]
            known = self.abbreviations.get(lang, ())
            split_line = sentences["split_sentences"](line, lang, known)
            parts = sentences["join_in_parts"](split_line, lambda part: len(part) <= most)
        translations = [self._translate(part, tag, src, tgt_tag) for part in parts]
        space = self.settings["spaces"][self._target(tag, tgt_tag)]
        return sentences["join_translations"](translations, parts, space)

    def _target(self, tag: str | None, tgt_tag: str | None) -> str:
        """Return the target language of a translation."""
        target: str = self.settings["tag_targets"].get(tgt_tag or tag or "", self.settings["tgt"])
        return target

    def _translate(self, text: str, tag: str | None, src: str, tgt_tag: str | None) -> str:
        """Return the best translation of a part of a line."""
        # the space tells a tag from the same characters in a text
        start = [f" {tgt_tag}"] if tgt_tag else []
        pieces = [*([f" {tag}"] if tag else []), *self.segmenter.encode(text, src)]
        decode = self.settings["decode"]
        suppressed = [[token] for token in self.settings["suppressed_tokens"]]
        try:
            (result,) = self.engine.translate_batch(
                [pieces],
                target_prefix=[start] if start else None,
                beam_size=decode["beam"],
                length_penalty=self.settings["length_penalty"],
                max_input_length=0,  # the default would cut long sentences
                min_decoding_length=1 + len(start),
                max_decoding_length=len(pieces) + 1 + decode["max_len_offset"] + len(start),
                disable_unk=not decode["allow_unk"],
                no_repeat_ngram_size=decode["no_repeat_ngram"],
                suppress_sequences=suppressed or None,
            )
        except RuntimeError as error:
            raise ValueError(
                f"CTranslate2 cannot translate a line of {len(pieces):,} subwords: {error}"
            ) from error
        return self.segmenter.decode(result.hypotheses[0][len(start) :], self._target(tag, tgt_tag))

    def check_options(
        self, tag: str | None, src: str | None, tgt_tag: str | None
    ) -> tuple[str | None, str | None]:
        """Return the tags of source and target, with their defaults.

        Raises:
            ValueError: the model does not have a tag or the source language, or needs a target tag.
        """
        tags, tgt_tags = self.settings["tags"], self.settings["tgt_tags"]
        sources, default = self.settings["sources"], self.settings["default_tags"]
        tag, tgt_tag = tag or default.get("tag"), tgt_tag or default.get("tgt_tag")
        for kind, given, known in (("tag", tag, tags), ("target tag", tgt_tag, tgt_tags)):
            if given is not None and given not in known:
                listed = ", ".join(known) or "none"
                raise ValueError(f"the model has no {kind} {given}; its {kind}s: {listed}")
        if tgt_tag is None and self.settings["tgt_tag_required"]:
            raise ValueError(f"choose a target tag: {', '.join(tgt_tags)}")
        if src is not None and src not in sources:
            raise ValueError(
                f"the model was not trained to translate {src}; its source languages: "
                + ", ".join(sources)
            )
        return tag, tgt_tag


def read_settings(folder: Path) -> dict:
    """Read model.json and translate.json.

    Raises:
        ValueError: a file of the folder is not the one that was exported. To use a model.json that
            you edited, delete its key sha256.
    """
    manifest = folder / "ctranslate2" / "manifest.json"
    model, engine = (read_json(path) for path in (folder / "model.json", manifest))
    digest = model.pop("sha256", None)
    content = json.dumps(model, sort_keys=True).encode()
    if digest not in (None, hashlib.sha256(content).hexdigest()):
        raise ValueError(
            f"{folder / 'model.json'} is damaged or edited: copy the folder again, or delete the "
            "key sha256 to use a file that you edited"
        )
    for place, files in ((folder, model["files"]), (manifest.parent, engine["files"])):
        for name, entry in files.items():
            path = place / name
            if not path.is_file():
                raise ValueError(f"{path} is missing, or is not a file; copy the folder again")
            if hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]:
                raise ValueError(f"{path} is damaged or edited; copy the folder again")
    return {**model, **read_json(folder / "translate.json")}


def read_json(path: Path) -> dict:
    """Read a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is missing or damaged; copy the folder again") from error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--tag", help="tag before each source, one of those in translate.json")
    parser.add_argument(
        "--tgt-tag",
        help="tag that translations begin with in the model, one of those in translate.json",
    )
    parser.add_argument(
        "--src-lang", help="source language, one of those in translate.json", metavar="LANG"
    )
    parser.add_argument(
        "--split",
        choices=["auto", "line"],
        default="auto",
        help="auto = translate a line with more sentences than usual in the training data in "
        "parts; line = translate each line as a whole; default: auto",
    )
    args = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")
    try:
        translator = Translator(Path(__file__).parent)
        tag, tgt_tag = translator.check_options(args.tag, args.src_lang, args.tgt_tag)
    except ValueError as error:
        parser.error(str(error))
    if tag is None and translator.settings["always_tagged"]:
        tags = ", ".join(translator.settings["tags"])
        print(f"note: all training data had a tag; choose one with --tag: {tags}", file=sys.stderr)
    for number, data in enumerate(sys.stdin.buffer, 1):
        try:
            encoding = "utf-8-sig" if number == 1 else "utf-8"  # without a byte-order mark
            line = data.removesuffix(b"\n").decode(encoding)
            text = translator.translate(line, tag, args.src_lang, args.split, tgt_tag)
            print(text, flush=True)
        except UnicodeDecodeError as error:
            problem = f"not UTF-8: {error.reason} at byte {error.start + 1} of the line"
            parser.exit(2, f"{parser.prog}: line {number}: {problem}; convert it with iconv\n")
        except ValueError as error:
            parser.exit(2, f"{parser.prog}: line {number}: {error}; write one sentence per line\n")
