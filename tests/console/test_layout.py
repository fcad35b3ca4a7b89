"""What commands print fits the terminal and loses nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from evalloom.console import layout
from evalloom.console.layout import Verbatim, command_lines, print_lines, table_lines, unbroken, wrap_line

WORDS = st.lists(st.text("ab中文、。/_.", min_size=1, max_size=12), min_size=1, max_size=8).map(" ".join)


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("COLUMNS", "40")
    return monkeypatch


def texts(lines: object) -> list[str]:
    return [text for text, _ in lines]  # type: ignore[attr-defined]


@given(WORDS, st.integers(30, 90))
def test_wrapped_sentences_fit_and_keep_every_character(text: str, width: int) -> None:
    lines = wrap_line(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(st.lists(st.tuples(WORDS, st.integers(0, 10**6).map(str), WORDS), min_size=1, max_size=4))
def test_tables_fit_and_keep_every_number(rows: list[tuple[str, str, str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "40")
        lines = texts(table_lines(["name", "number of cases", "text"], rows))
    assert all(cell_len(line) <= 40 for line in lines)
    numbers = [word for line in lines for word in line.split() if word.isdigit()]
    assert numbers == [row[1] for row in rows]


@given(st.lists(st.text("ab中文 /_", min_size=1, max_size=30).map(str.strip).filter(bool), min_size=1, max_size=9))
def test_a_table_of_many_numbers_fits_and_loses_none(names: list[str]) -> None:
    header = ["name", *(f"figure {number}" for number in range(12))]
    rows = [[name, *(f"{at}{number}.5%" for number in range(12))] for at, name in enumerate(names)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "60")
        lines = texts(table_lines(header, rows))
    assert all(cell_len(line) <= 60 for line in lines)
    shown = {word for line in lines for word in line.split()}
    assert {cell for row in rows for cell in row[1:]} <= shown


def test_chinese_columns_align(columns: pytest.MonkeyPatch) -> None:
    lines = texts(table_lines(["name", "cases"], [["年假", "1"], ["leave", "20"]]))
    assert lines == ["name   cases", "年假       1", "leave     20"]


def test_headers_break_before_cells_and_names_before_numbers(columns: pytest.MonkeyPatch) -> None:
    rows = [["pipeline/reviews/testsets", "1,000,000", "95.0%", "37.6–96.4%"]]
    assert texts(table_lines(["file", "cases", "pass rate", "95 % CI"], rows)) == [
        "file                        cases   pass",
        "                                    rate",
        "pipeline/re…s/testsets  1,000,000  95.0%",
        "",
        "file                          95 % CI",
        "pipeline/reviews/testsets  37.6–96.4%",
    ]


def test_columns_that_can_be_spared_are_left_out_and_named(columns: pytest.MonkeyPatch) -> None:
    rows = [["20261117-4248f7696", "4", "pipeline:pipelines/reviews.yaml", "finished"]]
    lines = table_lines(["batch", "runs", "target", "state"], rows, spare=("state",), whole=("batch",))
    assert texts(lines) == [
        "batch               runs  target",
        "20261117-4248f7696     4  pipelin…s.yaml",
        "Not shown, for lack of width: state",
    ]


def test_a_table_that_is_too_wide_continues_below_where_its_caller_says(columns: pytest.MonkeyPatch) -> None:
    rows = [["careful", "24", "95.8%", "79.8–99.3%", "6.02 ms", "16.3 ms"]]
    header = ["profile", "cases", "rate", "95 % CI", "p50", "p95"]
    assert texts(table_lines(header, rows, second="p50")) == [
        "profile  cases   rate     95 % CI",
        "careful     24  95.8%  79.8–99.3%",
        "",
        "profile      p50      p95",
        "careful  6.02 ms  16.3 ms",
    ]


def test_wide_characters_are_cut_by_cells(columns: pytest.MonkeyPatch) -> None:
    rows = [["年假政策与加班费报销的常见问题汇总", "-12.5 to +3.0", "1,000"]]
    lines = texts(table_lines(["tag", "95 % CI", "cases"], rows))
    assert lines[1] == "年假政策…问题汇总   -12.5 to +3.0  1,000"


def test_words_that_fit_on_a_line_stay_whole(columns: pytest.MonkeyPatch) -> None:
    rows = [["line 6:", "id: expected a string, got '  ' [empty_id]"]]
    assert texts(table_lines(["", ""], rows)) == ["line 6:  id: expected a string, got '  '", "         [empty_id]"]


def test_a_preview_takes_the_rest_of_the_line(columns: pytest.MonkeyPatch) -> None:
    rows = [["7", "x" * 300]]
    assert cell_len(texts(table_lines(["id", "result"], rows, preview="result"))[1]) == 40
    columns.setenv("COLUMNS", "160")
    assert cell_len(texts(table_lines(["id", "result"], rows, preview="result"))[1]) == 160


def test_commands_can_be_pasted(columns: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(command_lines("evalloom batches show 20261117-x --case 'an id'", "Next: "))
    assert capsys.readouterr().out == "Next: evalloom batches show 20261117-x \\\n    --case 'an id'\n"
    print_lines([(f"Review the plan, then: {unbroken('evalloom prompt-eval run')}", "")])
    assert capsys.readouterr().out == "Review the plan, then:\n  evalloom prompt-eval run\n"


def test_labels_and_indents_hang(columns: pytest.MonkeyPatch) -> None:
    text = "target    a prompt and the model that answers it"
    assert wrap_line(text, 40) == ["target    a prompt and the model that", "          answers it"]
    assert wrap_line("  " + "word " * 9, 40)[1].startswith("    word")


def test_text_of_users_is_not_wrapped(columns: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    print_lines([(Verbatim("a " * 100), "")])
    assert capsys.readouterr().out == "a " * 100 + "\n"


def test_secrets_are_hidden_before_wrapping(columns: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    print_lines([("the key is " + "中" * 40, "")], hide=lambda text: text.replace("中" * 40, "***"))
    assert capsys.readouterr().out == "the key is ***\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_is_for_terminals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_lines([("passed", "bold green")])
    monkeypatch.setenv(name, value)
    print_lines([("passed", "bold green")])
    assert capsys.readouterr().out == f"{layout._styled('passed', 'bold green')}\npassed\n"
