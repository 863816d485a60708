"""The HTTP API: equal results, limits, keys, errors and metrics."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

import tests.apps.serve.conftest  # noqa: F401, skips without the extra
from nmt.apps.serve import app, guard
from nmt.config.entries import Direction, Directions
from nmt.config.schema import meanings
from nmt.decoding.options import SearchOptions
from nmt.model.incremental import DecodeState
from nmt.text.sentences import UsualLine
from tests.apps.serve.conftest import KEY, LIMITS, Make, problem
from tests.decoding.untrained import LINES, untrained

JSON = {"Content-Type": "application/json"}


def texts(answer: Any) -> list[list[str]]:
    assert answer.status_code == 200, answer.text
    return [[t["text"] for t in line["translations"]] for line in answer.json()["lines"]]


def message(answer: Any) -> str:
    return answer.json()["error"]["message"]


# ---------------------------------------------------------------- results


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam": 5, "length_alpha": 1.5},
        {"n_best": 3},
        {"sample": True, "seed": 7, "n_best": 2},
        {"sample": True, "seed": 7, "top_p": 0.9, "max_len_offset": 2},
        {"glossary": [["can", "hound"], ["gat*", "tomcat"]], "beam": 3},
        {"align": True, "token_scores": True},
    ],
    ids=lambda options: "-".join(options) or "default",
)
def test_results_are_those_of_the_translator(client: Any, options: dict[str, Any]) -> None:
    lines = [*LINES, ""]
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    expected = [[best.text for best in n_best] for n_best in untrained().stream(lines, **given)]
    assert texts(client.post("/translate", json={"text": lines, **options})) == expected


@pytest.mark.slow
def test_a_server_may_have_a_glossary(make: Make) -> None:
    """It is for requests that have none."""
    _, client = make(glossary=[("can", "hound")])
    for given, used in (
        ({}, {"glossary": [("can", "hound")]}),
        ({"glossary": [["can", "puppy"]]}, {"glossary": [("can", "puppy")]}),
        ({"glossary": []}, {}),
        ({"glossary": [], "sample": True}, {"sample": True}),
    ):
        answer = client.post("/translate", json={"text": LINES, **given})
        assert texts(answer) == [[text] for text in untrained().translate(LINES, **used)]
    sampled = client.post("/translate", json={"text": LINES, "sample": True})
    assert problem(sampled) == (422, "bad_option")


def test_text_that_the_model_cannot_know_is_reported(client: Any) -> None:
    lines = ["o can", "كلب أبيض", "can كلب", "12", ""]
    found = client.post("/translate", json={"text": lines}).json()["lines"]
    assert [line["other_script"] for line in found] == [0.0, 1.0, 0.5, 0.0, 0.0]
    assert found[0]["unknown"] == found[4]["unknown"] == 0.0
    assert found[1]["unknown"] == 1.0
    assert 0 < found[2]["unknown"] < 1


def test_a_text_is_translated_line_by_line_by_the_named_model(service, client):
    assert texts(client.post("/translate", json={"text": []})) == []
    answer = client.post("/translate", json={"text": "o can\r\n\na gata", "model": "two"})
    assert texts(answer) == [[t] for t in untrained(seed=5).translate(["o can", "", "a gata"])]
    assert [answer.json()[key] for key in ("model", "src", "tgt")] == ["two", "gl", "en"]
    service.models["one"].translator.codec.directions = Directions(
        "gl", "en", tuple(Direction(src, "fr") for src in ("gl", "pt"))
    )
    answer = client.post("/translate", json={"text": "o can", "src": "pt"}).json()
    assert (answer["src"], answer["tgt"]) == ("pt", "fr")


def test_scores_alignment_and_words(client: Any) -> None:
    (expected,) = untrained().n_best(LINES[:1], 1, token_scores=True, align=True)
    body = {"text": LINES[0], "token_scores": True, "align": True}
    (line,) = client.post("/translate", json=body).json()["lines"]
    (found,) = line["translations"]
    for name, value in dataclasses.asdict(expected[0]).items():
        if name == "alignment":
            assert found[name] == [list(pair) for pair in value]
        else:
            assert found[name] == pytest.approx(value), name
    assert [LINES[0][w["start"] : w["end"]] for w in line["source_words"]] == LINES[0].split()
    assert all(0 < word["probability"] <= 1 for word in found["words"])


def test_a_line_of_several_sentences_is_split_unless_the_request_says_otherwise(service, client):
    translator = service.models["one"].translator
    translator.codec.usual = UsualLine(1, length_ratio=1.5)
    line = "O can bebe auga.  A gata vella."
    body = {"text": line, "token_scores": True, "align": True}
    (found,) = client.post("/translate", json=body).json()["lines"]
    (best,) = found["translations"]
    one, two = translator.translate(["O can bebe auga.", "A gata vella."])
    assert best["text"] == f"{one}  {two}"
    assert len(best["token_log_probs"]) == len(best["pieces"]) + len(best["eos"])
    assert all(0 < word["probability"] <= 1 for word in best["words"])
    words = [line[w["start"] : w["end"]] for w in found["source_words"]]
    assert "".join(words) == line.replace(" ", "")
    assert max(i for i, _ in best["alignment"]) > words.index("auga") + 1
    whole = client.post("/translate", json={"text": line, "split": "line"})
    assert texts(whole) == [translator.translate([line], split="line")]
    wrong = client.post("/translate", json={"text": line, "split": "no"})
    assert problem(wrong) == (422, "bad_request")


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (422, "bad_request", "text: ")),
        ({"text": 5}, (422, "bad_request", "text.str: ")),
        ({"text": "a", "beams": 2}, (422, "bad_request", "beams: ")),
        ({"text": "a", "beam": "2"}, (422, "bad_request", "beam: ")),
        ({"text": "a", "align": 1}, (422, "bad_request", "align: ")),
        ({"text": "a", "max_len_offset": 10_000}, (422, "bad_request", "max_len_offset: ")),
        ({"text": "a", "glossary": [["b" * 101, "a"]]}, (422, "bad_request", "glossary.0.0: ")),
        ({"text": "a", "glossary": [["b"]]}, (422, "bad_request", "glossary.0: ")),
        ({"text": "a", "glossary": [["b", " "]]}, (422, "bad_option", "glossary, term 1: ")),
        ({"text": ["a" * 60] * 8, "beam": 5, "max_len_offset": 200, "align": True},
         (422, "too_much_work", "8 lines with beam 5 need 12,480 units of work, at most 10,000")),
        ({"text": "a", "beam": 0}, (422, "bad_option", "beam: 0 ")),
        ({"text": "a", "beam": 6}, (422, "bad_option", "beam: 6 is above 5")),
        ({"text": "a", "tag": "<x>"}, (422, "bad_option", "the model has no tag <x>")),
        ({"text": "a", "model": "x"}, (404, "no_such_model", "")),
        ({"text": "a\n" * 8}, (422, "too_many_lines", "the text has 9 lines, at most 8")),
        ({"text": ["b", "a" * 61]}, (422, "line_too_long", "line 2 has 61 characters, at most 60")),
        ({"text": "a" * 4_000}, (413, "body_too_large", "")),
    ],
)  # fmt: skip
def test_what_is_not_allowed_is_refused(client, body, expected):
    answer = client.post("/translate", json=body)
    assert (*problem(answer), message(answer)[: len(expected[2])]) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"{", (422, "bad_request")),
        (b"\xff", (400, "bad_request")),
        (b'{"text": "\xff"}', (400, "bad_request")),
        (b"[]", (422, "bad_request")),
        ([b" " * 1_000] * 5, (413, "body_too_large")),  # without a length
    ],
)
def test_a_body_that_is_not_an_object_or_too_large_is_refused(client, content, expected):
    given = content if isinstance(content, bytes) else iter(content)
    assert problem(client.post("/translate", content=given, headers=JSON)) == expected


@pytest.mark.usefixtures("jumping_clock")
def test_a_search_ends_when_its_request_times_out(make, monkeypatch):
    """It would take a minute; the next request is answered at once. The wall clock jumps."""
    service, client = make(limits=dataclasses.replace(LIMITS, seconds=0.3))
    advance = DecodeState.advance

    def slow(self: DecodeState, tokens: Any) -> Any:
        if len(tokens) == 4:  # the first request
            time.sleep(0.1)
            return advance(self, tokens) * 0  # it never ends by itself
        return advance(self, tokens)

    monkeypatch.setattr(DecodeState, "advance", slow)
    body = {"text": ["a"] * 4, "max_len_offset": 200}
    answer = client.post("/translate", json=body)
    assert problem(answer) == (504, "timeout")
    assert answer.headers["retry-after"] == "1"
    monkeypatch.undo()
    started = time.monotonic()
    while client.post("/translate", json={"text": "o can"}).status_code != 200:
        assert time.monotonic() - started < 5
    service.close()
    assert not service.models["one"].batcher._thread.is_alive()


def test_a_full_queue_and_a_stopping_server_refuse(service, client, monkeypatch):
    translator, busy, free = service.models["one"].translator, Event(), Event()
    stream = translator.stream

    def wait(lines: list[str], **options: Any) -> Any:
        busy.set()
        assert free.wait(20)
        return stream(lines, **options)

    monkeypatch.setattr(translator, "stream", wait)

    def send(size: int) -> Future[Any]:
        return pool.submit(client.post, "/translate", json={"text": ["a"] * size})

    with ThreadPoolExecutor(4) as pool:
        sent = [send(1)]
        assert busy.wait(10)
        sent += [send(8), send(8)]
        deadline = time.monotonic() + 10
        while service.models["one"].batcher.waiting < 16:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        full = client.post("/translate", json={"text": "a"})
        assert problem(full) == (429, "queue_full")
        assert full.headers["retry-after"] == "1"
        service.guard.stopping = True
        assert problem(client.post("/translate", json={"text": "a"})) == (503, "stopping")
        assert client.get("/health").status_code == 503
        free.set()
        assert [one.result().status_code for one in sent] == [200, 200, 200]
    assert service.guard.active == 0


def test_a_failure_is_reported_without_details(service, client, monkeypatch, capsys):
    def fail(lines: list[str], **options: Any) -> Any:
        raise RuntimeError("a secret path")

    monkeypatch.setattr(service.models["one"].translator, "stream", fail)
    answer = client.post("/translate", json={"text": "a"})
    assert problem(answer) == (500, "failed")
    assert "secret" not in answer.text
    assert capsys.readouterr().err == "error: RuntimeError: a secret path\n"
    assert texts(client.post("/translate", json={"text": "a", "model": "two"}))


# ---------------------------------------------------------------- access


def test_a_key_is_required_for_models_text_and_metrics(make: Make) -> None:
    _, client = make(key=KEY)
    for path in guard.OPEN_PATHS:
        assert client.get(path).status_code == 200
    for headers in ({}, {"Authorization": "Bearer 0123456789abcdeF"}, {"X-API-Key": "x"}):
        for path in ("/models", "/metrics"):
            assert problem(client.get(path, headers=headers)) == (401, "wrong_key")
        answer = client.post("/translate", json={"text": "a"}, headers=headers)
        assert problem(answer) == (401, "wrong_key")
        assert answer.headers["www-authenticate"] == "Bearer"
    for headers in ({"Authorization": f"Bearer {KEY}"}, {"X-API-Key": KEY}):
        assert client.get("/models", headers=headers).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("127.0.0.1:8000", 200), ("[::1]:8000", 200), ("[::1]", 200),
        ("127.0.0.2:8000", 200),
        ("evil.example", 421), ("localhost.evil.example:8000", 421), ("", 421),
    ],
)  # fmt: skip
def test_without_a_key_only_this_machine_is_answered(client: Any, host: str, status: int) -> None:
    assert client.get("/models", headers={"Host": host}).status_code == status


# ---------------------------------------------------------------- descriptions


def test_models_and_limits_are_described(client):
    answer = client.get("/models").json()
    assert [model["name"] for model in answer["models"]] == ["one", "two"]
    assert (
        answer["models"][0] | {"src": "gl", "tgt": "en", "engine": "torch", "why_torch": ""}
        == answer["models"][0]
    )
    assert answer["limits"] == dataclasses.asdict(LIMITS)
    assert problem(client.get("/translate")) == (405, "wrong_method")
    assert problem(client.get("/nothing")) == (404, "no_such_path")


def test_openapi_lists_paths_options_and_errors(client: Any) -> None:
    api = client.get("/openapi.json").json()
    assert set(api["paths"]) == {
        "/documents", "/documents/{name}", "/documents/{name}/file", "/health", "/languages",
        "/metrics", "/models", "/suggest", "/translate", "/translate_file",
    }  # fmt: skip
    operation = api["paths"]["/translate"]["post"]
    statuses = {"200", "401", "403", "404", "413", "422", "429", "503", "504"}
    assert statuses == set(operation["responses"])
    properties = api["components"]["schemas"]["TranslateRequest"]["properties"]
    excluded = {"batch_tokens", "reverse_weight", "reverse_tag", "reverse_tgt_tag", "candidates"}
    assert set(properties) == {"text", "model", *SearchOptions.model_fields} - excluded
    for name, meaning in meanings(SearchOptions).items():
        if name not in excluded:  # declared once, for the command line too
            assert meaning.removeprefix("true = ")[1:] in properties[name]["description"]


def test_metrics_count_requests_and_lines_but_no_text(client: Any) -> None:
    client.post("/translate", json={"text": ["secretword", "o can"]})
    client.post("/translate", json={"text": "a", "beam": 0})
    metrics = client.get("/metrics").text
    assert 'nmt_requests_total{model="one",status="200"} 1.0' in metrics
    assert 'nmt_requests_total{model="one",status="422"} 1.0' in metrics
    assert 'nmt_lines_total{model="one"} 2.0' in metrics
    assert 'nmt_queue_lines{model="two"} 0.0' in metrics
    assert "nmt_active_requests 0.0" in metrics
    assert "secretword" not in metrics


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_load_nothing_from_elsewhere(client: Any, path: str) -> None:
    answer = client.get(path)
    assert answer.headers["content-type"].startswith("text/html")
    assert not re.search(r"(src|href)=[\"']?(https?:)?//|url\(|@import|import\(", answer.text)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert policy.count("'sha256-") == 2
    assert "unsafe" not in policy


def test_the_pages_are_part_of_the_package() -> None:
    from tests.test_architecture import ROOT

    assert "nmt.apps.serve = static/*" in (ROOT / "setup.cfg").read_text()
    assert {file.name for file in app.STATIC.iterdir()} == {"index.html", "docs.html"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        r'"glossary": [["\ud800", "a"]]',
        r'"glossary": [["a", "\udfff"]]',
        '"glossary": [["a", "b", "c"]]',
        '"model": ' + "[" * 5_000 + "]" * 5_000,
        '"seed": 1e999',
        '"seed": ' + "9" * 5_000,
        '"text": [' + "1, " * 1_000 + "1]",
        ", ".join(f'"{number}": 1' for number in range(101)),
    ],
    ids=lambda fields: fields[:20],
)
def test_odd_values_are_refused_in_a_short_answer(make: Make, fields: str) -> None:
    _, client = make(limits=dataclasses.replace(LIMITS, body=20_000))
    body = f'{{"text": "a", {fields}}}'
    answer = client.post("/translate", content=body, headers=JSON)
    assert answer.status_code in (400, 422)
    assert problem(answer)[1] == "bad_request"
    assert len(answer.content) < 1_000


def test_text_with_a_surrogate_or_nul_is_translated_and_an_error_can_quote_it(client):
    expected = texts(client.post("/translate", json={"text": "o  can "}))
    body = b'{"text": "o\\u0000\\ud800can\\udfff"}'
    assert texts(client.post("/translate", content=body, headers=JSON)) == expected
    answer = client.post("/translate", content=b'{"text": "a", "tag": "\\ud800"}', headers=JSON)
    assert problem(answer) == (422, "bad_option")
    assert message(answer).startswith("the model has no tag \ud800;")


@pytest.mark.parametrize("given", ["\ud800", "0123456789abcde\udfff", "\0", "é" * 16])
def test_a_key_may_be_any_text(make: Make, given: str) -> None:
    _, client = make(key=KEY)
    body = json.dumps({"q": "pan", "source": "gl", "target": "en", "api_key": given})
    assert problem(client.post("/translate", content=body, headers=JSON)) == (401, "wrong_key")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("Origin", "http://[", (403, "wrong_origin")),
        ("Origin", "http://]:80", (403, "wrong_origin")),
        ("Origin", "http://[::1", (403, "wrong_origin")),
        ("Origin", "http://a@[localhost]:x", (403, "wrong_origin")),
        ("Host", "[", (421, "wrong_host")),
        ("Host", "[::1]x", (421, "wrong_host")),
        ("Host", b"\xff", (421, "wrong_host")),
        ("Content-Length", "9" * 5_000, (413, "body_too_large")),
        ("Content-Type", b"multipart/form-data; boundary=\xff", (422, "bad_request")),
    ],
)
def test_odd_headers_are_refused(client: Any, name: str, value: Any, expected: Any) -> None:
    body, headers = '{"txt": "a"}', {**JSON, name: value}
    assert problem(client.post("/translate", content=body, headers=headers)) == expected
