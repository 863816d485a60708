"""Long runs of any character, to each endpoint and as each format: nobody else waits for them."""

from __future__ import annotations

import http.client
import io
import itertools
import json
import random
import signal
import string
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import tests.apps.serve.conftest  # noqa: F401, skips without the extra
from nmt.apps.documents.formats import FORMATS
from nmt.apps.documents.model import source_words
from nmt.apps.serve.limits import Limits
from nmt.decoding.constraints import LineConstraints
from nmt.text.languages import script_share
from nmt.text.sentences import UsualLine
from tests.apps.serve.process import SECONDS, Process
from tests.decoding.untrained import untrained

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc"),
]
MOST = 3.0  # seconds of processor time: about 1 on a Zen 4, and more on older processors
CLIENTS = 4
SENDING = 60.0  # seconds
GIVES_UP, TO_END = 120, 20  # seconds of a request, and from SIGTERM to the end
MEGABYTE = 1_000_000
KEPT = 300  # MB that the server may have more than before: allocators keep some
OTHERS = (
    "\x85\xa0\xad\u0130\u0301\u0345\u03a3\u05d0\u0591\u0627\u0640\u064b\u0660\u06d4\u0915\u094d\u0967"
    "\u0e01\u0e48\u0f0b\u1000\u1160\u17d2\u17d4\u200b\u200c\u200d\u2019\u2026\u2028\u2581\u3002\u3042"
    "\u4e00\uac00\ufe0f\ufeff\uff01\U0001f600\U0001f1e6\U000e0067"
)
SPECIAL = string.punctuation + " \t\ra1." + "\u0301\u200b\u200d\u2019\u3002"
SINGLE = [*map(chr, range(128)), *OTHERS]
PAIRS = ["".join(pair) for pair in itertools.permutations(SPECIAL, 2)]
WORDS = ["<a ", "<!--", "&#", "{{", "{a,", "%(a", "www.", "a@", "a.", "](", "<p><b>", "\n\n"]
WORDS += ["\n- "]

Message = tuple[str, str, bytes]  # path, type and body of a request


def run_of(text: str, size: int) -> str:
    return (text * (size // len(text) + 1))[:size]


def form(name: str, data: bytes) -> tuple[str, bytes]:
    """Return the type and the body of a form with a file."""
    parts = [
        f'--edge\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in {"source": "gl", "target": "en"}.items()
    ]
    head = f'--edge\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    parts += [head.encode(), data, b"\r\n--edge--\r\n"]
    return "multipart/form-data; boundary=edge", b"".join(parts)


def office(text: str, part: str) -> bytes:
    """Return an archive whose text is not well-formed, or is one long paragraph."""
    file = io.BytesIO()
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            part, f'<w:d xmlns:w="{space}"><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:d>'
        )
    return file.getvalue()


def document(suffix: str, run: str) -> bytes:
    """Return a document of a format with a run where the format has text."""
    if suffix in (".docx", ".odt"):
        return office(run, "word/document.xml" if suffix == ".docx" else "content.xml")
    before, after = {
        ".html": ("<p>o can ", "</p>"),
        ".po": ('msgid ""\nmsgstr ""\n\nmsgid "', '"\nmsgstr ""\n'),
        ".json": ('{"a": "', '"}'),
        ".srt": ("1\n00:00:01,000 --> 00:00:02,000\n", "\n"),
        ".vtt": ("WEBVTT\n\n00:01.000 --> 00:02.000\n", "\n"),
        ".xliff": ('<xliff version="1.2"><file><body><trans-unit id="1"><source>',
                   "</source></trans-unit></body></file></xliff>"),
        ".tmx": ('<tmx version="1.4"><body><tu><tuv xml:lang="gl"><seg>',
                 "</seg></tuv></tu></body></tmx>"),
    }.get(suffix, ("", ""))  # fmt: skip
    return f"{before}{run}{after}".encode("utf-8", "replace")


def bomb(size: int) -> bytes:
    """Return a small document of a large text."""
    return office("o can " * (size // 6), "word/document.xml")


def messages(run: str) -> Iterator[Message]:
    """Yield a request to each endpoint and of each format, with a run of almost a megabyte."""
    json_type, form_type = "application/json", "application/x-www-form-urlencoded"
    langs = {"source": "gl", "target": "en"}
    most = Limits().characters
    bodies: list[tuple[str, dict[str, object]]] = [
        ("/translate", {"text": run}),
        ("/translate", {"text": [run[:most]] * 20, "beam": 1}),
        ("/translate", {"text": "pan", "model": run, "tag": run[:100_000]}),
        ("/translate", {"text": [run[:most]], "glossary": [[run[:100], "a"], ["pan*", run[:100]]]}),
        ("/translate", {"q": run, **langs}),
        ("/translate", {"q": "pan", "source": run[:100_000], "target": "en"}),
        ("/translate", {"q": run, **langs, "format": "html"}),
        ("/translate", {"q": [run[:2_000]] * 100, **langs, "format": "html"}),
        ("/suggest", {"q": run, "s": run, **langs}),
    ]
    for path, values in bodies:
        yield path, json_type, json.dumps(values, ensure_ascii=False).encode("utf-8", "replace")
    yield "/translate", json_type, run.encode("utf-8", "replace")
    yield "/translate", form_type, f"q={quote(run[:300_000])}&{run[:50_000]}".encode()
    yield "/documents", "multipart/form-data; boundary=a", run.encode("utf-8", "replace")
    for suffix in FORMATS:
        path = "/documents" if suffix < ".k" else "/translate_file"
        yield (path, *form(f"a{suffix}", document(suffix, run)))


def sampled() -> Iterator[Message]:
    """Yield requests of all kinds without end, those of single characters and of pairs mixed."""
    rng = random.Random(1)
    size = MEGABYTE // 4 * 3
    while True:
        kinds = [*messages(run_of(rng.choice([*SINGLE, *PAIRS, *WORDS * 20]), size // 4))]
        for index in range(len(kinds)):
            text = rng.choice([rng.choice(SINGLE), rng.choice(PAIRS), rng.choice(WORDS)])
            run = run_of(text, size // len(text.encode("utf-8", "replace")) * len(text))
            yield next(itertools.islice(messages(run), index, None))
        yield ("/documents", *form("bomb.docx", bomb(200 * MEGABYTE)))
        yield "/translate", "application/json", b"[" * 2 * MEGABYTE


def send(process: Process, message: Message) -> int:
    path, kind, body = message
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=2 * SECONDS)
    try:
        connection.request("POST", path, body, {"Content-Type": kind})
        return connection.getresponse().status
    except OSError:  # the server closes the connection of a body that is too large
        return 413
    finally:
        connection.close()


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def has_ended(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def test_others_are_answered_and_the_server_ends_in_the_middle_of_it(start, run):
    process = start(run, "--timeout", str(GIVES_UP), "--file-timeout", str(GIVES_UP))
    small = ("/translate", "application/json", b'{"text": "pan", "max_len_offset": 1}')
    assert send(process, small) == 200
    memory = process.megabytes()
    requests, lock = sampled(), threading.Lock()
    statuses: dict[tuple[str, str, bytes], int] = {}
    ends = time.monotonic() + SENDING

    def client() -> None:
        while time.monotonic() < ends + TO_END:
            with lock:
                message = next(requests)
            try:
                status = send(process, message)
            except OSError:  # the server has ended
                return
            statuses[message[0], message[1][:30], message[2][:300]] = status

    threads = [threading.Thread(target=client, daemon=True) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    longest = 0.0
    while time.monotonic() < ends:
        before = process.cpu_seconds()
        assert send(process, small) == 200
        longest = max(longest, process.cpu_seconds() - before)
        time.sleep(0.05)
    assert longest < MOST
    assert len(statuses) >= CLIENTS
    unexpected = {key: status for key, status in statuses.items() if status == 500}
    assert unexpected == {}
    assert process.megabytes() - memory < KEPT
    workers = children(process.process.pid)
    assert workers
    process.process.send_signal(signal.SIGTERM)
    started = time.monotonic()
    assert process.process.wait(3 * TO_END) == 0
    assert time.monotonic() - started < TO_END
    while not all(map(has_ended, workers)):  # the system may take a moment to remove them
        assert time.monotonic() - started < TO_END
        time.sleep(0.05)
    assert process.process.stderr
    assert "Traceback" not in process.process.stderr.read()


def test_all_pairs_in_the_text_of_a_line_take_little_time() -> None:
    """What the server itself does with a line: division, pieces, words, terms, scripts."""
    translator = untrained()
    codec = translator.codec
    codec.usual = UsualLine(1)  # so a line is divided into sentences
    glossary = codec.glossary([("pan*", "bread"), ("o can", "the dog")])
    options = translator.check_options({})
    slow = {}
    for text in [*SINGLE, *PAIRS, *WORDS]:
        line = run_of(text, Limits().characters)
        started = time.process_time()
        codec.encode_line(1, line, LineConstraints(), options, glossary=glossary)
        source_words(codec, line, "auto")
        script_share(line, "Latn")
        if (seconds := time.process_time() - started) > MOST:
            slow[text] = seconds
    assert slow == {}
