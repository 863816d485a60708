"""Files of an attacker: a table of them, each with the command that reads it and its exit code.

A row damages a folder of good files, and names a command that runs in it.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import pickle
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import openpyxl

from nmt.cli import export
from nmt.config.recipe import SentencePieceConfig
from nmt.runtime.files import json_object
from tests.apps.documents.samples import PO, all_documents
from tests.data_prep.archives import zipped
from tests.decoding.ctranslate2.cases import model_folder
from tests.decoding.untrained import untrained
from tests.run_cases import trained
from tests.toy import toy_corpus, toy_recipe

CANARY = "canary"  # a file that code of an attacker would write, next to the folder
SECRET = "../secret"  # a file that no command may read
MB = 1 << 20
Damage = Callable[[Path], object]


class Row(NamedTuple):
    """A command, what is done to its folder before, and the exit codes that are right."""

    command: str
    damages: tuple[Damage, ...]
    codes: tuple[int, ...] = (2,)


class Attack:
    """Pickled, it writes the canary when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch ../{CANARY}",)


def good_files(folder: Path) -> None:
    """Write a model, an export, a run, a recipe, texts and documents."""
    model_folder(untrained(), folder / "model")
    assert export.main([str(folder / "model"), "-o", str(folder / "export")]) == 0
    trained(folder / "run", 1)
    toy_corpus(folder, {"train": 60, "dev": 4, "test": 4})
    toy_recipe(folder)
    (folder / "text").write_text("o can\n")
    for name, data in all_documents().items():
        (folder / name).write_bytes(data)


# ---------------------------------------------------------------- damages


def write(name: str, data: bytes | str | Callable[[], bytes]) -> Damage:
    """Write a file; a large one is made when it is needed."""

    def damage(folder: Path) -> None:
        content = (
            data.encode() if isinstance(data, str) else data if isinstance(data, bytes) else data()
        )
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_bytes(content)
        _resign((folder / name).parent)

    return damage


def sparse(name: str, size: int) -> Damage:
    def damage(folder: Path) -> None:
        with open(folder / name, "ab") as file:
            file.truncate(size)
        _resign((folder / name).parent)

    return damage


def link(name: str, to: str) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / name
        path.unlink(missing_ok=True)
        path.symlink_to(to)

    return damage


def fifo(name: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return damage


def edit(name: str, **changes: Any) -> Damage:
    """Change values of a JSON file; ``a__b`` is the key b in a."""

    def damage(folder: Path) -> None:
        values = json.loads((folder / name).read_text())
        values.pop("sha256" if name.endswith("model.json") else "", None)
        for key, value in changes.items():
            *groups, last = key.split("__")
            inner = values
            for group in groups:
                inner = inner[group]
            inner[last] = value
        (folder / name).write_text(json.dumps(values))
        if not name.endswith(("model.json", "manifest.json")):
            _resign((folder / name).parent)

    return damage


def _resign(folder: Path) -> None:
    """Make the hashes that a folder states of its files fit, as an attacker would."""
    for name in ("model.json", "manifest.json"):
        if not (folder / name).is_file() or os.stat(folder / name).st_size > 10 * MB:
            continue
        try:
            values = json_object((folder / name).read_bytes())
        except ValueError:
            continue
        values.pop("sha256", None)
        for file in values["files"]:
            if (folder / file).is_file() and (folder / file).stat().st_size < 220 * MB:
                data = (folder / file).read_bytes()
                entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            else:
                entry = {"bytes": os.stat(folder / file).st_size, "sha256": "0" * 64}
            values["files"][file] = entry
        (folder / name).write_text(json.dumps(values))


# ---------------------------------------------------------------- contents


def header(text: str | bytes, data: bytes = b"", size: int | None = None) -> bytes:
    """Return a safetensors file with this header."""
    content = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(content) if size is None else size) + content + data


def tensor(shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


def changed(document: str, part: str, change: Callable[[bytes], bytes]) -> bytes:
    """Return an office document with another content of a part."""
    with zipfile.ZipFile(io.BytesIO(all_documents()[document])) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    files[part] = change(files[part])
    return zipped(files)


def workbook(change: Callable[[bytes], bytes]) -> bytes:
    book, file = openpyxl.Workbook(), io.BytesIO()
    book.active.append(["one", "two"])
    book.save(file)
    with zipfile.ZipFile(file) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    return zipped({**files, sheet: change(files[sheet])})


LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "ha">'
    + "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefghi", "bcdefghij", strict=True)
    )
    + "]>"
)
EXTERNAL = f'<!DOCTYPE x [<!ENTITY j SYSTEM "{SECRET}">]>'
REMOTE = '<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1:9/x.dtd"> %p; <!ENTITY j "a">]>'
TYPES = {"laughs": LAUGHS, "external": EXTERNAL, "remote": REMOTE}
DEEP = {"list": "[" * MB, "object": '{"a":' * MB, "closed": "[" * MB + "]" * MB}


def tar_of(*infos: tarfile.TarInfo, mode: str = "w:gz", content: bytes = b"one\ntwo\n") -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode=mode) as archive:  # type: ignore[call-overload]
        for info in infos:
            info.size = len(content) if info.isfile() else 0
            archive.addfile(info, io.BytesIO(content) if info.isfile() else None)
    return body.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


# ---------------------------------------------------------------- the table

SPM = "segment.kind=sentencepiece segment.model"
TRANSLATE = "translate model --input text"
EXPORTED = "translate export --input text --engine ctranslate2"
AVERAGE = "average run --checkpoints u000001 -o out"
LATEST = "run/checkpoints/u000001"
ABOUT = "model/model.json"
ENTRY = {"bytes": 6, "sha256": hashlib.sha256(b"secret").hexdigest()}
WEIGHTS = {
    "offset beyond the end": header(json.dumps({"w": tensor([1], 0, 1 << 60)})),
    "overlapping offsets": header(
        json.dumps({"v": tensor([2], 0, 8), "w": tensor([2], 4, 12)}), bytes(12)
    ),
    "negative offset": header(json.dumps({"w": tensor([1], -4, 0)}), bytes(4)),
    "huge shape": header(json.dumps({"w": tensor([1 << 62, 1 << 62, 4], 0, 0)})),
    "huge tensor": header(json.dumps({"w": tensor([1 << 40], 0, 1 << 42)})),
    "huge header": header("{}", size=1 << 63),
    "many tensors": lambda: header(json.dumps({f"w{i}": tensor([0], 0, 0) for i in range(50_000)})),
    "not all of the file": header("{}", bytes(100)),
    "deep header": header(b"[" * MB),
    "zip bomb": lambda: zipped({"archive/data.pkl": bytes(220 * MB)}),
    "pickle": pickle.dumps(Attack()),
    "torch.save": zipped({"archive/data.pkl": pickle.dumps(Attack()), "archive/version": "3"}),
    "empty": b"",
    "short": bytes(7),
}


def rows() -> Iterator[tuple[str, Row]]:
    """Yield the rows with their names."""
    yield from models()
    yield from runs()
    yield from recipes()
    yield from corpora()
    yield from documents()
    yield from others()


def models() -> Iterator[tuple[str, Row]]:
    for name in ("../secret", "/etc/passwd", "..", "", "a/b", "a\n", "\\..\\secret"):
        damage = edit(ABOUT, files={name: ENTRY})
        yield f"model.json names the file {name!r}", Row(TRANSLATE, (damage,))
    for name in ("model.json", "weights.safetensors", "vocab.txt", "segmenter.json", "codes.txt"):
        yield f"{name} is a device", Row(TRANSLATE, (link(f"model/{name}", "/dev/zero"),))
        yield f"{name} is a pipe", Row(TRANSLATE, (fifo(f"model/{name}"),))
    for name, text in DEEP.items():
        yield f"deep model.json, {name}", Row(TRANSLATE, (write(ABOUT, text),))
        yield f"deep segmenter.json, {name}", Row(TRANSLATE, (write("model/segmenter.json", text),))
    yield "huge model.json", Row(TRANSLATE, (sparse(ABOUT, 1 << 40),))
    for key, value in {
        "model__dim": 1 << 40, "model__enc_layers": 10**9, "model__ffn_dim": 10**12,
        "decode__beam": 10**9, "decode__max_len_offset": 10**12, "decode__batch_tokens": 10**15,
        "segment__merges": 10**12, "nmt": [], "scores": {"bleu": "x" * MB},
        "directions": [{"src": "../x"}] * 10**5,
        "origin": {"source": "x"}, "data": None,
    }.items():  # fmt: skip
        yield (
            f"model.json with {key} of {str(value)[:20]}",
            Row(TRANSLATE, (edit(ABOUT, **{key: value}),)),
        )
    large = {"model__dim": 16384, "model__ffn_dim": 16384, "model__heads": 1}
    layers = {"model__enc_layers": 1000, "model__dec_layers": 1000}
    damage = edit(ABOUT, **large, **layers)
    yield "model.json of a model larger than any machine", Row(TRANSLATE, (damage,))
    for name, data in WEIGHTS.items():
        yield f"weights: {name}", Row(TRANSLATE, (write("model/weights.safetensors", data),))
    yield (
        "weights: a terabyte",
        Row(TRANSLATE, (sparse("model/weights.safetensors", 1 << 40),), (2, 4)),
    )
    for name, text in {
        "two million types": lambda: b"".join(b"%d\t1\t1\n" % i for i in range(2 * 10**6)),
        "a type of 100 MB": lambda: b"a" * 100 * MB + b"\t1\t1\n",
        "huge counts": f"a\t{'9' * 10**6}\t1\n",
        "specials": "<pad>\t1\t1\n<s>\t1\t1\n</s>\t1\t1\n",
        "tags": " <a>\t1\t1\n <mask>\t1\t1\n \t1\t1\n",
        "control characters": "\x1b[2J\t1\t1\n\r\t1\t1\n\0\t1\t1\n",
    }.items():
        yield f"vocabulary: {name}", Row(TRANSLATE, (write("model/vocab.txt", text),))
    for name, changes in {
        "name outside": {"sha256": {SECRET: ENTRY["sha256"]}}, "no kind": {"kind": "os"},
        "list": {"sha256": [1]}, "form": {"normalize": ["nfc"]}, "kind": {"kind": {}},
    }.items():  # fmt: skip
        yield f"segmenter: {name}", Row(TRANSLATE, (edit("model/segmenter.json", **changes),))
    for name, data in {
        "long line": lambda: b"a" * 100 * MB,
        "no merges": "",
        "bytes": b"\xff\xfe" * MB,
    }.items():
        yield f"codes: {name}", Row(TRANSLATE, (write("model/codes.txt", data),))
    for name, data in {
        "model.bin": b"\xff" * 64, "config.json": DEEP["list"],
        "shared_vocabulary.json": DEEP["list"],
    }.items():  # fmt: skip
        yield f"CTranslate2's {name}", Row(EXPORTED, (write(f"export/ctranslate2/{name}", data),))
    spec = struct.pack("<IH", 6, 15) + b"TransformerSpec\0"
    for name, data in {
        "huge name": struct.pack("<IH", 6, 65535) + b"x",
        "many variables": spec + struct.pack("<II", 7, 1 << 31),
        "huge variable": spec
        + struct.pack("<IIH", 7, 1, 2)
        + b"a\0"
        + struct.pack("<B4I", 4, *[1 << 31] * 4),
        "empty": b"",
    }.items():
        yield (
            f"CTranslate2's model.bin: {name}",
            Row(EXPORTED, (write("export/ctranslate2/model.bin", data),)),
        )
    manifest = "export/ctranslate2/manifest.json"
    yield "CTranslate2's manifest", Row(EXPORTED, (edit(manifest, files={SECRET: ENTRY}),))


def runs() -> Iterator[tuple[str, Row]]:
    for name in ("../../../secret", "/etc/passwd", "model.safetensors/../x", ""):
        names = {"state.json": ENTRY, "optimizer.safetensors": ENTRY, name: ENTRY}
        damage = edit(f"{LATEST}/manifest.json", files=names)
        yield f"a manifest names {name!r}", Row(AVERAGE, (damage,))
    for name in ("model.safetensors", "state.json", "manifest.json"):
        yield f"{name} of a checkpoint is a pipe", Row(AVERAGE, (fifo(f"{LATEST}/{name}"),))
    for name, data in WEIGHTS.items():
        yield f"checkpoint: {name}", Row(AVERAGE, (write(f"{LATEST}/model.safetensors", data),))
    for text in (*DEEP.values(), "null", "[]", "1e999999", "9" * 10**6, b"\xff"):
        for name in ("state.json", "manifest.json"):
            yield f"{name} is {text[:9]!r}", Row(AVERAGE, (write(f"{LATEST}/{name}", text),))
    yield "a huge manifest", Row(AVERAGE, (sparse(f"{LATEST}/manifest.json", 1 << 40),))
    for name in ("metrics.jsonl", "summary.json", "data_report.json", "init.json"):
        for text in (*DEEP.values(), "9" * 10**6, '{"update": 1e999, "kind": "dev"}', "\0" * MB):
            row = Row("report run -o page.html", (write(f"run/{name}", text),), (0, 2))
            yield f"{name} is {text[:9]!r}, {len(text)}", row
        yield f"{name} is a pipe", Row("report run -o page.html", (fifo(f"run/{name}"),), (0, 2))


def recipes() -> Iterator[tuple[str, Row]]:
    head = "src: gl\ntgt: en\ndata: {train: train, dev: dev}\n"
    doubled = "".join(f"b{i}: &b{i} [*b{i - 1}, *b{i - 1}]\n" for i in range(1, 50))
    for name, text in {
        "runs a command": f"out: !!python/object/apply:os.system ['touch ../{CANARY}']",
        "makes an object": "out: !!python/object/new:subprocess.Popen [[ls]]",
        "reads a file": f"out: !include {SECRET}",
        "renames a tag": "%TAG ! tag:yaml.org,2002:python/\n--- !object/apply:os.system [ls]",
        "alias bomb": f"b0: &b0 [x, x]\n{doubled}",
        "alias of itself": "out: &a [*a]",
        "merge": "<<: [{seed: 1}]",
        "deep list": "out: " + "[" * 10**5,
        "deep mapping": "out: " + "{a: " * 10**4,
        "deep blocks": "".join(f"{' ' * i}a:\n" for i in range(600)),
        "deep keys": "? " * 10**5,
        "many keys": "".join(f"k{i}: 1\n" for i in range(25_000)),
        "one long key": "a" * 250_000 + ": 1",
        "many quotes": '"' * 250_000,
        "many colons": ": " * 10**5,
        "long number": "seed: " + "9" * 250_000,
        "NUL": 'out: "a\\0b"',
        "corpus outside": "data: {train: train, dev: dev, download: ../secret}",
        "corpus is code": "data: {train: train, dev: dev, download: os.system}",
    }.items():
        for command in ("train bad.yaml", "sweep bad.yaml"):
            yield f"recipe: {name}, {command}", Row(command, (write("bad.yaml", head + text),))
    yield "recipe: large", Row("train bad.yaml", (sparse("bad.yaml", 1 << 40),))
    loop = "base: bad.yaml\nvariants: {a: {about: x}}\n"
    yield "variants of themselves", Row("sweep bad.yaml", (write("bad.yaml", loop),))
    long = f"base: {'a' * 5000}.yaml\nvariants: {{a: {{about: x}}}}\n"
    yield "variants of a long name", Row("sweep bad.yaml", (write("bad.yaml", long),))
    for put in (link, fifo):
        damage = put("given", "/dev/zero") if put is link else put("given")  # type: ignore[operator]
        for key in ("segment.kind=fastbpe segment.codes=given", f"{SPM}=given"):
            row = Row(f"prepare toy.yaml {key}", (damage,))
            yield f"{key} is a {put.__name__}", row
    varint = b"\x0a" + b"\xff" * MB
    for name, data in {
        "varint": varint,
        "empty": b"",
        "length": b"\x0a\xff\xff\xff\x7f" + b"a",
    }.items():
        row = Row(f"prepare toy.yaml {SPM}=given out=made", (write("given", data),))
        yield f"SentencePiece model: {name}", row


def corpora() -> Iterator[tuple[str, Row]]:
    """Texts and archives of pairs; one that names files outside is read where it is."""
    languages = "--src-lang gl --tgt-lang en -o out"
    for suffix, pack in {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}.items():
        for name, data in {"one line": b"a", "NULs": b"\0", "tabs": b"\t"}.items():
            damage = write(f"bomb.tsv{suffix}", lambda pack=pack, data=data: pack(data * 220 * MB))
            yield (
                f"bomb{suffix} of {name}",
                Row(f"import tsv bomb.tsv{suffix} {languages}", (damage,)),
            )
            damage = write(f"bomb.gl{suffix}", lambda pack=pack, data=data: pack(data * 220 * MB))
            yield (
                f"text{suffix} of {name}",
                Row(f"translate model --input bomb.gl{suffix}", (damage,)),
            )
    for name, path in {"device": "/dev/zero", "folder": "/etc"}.items():
        yield f"text is a {name}", Row("translate model --input bad", (link("bad", path),))
        yield f"corpus is a {name}", Row("prepare toy.yaml data.train=bad", (link("bad.gl", path),))
    quotes = {"quotes": '"' * 10**6, "open quotes": '"a\tb\n' * 10**5, "tabs": "\t" * 10**6}
    for name, text in quotes.items():
        for option in ("auto", "csv"):
            row = Row(
                f"import tsv bad.tsv --quotes {option} {languages}",
                (write("bad.tsv", text),),
                (0, 2),
            )
            yield f"table of {name}, {option}", row
    for name, change in sheets().items():
        damage = write("bad.xlsx", lambda change=change: workbook(change))
        yield f"workbook: {name}", Row(f"import tsv bad.xlsx {languages}", (damage,))
    unit = '<tu><tuv xml:lang="gl"><seg>{}</seg></tuv><tuv xml:lang="en"><seg>b</seg></tuv></tu>'
    for name, text in {
        **{
            name: f"{doc}<tmx><body>{unit.format('&j;')}</body></tmx>"
            for name, doc in TYPES.items()
        },
        "comments": "<tmx><body>" + "<!--" * 10**6,
        "starts": "<tmx><body>" + "<tu>" * 10**6 + "</tu></body></tmx>",
        "deep": f"<tmx><body>{unit.format('<b>' * 10**6)}</body></tmx>",
        "namespaces": "<tmx"
        + "".join(f' xmlns:n{i}="x"' for i in range(50_000))
        + "><body>"
        + unit.format("a") * 2000
        + "</body></tmx>",
        "encoding": '<?xml version="1.0" encoding="punycode"?>' + "a-" * 10**6,
        "encoding of bytes": '<?xml version="1.0" encoding="hex"?><tmx/>',
        "encoding that fails": '<?xml version="1.0" encoding="undefined"?><tmx/>',
    }.items():
        row = Row(f"import tmx bad.tmx {languages}", (write("bad.tmx", text),))
        yield f"memory: {name}", row
    catalog = struct.pack("<7I", 0x950412DE, 0, 1 << 31, 28, 28, 0, 0)
    for name, data in {
        "bad.mo": catalog, "bad.po": PO.replace(b"UTF-8", b"hex"), "worse.po": b'msgid "' * 10**5,
    }.items():  # fmt: skip
        yield (
            f"catalog {name}, {len(data)}",
            Row(f"import gettext {name} {languages}", (write(name, data),)),
        )
    for name, data in archives().items():
        row = Row("unpack bad.archive", (write("bad.archive", data),), (0, 2))
        yield f"archive: {name}", row


def sheets() -> dict[str, Callable[[bytes], bytes]]:
    row = b"<row><c t='inlineStr'><is><t>a</t></is></c></row>"
    return {
        "laughs": lambda data: LAUGHS.encode() + data.replace(b"one", b"&j;"),
        "external": lambda data: EXTERNAL.encode() + data.replace(b"one", b"&j;"),
        "one huge cell": lambda data: data.replace(
            b"<sheetData>", b"<sheetData>" + b" " * 220 * MB
        ),
        "many rows": lambda data: data.replace(b"<sheetData>", b"<sheetData>" + row * 5 * 10**6),
        "deep": lambda data: data.replace(b"<sheetData>", b"<sheetData>" + b"<a>" * 10**6),
        "wide": lambda data: data.replace(
            b"<sheetData>", b"<sheetData><row><c r='XFD1048576'/></row>"
        ),
    }


def archives() -> dict[str, bytes | Callable[[], bytes]]:
    """Return archives in which a corpus is searched: a.gl and a.en."""
    found: dict[str, bytes | Callable[[], bytes]] = {}
    for name in ("../../canary/a.gl", "/tmp/canary/a.gl", "a.gl/../../../a.gl", "C:\\canary\\a.gl"):
        found[f"tar, {name}"] = tar_of(member(name), member("a.en"))
        found[f"zip, {name}"] = zipped({name: "one\ntwo\n", "a.en": "one\ntwo\n"})
    for kind, target in {
        tarfile.SYMTYPE: "../../secret", tarfile.LNKTYPE: "../../secret", tarfile.CHRTYPE: "",
        tarfile.FIFOTYPE: "", tarfile.DIRTYPE: "", tarfile.GNUTYPE_SPARSE: "",
    }.items():  # fmt: skip
        found[f"tar of type {kind!r}"] = tar_of(member("a.gl", kind, target), member("a.en"))
    found["zip of a link"] = zipped({"a.en": "one\n"}, links={"a.gl": "../../secret"})
    found["tar of many"] = tar_of(*[member(f"{i}/a.gl") for i in range(20_000)], content=b"")
    for bomb in ("tar", "zip"):

        def make(bomb: str = bomb) -> bytes:
            if bomb == "zip":
                return zipped({"a.gl": bytes(220 * MB), "a.en": "one\n"})
            return tar_of(member("a.gl"), content=bytes(220 * MB))

        found[f"{bomb} bomb"] = make
    name = tarfile.TarInfo("x" * 100)
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    found["tar, huge name"] = gzip.compress(name.tobuf(tarfile.GNU_FORMAT) + bytes(10**6))
    found["tar, huge header"] = lambda: gzip.compress(
        tarfile.TarInfo.create_pax_global_header({"comment": "a" * 50 * MB})
    )
    return found


def documents() -> Iterator[tuple[str, Row]]:
    """Documents; deep ones may be translated."""

    def row(name: str, data: bytes | str | Callable[[], bytes], *codes: int) -> Row:
        return Row(f"documents model {name} -o out", (write(name, data),), codes or (2,))

    docx, odt = "word/document.xml", "content.xml"
    for name, doctype in TYPES.items():
        for file, part in (
            ("letter.docx", docx),
            ("letter.docx", "_rels/.rels"),
            ("letter.odt", odt),
        ):

            def change(data: bytes, doctype: str = doctype) -> bytes:
                body = re.sub(rb"^<\?xml[^>]*\?>", b"", data.strip())
                return doctype.encode() + re.sub(rb">([^<])", rb">&j;\1", body, count=1)

            yield f"{part} of {file}: {name}", row(file, changed(file, part, change))
        for file in ("app.xlf", "memory.tmx"):
            body = re.sub(rb"(?s)<\?xml.*?\?>|<!DOCTYPE.*?>", b"", all_documents()[file]).strip()
            data = doctype.encode() + re.sub(rb"<(source|seg)>", rb"<\1>&j;", body)
            yield f"{file}: {name}", row(file, data)
    for file, part in (("letter.docx", docx), ("letter.odt", odt)):
        bomb = partial(changed, file, part, lambda data: data + b" " * 220 * MB)
        yield f"{file}: zip bomb", row(file, bomb)
        for tag in (b"w:p", b"w:ins", b"text:p", b"text:span", b"x"):
            deep = changed(file, part, partial(_deeper, tag=b"<%s>" % tag))
            yield f"{file}: deep {tag.decode()}", row(file, deep)
    rels = b'<Relationships><Relationship Type="x/officeDocument" Target="%s"/></Relationships>'
    for target in (b"../../secret", b"file:///etc/passwd", b"/etc/passwd", b"http://127.0.0.1:9/x"):
        data = changed("letter.docx", "_rels/.rels", partial(_replaced, by=rels % target))
        yield f"letter.docx whose text is {target.decode()}", row("letter.docx", data)
    yield "letter.docx with names outside", row("letter.docx", zipped({"../a": "", docx: "<a/>"}))
    yield "letter.docx of links", row("letter.docx", zipped({}, links={docx: "../../secret"}))
    yield "an e-book", row("book.epub", zipped({"mimetype": "application/epub+zip"}))
    for name, text in {
        "tags": "<a " * 10**5, "signs": "<" + "a" * 10**5, "deep": "<b>" * 10**5,
        "mails": "a." * 10**5, "comments": "<!--" * 10**5, "sections": "<![CDATA[" * 10**5,
        "attributes": "<a " + "a='b' " * 10**5 + ">", "scripts": "<script>" * 10**5,
    }.items():  # fmt: skip
        for file in ("page.html", "readme.md", "notes.txt", "film.srt", "film.vtt"):
            yield f"{file} of {name}", row(file, text, 0, 2)
    for name, text in {
        "quotes": ">" * 10**5, "lists": "- " * 10**5, "links": "[" * 10**5, "stars": "*a" * 10**4,
        "images": "![](" * 10**5, "fences": "```\n" * 10**5, "tables": "|" * 10**5 + "\n|-|-|\n",
    }.items():  # fmt: skip
        yield f"readme.md of {name}", row("readme.md", text, 0, 2)
    for name, text in DEEP.items():
        yield f"strings.json, deep {name}", row("strings.json", text)
    yield "strings.json of digits", row("strings.json", "9" * 10**6, 0, 2)
    for name, old, new in (
        ("plural", b"(n != 1)", b"__import__('os').system('touch ../canary')"),
        ("powers", b"(n != 1)", b"9**9**9**9"), ("many", b"nplurals=2", b"nplurals=999999999"),
        ("deep", b"(n != 1)", b"(" * 10**5), ("charset", b"UTF-8", b"hex"),
    ):  # fmt: skip
        yield f"app.po: {name}", row("app.po", PO.replace(old, new), 0, 2)


def _deeper(data: bytes, tag: bytes) -> bytes:
    return data.replace(b"body>", b"body>" + tag * 10**5, 1)


def _replaced(data: bytes, by: bytes) -> bytes:
    return by


def others() -> Iterator[tuple[str, Row]]:
    """Glossaries, texts to score, keys of judges, public models."""
    for name, text in {
        "stars": "*\tx\n", "many stars": f"{'a* ' * 60}\tx\n", "long": f"{'a' * 10**6}\tx\n",
        "columns": "\t" * 10**6, "no text": "\n" * 10**6, "NULs": "\0" * 10**6,
        "many ways": "".join(f"{' '.join(w)}\tx\n" for w in product(["o*", "c*"], repeat=12)),
        "many terms": "".join(f"o{i}*\tx{i}\n" for i in range(200_000)),
    }.items():  # fmt: skip
        row = Row(f"{TRANSLATE} --glossary bad.tsv", (write("bad.tsv", text),), (0, 2))
        yield f"glossary: {name}", row
    for name, text in {
        "a long line": "a b " * 10**5,
        "one word": "a" * 10**6,
        "NULs": "\0" * 10**6,
    }.items():
        damages = write("bad", text), write("other", text[::-1])
        yield f"scores of {name}", Row("score --hyp bad --ref other", damages, (0, 2))
    for name, text in DEEP.items():
        row = Row("judge read letter.docx --key key.json", (write("key.json", text),))
        yield f"key of judges, {name}", row
        yield f"public model: deep config.json, {name}", _hub({"config.json": text})
    marian = {"model_type": "marian", "vocab_size": 10, "max_position_embeddings": 64}
    names = ("layers", "ffn_dim", "attention_heads")
    sizes = {f"{side}_{name}": 1 for side in ("encoder", "decoder") for name in names}
    sizes["d_model"] = 1
    for key in (*sizes, "vocab_size", "max_position_embeddings"):
        config = json.dumps({**marian, **sizes, key: 10**9})
        yield f"public model with {key} of 10^9", _hub({"config.json": config})
    for name, data in WEIGHTS.items():
        if name not in ("many tensors", "zip bomb"):
            yield f"public model: {name}", _hub({"pytorch_model.bin": data})
            yield f"public model in safetensors: {name}", _hub({"model.safetensors": data})
    for name in (SECRET, "/etc/passwd", "a/../../secret"):
        index = json.dumps({"weight_map": {"w": name}})
        yield f"public model of {name}", _hub({"pytorch_model.bin.index.json": index})
    front = "---\n" + "a: [" * 5000 + "\n---\n"
    for name, text in {"deep": front, "large": "---\n" + "a: {b: c}\n" * 10**6 + "---\n"}.items():
        yield f"public model: README.md {name}", _hub({"README.md": text})


def _hub(files: Mapping[str, bytes | str | Callable[[], bytes]]) -> Row:
    """Return the row of a folder as the hub has it."""
    spm = untrained(
        segment=SentencePieceConfig(vocab_size=60, model_type="unigram")
    ).codec.segmenter
    model = spm.files()["spm.model"]
    config = json.dumps({"model_type": "marian", "d_model": 8, "encoder_layers": 1})
    usual = {"config.json": config, "source.spm": model, "target.spm": model, "vocab.json": "{}",
             "tokenizer_config.json": '{"source_lang": "gl", "target_lang": "en"}'}  # fmt: skip
    damages = [write(f"hub/{name}", data) for name, data in {**usual, **files}.items()]
    return Row("convert hub -o out --src-lang gl --tgt-lang en", (_folder, *damages))


def _folder(folder: Path) -> None:
    (folder / "hub").mkdir()
