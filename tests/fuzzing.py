"""Readers of what strangers make, each as a function of bytes, with examples that it can read.

``tests/faults/test_fuzzing.py`` and ``tests/long/fuzz.py`` change the examples.
"""

from __future__ import annotations

import argparse
import atexit
import dataclasses
import io
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from fastapi.testclient import TestClient

from data_prep.importers import gettext, tmx
from data_prep.tables import TableFormat, read_rows
from data_prep.write import Request
from nmt.apps.documents.document import translate_bytes
from nmt.apps.serve.app import Service
from nmt.apps.serve.limits import Limits
from nmt.apps.transformers.convert import convert
from nmt.config.load import load_recipe
from nmt.config.recipe import SentencePieceConfig
from nmt.data.glossary import read_glossary
from nmt.data.lines import OPENERS, read_lines
from nmt.data.report import Drops
from nmt.data.segmenters import load_segmenter, save_segmenter
from nmt.data.segmenters.bpe import read_codes
from nmt.data.segmenters.sentencepiece import SentencePiece
from nmt.data.vocab import Vocab
from nmt.decoding.glossary import Glossary
from nmt.errors import UserError
from nmt.store.checkpoint import read_checkpoint
from nmt.store.model import Model
from nmt.store.results import read_result
from nmt.store.tensors import empty_model
from nmt.text.tokenizer import Moses
from tests.apps.documents.samples import PO, TEXTS, all_documents
from tests.apps.documents.translators import Reversing
from tests.decoding.ctranslate2.cases import model_folder
from tests.decoding.untrained import PAIRS, learned, untrained
from tests.run_cases import FILES, resign, trained
from tests.toy import RECIPE

LINE = "o can come pan branco"
Read = Callable[[bytes], object]

SCRATCH = Path(tempfile.mkdtemp(prefix="nmt-fuzz-"))
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)


class Target(NamedTuple):
    """A reader, and examples of what it reads."""

    read: Read
    examples: list[bytes]


def in_file(path: Path, read: Callable[[Path], object], *examples: bytes | str) -> Target:
    """Return a target that reads a file with this path."""

    def written(data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    return Target(written, [e.encode() if isinstance(e, str) else e for e in examples])


def refuses(target: Target, data: bytes) -> bool:
    """Return whether a target refuses data as it should; any other exception is raised."""
    try:
        target.read(data)
    except UserError:
        return True
    return False


# ---------------------------------------------------------------- recipes


def recipe(folder: Path) -> Target:
    example = json.dumps({**RECIPE, "data": {"train": "a", "dev": "b"}})
    block = "src: gl\ntgt: en\nout: run\ndata:\n  train:\n  - {path: a, tag: x}\n  dev: b\n"
    return in_file(folder / "recipe.yaml", load_recipe, example, block)


def variants(folder: Path) -> Target:
    (folder / "base.yaml").write_text("src: gl\ntgt: en\ndata: {train: a, dev: b}\n")
    example = "base: base.yaml\nvariants: {a: {about: x, model: {dim: 8}}}\nseeds: [1, 2]\n"
    return in_file(folder / "variants.yaml", lambda path: load_recipe(path, variant="a"), example)


# ---------------------------------------------------------------- models and runs


def model_json(folder: Path) -> Target:
    path = model_folder(untrained(), folder / "model") / "model.json"
    values = json.loads(path.read_text())
    del values["sha256"]

    def read(path: Path) -> None:
        model = Model.open(path.parent)
        with torch.device("meta"):
            empty_model(model)

    return in_file(path, read, json.dumps(values))


def vocabulary(folder: Path) -> Target:
    return in_file(
        folder / "vocab.txt", lambda path: Vocab.load(path.parent).tags, "a@@\t2\t1\n <bt>\t0\t0\n"
    )


def segmenter(folder: Path) -> Target:
    save_segmenter(untrained().codec.segmenter, folder)
    example = (folder / "segmenter.json").read_bytes()
    return in_file(
        folder / "segmenter.json",
        lambda path: load_segmenter(path.parent).encode(LINE, "gl"),
        example,
    )


def codes(folder: Path) -> Target:
    return in_file(folder / "codes", read_codes, "a b 3\nab c</w> 2\n", "#version: 0.2\na b\n")


def sentencepiece(folder: Path) -> Target:
    """Give the bytes of a model, which may also be extended and have noise."""

    def read(path: Path) -> None:
        config = SentencePieceConfig(kind="sentencepiece", model=str(path), dropout=0.1)
        segmenter = SentencePiece.learn(config, Moses(False), [])
        segmenter.encode(LINE, "gl")
        segmenter.noise(config)

    examples = [
        learned(SentencePieceConfig(vocab_size=60, model_type=kind), PAIRS)[0].files()["spm.model"]
        for kind in ("bpe", "unigram")
    ]
    return in_file(folder / "given.model", read, *examples)


def checkpoint(folder: Path, name: str) -> Target:
    path = trained(folder / "run", 1).checkpoints()[0] / name

    def read(path: Path) -> None:
        if name != "manifest.json":
            resign(path.parent)
        read_checkpoint(path.parent)

    return in_file(path, read, path.read_bytes())


def run_folder(folder: Path, name: str) -> Target:
    path = trained(folder / "run", 1).path / name
    examples = {
        "metrics.jsonl": '{"kind": "dev", "update": 1, "bleu": 2.5, "ppl": 3}\n',
        "summary.json": '{"status": "finished", "dev": 1.5, "test": [{"name": "bleu"}]}',
        "config.yaml": path.read_bytes() if path.exists() else b"",
    }
    return in_file(path, lambda path: read_result(path.parent), examples[name])


def public_model(folder: Path, name: str) -> Target:
    from tests.apps.transformers.folders import marian

    marian(folder / "hub")
    path, made = folder / "hub" / name, folder / "made"

    def read(path: Path) -> None:
        shutil.rmtree(made, ignore_errors=True)
        convert(path.parent, made, src="en", tgt="fr")

    example = path.read_bytes() if path.exists() else b"---\nlanguage: [en, fr]\n---\n# A\n"
    return in_file(path, read, example)


# ---------------------------------------------------------------- text


def lines(folder: Path, suffix: str) -> Target:
    packed = io.BytesIO()
    with OPENERS[suffix](packed, "wb") if suffix else packed as file:
        file.write("\ufeffone\r\ntwo \u2028 three\nfour".encode())
        content = packed.getvalue() if not suffix else b""
    return in_file(
        folder / f"text{suffix}", lambda path: [*read_lines(path)], content or packed.getvalue()
    )


def glossary(folder: Path) -> Target:
    def read(path: Path) -> None:
        Glossary(read_glossary(path), ("gl", "en")).find(f"{LINE} {path.read_bytes()[:200]!r}")

    return in_file(folder / "terms.tsv", read, "pan branco\twhite bread\ncan*\tdog\tan animal\n")


def table(folder: Path, name: str) -> Target:
    examples: tuple[bytes | str, ...] = "a\tb\nc\td\n", 'a;"b;c"\nd;e\n', '"a ""b""","c"\nd,e\n'
    if name.endswith("xlsx"):
        import openpyxl

        book, file = openpyxl.Workbook(), io.BytesIO()
        book.active.append(["a", "b"])
        book.save(file)
        examples = (file.getvalue(),)
    return in_file(folder / name, lambda path: [*read_rows(path, TableFormat())], *examples)


def memory(folder: Path, name: str) -> Target:
    """Give a file of two languages to its importer."""
    module, example = (gettext, PO) if name.endswith(".po") else (tmx, TEXTS[name])

    def read(path: Path) -> None:
        options = argparse.Namespace(msgid_lang=None)
        list(module.read([path], Request(folder, "en", "it", options=options), Drops()))

    return in_file(folder / name, read, example)


def document(_: Path, name: str) -> Target:
    def read(data: bytes) -> None:
        translate_bytes(data, name, ("en", "it"), Reversing())

    return Target(read, [all_documents()[name]])


def part(_: Path, name: str, part: str) -> Target:
    """Give a file of an office document, packed with the others."""
    original = all_documents()[name]

    def read(data: bytes) -> None:
        packed = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(original)) as old, zipfile.ZipFile(packed, "w") as new:
            for info in old.infolist():
                new.writestr(info.filename, data if info.filename == part else old.read(info))
        translate_bytes(packed.getvalue(), name, ("en", "it"), Reversing())

    with zipfile.ZipFile(io.BytesIO(original)) as archive:
        return Target(read, [archive.read(part)])


# ---------------------------------------------------------------- requests


def request(_: Path) -> Target:
    """Give a path, a content type and a body, a line each."""
    service = Service({"one": untrained()}, dataclasses.replace(Limits(), seconds=20))
    client = TestClient(service.guard, base_url="http://localhost:8000")

    def read(data: bytes) -> None:
        path, kind, body = (data + b"\n\n").split(b"\n", 2)
        url = path.decode("latin-1") if path in PATHS else "/translate"
        kind = bytes(byte for byte in kind if byte > 31)  # the client refuses others
        answer = client.post(url, content=body, headers={b"content-type": kind})
        assert answer.status_code < 500, answer.text
        if answer.status_code >= 400:
            raise UserError(answer.text)

    form = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\npan\r\n--x--\r\n'
    terms = json.dumps({"text": ["pan"], "beam": 2, "n_best": 1, "glossary": [["pan", "bread"]]})
    return Target(
        read,
        [
            b"/translate\napplication/json\n" + terms.encode(),
            b"/translate\napplication/x-www-form-urlencoded\nq=pan&source=gl&target=en",
            b"/translate\nmultipart/form-data; boundary=x\n" + form,
            b'/translate\napplication/json\n{"q": "a<b>c</b>", "source": "gl", "target": "en"}',
            b'/suggest\napplication/json\n{"q": "a", "s": "b", "source": "gl", "target": "en"}',
        ],
    )


RUN_FILES = ("metrics.jsonl", "summary.json", "config.yaml")
HUB_FILES = ("config.json", "README.md", "vocab.json", "source.spm", "model.safetensors")
PATHS = (b"/translate", b"/suggest", b"/languages")


TARGETS: dict[str, Callable[[Path], Target]] = {
    **{one.__name__: one for one in (recipe, variants, model_json, vocabulary, segmenter, codes)},
    **{one.__name__: one for one in (sentencepiece, glossary, request)},
    **{name: partial(checkpoint, name=name) for name in FILES},
    **{name: partial(run_folder, name=name) for name in RUN_FILES},
    **{f"hub {name}": partial(public_model, name=name) for name in HUB_FILES},
    **{f"text{suffix}": partial(lines, suffix=suffix) for suffix in OPENERS},
    **{name: partial(table, name=name) for name in ("table.csv", "table.xlsx")},
    **{f"import {name}": partial(memory, name=name) for name in ("memory.tmx", "app.po")},
    **{name: partial(document, name=name) for name in all_documents()},
    "docx:document.xml": partial(part, name="letter.docx", part="word/document.xml"),
    "odt:content.xml": partial(part, name="letter.odt", part="content.xml"),
}


def target(name: str) -> Target:
    """Make a target, with a folder of its own."""
    folder = SCRATCH / re.sub(r"\W", "-", name)
    folder.mkdir()
    return TARGETS[name](folder)
