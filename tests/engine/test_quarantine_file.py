"""The file of a quarantine: what is added, and that nothing of the user's is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.analysis.history_cases import FlakeRate
from evalloom.analysis.history_figures import CaseHistory, History
from evalloom.core.errors import EvalloomError
from evalloom.engine.quarantine_file import add_flaky, read_entries

pytestmark = pytest.mark.req("WORK-12")

OWN = """\
# Ours. Ask before you remove one.
version: 1

cases:
  # a server of another team
  - id: b     # since May
    reason: |
      slow on Mondays
      # not a comment
    expires: 2999-01-01

  - {id: d, expires: 2999-02-01}
# the end
"""


def a_history(*ids: str) -> History:
    rate = FlakeRate(1, 4, 0.25, 0.05, 0.7)
    cases = [CaseHistory(id, "p", id, "cases.jsonl", 1, "flaky", 3, 4, [], flake_rate=rate) for id in ids]
    return History("cases.jsonl", "t", [], cases, 0, 0, [], 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "q.yaml"


def test_entries_are_added_in_order_and_no_line_of_the_user_changes(file: Path) -> None:
    file.write_text(OWN, encoding="utf-8")
    assert "3 flaky cases added" in add_flaky(file, a_history("e", "c", "a", "d"), 30)
    text = file.read_text(encoding="utf-8")
    lines = iter(text.splitlines())
    assert all(line in lines for line in OWN.splitlines())
    assert [entry.id for entry in read_entries(file)] == ["a", "b", "c", "d", "e"]
    assert text.index("id: a") < text.index("# a server of another team") and text.endswith("# the end\n")
    assert "1 listed before" in add_flaky(file, a_history("d"), 30) and file.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "before",
    [
        *("", "# nothing yet\n", "version: 1\n", "cases:\n", "cases: []\n", "cases: [] # none\nversion: 1", "cases:"),
        *("cases:\n- id: b\n  expires: 2999-01-01", "cases:\r\n  - id: b\r\n    expires: 2999-01-01\r\n"),
        "cases:\n  -\n    id: b\n    expires: 2999-01-01\nversion: 1\n",
        "\ufeffcases:\n  - id: b\n    expires: 2999-01-01\n",
    ],
)
def test_any_layout_is_extended(file: Path, before: str) -> None:
    file.write_bytes(before.encode())
    add_flaky(file, a_history("a", "c"), 30)
    assert [entry.id for entry in read_entries(file)] == (["a", "b", "c"] if "id: b" in before else ["a", "c"])
    after = file.read_bytes().decode()
    assert ("\r\n" in before) == ("\r\n" in after) and after.count("\r\n") in (0, after.count("\n"))


@pytest.mark.parametrize(
    "before", ["cases: [{id: b, expires: 2999-01-01}]\n", "{cases: [{id: b, expires: 2999-01-01}], version: 1}\n"]
)
def test_a_layout_that_cannot_be_extended_is_left_as_it_is(file: Path, before: str) -> None:
    file.write_text(before)
    with pytest.raises(EvalloomError, match="lines of its own"):
        add_flaky(file, a_history("a"), 30)
    assert file.read_text() == before


@given(st.text(min_size=1, max_size=20))
def test_any_id_survives(tmp_path_factory: pytest.TempPathFactory, id: str) -> None:
    file = tmp_path_factory.mktemp("q") / "q.yaml"
    add_flaky(file, a_history(id), 30)
    assert [entry.id for entry in read_entries(file)] == [id]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- id: a\n", "q.yaml:1: expected 'cases:'"),
        ("version: 2\ncases: []\n", "q.yaml:1: version: expected 1, got 2"),
        ("cases: {id: a}\n", "q.yaml:1: cases: expected a list, got an object"),
        ("casses: []\n", "Did you mean 'cases'?"),
        ("cases:\n  - a\n", "q.yaml:2: expected an object with id and expires, got 'a'"),
        ("cases:\n  - expires: 2999-01-01\n", "q.yaml:2: id: expected the id of a case, got none"),
        ("cases:\n  - id: a\n", "q.yaml:2: expires: expected the last day"),
        ("cases:\n" + "  - id: a\n    expires: 2999-01-01\n" * 2, "q.yaml:4: the case 'a' is listed in line 2, too"),
        ("cases: [\n", "q.yaml:"),
        ("cases:\n  - id: a\n    expires: 2999-02-30\n", "q.yaml:3: expires"),
    ],
)
def test_errors_name_the_line(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(EvalloomError) as error:
        read_entries(file)
    assert message in str(error.value) and error.value.code == "bad_quarantine" and error.value.exit_code == 2
