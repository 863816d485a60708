"""NTREX-128, FLORES-200 and FLORES+ from small files in the layouts of their publishers."""

from __future__ import annotations

import json

import pytest
import requests

from data_prep import remote
from data_prep.corpora import flores, flores_plus, ntrex
from data_prep.remote import _git_id
from nmt.cli.import_corpus import main
from tests.data_prep.archives import tarred

TEXTS = {
    "newstest2019-src.eng.txt": "One\u00a0thing.\nTwo.\n",
    "newstest2019-ref.glg.txt": "Unha cousa.\nDúas.\n",
    "newstest2019-ref.por-BR.txt": "Uma coisa.\nDuas.\n",
    "newstest2019-ref.srp-Cyrl.txt": "Једна ствар.\nДве.\n",  # noqa: RUF001
    "newstest2019-ref.srp-Latn.txt": "Jedna stvar.\nDve.\n",
    "newstest2019-ref-2.spa.txt": "not a language of its own\n",
}


def archive(path, texts):
    members = {f"NTREX-8561/NTREX-128/{name}": text for name, text in texts.items()}
    members["NTREX-8561/DOCUMENT_IDS.tsv"] = "bbc.1\ncnn.2\n"
    path.write_bytes(tarred(members))
    return path


@pytest.fixture
def local(tmp_path, monkeypatch):
    entries = b"".join(
        b"100644 %b\0%b" % (name.encode(), _git_id(b"blob", TEXTS[name].encode()))
        for name in sorted(TEXTS)
    )
    monkeypatch.setattr(ntrex, "TREE", _git_id(b"tree", entries).hex())
    return archive(tmp_path / "ntrex.tar.gz", TEXTS)


def get(name, local, out, src="gl", tgt="en"):
    return main([name, "--src-lang", src, "--tgt-lang", tgt, "--from", str(local), "-o", str(out)])


def test_lines_and_documents_of_ntrex_are_as_released(local, tmp_path):
    out = tmp_path / "out"
    assert get("ntrex", local, out) == 0
    assert (out / "test.en").read_text() == TEXTS["newstest2019-src.eng.txt"]
    assert (out / "test.gl").read_text() == TEXTS["newstest2019-ref.glg.txt"]
    assert (out / "test.credits").read_text() == "bbc.1\ncnn.2\n"
    assert get("ntrex", local, tmp_path / "br", "por-BR", "gl") == 0
    assert (tmp_path / "br/test.por-BR").read_text() == TEXTS["newstest2019-ref.por-BR.txt"]


def test_a_language_of_ntrex_in_two_scripts_needs_the_script(local, tmp_path, capsys):
    assert get("ntrex", local, tmp_path / "out", "sr") == 2
    assert "use one of: srp_Cyrl srp_Latn" in capsys.readouterr().err


def test_a_changed_file_of_ntrex_is_not_used(local, tmp_path, capsys):
    archive(local, {**TEXTS, "newstest2019-ref.glg.txt": "Unha cousa.\nDuas.\n"})
    assert get("ntrex", local, tmp_path / "out") == 2
    assert "not the expected files of NTREX-128" in capsys.readouterr().err


@pytest.fixture
def flores_archive(tmp_path, monkeypatch):
    path = tmp_path / "flores200_dataset.tar.gz"
    files = {
        f"./flores200_dataset/{split}/{lang}.{split}": f"{lang} {split}\u00a0 1\n{lang} {split} 2\n"
        for split in ("dev", "devtest")
        for lang in ("eng_Latn", "glg_Latn", "arb_Arab")
    }
    path.write_bytes(tarred(files))
    monkeypatch.setattr(flores, "SOURCE", flores.RemoteFile("FLORES", "x", path.name))
    return path


def test_dev_and_devtest_of_flores_are_written_aligned(flores_archive, tmp_path):
    out = tmp_path / "out"
    assert get("flores", flores_archive, out) == 0
    assert (out / "dev.gl").read_text() == "glg_Latn dev\u00a0 1\nglg_Latn dev 2\n"
    assert (out / "test.en").read_text() == "eng_Latn devtest\u00a0 1\neng_Latn devtest 2\n"
    assert not (out / "train.gl").exists()


def row(number, text):
    return json.dumps({"id": number, "iso_639_3": "x", "text": text, "url": "u"}) + "\n"


@pytest.fixture
def dataset(tmp_path):
    folder = tmp_path / "flores_plus"
    for split in ("dev", "devtest"):
        (folder / split).mkdir(parents=True)
        for lang in ("glg_Latn", "eng_Latn", "cmn_Hans", "cmn_Hant"):
            rows = [row(n, f"{lang} {split} {n}") for n in (1, 2, 3)]
            if lang == "glg_Latn":
                rows = [rows[1], rows[0]]  # another order, and one sentence is missing
            (folder / split / f"{lang}.jsonl").write_text("".join(rows))
    return folder


def test_sentences_of_flores_plus_are_joined_by_number(dataset, tmp_path):
    out = tmp_path / "out"
    assert get("flores_plus", dataset, out) == 0
    assert (out / "dev.gl").read_text() == "glg_Latn dev 1\nglg_Latn dev 2\n"
    assert (out / "test.en").read_text() == "eng_Latn devtest 1\neng_Latn devtest 2\n"
    manifest = json.loads((out / "MANIFEST.json").read_text())
    assert manifest["dropped"]["sentence of one language alone"]["count"] == 2


def test_bad_files_of_flores_plus(dataset, tmp_path, capsys):
    assert get("flores_plus", dataset, tmp_path / "out", "zh") == 2
    assert "use one of: cmn_Hans cmn_Hant" in capsys.readouterr().err
    with (dataset / "dev" / "eng_Latn.jsonl").open("a") as file:
        file.write("<html>\n")
    assert get("flores_plus", dataset, tmp_path / "out") == 2
    assert "dev/eng_Latn.jsonl:4: is not a JSON object" in capsys.readouterr().err


def test_the_hub_is_asked_with_the_token_and_its_refusal_is_explained(
    server, dataset, tmp_path, monkeypatch, capsys
):
    listing = [{"path": f"devtest/{path.name}"} for path in (dataset / "devtest").iterdir()]
    monkeypatch.setattr(flores_plus, "LIST", server.add("/list", json.dumps(listing).encode()))
    base = server.add("/page", b"")
    monkeypatch.setattr(flores_plus, "PAGE", base)
    for path in dataset.rglob("*.jsonl"):
        name = f"/page/resolve/main/{path.relative_to(dataset)}"
        server.add(name, path.read_bytes())
    sent = []
    get = requests.get
    monkeypatch.setattr(
        requests, "get", lambda url, **o: sent.append(o["headers"]) or get(url, **o)
    )
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    argv = ["--src-lang", "gl", "--tgt-lang", "en", "-o", str(tmp_path / "out")]
    assert main(["flores_plus", *argv]) == 0
    assert (tmp_path / "out/dev.gl").read_text() == "glg_Latn dev 1\nglg_Latn dev 2\n"
    assert not any("Authorization" in headers for headers in sent)  # this is not the hub
    monkeypatch.setattr(remote, "HUB", "127.0.0.1")
    server.add("/page/resolve/main/dev/cmn_Hans.jsonl", (401, b"no", 2))
    argv[1] = "cmn_Hans"
    assert main(["flores_plus", *argv, "--force"]) == 2
    err = capsys.readouterr().err
    assert "accept the conditions" in err
    assert "HF_TOKEN" in err
    assert sent[-1]["Authorization"] == "Bearer hf_secret"
    assert "hf_secret" not in err
