"""LibreTranslate's form of requests, and corrections."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tests.apps.serve.conftest  # noqa: F401, skips without the extra
from nmt.apps.serve.app import Service
from nmt.apps.serve.corrections import CorrectionsFile
from nmt.config.entries import Direction, Directions
from nmt.data.corrections import COLUMNS, read_corrections, write_row
from nmt.errors import UserError
from tests.apps.serve.conftest import KEY, LIMITS, Make, both_ways, problem
from tests.decoding.untrained import LINES, untrained

TEXT = "o can\n\na gata"
GL_EN = {"source": "gl", "target": "en"}


@pytest.fixture
def served(make: Make, tmp_path: Path) -> tuple[Service, Any]:
    """Models of both directions, and a file of corrections."""
    return make(both_ways(), corrections=CorrectionsFile(tmp_path / "corrections.tsv"))


# ---------------------------------------------------------------- translations


def test_a_text_and_a_list_are_translated_from_json_and_from_a_form(client: Any) -> None:
    expected = "\n".join(untrained().translate(TEXT.split("\n")))
    for form in ("json", "data"):
        answer = client.post("/translate", **{form: {"q": TEXT, **GL_EN, "format": "text"}})
        assert answer.json() == {"translatedText": expected}, answer.text
        several = client.post("/translate", **{form: {"q": [TEXT, LINES[0]], **GL_EN}}).json()
        assert several == {"translatedText": [expected, *untrained().translate(LINES[:1])]}


def test_each_refusal_has_its_form(client: Any) -> None:
    most = LIMITS.lines
    many, large = {"q": ["a"] * (most + 1), **GL_EN}, {"q": "a" * LIMITS.body, **GL_EN}
    cases = [
        (client.post("/translate", json=many), 400),
        (client.post("/translate", data=many), 400),
        (client.post("/translate", json=large), 413),
        (client.post("/translate", data=large), 413),
        (client.post("/translate", content=iter([json.dumps(large).encode()])), 413),
        (client.post("/translate", content=b'{"q": "a", "source": "gl"'), 400),
        (client.post("/detect", json={"q": "a"}), 404),
        (client.get("/frontend/settings"), 404),
    ]
    for answer, status in cases:
        assert answer.status_code == status
        assert isinstance(answer.json()["error"], str)
    assert str(most) in cases[0][0].json()["error"]
    several = client.post("/translate", json=many | {"q": ["a"] * most}).json()
    assert len(several["translatedText"]) == most


def test_languages_have_codes_of_any_form_and_auto_is_the_only_source_of_a_target(client):
    body = {"q": LINES[0], "source": "eng_Latn", "target": "glg"}
    reverse = untrained(5).translate(LINES[:1])[0]
    assert client.post("/translate", json=body).json() == {"translatedText": reverse}
    answer = client.post("/translate", json={"q": ["pan"], "source": "auto", "target": "en"})
    assert answer.json() == {
        "translatedText": untrained().translate(["pan"]),
        "detectedLanguage": [{"confidence": 0, "language": "gl"}],
    }


def test_alternatives_are_the_next_translations(client):
    answer = client.post("/translate", json={"q": LINES[0], **GL_EN, "alternatives": 2}).json()
    ((best, *others),) = untrained().n_best(LINES[:1], 3)
    assert answer == {"translatedText": best.text, "alternatives": [one.text for one in others]}


@pytest.mark.slow
def test_languages_are_listed_once_with_names_and_targets(client: Any) -> None:
    assert client.get("/languages").json() == [
        {"code": "gl", "name": "Galician", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": ["gl"]},
    ]


def test_a_model_of_several_languages_gets_its_options(make: Make) -> None:
    translator = untrained()
    translator.codec.vocab.tgt_tags[:] = []
    directions = [Direction("gl", "en"), Direction("pt", "en")]
    translator.codec.directions = Directions("gl", "en", tuple(directions))
    service, client = make({"one": translator})
    assert service.models["one"].directions() == directions
    body = {"q": "pan", "source": "auto", "target": "en"}
    error = client.post("/translate", json=body).json()["error"]
    assert error == "the server does not identify languages: choose a source of: gl, pt"
    assert client.post("/translate", json={**body, "source": "pt"}).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"q": "a", "target": "en"}, 400, "source: Field required"),
        ({"q": "a", **GL_EN, "format": "pdf"}, 400, "format: Input should be 'text' or 'html'"),
        ({"q": "a", "source": "gl", "target": "fr"}, 400, "no model translates from gl to fr"),
        ({"q": "a", "source": "\ud800", "target": "en"}, 400, "source: Input should be"),
        ({"q": "<p>a", **GL_EN, "format": "html", "alternatives": 1}, 400, "no alternatives"),
        ({"q": "a" * 61, **GL_EN}, 422, "line 1 has 61 characters"),
        ({"q": "a", **GL_EN, "alternatives": 5}, 422, "n_best: 6 is above 5"),
    ],
)
def test_an_error_is_a_text(client: Any, body: dict[str, Any], status: int, message: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = client.post("/translate", content=json.dumps(body), headers=headers)
    assert answer.status_code == status
    assert message in answer.json()["error"]


def test_the_key_may_be_a_field_of_the_body(make: Make) -> None:
    _, client = make(key=KEY)
    body = {"q": "pan", **GL_EN}
    assert client.get("/languages").status_code == 200
    for form in ("json", "data"):
        assert client.post("/translate", **{form: body}).status_code == 401
        assert client.post("/translate", **{form: {**body, "api_key": "x"}}).status_code == 401
        assert client.post("/translate", **{form: {**body, "api_key": KEY}}).status_code == 200
    assert client.get("/models", params={"api_key": KEY}).status_code == 401


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8000", 200), ("http://127.0.0.1:3000", 200),
        ("moz-extension://1b2c", 200),
        ("https://evil.example", 403), ("http://localhost.evil.example", 403), ("null", 403),
    ],
)  # fmt: skip
def test_pages_of_other_sites_cannot_send_forms(client: Any, origin: str, status: int) -> None:
    body = {"q": "pan", **GL_EN}
    assert client.post("/translate", data=body, headers={"Origin": origin}).status_code == status


# ---------------------------------------------------------------- corrections


def stored(service: Service) -> list[list[str]]:
    assert service.corrections is not None
    lines = service.corrections.path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == write_row(COLUMNS)
    return [line.split("\t") for line in lines[1:]]


def test_a_suggestion_is_stored_with_model_and_time(service: Service, client: Any) -> None:
    body = {"q": "o\tcan", "s": "the dog", **GL_EN}
    assert client.post("/suggest", json={**body, "shown": "a dog"}).json() == {"success": True}
    assert client.post("/suggest", data=body).json() == {"success": True}
    (*first, time), second = stored(service)
    assert first == ["o can", "a dog", "the dog", "gl", "en", "gl-en"]
    assert len(time) == len("2026-01-02T03:04:05Z")
    assert second[:3] == ["o can", "", "the dog"]
    assert client.get("/models").json()["corrections"] is True


@pytest.mark.parametrize(
    ("change", "status"),
    [({"s": " "}, 422), ({"q": ""}, 400), ({"s": "a" * 61}, 422), ({"target": "fr"}, 400),
     ({"model": "en-gl"}, 400), ({"s": ["a"]}, 400)],
)  # fmt: skip
def test_what_is_not_a_correction_is_refused(service, client, change, status):
    answer = client.post("/suggest", json={"q": "o can", "s": "the dog", **GL_EN, **change})
    assert answer.status_code == status
    assert answer.json()["error"]["fix"]
    assert stored(service) == []


def test_without_a_file_or_space_nothing_is_stored(service, client, make, monkeypatch):
    body, write = {"q": "o can", "s": "the dog", **GL_EN}, os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:5]))
    answer = client.post("/suggest", json=body)
    monkeypatch.undo()
    assert problem(answer) == (500, "failed")
    assert stored(service) == []
    _, other = make()
    assert problem(other.post("/suggest", json=body)) == (403, "no_corrections")
    assert other.get("/models").json()["corrections"] is False


@pytest.mark.slow
def test_a_kill_leaves_all_rows_that_were_answered(tmp_path: Path) -> None:
    """Two processes write to a file until they are killed."""
    path = tmp_path / "corrections.tsv"
    code = (
        "import sys; from pathlib import Path\n"
        "from nmt.apps.serve.corrections import CorrectionsFile\n"
        "file = CorrectionsFile(Path(sys.argv[1]))\n"
        "for n in range(10**6):\n"
        "    text = f'{sys.argv[2]} {n} ' + 'x' * 9000\n"
        "    file.append([text, '', text, 'gl', 'en', 'm'])\n"
        "    print(n, flush=True)\n"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, path, name], stdout=subprocess.PIPE, text=True
        )
        for name in "ab"
    ]
    answered = {}
    for name, writer in zip("ab", writers, strict=True):
        assert writer.stdout is not None
        answered[name] = [int(writer.stdout.readline()) for _ in range(5)]
    for name, writer in zip("ab", writers, strict=True):
        writer.send_signal(signal.SIGKILL)
        rest, _ = writer.communicate()
        answered[name] += [int(line) for line in rest.splitlines()]
    CorrectionsFile(path).append(["last", "", "last", "gl", "en", "m"])
    read = [source for source, _ in read_corrections(path, ("gl", "en"))]
    for name, numbers in answered.items():
        found = [int(source.split()[1]) for source in read if source.startswith(name)]
        assert found[: len(numbers)] == numbers
    assert read[-1] == "last"


@pytest.mark.parametrize(
    ("end", "rows"),
    [("a\tb\tc\tgl\ten\tm\t2026-01-02T03:04:05Z", 2), ("a\tb\tc\tgl\ten\tm\t2026-01", 1), ("", 1)],
)
def test_an_incomplete_row_is_removed_and_a_line_end_added(tmp_path, capsys, end, rows):
    path = tmp_path / "corrections.tsv"
    path.write_text(f"{write_row(COLUMNS)}\n{end}")
    CorrectionsFile(path).append(["o can", "", "the dog", "gl", "en", "m"])
    assert len(list(read_corrections(path, ("gl", "en")))) == rows
    assert ("incomplete last row" in capsys.readouterr().err) == (rows == 1 and end != "")


def test_a_file_that_is_something_else_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "train.en"
    path.write_text("the dog")
    with pytest.raises(UserError, match="is not a file of corrections"):
        CorrectionsFile(path)
    assert path.read_text() == "the dog"
    with pytest.raises(UserError, match="no such folder"):
        CorrectionsFile(tmp_path / "no" / "corrections.tsv")
