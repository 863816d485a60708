"""nmt-plot draws what runs have logged, and names what is missing."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from nmt.apps.plot import figures
from nmt.apps.plot.command import main
from nmt.apps.plot.curves import RunMetrics
from nmt.cli import train
from nmt.training.observers import OBSERVERS
from tests.apps.plot.test_curves import RECIPE, run_of
from tests.toy import toy_corpus, toy_recipe

pytest.importorskip("matplotlib")

OBSERVE = "analysis.observe=[grad_total, grad_l1, gains, head_scale]"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, Path]:
    """A run of a NormFormer with observers, and a run without."""
    folder = tmp_path_factory.mktemp("figures")
    toy_corpus(folder, {"train": 40, "dev": 3, "test": 3})
    recipe = toy_recipe(folder, {"model": {"normformer": True, "enc_layers": 2}})
    watched, plain = folder / "watched", folder / "plain"
    assert train.main([str(recipe), f"out={watched}", "analysis.every=2", OBSERVE]) == 0
    assert train.main([str(recipe), f"out={plain}"]) == 0
    return watched, plain


@pytest.mark.slow
def test_learning_curves_have_a_line_per_run(runs):
    metrics = [RunMetrics(run) for run in runs]
    (axes,) = figures.FIGURES["curves"](metrics, "ppl").axes
    assert [line.get_label() for line in axes.lines] == ["watched", "plain"]
    for line, run in zip(axes.lines, metrics, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [4, 8, 12])
        np.testing.assert_array_equal(line.get_ydata(), run.curve("dev", "ppl").values)


@pytest.mark.slow
def test_gradient_norms_are_those_observed_or_else_those_logged(runs):
    observed, train_log = figures.FIGURES["gradients"]([RunMetrics(run) for run in runs], None).axes
    assert observed.lines[0].get_xdata().tolist() == [2, 4, 6, 8, 10, 12]
    assert train_log.lines[0].get_xdata().tolist() == list(range(1, 13))
    assert observed.get_ylim() == train_log.get_ylim()


def test_gradients_by_depth_have_a_line_per_layer(runs):
    encoder, decoder = figures.FIGURES["depth"]([RunMetrics(runs[0])], "self_attn.out").axes
    assert [line.get_label() for line in encoder.lines] == ["layer 0", "layer 1"]
    assert len(decoder.lines) == 1
    logged = RunMetrics(runs[0]).curve("observed", "grad_l1/encoder.layers.1.self_attn.out")
    np.testing.assert_array_equal(encoder.lines[1].get_ydata(), logged.values)


def test_gradient_changes_of_a_run_relative_to_itself_are_one(runs):
    run = RunMetrics(runs[0])
    encoder, decoder = figures.FIGURES["changes"]([run, run], None).axes
    for line in [*encoder.lines[:-1], *decoder.lines[:-1]]:  # the last is the horizontal line at 1
        np.testing.assert_allclose(line.get_ydata(), 1)
    assert len(encoder.lines[0].get_ydata()) == 2


def test_gains_have_a_point_per_layer(runs):
    encoder, decoder = figures.FIGURES["gains"]([RunMetrics(runs[0])], None).axes
    assert len(encoder.lines[0].get_ydata()) == 2
    assert "self_attn_res.branch_norm" in {line.get_label() for line in decoder.lines}


def test_a_layer_without_gradient_keeps_its_number(tmp_path):
    """Layer 0 is frozen in one run, so its layer 1 is compared with layer 1 of the other."""
    names = [f"grad_l1/{s}.layers.{i}.ffn.fc2" for s in ("encoder", "decoder") for i in (0, 1)]
    runs = []
    recipe = RECIPE.replace("dec_layers: 1", "dec_layers: 2")
    for run, without in (("base", "nothing"), ("frozen", "encoder.layers.0")):
        norms = {name: 2.0 + i for i, name in enumerate(names) if without not in name}
        records = [{"kind": "observed", **norms}, {"kind": "train", "loss": 3.0}]
        runs.append(run_of(tmp_path / run, *records, recipe=recipe))
    encoder, _ = figures.FIGURES["changes"](runs, None).axes
    assert encoder.lines[0].get_xydata().tolist() == [[1, 1]]
    encoder, decoder = figures.FIGURES["depth"](runs[1:], None).axes
    assert [line.get_label() for line in encoder.lines] == ["layer 1"]
    assert [line.get_label() for line in decoder.lines] == ["layer 0", "layer 1"]
    encoder, decoder = figures.FIGURES["gains"](runs[1:], "grad_l1").axes
    assert encoder.lines[0].get_xdata().tolist() == [1]
    titles = [panel.get_title() for panel in (encoder, decoder)]
    assert titles == ["frozen, encoder", "frozen, decoder"]


@pytest.mark.slow
@pytest.mark.parametrize("figure", figures.FIGURES)
def test_every_figure_becomes_a_file(runs, tmp_path, capsys, figure):
    output = tmp_path / "out.svg"
    assert main([figure, str(runs[0]), str(runs[0]), "-o", str(output)]) == 0
    assert capsys.readouterr().out == f"wrote {output}\n"
    assert output.read_bytes().startswith(b"<?xml")


@pytest.mark.slow
@pytest.mark.parametrize(("form", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_the_name_of_a_file_decides_its_format(runs, tmp_path, form, start):
    output = tmp_path / f"out.{form}"
    assert main(["curves", str(runs[0]), "-o", str(output)]) == 0
    assert output.read_bytes().startswith(start)


def test_a_run_folder_whose_name_is_not_utf8(runs, tmp_path):
    run = tmp_path / os.fsdecode(b"run\xff")
    shutil.copytree(runs[0], run)
    output = tmp_path / "out.svg"
    assert main(["curves", str(run), "-o", str(output)]) == 0
    assert "run\ufffd<" in output.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["depth", "PLAIN"], "analysis.observe=[grad_l1]"),
        (["depth", "WATCHED", "--select", "ffn.fc3"], "--select one of self_attn.qkv"),
        (["gains", "WATCHED", "--select", "gain"], "gain is not one of grad_l1, grad_l2, gains"),
        (["gradients", "WATCHED", "--select", "gains"], "figure gradients has nothing to select"),
        (["gains", "PLAIN"], "analysis.observe=[gains]"),
        (["curves", "WATCHED", "--select", "rouge"], "--select one of ppl"),
        (["curves", "NOWHERE"], "not a run folder"),
        (["changes", "WATCHED"], "two runs or more"),
        (["changes", "WATCHED", "PLAIN"], "analysis.observe=[grad_l1]"),
        (["changes", "PLAIN", "WATCHED"], "analysis.observe=[grad_l1]"),
    ],
)
def test_quantities_that_a_run_has_not_logged_are_errors(runs, tmp_path, capsys, argv, message):
    names = {"WATCHED": str(runs[0]), "PLAIN": str(runs[1]), "NOWHERE": str(tmp_path)}
    output = tmp_path / "out.png"
    assert main([*(names.get(word, word) for word in argv), "-o", str(output)]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize("figure", ["gradients", "stability", "changes"])
def test_a_run_shorter_than_log_every_says_so(tmp_path, capsys, figure):
    observed = {"kind": "observed", "grad_l1/decoder.layers.0.ffn.fc2": 1.0}
    ended, training = (str(tmp_path / name) for name in ("ended", "training"))
    for run in (ended, training):
        recipe = f"{RECIPE}train: {{log_every: 1000}}\n"
        run_of(Path(run), {"kind": "dev", "ppl": 3.0}, observed, recipe=recipe)
    Path(ended, "summary.json").write_text('{"status": "finished"}')
    output = tmp_path / "out.png"
    for runs, fix in (
        ((ended, training), "train.log_every=1 out="),
        ((training, ended), "--resume"),
    ):
        assert main([figure, *runs, "-o", str(output)]) == 2
        error = capsys.readouterr().err
        assert f"{runs[0]}: " in error
        assert "train.log_every is 1,000" in error
        assert fix in error
        assert not output.exists()


@pytest.mark.parametrize("name", ["out.bmp", "missing/out.png"])
def test_an_output_that_cannot_be_written_is_named(runs, tmp_path, capsys, name):
    assert main(["curves", str(runs[0]), "-o", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert str((tmp_path / name).parent) in error
    assert (".png, .svg or .pdf" if "bmp" in name else "mkdir -p") in error


def test_the_same_runs_give_the_same_file(runs, tmp_path):
    for name in ("one.svg", "two.svg"):
        assert main(["curves", str(runs[0]), "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_docs_list_every_observer_and_figure():
    page = (Path(__file__).parents[3] / "docs/analysis.md").read_text(encoding="utf-8")
    rows = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted([*OBSERVERS, *figures.FIGURES])


def test_without_matplotlib_its_package_is_named(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["curves", str(runs[0]), "-o", str(tmp_path / "out.png")]) == 2
    assert "pip install -c constraints.txt -e .\n" in capsys.readouterr().err
