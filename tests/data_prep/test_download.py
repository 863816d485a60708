"""A missing corpus is downloaded by the data_prep module that the recipe names; licenses."""

import contextlib
import json
from pathlib import Path

import pytest

import nmt
from data_prep import download
from data_prep.corpora import ted_talks
from data_prep.remote import DownloadError, RemoteFile
from data_prep.write import Request, check_request
from nmt.cli import prepare, train
from nmt.config.load import load_recipe
from nmt.data.corpus_manifest import licenses_of
from nmt.errors import UserError

RECIPE = """
src: gl
tgt: en
data:
  train: data/gl-en/train
  dev: data/gl-en/dev
  download: {}
"""


def recipe(folder, prepare):
    path = folder / "toy.yaml"
    path.write_text(RECIPE.format(prepare), "utf-8")
    return load_recipe(path)


def test_the_module_receives_languages_and_folder_of_the_recipe(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(ted_talks, "prepare", asked.append)
    download.obtain_corpus(recipe(tmp_path, "ted_talks"))
    [request] = asked
    assert (request.out, request.src, request.tgt) == (tmp_path / "data/gl-en", "gl", "en")
    assert not request.force
    assert request.local is None


def write_corpus(folder):
    folder.mkdir(parents=True)
    for name in ("train.gl", "train.en", "dev.gl", "dev.en"):
        (folder / name).write_text("x\n")


def test_another_process_may_have_downloaded_the_same_corpus(tmp_path, monkeypatch):
    def prepare(request):
        write_corpus(request.out)  # by the other process
        check_request(request)

    monkeypatch.setattr(ted_talks, "prepare", prepare)
    download.obtain_corpus(recipe(tmp_path, "ted_talks"))
    (tmp_path / "data/gl-en/dev.gl").unlink()
    with pytest.raises(UserError, match=r"missing here \(dev\)(?s:.*)move or delete this folder"):
        download.obtain_corpus(recipe(tmp_path, "ted_talks"))


def test_a_failed_download_says_what_to_do_for_a_recipe(tmp_path, monkeypatch):
    file = RemoteFile("a toy", "none", "toy.tar.gz", url="http://127.0.0.1:9/toy.tar.gz")

    def prepare(request):
        raise DownloadError(file, "refused", [file])

    monkeypatch.setattr(ted_talks, "prepare", prepare)
    with pytest.raises(UserError) as caught:
        download.obtain_corpus(recipe(tmp_path, "ted_talks"))
    for part in (
        f"could not download {file.url}: refused",
        f"nmt-import ted_talks --from FILE -o {tmp_path}/data/gl-en (with",
        "(with --src-lang gl --tgt-lang en if it requires them)",
        "or set data.train, data.dev and data.test",
    ):
        assert part in str(caught.value)
    assert "add --from" not in str(caught.value)  # nmt-train has no such option


def test_existing_files_are_not_downloaded(tmp_path, monkeypatch):
    monkeypatch.setattr(ted_talks, "prepare", None)  # would fail if called
    write_corpus(tmp_path / "data/gl-en")
    download.obtain_corpus(recipe(tmp_path, "ted_talks"))
    with pytest.raises(UserError, match=r"data.download: unknown corpus 'nope'"):
        download.obtain_corpus(recipe(tmp_path, "nope"))


def test_a_missing_corpus_of_another_folder_is_not_downloaded(tmp_path, monkeypatch):
    """Such as the synthetic pairs of nmt-synthesize, with a misspelled name."""
    test_existing_files_are_not_downloaded(tmp_path, monkeypatch)
    both = f"data.train=[{tmp_path}/data/gl-en/train, {tmp_path}/data/bt]"
    download.obtain_corpus(load_recipe(tmp_path / "toy.yaml", ["data.download=ted_talks", both]))


def test_a_corpus_is_downloaded_next_to_its_dev_set(tmp_path, monkeypatch):
    """Also if synthetic pairs are listed first."""
    requests: list[Request] = []
    monkeypatch.setattr(ted_talks, "prepare", requests.append)
    recipe(tmp_path, "ted_talks")
    both = f"data.train=[{tmp_path}/synthetic/bt, {tmp_path}/data/gl-en/train]"
    with contextlib.suppress(UserError):
        download.obtain_corpus(
            load_recipe(tmp_path / "toy.yaml", ["data.download=ted_talks", both])
        )
    assert [request.out for request in requests] == [tmp_path / "data/gl-en"]


def test_a_misspelled_corpus_gets_a_suggestion(tmp_path):
    with pytest.raises(UserError, match=r"unknown corpus 'ted_gl_en'; did you mean ted_talks\?"):
        download.obtain_corpus(recipe(tmp_path, "ted_gl_en"))


def test_licenses_are_those_of_the_manifest_or_of_the_readme(tmp_path: Path):
    assert licenses_of(tmp_path) == []
    (tmp_path / "README.md").write_text("# A\n\nThe license is below.\n\n* **License:** CC0\n")
    assert licenses_of(tmp_path) == ["CC0"]
    manifest = {"sources": [{"license": "CC BY 4.0"}, {"license": "CC BY 4.0"}, {"name": "x"}]}
    (tmp_path / "MANIFEST.json").write_text(json.dumps(manifest))
    assert licenses_of(tmp_path) == ["CC BY 4.0"]
    (tmp_path / "MANIFEST.json").write_text("[1]")
    assert licenses_of(tmp_path) == ["CC0"]


@pytest.mark.parametrize(
    ("command", "words"),
    [(train, []), (train, ["--dry-run"]), (prepare, [])],
)
def test_a_command_downloads_the_corpus_of_its_recipe_first(
    tmp_path, monkeypatch, capsys, command, words
):
    def refuse(request):
        raise UserError("refused", at=str(request.out))

    monkeypatch.setattr(ted_talks, "prepare", refuse)
    recipe(tmp_path, "ted_talks")
    assert command.main([str(tmp_path / "toy.yaml"), *words]) == 2
    assert f"{tmp_path}/data/gl-en: refused" in capsys.readouterr().err
    with pytest.raises(UserError, match="refused"):
        nmt.train(tmp_path / "toy.yaml", quiet=True)
