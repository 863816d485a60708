"""Documents that clients send: their translations, progress, limits, and LibreTranslate's form."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

import pytest

import tests.apps.serve.conftest  # noqa: F401, skips without the extra
from nmt.apps.serve import documents
from nmt.decoding.codec import Translation
from tests.apps.serve.conftest import KEY, LIMITS, LOCAL, Make, problem
from tests.decoding.untrained import LINES, untrained

SECONDS = 60
PAGE = "<p>o can <b>bebe</b> auga</p>\n<pre>o can</pre>"


def send(client: Any, name: str, text: str, path: str = "/documents", **fields: str) -> Any:
    return client.post(path, files={"file": (name, text.encode())}, data=fields)


def finished(client: Any, name: str) -> dict[str, Any]:
    deadline = time.monotonic() + SECONDS
    while (answer := client.get(f"/documents/{name}").json())["state"] != "finished":
        assert answer["state"] != "failed", answer
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return answer


@pytest.mark.slow
def test_a_document_is_translated_by_the_named_model_and_fetched(client: Any) -> None:
    """More lines than a request may have, one of them twice."""
    lines = [f"{line} {n}" for n in range(2) for line in LINES[:5]] + [f"{LINES[0]} 0"]
    sent = send(client, "a b/ñ.txt", "\n\n".join(lines) + "\n", model="two")
    assert sent.status_code == 202
    answer = finished(client, sent.json()["id"])
    assert (answer["name"], answer["segments"], answer["translated"]) == ("ñ.txt", 11, 11)
    fetched = client.get(f"/documents/{sent.json()['id']}/file")
    assert "%C3%B1.txt" in fetched.headers["content-disposition"]
    assert fetched.headers["content-type"] == "application/octet-stream"
    assert len(fetched.text.split("\n\n")) == len(lines)
    plain = untrained(5).translate([LINES[4]])
    sent = send(client, "one.txt", LINES[4], model="two").json()["id"]
    finished(client, sent)
    assert client.get(f"/documents/{sent}/file").text == plain[0]


@pytest.mark.usefixtures("jumping_clock")
def test_a_wall_clock_that_jumps_ends_no_document(client: Any) -> None:
    sent = send(client, "one.txt", LINES[4]).json()["id"]
    finished(client, sent)
    assert client.get(f"/documents/{sent}/file").text == untrained().translate([LINES[4]])[0]


def test_html_is_translated_with_its_tags_in_both_forms(client: Any) -> None:
    fields = {"source": "gl", "target": "en"}
    answer = send(client, "page.html", PAGE, "/translate_file", **fields).json()
    url = answer["translatedFileUrl"]
    assert url.startswith(f"{LOCAL}/documents/")
    file = client.get(url).text
    assert file.startswith("<p>")
    assert file.endswith("<pre>o can</pre>")
    assert "bebe" not in file.replace("<b>bebe</b>", "")
    text = {"q": [PAGE, ""], "format": "html", **fields}
    assert client.post("/translate", json=text).json() == {"translatedText": [file, ""]}


def test_a_place_that_must_be_checked_is_named(client, service, monkeypatch):
    """The model never writes the placeholder."""
    translator = service.models["one"].translator
    wrong = Translation(["x"], "x", -1.0, -1.0, True, short=True)
    monkeypatch.setattr(translator, "stream", lambda lines, **options: ([wrong] for _ in lines))
    sent = send(client, "a.txt", "o can").json()["id"]
    (place,) = finished(client, sent)["to_check"]
    assert (place["source"], place["text"]) == ("o can", "x")
    assert "too short" in place["problem"]


def test_a_glossary_of_the_request_or_of_the_server_is_used(make: Make) -> None:
    terms = [["pan", "sea"]]
    expected = untrained().translate(["pan branco"], glossary=terms)[0]
    assert "sea" in expected
    requests = [({}, {"glossary": json.dumps(terms)}), ({"glossary": [("pan", "sea")]}, {})]
    for settings, fields in requests:
        _, client = make(**settings)
        sent = send(client, "a.txt", "pan branco", **fields).json()["id"]
        finished(client, sent)
        assert client.get(f"/documents/{sent}/file").text == expected


@pytest.mark.parametrize(
    ("name", "text", "fields", "expected"),
    [
        ("a.xyz", "o can", {}, (422, "bad_document")),
        ("", "o can", {}, (400, "bad_request")),
        ("a.json", "{", {}, (422, "bad_document")),
        ("a.txt", "", {}, (422, "bad_document")),
        ("a.txt", "a" * 20_000, {}, (413, "body_too_large")),
        ("a.txt", "o can", {"model": "x"}, (404, "no_such_model")),
        ("a.txt", "o can", {"tgt_tag": "<x>"}, (422, "bad_option")),
        ("a.txt", "o can", {"glossary": '[["a"]]'}, (400, "bad_request")),
    ],
)
def test_what_cannot_be_translated_is_refused_at_once(client, name, text, fields, expected):
    assert problem(send(client, name, text, **fields)) == expected


def test_other_errors_of_a_request(client):
    assert problem(client.post("/documents", json={"file": "a"})) == (400, "bad_request")
    for path in ("/documents/x", "/documents/x/file"):
        assert problem(client.get(path)) == (404, "no_such_document")
    answer = send(client, "a.txt", "o can", "/translate_file", source="gl", target="fr")
    assert answer.status_code == 400
    assert "no model translates from gl to fr" in answer.json()["error"]


@pytest.mark.slow
def test_a_document_takes_a_limited_time_and_is_forgotten(make, monkeypatch):
    service, client = make(limits=dataclasses.replace(LIMITS, file_seconds=1))
    translator = service.models["one"].translator

    def endless(lines: list[str], stop: Any, **options: Any) -> Any:
        while True:
            stop()
            time.sleep(0.01)

    monkeypatch.setattr(translator, "stream", endless)
    sent = send(client, "a.txt", "o can").json()["id"]
    assert problem(client.get(f"/documents/{sent}/file")) == (409, "not_finished")
    deadline = time.monotonic() + SECONDS
    while client.get(f"/documents/{sent}").json()["state"] != "failed":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert problem(client.get(f"/documents/{sent}/file")) == (504, "timeout")
    monkeypatch.setattr(documents, "KEPT", 0.0)
    time.sleep(0.01)
    assert problem(client.get(f"/documents/{sent}")) == (404, "no_such_document")


@pytest.mark.slow
def test_a_list_of_pages_has_one_limit(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    service, client = make(limits=dataclasses.replace(LIMITS, seconds=2))
    translator = service.models["one"].translator
    stream = translator.stream

    def slow(lines: Any, **options: Any) -> Any:
        time.sleep(0.5)
        return stream(lines, **options)

    monkeypatch.setattr(translator, "stream", slow)
    pages = [f"<p>{line} {n}</p>" for n in range(20) for line in LINES]
    body = {"q": pages, "format": "html", "source": "gl", "target": "en"}
    started = time.monotonic()
    answer = client.post("/translate", json=body)
    assert answer.status_code == 504
    assert "2 seconds" in answer.json()["error"]
    assert time.monotonic() - started < 2 + SECONDS / 4
    monkeypatch.setattr(translator, "stream", stream)
    body["q"] = pages[0]
    assert client.post("/translate", json=body).status_code == 200


def test_a_sentence_over_the_limit_is_not_translated_and_must_be_checked(client: Any) -> None:
    sent = send(client, "a.txt", f"{'a' * 61}\n\npan\n").json()["id"]
    place = finished(client, sent)["to_check"][0]
    assert (place["place"], place["text"]) == ("line 1", "a" * 61)
    pan = untrained().translate(["pan"])[0]
    assert client.get(f"/documents/{sent}/file").text == f"{'a' * 61}\n\n{pan}\n"


def test_only_some_documents_are_in_memory_and_none_at_the_end(client, service, monkeypatch):
    monkeypatch.setattr(documents, "MOST", 2)
    for _ in range(2):
        assert send(client, "a.txt", "o can").status_code == 202
    assert problem(send(client, "a.txt", "o can")) == (429, "queue_full")
    service.guard.files = 8
    assert problem(send(client, "a.txt", "o can")) == (429, "queue_full")
    service.guard.files = 0
    service.abort()
    assert problem(send(client, "a.txt", "o can")) == (503, "stopping")


def test_a_key_is_required_but_for_a_translation_whose_secret_id_is_known(make: Make) -> None:
    _, client = make(key=KEY)
    assert send(client, "a.txt", "pan").status_code == 401
    fields = {"source": "gl", "target": "en", "api_key": KEY}
    answer = send(client, "a.txt", "pan", "/translate_file", **fields)
    url = answer.json()["translatedFileUrl"]
    assert client.get(url).status_code == 200
    assert client.get(url.removesuffix("/file")).status_code == 401
