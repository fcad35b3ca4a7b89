"""`evalloom rag`: what is typed, what is told, and the exit code."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]

DOCUMENTS = {
    "zh/leave.md": "# 休假制度\n\n## 带薪年假\n工龄满 12 个月的员工每年享有 10 个工作日的带薪年假。\n\n## 结转\n未休年假可以结转到次年 3 月 31 日。\n",
    "zh/expense.md": "# 费用报销\n\n## 提交期限\n报销单应在费用发生后 30 天内提交。\n",
    "en/returns.md": "# Returns\n\n## Return window\nGoods may be returned within 14 days of delivery.\n",
    "en/parking.txt": "Parking permits are issued by the front desk. A permit is valid for one year.\n",
}
CASES: list[dict[str, Any]] = [
    {"id": "leave-official", "query": "带薪年假的天数标准是什么？", "expected_sources": ["zh/leave.md"], "must_include": ["10 个工作日"], "bucket": "official", "pair_id": "P1", "concept_id": "leave", "tags": ["hr"]},
    {"id": "leave-oral", "query": "干够了能歇多久啊", "expected_sources": ["zh/leave.md"], "must_include": ["10 个工作日"], "bucket": "oral", "pair_id": "P1", "concept_id": "leave", "tags": ["hr"]},
    {"id": "returns-official", "query": "What is the return window?", "expected_sources": ["returns.md"], "must_include": ["14 days"], "bucket": "official", "pair_id": "P2", "concept_id": "returns"},
    {"id": "returns-oral", "query": "can I bring returned goods back", "expected_sources": ["en/"], "must_include": ["14 days"], "bucket": "oral", "pair_id": "P2", "concept_id": "returns"},
]  # fmt: skip
ANSWERS = """\
rules:
  - {match: {contains: "问题：带薪年假的天数标准是什么？"}, answer: "每年 10 个工作日 [1]。"}
  - {match: {contains: "Question: What is the return window?"}, answer: "14  Days after delivery [7]."}
  - {match: {contains: "Question: can I bring returned goods back"}, answer: "Within 14 days [1]."}
  - {answer: "I do not know."}
"""


def put_documents(documents: dict[str, str] = DOCUMENTS) -> None:
    for name, text in documents.items():
        path = Path("docs") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def put_cases(cases: list[dict[str, Any]] = CASES) -> None:
    Path("cases.jsonl").write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in cases), "utf-8")


@pytest.fixture
def call(in_process: Call) -> Call:
    """In a folder with documents and cases."""
    put_documents()
    put_cases()
    return in_process


def retrieve(call: Call, *more: str) -> Any:
    root = () if "--root" in more else ("--root", "docs")
    return call("rag", "retrieve", "cases.jsonl", *root, *more)


def measures(done: Any, group: str = "overall") -> dict[str, float]:
    """The means of a group in what --json printed."""
    one = done.summary["profiles"][0]
    found = (
        one["overall"] if group == "overall" else next(x for x in one["buckets"] + one["tags"] if x["name"] == group)
    )
    return {measure["name"]: measure["mean"] for measure in found["measures"]}


# -- retrieve -----------------------------------------------------------------------------------------


@pytest.mark.req("RAG-7")
def test_the_measures_overall_by_bucket_and_by_tag(call: Call) -> None:
    done = retrieve(call, "--json")
    assert done.code == 1  # one case missed
    assert measures(done)["hit@5"] == 0.75
    assert measures(done, "official")["mrr"] == 1 and measures(done, "oral")["hit@5"] == 0.5
    assert measures(done, "hr")["recall@5"] == 0.5
    whole = done.summary["profiles"][0]["overall"]["measures"]
    assert all(0 <= one["low"] <= one["mean"] <= one["high"] <= 1 for one in whole)
    assert [one["name"] for one in whole] == ["hit@5", "recall@5", "precision@5", "ndcg@5", "mrr", "map"]


@pytest.mark.req("RAG-7", "RAG-9")
def test_what_is_printed(call: Call) -> None:
    done = retrieve(call)
    assert "index: 4 documents" in done.err
    assert "75.0%" in done.out and "Oral wordings are found 50.0 points less often" in done.out
    assert "only the official wording works for: leave" in done.out
    assert "MISSED leave-oral" in done.out and "expected zh/leave.md (no word of the query is in it)" in done.out
    assert "Next: evalloom rag explain leave-oral" in done.out


@pytest.mark.req("RAG-7")
def test_k_decides_what_is_a_hit(call: Call) -> None:
    put_cases([{**CASES[2], "query": "permit for the delivery of goods", "expected_sources": ["en/returns.md"]}])
    assert measures(retrieve(call, "-k", "2", "--json"))["hit@2"] == 1
    first = retrieve(call, "-k", "1", "--json")
    assert "hit@1" in measures(first)


@pytest.mark.req("RAG-7")
def test_the_index_follows_the_files(call: Call) -> None:
    retrieve(call)
    assert "up to date" in retrieve(call).err
    put_documents({"zh/new.md": "# 歇\n\n干满一年可以歇十天，能歇多久看工龄。\n"})
    Path("docs/en/parking.txt").unlink()
    assert "(1 new, 1 gone)" in retrieve(call).err


@pytest.mark.req("RAG-7")
def test_the_stored_index_as_it_is(call: Call) -> None:
    missing = retrieve(call, "--frozen-index")
    assert missing.code == 3 and "index_missing" in missing.err and "evalloom rag index --root" in missing.err
    assert call("rag", "index", "--root", "docs").out.startswith("docs: 4 documents")
    Path("docs/zh/leave.md").unlink()
    frozen = retrieve(call, "--frozen-index", "--json")
    assert measures(frozen)["hit@5"] == 0.75


@pytest.mark.req("RAG-7")
def test_a_function_as_retriever(call: Call) -> None:
    Path("mine.py").write_text(
        "def find(query, k):\n"
        "    if '歇' in query: raise RuntimeError('the store is down')\n"
        "    if 'window' in query: return 7\n"
        "    return [('zh/leave.md', 2.0), ('en/returns.md', 1.0)][:k]\n"
    )
    done = call("rag", "retrieve", "cases.jsonl", "--retriever", "python:mine:find", "--json")
    assert done.code == 1
    one = done.summary["profiles"][0]
    # Two queries ended in an error: one raised, one gave rubbish. They are counted, and in no denominator.
    assert one["apart"]["error"] == 2 and one["overall"]["cases"] == 2
    assert measures(done)["hit@5"] == 1 and measures(done, "oral")["mrr"] == 0.5
    shown = call("rag", "report")
    assert (
        "counted separately: 2 cases ended in an error" in shown.out
        and "1 × RuntimeError: the store is down" in shown.out
    )
    assert "evalloom: exit code 1: 2 cases ended in an error" in done.err


class _Search(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "query" not in asked:
            self.send_error(401)
            return
        results = [{"path": "/srv/docs/en/returns.md", "score": 1.0}] * (asked["k"] > 0)
        body = json.dumps({"results": results if "return" in asked["query"] else []}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *about: object) -> None:
        pass


@pytest.fixture
def search_url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Search)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/search"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.req("RAG-7")
def test_an_endpoint_as_retriever(call: Call, search_url: str) -> None:
    done = call("rag", "retrieve", "cases.jsonl", "--retriever", f"http:{search_url.removeprefix('http:')}", "--json")
    assert measures(done)["hit@5"] == 0.5 and done.summary["profiles"][0]["apart"]["error"] == 0


@pytest.mark.req("RAG-7")
def test_dense_and_hybrid_by_an_endpoint_of_embeddings(
    call: Call, llm_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("evalloom.yaml").write_text(f"llms:\n  vec: {{base_url: {llm_server.url}, model: embed-1}}\nembeddings: vec\n")
    monkeypatch.setenv("HOP_KEY_VEC", "k")
    before = llm_server.stats()["requests"]
    assert retrieve(call, "--mode", "dense", "--dry-run").code == 0
    assert llm_server.stats()["requests"] == before
    assert "vectors made" in retrieve(call, "--mode", "dense").err
    hybrid = retrieve(call, "--mode", "hybrid", "--json")
    assert hybrid.summary["config"]["embeddings"] == f"embed-1 at {llm_server.url}"
    assert measures(hybrid)["hit@5"] > 0.5
    # Passages and queries went together, and only once.
    assert llm_server.stats()["requests"] == before + 1


@pytest.mark.req("RAG-7")
def test_embeddings_that_fail_are_told_as_what_they_are(
    call: Call, search_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("evalloom.yaml").write_text(f"llms:\n  vec: {{base_url: {search_url}, model: embed-1}}\nembeddings: vec\n")
    monkeypatch.setenv("HOP_KEY_VEC", "k")
    done = retrieve(call, "--mode", "dense")
    assert done.code == 3 and "--embeddings vec: HTTP 401" in done.err and "internal_error" not in done.err


@pytest.mark.req("RAG-7")
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("-k", "0"), "-k: expected 1 to 1000, got 0 [bad_option]"),
        (("--root", "nowhere"), "there is no such folder [root_missing]"),
        (("--root", "empty"), "there is no document to search"),
        (("--retriever", "magic"), "--retriever: expected builtin, python:module:function or http:URL"),
        (("--retriever", "python:nowhere:find"), "[target_missing]"),
        (("--mode", "dense"), "--embeddings local, or an llm of evalloom.yaml [no_embeddings]"),
        (("--embeddings", "nobody", "--mode", "hybrid"), "nobody"),
        (("--chunk", "3"), "--chunk: expected 50"),
        (("--overlap", "500"), "--overlap: expected 0 to half of --chunk"),
        (("--retriever", "python:a:b", "--mode", "dense"), "go with the built-in retriever"),
        (("-o", "report.docx"), "ending in .html, .md, .json"),
        (("--embeddings", "local"), "--embeddings: requires --mode dense or hybrid"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_run(call: Call, flags: tuple[str, ...], said: str) -> None:
    Path("empty").mkdir()
    done = retrieve(call, *flags)
    assert done.code in (2, 3) and said in done.err
    assert not list(Path(".evalloom").glob("batches/*"))


@pytest.mark.req("RAG-7")
def test_what_cannot_be_measured_is_counted_apart(call: Call) -> None:
    put_cases(
        [CASES[0], {"query": "no source is expected"}, {"id": "empty", "query": "nor here", "expected_sources": []}]
    )
    done = retrieve(call, "--json")
    assert done.code == 0
    one = done.summary["profiles"][0]
    assert one["apart"]["no_expected"] == 2 and one["overall"]["cases"] == 1
    assert (
        "expected_sources: there is none, so the case is run and counted apart" in done.err
        and "must_include" not in done.err
    )


@pytest.mark.req("RAG-7")
def test_documents_that_cannot_be_read_are_named_and_the_others_searched(call: Call) -> None:
    Path("docs/broken.pdf").write_bytes(b"%PDF-1.4 nothing of the kind")
    Path("docs/broken.docx").write_bytes(b"PK no archive")
    done = retrieve(call, "--json")
    assert measures(done)["hit@5"] == 0.75
    assert "broken.pdf: not indexed" in done.err and "broken.docx: not indexed" in done.err
    put_cases([{**CASES[0], "expected_sources": ["broken.pdf"]}])
    retrieve(call)
    assert "broken.pdf: could not be read, so it is not indexed" in call("rag", "explain", "leave-official").out


@pytest.mark.req("RAG-7")
def test_an_expected_source_that_is_no_document_is_warned_of(call: Call) -> None:
    put_cases([{**CASES[0], "expected_sources": ["zh/nowhere.md"]}, CASES[2]])
    done = retrieve(call)
    assert "'zh/nowhere.md' of 'leave-official' is not in the index" in done.err


@pytest.mark.req("RAG-7")
def test_fields_under_other_names(call: Call) -> None:
    put_cases([{"q": "带薪年假的天数", "doc": "zh/leave.md"}])
    done = retrieve(call, "--map", "query=q,expected_sources[]=doc", "--json")
    assert done.code == 0 and measures(done)["hit@5"] == 1


@pytest.mark.req("RAG-7")
def test_invalid_cases_are_refused_with_their_place(call: Call) -> None:
    put_cases([{**CASES[0], "expected_sources": "zh/leave.md"}])
    done = retrieve(call)
    assert done.code == 2 and "expected_sources: expected a list with at least one path, got 'zh/leave.md'" in done.err


@pytest.mark.req("RAG-7")
def test_an_error_is_in_no_rate_and_shows_in_the_exit_code(call: Call) -> None:
    Path("mine.py").write_text(
        "def find(query):\n    return ['zh/leave.md', 'en/returns.md'] if query.isascii() else 1 / 0\n"
    )
    done = call("rag", "retrieve", "cases.jsonl", "--retriever", "python:mine:find", "--fail-under", "0.9")
    assert done.code == 1 and "100.0%" in done.out
    assert "exit code 1: 2 cases ended in an error" in done.err and "asks for" not in done.err
    low = retrieve(call, "--fail-under", "0.9")
    assert low.code == 1 and "exit code 1: hit@5 is 75.0%, and --fail-under asks for 90.0%" in low.err
    assert retrieve(call, "--fail-under", "0.7").code == 0


def test_a_report_made_again_has_the_same_verdict(call: Call) -> None:
    retrieve(call, "--fail-under", "0.5", "-o", "first.json")
    call("rag", "report", "-o", "again.json")
    assert Path("again.json").read_bytes() == Path("first.json").read_bytes()
    assert json.loads(Path("again.json").read_text("utf-8"))["overall"] == "PASS"


def test_nothing_measured_is_no_success(call: Call) -> None:
    put_cases([{"query": "no source is expected"}])
    done = retrieve(call)
    assert done.code == 3 and "nothing was measured" in done.err


@pytest.mark.req("RAG-7")
def test_a_report_is_never_taken_for_a_document(call: Call) -> None:
    first = retrieve(call, "-o", "docs/r.html", "-o", "docs/r.md", "--json")
    call("validate", "cases.jsonl", "-o", "docs/lint.md")
    again = retrieve(call, "--json")
    assert measures(again) == measures(first) and call("rag", "index", "--root", "docs").out.startswith(
        "docs: 4 documents"
    )


HALF_DOWN = """
def find(query):
    if query.startswith(("What", "can")):
        raise ConnectionError("down")
    return ["zh/leave.md"]
"""


@pytest.mark.req("WORK-5")
def test_a_rate_is_the_same_number_on_every_surface(call: Call) -> None:
    Path("mine.py").write_text(HALF_DOWN)
    Path("evalloom.yaml").write_text("gates: ['pass_rate[tag=official] >= 0.4']\n")
    files = ("-o", "r.json", "-o", "r.md", "-o", "r.html", "-o", "r.xml")
    printed = call("rag", "retrieve", "cases.jsonl", "--retriever", "python:mine:find", *files).out
    assert "official         1  100.0%  20.7–100.0%" in printed and "1      50.0%" in printed
    assert "pass_rate is 0.5 over 2 cases" in " ".join(printed.split())
    assert "pass_rate, which counts an error as not passed, is 50.0 % of 4 cases" in printed
    report = json.loads(Path("r.json").read_text("utf-8"))
    official = report["buckets"][0]
    assert (official["cases"], official["errors"], official["pass_rate"]["mean"]) == (1, 1, 0.5)
    assert report["measures"][0]["cases"] == 2 and report["pass_rate"]["cases"] == 4
    for page in (Path("r.md").read_text("utf-8"), Path("r.html").read_text("utf-8")):
        assert "is 50.0 % of 4 cases" in page.replace("\\_", "_") and "measured" in page
    assert "50.0%" in call("batches", "list").out


def test_what_a_retriever_prints_does_not_mix_with_the_result(call: Call) -> None:
    Path("mine.py").write_text("def find(query):\n    print('looking')\n    return ['zh/leave.md']\n")
    done = call("rag", "retrieve", "cases.jsonl", "--retriever", "python:mine:find", "--json")
    assert done.summary["config"]["retriever"] == "python:mine:find" and "looking" in done.err


def test_why_a_query_fails_is_explained_too(call: Call) -> None:
    Path("mine.py").write_text("def find(query, k):\n    raise ConnectionError('the store is down')\n")
    call("rag", "retrieve", "cases.jsonl", "--retriever", "python:mine:find")
    shown = call("rag", "explain", "leave-oral")
    assert shown.code == 0 and "the retriever fails for this query: ConnectionError: the store is down" in shown.out


# -- answer -------------------------------------------------------------------------------------------


def answer(call: Call, *more: str) -> Any:
    Path("answers.yaml").write_text(ANSWERS, encoding="utf-8")
    return call("rag", "answer", "cases.jsonl", "--root", "docs", "--profile", "scripted:answers.yaml", *more)


@pytest.mark.req("RAG-8")
def test_an_answer_passes_when_all_of_must_include_is_in_it(call: Call) -> None:
    done = answer(call, "--json")
    assert done.code == 1
    found = measures(done)
    # leave-official and returns-oral; "14  Days" is another way of writing "14 days".
    assert found["must_include"] == 0.5 and found["hit@5"] == 0.75
    assert measures(answer(call, "--normalise", "--json"))["must_include"] == 0.75
    assert "not in the answer: '14 days'" in call("rag", "report", _newest(".evalloom/batches", 1)).out


def _newest(folder: str, back: int = 0) -> str:
    return sorted(path.name for path in Path(folder).iterdir())[-1 - back]


@pytest.mark.req("RAG-8")
def test_the_record_has_the_prompt_the_answer_and_the_sources(call: Call) -> None:
    answer(call)
    shown = call("batches", "show", "latest", "--case", "leave-official").out
    assert "zh/leave.md (休假制度 > 带薪年假)" in shown and "问题：带薪年假的天数标准是什么？" in shown
    assert "每年 10 个工作日 [1]。" in shown


@pytest.mark.req("RAG-8")
@pytest.mark.parametrize("flags", [(), ("--normalise",)])
def test_an_anchor_is_not_in_a_longer_number(call: Call, flags: tuple[str, ...]) -> None:
    put_cases(
        [{**CASES[0], "must_include": ["0 个工作日"]}, {**CASES[0], "id": "whole", "must_include": ["１０ 个工作日"]}]
    )
    done = answer(call, *flags)
    assert "FAILED leave-official" in done.out and "FAILED whole" not in done.out
    assert "not in the answer: '0 个工作日'" in done.out
    shown = call("batches", "show", "latest", "--case", "leave-official").out
    assert "(a number inside a longer one does not count)" in " ".join(shown.split())


@pytest.mark.req("RAG-8")
def test_a_failed_measure_says_that_it_failed_and_why(call: Call) -> None:
    answer(call)
    shown = call("batches", "show", "latest", "--case", "leave-oral").out
    assert "hit@5 failed: no expected source is among the 0 sources found" in shown and "as expected" not in shown
    retrieve(call)
    shown = call("batches", "show", "latest", "--case", "leave-oral").out
    assert "recall@5 failed: no expected source is among the 0 sources found" in shown and "as expected" not in shown


@pytest.mark.req("RAG-8")
def test_citations_are_told_and_decide_where_that_is_asked_for(call: Call) -> None:
    put_cases([{**CASES[2], "must_include": ["14"]}])
    told = answer(call, "--json")
    assert told.code == 0 and measures(told)["citations"] == 0
    required = answer(call, "--require", "citations")
    assert required.code == 1 and "cites [7]" in required.out
    # What decides is a measure of its own then.
    assert "passed" in required.out and measures(answer(call, "--require", "citations", "--json"))["passed"] == 0


@pytest.mark.req("RAG-8")
def test_faithfulness_is_asked_of_the_judge(call: Call) -> None:
    Path("judge.yaml").write_text('rules:\n  - answer: \'{"reason": "the first source says so", "pass": true}\'\n')
    done = answer(call, "--faithfulness", "--judge", "scripted:judge.yaml", "--json")
    assert measures(done)["faithfulness"] == 1
    Path("judge.yaml").write_text("rules:\n  - answer: bananas\n")
    rubbish = answer(call, "--faithfulness", "--judge", "scripted:judge.yaml")
    assert "faithfulness: 4 cases could not be judged" in rubbish.out
    assert "needs a judge" in answer(call, "--faithfulness").err
    assert "goes with --faithfulness" in answer(call, "--require", "faithfulness").err


@pytest.mark.req("RAG-8")
def test_a_prompt_of_ones_own(call: Call) -> None:
    Path("own.md").write_text("{{context}}\n\nAnswer in one word. Question: {{query}}")
    assert measures(answer(call, "--prompt", "own.md", "--json"))["must_include"] == 0.25
    Path("own.md").write_text("Answer {{query}}")
    assert "has no {{context}}" in answer(call, "--prompt", "own.md").err


@pytest.mark.req("RAG-8")
def test_verdicts_can_be_made_again_without_asking_anybody(call: Call) -> None:
    answer(call)
    again = call("score", "latest", "--json")
    assert again.summary["passed"] == 2 and again.summary["failed"] == 2


def test_a_retrieval_is_scored_again_for_what_it_is(call: Call) -> None:
    retrieve(call)
    again = call("score", "latest", "--json")
    assert (again.summary["passed"], again.summary["failed"]) == (3, 1)


@pytest.mark.req("RAG-8", "WORK-1")
def test_what_nobody_could_score_shows_in_the_exit_code(call: Call) -> None:
    Path("judge.yaml").write_text(
        'rules:\n  - {match: {contains: 工作日}, answer: \'{"reason": "the source says so", "pass": true}\'}\n'
        "  - answer: bananas\n"
    )
    put_cases([CASES[0], {**CASES[3], "must_include": ["14 days"]}])
    flags = ("--faithfulness", "--judge", "scripted:judge.yaml", "--require", "faithfulness", "--fail-under", "1")
    done = answer(call, *flags)
    assert done.code == 3 and "1 of 2 cases could not be scored: " in done.err
    assert done.err.rstrip().endswith("[unscored]")
    told = answer(call, *flags, "--json")
    assert json.loads(told.out)["problem"]["code"] == "unscored"
    assert answer(call, *flags, "--allow-unscored").code == 0


@pytest.mark.req("WORK-1")
def test_answers_of_which_nothing_is_expected_are_no_success_unless_it_is_meant(call: Call) -> None:
    put_cases([{"query": "no text is expected", "expected_sources": ["zh/leave.md"]}])
    done = answer(call)
    assert done.code == 3 and "[nothing_expected]" in done.err
    assert answer(call, "--allow-unscored").code == 3 and answer(call, "--no-checks").code == 0


@pytest.mark.req("RAG-8")
def test_checks_of_the_settings_decide_too_and_show_as_what_passed(call: Call) -> None:
    Path("evalloom.yaml").write_text("checks: [{not_contains: 工作日}]\n", encoding="utf-8")
    put_cases([CASES[0]])
    done = answer(call, "--fail-under", "1", "--json")
    assert done.code == 1 and measures(done)["passed"] == 0 and measures(done)["must_include"] == 1


# -- baselines, reports, one case ---------------------------------------------------------------------


@pytest.mark.req("RAG-10")
def test_a_broken_document_is_a_regression_with_its_reason(call: Call) -> None:
    retrieve(call)
    assert call("baseline", "save", "good").code == 0
    same = retrieve(call) and call("compare", "latest", "--baseline", "good")
    assert same.code == 0
    Path("docs/zh/leave.md").write_text("# 页面\n\n内容已迁移。\n", encoding="utf-8")
    retrieve(call)
    worse = call("compare", "latest", "--baseline", "good", "--strict")
    assert worse.code == 1 and "leave-official" in worse.out
    assert "zh/leave.md changed since the baseline" in worse.out and "documents: 1 changed" in worse.out


@pytest.mark.req("RAG-10")
def test_another_configuration_is_an_error_that_names_it(call: Call) -> None:
    retrieve(call)
    call("baseline", "save", "good")
    retrieve(call, "-k", "3")
    refused = call("compare", "latest", "--baseline", "good")
    assert refused.code == 2 and "k: 5 → 3" in refused.err and "--any-config" in refused.err


@pytest.mark.req("RAG-7", "RAG-9")
def test_reports_by_extension_with_the_run_and_from_its_record(call: Call) -> None:
    done = retrieve(call, "-o", "r.html", "-o", "r.md", "-o", "r.json", "-o", "runs.csv")
    assert done.out.count("The report: ") == 4
    whole = json.loads(Path("r.json").read_text("utf-8"))
    assert whole["schema_version"] == 2 and whole["overall"] == "FAIL" and whole["root"] == f"{Path.cwd()}/docs"
    assert {item["status_label"] for item in whole["items"]} == {"PASS", "FAIL"}
    assert "<svg" in Path("r.html").read_text("utf-8") and "█" in Path("r.md").read_text("utf-8")
    assert call("rag", "report", "latest", "-o", "again.html").code == 0
    assert Path("again.html").read_bytes() == Path("r.html").read_bytes()


def test_a_batch_of_another_kind_has_no_such_report(call: Call) -> None:
    call("run", "cases.jsonl", "--target", "prompt:hello {{query}}", "--profile", "echo")
    assert "is not a RAG batch" in call("rag", "report").err
    assert "is not a RAG batch" in call("rag", "explain", "leave-oral").err


@pytest.mark.req("RAG-7")
def test_why_a_case_was_missed(call: Call) -> None:
    retrieve(call)
    shown = call("rag", "explain", "leave-oral").out
    assert "leave-oral: failed" in shown and "expected zh/leave.md: indexed, not found" in shown
    assert "matched: no word of the query" in shown and "(in no document)" in shown
    found = call("rag", "explain", "returns-oral").out
    assert (
        "expected en/ (en/returns.md): indexed, its first passage is at place 1, k is 5" in found
        and "matched: " in found
    )
    assert "Did you mean 'leave-oral'" in call("rag", "explain", "leave-orl").err


def test_why_a_case_was_missed_with_other_documents_than_then(call: Call) -> None:
    retrieve(call)
    put_documents({"zh/more.md": "# 歇\n\n干满了能歇多久，看工龄。\n"})
    assert "the documents have changed since" in call("rag", "explain", "leave-oral").out


# -- init and suggest ---------------------------------------------------------------------------------


@pytest.mark.req("RAG-11")
def test_starter_cases_are_sound_and_found(call: Call) -> None:
    made = call("rag", "init", "--root", "docs", "-o", "mine.jsonl")
    assert made.code == 0 and "wrote mine.jsonl" in made.out
    checked = call(
        "validate", "mine.jsonl", "--root", "docs", "--check-sources-exist", "--check-must-include-in-sources"
    )
    assert checked.code == 0 and "0 errors" in checked.out
    assert call("rag", "retrieve", "mine.jsonl", "--root", "docs").code == 0
    again = call("rag", "init", "--root", "docs", "-o", "mine.jsonl")
    assert again.code == 2 and "file_exists" in again.err


@pytest.mark.req("RAG-11")
def test_sources_and_anchors_for_a_query(call: Call) -> None:
    shown = call("rag", "suggest", "年假可以结转吗", "--root", "docs")
    assert "zh/leave.md" in shown.out and "'3 月" in shown.out
    line = call("rag", "suggest", "年假可以结转吗", "--root", "docs", "--bucket", "oral", "--pair", "P9", "--json")
    case = json.loads(line.out)
    assert case["expected_sources"] == ["zh/leave.md"] and (case["bucket"], case["pair_id"]) == ("oral", "P9")
    text = DOCUMENTS["zh/leave.md"]
    assert case["must_include"] and all(anchor in text for anchor in case["must_include"])
    nothing = call("rag", "suggest", "zzzz", "--root", "docs")
    assert nothing.code == 1 and "no document has a word" in nothing.out


def test_a_root_that_lies_too_deep_is_told(call: Call) -> None:
    put_cases([{**CASES[0], "expected_sources": ["docs/zh/leave.md"]}])
    done = retrieve(call)
    assert "There is 'zh/leave.md': paths are relative to --root, so name a folder further up" in done.err
    assert call("rag", "retrieve", "cases.jsonl", "--root", ".").code == 0


def test_a_report_never_takes_the_place_of_a_document(call: Call) -> None:
    refused = retrieve(call, "-o", "docs/new.md", "-o", "docs/en/returns.html")
    assert refused.code == 1 and Path("docs/new.md").is_file()
    for arguments in (("retrieve", "cases.jsonl", "--root", "docs"), ("report", "latest")):
        done = call("rag", *arguments, "-o", "docs/zh/leave.md")
        assert done.code == 2 and "would_overwrite" in done.err
    assert Path("docs/zh/leave.md").read_text("utf-8") == DOCUMENTS["zh/leave.md"]


@pytest.mark.req("RAG-11")
def test_documents_of_one_name_get_cases_of_their_own(call: Call) -> None:
    put_documents({"zh/leave.html": "<h1>休假</h1><p>每年 10 天。</p>", "zh-leave.md": "# 休假\n\n每年 12 天。\n"})
    call("rag", "init", "--root", "docs", "-o", "mine.jsonl")
    assert call("rag", "retrieve", "mine.jsonl", "--root", "docs").code == 0


@pytest.mark.req("RAG-10")
def test_a_document_that_cannot_be_read_any_more_is_told_as_that(call: Call) -> None:
    retrieve(call)
    call("baseline", "save", "good")
    Path("docs/zh/leave.md").write_bytes(b"\xff\xfe\x00broken\x00\x01\x02\xff")
    Path("docs/never.pdf").write_bytes(b"no pdf")
    retrieve(call)
    worse = call("compare", "latest", "--baseline", "good", "--strict")
    assert worse.code == 1 and "zh/leave.md can no longer be read" in worse.out
    assert "documents: 1 no longer readable (zh/leave.md)" in worse.out


@pytest.mark.req("RAG-7")
def test_vectors_are_recorded_and_replayed_without_a_server(
    call: Call, llm_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("evalloom.yaml").write_text(f"llms:\n  vec: {{base_url: {llm_server.url}, model: embed-1}}\nembeddings: vec\n")
    monkeypatch.setenv("HOP_KEY_VEC", "k")
    first = retrieve(call, "--mode", "dense", "--record", "rec.jsonl", "--json")
    shutil.rmtree(".evalloom")
    monkeypatch.delenv("HOP_KEY_VEC")
    before = llm_server.stats()["requests"]
    again = retrieve(call, "--mode", "dense", "--replay", "rec.jsonl", "--json")
    assert measures(again) == measures(first) and llm_server.stats()["requests"] == before
