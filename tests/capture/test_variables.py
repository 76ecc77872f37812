"""Environment files are read, never run; secrets and session variables stay behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbundle.resolver.capture.variables import is_secret, is_session, keep, read_env_file

LINES = [
    pytest.param("export A=b", {"A": "b"}, id="export"),
    pytest.param("A='b c' # why", {"A": "b c"}, id="quotes and a comment"),
    pytest.param('export A="b $B"\n', {}, id="unknown variable"),
    pytest.param("B=1\nexport A=${B}2", {"B": "1", "A": "12"}, id="known variable"),
    pytest.param("export A=${B:-x}", {"A": "x"}, id="default"),
    pytest.param("A='$B'", {"A": "$B"}, id="single quotes expand nothing"),
    pytest.param("A=$(rm -rf x)", {}, id="command"),
    pytest.param("A=`date`", {}, id="backquotes"),
    pytest.param("if true; then A=1; fi", {}, id="shell"),
    pytest.param("export A=1 B=2", {}, id="two words"),
    pytest.param(
        "export LD_LIBRARY_PATH=/x:$LD_LIBRARY_PATH", {"LD_LIBRARY_PATH": "/x"}, id="what was there"
    ),
    pytest.param("A=$VIRTUAL_ENV/x", {"A": "/v/x"}, id="the environment"),
    pytest.param("A=b\\\nc", {"A": "bc"}, id="continuation"),
    pytest.param("A=", {"A": ""}, id="empty"),
    pytest.param("PATH=/x:$PATH\nHOME=/h", {}, id="session"),
    pytest.param("HF_TOKEN=x\nA=1", {"A": "1"}, id="secret"),
]


@pytest.mark.parametrize(("text", "values"), LINES)
def test_env_files(text: str, values: dict[str, str]) -> None:
    assert read_env_file(text, ["/v"]).values == values


def test_what_is_not_carried_is_named() -> None:
    found = read_env_file("A=$(date)\nMY_SECRET=x\nsource other.sh\n", ["/v"])
    assert found.secrets == ["MY_SECRET"]
    assert [name for name, _ in found.skipped] == ["A", "source other.sh"]


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "DB_PASSWORD", "KEY", "APIKEY"]
)
def test_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["CUDA_HOME", "TOKENIZERS_PARALLELISM", "GIT_AUTHOR_NAME", "SGLANG_PORT"])
def test_no_secrets(name: str) -> None:
    assert not is_secret(name)


def test_a_process_keeps_what_is_its_own() -> None:
    found = keep(
        {"PATH": "/x", "CUDA_HOME": "/cuda", "MY_TOKEN": "t", "MULTI": "a\nb", "XDG_X": "1", "SGL_A": "1"}
    )
    assert found.values == {"CUDA_HOME": "/cuda", "SGL_A": "1"}
    assert found.secrets == ["MY_TOKEN"]
    assert is_session("LC_ALL")


@given(st.text(max_size=120))
def test_any_text_is_read(text: str) -> None:
    for value in read_env_file(text, ["/v"]).values.values():
        assert "\n" not in value
        assert "\0" not in value
