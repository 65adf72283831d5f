"""CoC's dictionary coc_cfgs as its users have it: pasted, or in a file of Python."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import shims

shims.apply()

import plait  # noqa: E402
import plait.megatron  # noqa: E402
from plait.megatron import __main__ as plait_main  # noqa: E402
from plait.megatron.user_config import load_coc_cfgs  # noqa: E402

SHAPES = {
    (16384, 5120, 1920): plait.Plan("pipelined parts=8"),
    (16384, 1920, 5120): plait.Plan("serial"),
}

# The keys of CoC, each with its default, but for the shapes.
CFGS: dict[str, Any] = {
    "recompute_all_gather": True,
    "matmul_soc_friendly": True,
    "print_tensor_value_open": False,
    "customized_coc": {"[16384, 5120, 1920]": 8, "[16384, 1920, 5120]": 1},
    "enable_coc_in_column_backward": False,
    "k_min": 1024,
    "k_max": 4096,
}

FILE = '''"""A file as users have it."""
import os
from .engine import Engine

coc_cfgs = {
    'recompute_all_gather': False,  # saves time, takes memory
    'customized_coc': {
        "[16384, 5120, 1920]": 8,
        (16384, 1920, 5120): 1,
    },
    'enable_coc_in_column_backward': True,
}


def install(engine=Engine):
    os.abort()
'''


@pytest.fixture(autouse=True)
def disabled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("COC_PARALLEL_NUM", "USE_COC_FUSED_KERNEL", "PLAIT_PLAN", "PLAIT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    yield
    plait.megatron.disable()


def sentence_of(cfgs: Any) -> str:
    with pytest.raises(plait.Error) as refusal:
        load_coc_cfgs(cfgs)
    return str(refusal.value)


def write(folder: Path, text: str) -> Path:
    file = folder / "user_config.py"
    file.write_text(text)
    return file


def test_the_pasted_dictionary() -> None:
    settings = load_coc_cfgs(CFGS)
    assert settings.customized == SHAPES
    assert (settings.plan, settings.recompute_all_gather) == (None, True)
    defaults = plait.load_settings()
    defaults.customized = SHAPES
    assert settings == defaults
    assert load_coc_cfgs({}) == load_coc_cfgs({"customized_coc": {}}) == plait.load_settings()


def test_a_file(tmp_path: Path) -> None:
    settings = load_coc_cfgs(write(tmp_path, FILE))
    assert settings.customized == SHAPES
    assert (settings.recompute_all_gather, settings.column_backward) == (False, True)


def test_variables_go_before_the_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COC_PARALLEL_NUM", "4")
    settings = load_coc_cfgs({**CFGS, "coc_parallel_num": 2})
    assert settings.plan == plait.Plan("pipelined parts=4")
    assert settings.customized == SHAPES


def test_enable_takes_both(tmp_path: Path) -> None:
    file = write(tmp_path, f"coc_cfgs = {CFGS}")
    plait.megatron.enable(coc_cfgs=CFGS, schedule="fused")
    plait.megatron.enable(coc_cfgs=str(file), schedule="fused")  # the same does nothing
    with pytest.raises(plait.Error, match="it is enabled with other options"):
        plait.megatron.enable(coc_cfgs={}, schedule="fused")
    plait.megatron.disable()
    with plait.megatron.enabled(coc_cfgs=file):
        options = plait.megatron.swap.service().options
        assert options.settings is not None
        assert options.settings.customized == SHAPES
    with pytest.raises(plait.Error, match="settings and coc_cfgs can't be combined"):
        plait.megatron.enable(coc_cfgs=CFGS, settings=plait.Settings())


@pytest.mark.parametrize(
    ("cfgs", "sentence"),
    [
        ({"recompute_allgather": True}, "there is no setting recompute_allgather; did you mean r"),
        ({"recompute_all_gather": 2}, "coc_cfgs: recompute_all_gather = 2 is neither true nor fa"),
        ({"recompute_all_gather": None}, "recompute_all_gather = None: no setting has such a val"),
        ({"customized_coc": {"[1, 2]": 8}}, "[1, 2] = 8: a shape must be written [m, k, n]"),
        ({"customized_coc": {(1, 2, 3): 65}}, "[1, 2, 3] = 65 is not 1 (serial), 2 to 64 (parts)"),
        ({"customized_coc": 8}, "coc_cfgs: customized_coc = 8 is not a table"),
        ({1: 2}, "coc_cfgs: the key 1 is not a text"),
        (["coc_cfgs"], "coc_cfgs is of type list; it can be a dictionary, or the path of a file"),
        ({"use_ascend_mc2": True}, "use_ascend_mc2 = true cannot be combined with plait"),
    ],
    ids=str,
)
def test_what_a_dictionary_may_not_say(cfgs: Any, sentence: str) -> None:
    said = sentence_of(cfgs)
    assert sentence in said
    assert "coc_cfgs:1" not in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("\n\ncoc_cfgs = {\n 'k_mim': 3}", ":4: there is no setting k_mim; did you mean k_min?"),
        ("coc_cfgs = {'k_min': 3,\n 'k_min': 4}", ":2: k_min is set twice, first at "),
        ("", " assigns nothing; it should assign coc_cfgs = {...}"),
        ("import os\n", " assigns nothing; it should assign coc_cfgs = {...}"),
        ("config = {'k_min': 3}", ":1: the dictionary config is not read; CoC's is expected under"),
        ("\ncoc_cfg: dict = {}", ":2: the dictionary coc_cfg is not read; CoC's is expected under"),
        ("n = 2\ncoc_cfgs = {'k_min': n}", ":2: k_min = n: the file is read and not run"),
        ("coc_cfgs = dict(k_min=3)", ":1: coc_cfgs = dict(k_min=3): the file is read and not run"),
        ("coc_cfgs = {**{}}", ":1: coc_cfgs = {**{}}: the file is read and not run"),
        ("coc_cfgs = {'k_min': {[1]}}", ":1: k_min = {[1]}: the file is read and not run"),
        ("coc_cfgs['k_min'] = 3", ":1: the file is read and not run, so it can only assign"),
        ("print('hello')", ":1: the file is read and not run, so it can only assign"),
        ("coc_cfgs = {\n", ":1: it is not Python"),
    ],
)
def test_what_a_file_may_not_say(text: str, sentence: str, tmp_path: Path) -> None:
    file = write(tmp_path, text)
    assert f"{file}{sentence}" in sentence_of(file)


def test_a_file_beside_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot read /nowhere.py: No such file" in sentence_of("/nowhere.py")
    monkeypatch.setenv("PLAIT_CONFIG", "plait.toml")
    assert "coc_cfgs and PLAIT_CONFIG=plait.toml can't be combined" in sentence_of(CFGS)


def test_an_option_names_the_file(tmp_path: Path) -> None:
    parser = plait.megatron.add_arguments(argparse.ArgumentParser())
    line = ["--coc-config", str(write(tmp_path, FILE)), "--coc-parallel-num", "4"]
    assert plait.megatron.enable_from_arguments(parser.parse_args(line))
    settings = plait.megatron.swap.service().options.settings
    assert settings is not None
    assert settings.customized == SHAPES
    assert settings.plan == plait.Plan("pipelined parts=4")


@pytest.mark.parametrize("parts", ["0", "-1", "65"])
def test_an_option_names_itself(parts: str) -> None:
    parser = plait.megatron.add_arguments(argparse.ArgumentParser())
    args = parser.parse_args([f"--coc-parallel-num={parts}"])
    with pytest.raises(plait.Error, match=f"--coc-parallel-num {parts} is not between 1 and 64"):
        plait.megatron.enable_from_arguments(args)


def test_one_rank_says_that_layers_are_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "plait.megatron")
    for rank, said in (("1", []), ("0", ["pipelined in 4 parts, wire bf16, own settings"])):
        monkeypatch.setenv("RANK", rank)
        how: dict[str, Any] = {"schedule": "pipelined", "parts": 4, "wire": "bf16"}
        with plait.megatron.enabled(coc_cfgs=CFGS, **how):
            pass
        begin = "column and row layers of Megatron-Core are served by plait: "
        assert caplog.messages == [begin + one for one in said]


def start(line: list[Any], monkeypatch: pytest.MonkeyPatch) -> object:
    """Run `python -m plait.megatron LINE` in this process; return its exit status."""
    monkeypatch.setattr("sys.argv", ["plait.megatron", *map(str, line)])
    monkeypatch.setattr("sys.path", ["", *sys.path])
    with pytest.raises(SystemExit) as end:
        plait_main.main()
    return end.value.code


def test_variables_before_a_script_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Misspelt variables are named once; bad values of all variables end it."""
    script = tmp_path / "train.py"
    script.write_text("import sys\nprint('it runs')\nsys.exit(3)\n")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("COC_PARALEL_NUM", "4")
    monkeypatch.setenv("PLAIT_TIMEOT", "5s")
    assert start([script], monkeypatch) == 3
    assert "it runs" in capsys.readouterr().out
    for name, near in (("COC_PARALEL_NUM", "COC_PARALLEL_NUM"), ("PLAIT_TIMEOT", "PLAIT_TIMEOUT")):
        assert caplog.text.count(f"{name}: plait does not read it; did you mean {near}?") == 1
    monkeypatch.setenv("PLAIT_LINK", "rope")
    plait.megatron.disable()
    assert start([script], monkeypatch) == 2
    said = capsys.readouterr()
    assert "it runs" not in said.out
    assert 'PLAIT_LINK: the link "rope" is not like' in said.err
