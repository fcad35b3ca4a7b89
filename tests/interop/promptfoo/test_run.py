"""`evalloom run promptfooconfig.yaml`: prompts × providers × tests, as promptfoo runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalloom.catalog import load
from evalloom.engine.suite import SuiteOptions
from evalloom.settings import Settings
from evalloom.targets import TargetOptions

pytestmark = pytest.mark.req("WORK-30")
Run = Callable[..., Any]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., None]:
    """`write("a.txt", "text")` writes a file in the folder of the config, `write(config)` the config."""

    def now(name: str | dict[str, Any], text: str = "") -> None:
        path = tmp_path / (name if isinstance(name, str) else "promptfooconfig.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(name, str) else json.dumps(name), encoding="utf-8")

    return now


@pytest.fixture
def run(in_process: Run, write: Callable[..., None], tmp_path: Path) -> Run:
    """Run a config, and return the runs of its batch by column and output, and what was printed."""

    def now(config: dict[str, Any], *flags: str, expect: int = 0) -> list[dict[str, Any]]:
        write(config)
        done = in_process("run", "promptfooconfig.yaml", "--no-checks", *flags)
        assert done.code == expect, done.out + done.err
        newest = max((tmp_path / ".evalloom/batches").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        lines = (newest / "runs.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    return now


def outputs(runs: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return sorted((run["profile"], run.get("output", {}).get("value")) for run in runs)


def test_each_prompt_meets_each_provider(run: Run, write: Callable[..., None]) -> None:
    write("two.txt", "one {{x}}\n---\ntwo {{x}}\n")
    providers = ["echo", {"id": "echo", "label": "loud", "transform": "output.toUpperCase()"}]
    runs = run({"prompts": ["say {{x}}", "file://two.txt"], "providers": providers, "tests": [{"vars": {"x": "a"}}]})
    assert outputs(runs) == [
        ("echo@prompt 1", "say a"),
        ("echo@two-1", "one a"),
        ("echo@two-2", "two a"),
        ("loud@prompt 1", "SAY A"),
        ("loud@two-1", "ONE A"),
        ("loud@two-2", "TWO A"),
    ]


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("Hi {{name}}", "Hi Bo"),
        ("{% for x in list %}{{ x | upper }}{% endfor %}", "AB"),
        ("{{ greeting }}", "Hello Bo"),
        ('[{"role": "user", "content": "{{quoted}}"}]', 'say "hi"'),
        ("- role: system\n  content: be kind\n- role: user\n  content: Hi {{name}}", "Hi Bo"),
        ([{"role": "user", "content": "Hi {{name}}"}], "Hi Bo"),
        ({"raw": "Hi {{name}}", "label": "with a label"}, "Hi Bo"),
    ],
)
def test_prompts_in_every_form(run: Run, prompt: Any, text: str) -> None:
    variables = {"name": "Bo", "list": ["a", "b"], "greeting": "Hello {{name}}", "quoted": 'say "hi"'}
    test = {"vars": variables, "options": {"disableVarExpansion": True}}
    runs = run({"prompts": [prompt], "providers": ["x"], "tests": [test]}, "--profile", "echo")
    assert [run["output"]["value"] for run in runs] == [text]


def test_prompt_files_of_every_format(run: Run, write: Callable[..., None]) -> None:
    write("prompts/a.md", "A {{x}}\n---\nstill A")
    write("prompts/b.json", '[{"role": "user", "content": "B {{x}}"}]')
    write("prompts/c.yaml", "- role: user\n  content: C {{x}}\n")
    write("d.csv", "prompt,label\nD {{x}},dee\n")
    write("e.jsonl", '["E"]\n{"f": 1}\n')
    write("f.js", "module.exports = ({vars, provider}) => `F ${vars.x} ${provider.label}`;")
    prompts = ["file://prompts/*", "d.csv", "e.jsonl", "file://f.js"]
    runs = run({"prompts": prompts, "providers": ["x"], "tests": [{"vars": {"x": "1"}}]}, "--profile", "echo")
    assert {run["profile"]: run["output"]["value"] for run in runs} == {
        "echo@a": "A 1\n---\nstill A",
        "echo@b": "B 1",
        "echo@c": "C 1",
        "echo@dee": "D 1",
        "echo@e-1": '[\n  "E"\n]',
        "echo@e-2": '{\n  "f": 1\n}',
        "echo@f": "F 1 ",
    }


@pytest.mark.req("WORK-31")
def test_variables_from_lists_files_and_functions(run: Run, write: Callable[..., None]) -> None:
    write("text.txt", "from text\n")
    write("data.yaml", "a: [1, 2]\n")
    write("docs/1.txt", "one")
    write("docs/2.txt", "two")
    write("made.js", "module.exports = (name, prompt, vars) => ({ output: `${name} of ${vars.who}` });")
    write("more.yaml", "who: you\n")
    variables = {"who": ["me", "her"], "t": "file://text.txt", "y": "file://data.yaml", "m": "file://made.js"}
    tests = [{"vars": variables}, {"vars": {"t": "file://docs/*"}}, {"vars": "file://more.yaml"}]
    runs = run({"prompts": ["{{who}}|{{t}}|{{y}}|{{m}}"], "providers": ["echo"], "tests": tests})
    assert [run["output"]["value"] for run in runs] == [
        'me|from text|{"a":[1,2]}|m of me',
        'her|from text|{"a":[1,2]}|m of her',
        "|one||",
        "|two||",
        "you|||",
    ]


@pytest.mark.req("WORK-31")
def test_images_become_data_urls(run: Run, write: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n dot")
    content = [{"type": "image_url", "image_url": {"url": "{{image}}"}}, {"type": "text", "text": "{{q}}"}]
    prompt = json.dumps([{"role": "user", "content": content}])
    tests = [{"vars": {"image": "file://dot.png", "q": "what?"}}]
    (one,) = run({"prompts": [prompt], "providers": ["x"], "tests": tests}, "--profile", "echo")
    parts = one["trace"][0]["request"]["messages"][0]["content"]
    assert parts[0]["image_url"]["url"].startswith("data:image/png;base64,iVBOR") and parts[1]["text"] == "what?"


@pytest.mark.req("WORK-31")
def test_tests_from_files_patterns_and_generators(run: Run, write: Callable[..., None]) -> None:
    write("a.csv", "x,__expected\n1,contains: 1\n")
    write("more/b.yaml", '- vars: {x: ["2", "3"]}\n')
    write("more/c.jsonl", '{"vars": {"x": "file://four.txt"}}\n')
    write("four.txt", "4")
    write("gen.js", "export default async (config) => config.numbers.map((x) => ({ vars: { x } }));")
    write("scenes.yaml", "- config: [{vars: {x: '7'}}]\n  tests: [{vars: {y: '!'}}]\n")
    tests = ["file://a.csv", "file://more/*", {"path": "file://gen.js", "config": {"numbers": [5, 6]}}]
    config = {"prompts": ["{{x}}{{y}}"], "providers": ["echo"], "tests": tests, "scenarios": ["file://scenes.yaml"]}
    assert [run["output"]["value"] for run in run(config)] == ["1", "2", "3", "4", "5", "6", "7!"]


@pytest.mark.req("WORK-31")
def test_defaults_from_a_file_and_options_of_a_test(run: Run, write: Callable[..., None]) -> None:
    write("default.yaml", "vars: {x: d}\noptions: {prefix: '<', transformVars: '({...vars, y: vars.x + 1})'}\n")
    tests = [{}, {"vars": {"x": "t"}, "options": {"suffix": ">"}}]
    runs = run({"prompts": ["{{x}}{{y}}"], "providers": ["echo"], "defaultTest": "file://default.yaml", "tests": tests})
    assert [run["output"]["value"] for run in runs] == ["<dd1", "<tt1>"]


@pytest.mark.req("WORK-31")
def test_files_in_tables_and_in_the_defaults_of_their_rows(run: Run, write: Callable[..., None]) -> None:
    write("rows.csv", "x,__expected\nfile://x.txt,contains: here\n")
    write("x.txt", "x is here\n")
    write("y.txt", "y")
    config = {"prompts": ["{{x}} {{y}}"], "providers": ["echo"], "tests": "file://rows.csv"}
    runs = run({**config, "defaultTest": {"vars": {"y": "file://y.txt"}}})
    assert [run["output"]["value"] for run in runs] == ["x is here y"]


@pytest.mark.req("WORK-31")
def test_a_conversation_and_a_stored_output(run: Run, in_process: Run) -> None:
    prompt = "{% for turn in _conversation %}[{{ turn.input }}->{{ turn.output }}]{% endfor %}{{ q }}{{ name }}"
    tests: list[dict[str, Any]] = [
        {"vars": {"q": "a"}, "options": {"storeOutputAs": "name", "transform": "'!' + output"}},
        {"vars": {"q": "b"}},
        {"vars": {"q": "c"}, "metadata": {"conversationId": "other"}},
    ]
    runs = run({"prompts": [prompt], "providers": ["echo"], "tests": tests}, "-j", "8")
    assert [run["output"]["value"] for run in runs] == ["a", "[a->a]b!a", "c!a"]
    done = in_process("run", "promptfooconfig.yaml", "--resume")
    assert done.code == 2 and "[runs_in_order]" in done.err


def test_tests_and_providers_choose_their_prompts(run: Run) -> None:
    prompts = [{"raw": "A {{x}}", "label": "a"}, {"raw": "B {{x}}", "label": "b"}]
    providers = [{"id": "echo", "label": "one", "prompts": ["a"]}, {"id": "echo", "label": "two"}]
    tests = [{"vars": {"x": 1}}, {"vars": {"x": 2}, "prompts": ["b"]}, {"vars": {"x": 3}, "providers": ["one"]}]
    runs = run({"prompts": prompts, "providers": providers, "tests": tests})
    done = [(run["profile"], run["output"]["value"]) for run in runs if not run.get("skipped")]
    assert sorted(done) == [
        *[("one@a", "A 1"), ("one@a", "A 3")],
        *[("two@a", "A 1"), ("two@b", "B 1"), ("two@b", "B 2")],
    ]
    assert {run["skipped"] for run in runs if run.get("skipped")} == {
        "prompts: the test is for b",
        "providers: the test is for one",
    }


def test_a_test_for_a_prompt_that_is_not_there_is_an_error_and_not_skipped(run: Run) -> None:
    tests = [{"vars": {"x": 1}}, {"vars": {"x": 2}, "prompts": ["nothere"]}, {"vars": {"x": 3}, "providers": ["zzz"]}]
    runs = run({"prompts": ["{{x}}"], "providers": ["echo"], "tests": tests}, expect=1)
    assert [run.get("error", "")[:41] for run in runs] == [
        *["", "prompts: the test is for nothere, and the", "providers: the test is for zzz, and the c"],
    ]


@pytest.mark.req("WORK-32")
def test_settings_of_providers_reach_the_llm(
    run: Run, write: Callable[..., None], llm_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{llm_server.url}/v1")
    write("tools.json", '[{"type": "function", "function": {"name": "f", "parameters": {}}}]')
    config = {"temperature": 0.3, "tools": "file://tools.json", "passthrough": {"seed": 4}, "unknown": 1}
    providers = ["openai:gpt-4o", {"id": "openai:chat:gpt-4o-mini", "label": "mini", "config": config}]
    tests = [{"vars": {"q": "[[mirror]]"}, "options": {"max_tokens": 9, "response_format": {"type": "json_object"}}}]
    runs = run({"prompts": ["{{q}}"], "providers": providers, "tests": tests})
    body = {run["profile"]: json.loads(run["output"]["value"])["body"] for run in runs}
    plain, mini = body["openai:gpt-4o"], body["mini"]
    assert (plain["model"], plain["temperature"], plain["max_tokens"]) == ("gpt-4o", 0, 9)
    assert (mini["model"], mini["temperature"], mini["max_tokens"], mini["seed"]) == ("gpt-4o-mini", 0.3, 9, 4)
    assert mini["tools"][0]["function"]["name"] == "f" and mini["response_format"] == {"type": "json_object"}
    assert "unknown" not in mini


@pytest.mark.req("WORK-32")
def test_an_http_provider(run: Run, llm_server: Any) -> None:
    config = {
        "url": f"{llm_server.url}/v1/chat/completions",
        "method": "POST",
        "headers": {"X-Case": "{{q}}"},
        "body": {"model": "m", "messages": [{"role": "user", "content": "[[mirror]] {{prompt}}"}]},
        "transformResponse": "JSON.parse(json.choices[0].message.content).body.messages[0].content",
    }
    providers = [{"id": "http", "label": "api", "config": config}, f"{llm_server.url}/nothing"]
    runs = run({"prompts": ['say "{{q}}"'], "providers": providers, "tests": [{"vars": {"q": "hi"}}]}, expect=1)
    by_column = {run["profile"]: run for run in runs}
    assert by_column["api"]["output"]["value"] == '[[mirror]] say "hi"'
    assert "HTTP 404" in by_column[f"{llm_server.url}/nothing"]["error"]


def test_code_of_a_config_runs_only_when_it_is_allowed(run: Run, write: Callable[..., None], in_process: Run) -> None:
    write("p.py", "def call_api(prompt, options, context):\n    return {'output': prompt + options['config']['x']}\n")
    write("g.py", "def make(config):\n    return [{'vars': {'q': config['q']}}]\n")
    write("q.py", "def ask(context):\n    return 'Q ' + context['vars']['q']\n")
    write("run.sh", "#!/bin/sh\nprintf 'got %s' \"$1\"\n")
    providers = [{"id": "python:p.py", "config": {"x": "!"}}, "exec:sh run.sh"]
    tests = [{"path": "file://g.py:make", "config": {"q": "hi"}}]
    config = {"prompts": ["file://q.py:ask"], "providers": providers, "tests": tests}
    write(config)
    validated = in_process("validate", "promptfooconfig.yaml")
    assert "[code_not_run]" in validated.out + validated.err
    refused = in_process("run", "promptfooconfig.yaml")
    assert refused.code == 2 and "--allow-code" in refused.err and "code_not_allowed" in refused.err
    assert outputs(run(config, "--allow-code")) == [("exec:sh run.sh", "got Q hi"), ("python:p.py", "Q hi!")]


@pytest.mark.req("WORK-31")
def test_javascript_needs_no_permission_and_reaches_nothing(run: Run, write: Callable[..., None]) -> None:
    write(
        "p.js", "module.exports = class { constructor(o) { this.o = o } async callApi(p) { return { output: p + 1 } } }"
    )
    write("bad.js", "module.exports = async () => ({ output: await fetch('http://localhost') });")
    write("shout.js", "module.exports = (text, mark) => text.toUpperCase() + mark;")
    config = {
        "prompts": ["{{ q | shout('?') }}"],
        "nunjucksFilters": {"shout": "./shout.js"},
        "providers": ["file://p.js", "file://bad.js"],
        "tests": [{"vars": {"q": "hi"}}],
    }
    runs = {run["profile"]: run for run in run(config, expect=1)}
    call = runs["p.js"]["trace"][0]
    assert call["request"]["messages"][0]["content"] == "HI?" and call["response"]["text"] == "HI?1"
    assert runs["p.js"]["output"]["value"] == "HI?1" and "fetch" in runs["bad.js"]["error"]


@pytest.mark.parametrize(
    ("config", "flags", "code"),
    [
        ({"prompts": ["file://none.txt"], "providers": ["echo"]}, [], "prompt_unreadable"),
        ({"prompts": ["file://../none.txt"], "providers": ["echo"]}, [], "prompt_unreadable"),
        ({"prompts": ["x"]}, [], "no_target"),
        ({"prompts": ["x"], "tests": [{}]}, [], "no_provider"),
        ({"prompts": ["x"], "providers": ["openai:chat:gpt-4o"]}, [], "key_missing"),
        ({"prompts": ["x"], "providers": ["bedrock:x", "echo"]}, [], "provider_unusable"),
        ({"prompts": ["x"], "providers": ["opnai:gpt-4o"]}, [], "provider_unusable"),
        ({"prompts": ["x"], "providers": ["echo"], "tests": ["file://none.csv"]}, [], "invalid_data"),
        ({"prompts": ["x"], "providers": ["echo"], "tests": [{"vars": {"a": "file://none.txt"}}]}, [], "invalid_data"),
        ({"prompts": ["x"], "providers": ["echo"]}, ["--variants", "y"], "no_variants"),
        ({"prompts": ["x"], "providers": ["echo"]}, ["--profile", "nobody"], "unknown_profile"),
    ],
)
def test_what_cannot_run_says_what_to_do(
    in_process: Run, write: Callable[..., None], config: dict[str, Any], flags: list[str], code: str
) -> None:
    write(config)
    done = in_process("run", "promptfooconfig.yaml", *flags)
    assert done.code == 2 and f"[{code}]" in done.err, done.err
    if code == "prompt_unreadable":
        # Tests may run against another target, so their file is valid.
        checked = in_process("validate", "promptfooconfig.yaml")
        assert checked.code == 0 and "warning: prompts: " in checked.out and f"[{code}]" in checked.out


def test_a_provider_that_cannot_run_does_not_keep_the_others(run: Run) -> None:
    config = {"prompts": ["x {{q}}"], "providers": ["bedrock:x", "echo"], "tests": [{"vars": {"q": "1"}}]}
    assert outputs(run(config, "--profile", "echo")) == [("echo", "x 1")]


def test_changed_code_makes_other_runs(run: Run, write: Callable[..., None]) -> None:
    write("p.js", "module.exports = (prompt) => ({ output: prompt + 1 });")
    config = {"prompts": ["x"], "providers": ["file://p.js", "echo"], "tests": [{}]}
    run(config)
    write("p.js", "module.exports = (prompt) => ({ output: prompt + 2 });")
    assert outputs(run(config, "--resume-from", "latest")) == [("echo", "x"), ("p.js", "x2")]


def test_a_description_names_the_case_with_its_values(run: Run) -> None:
    tests = [{"description": "Return of a {{item}}", "vars": {"item": ["pen", "book"]}}]
    runs = run({"prompts": ["{{item}}"], "providers": ["echo"], "tests": tests})
    assert [run["case_id"] for run in runs] == ["Return of a pen", "Return of a book"]


def test_options_of_the_config_are_defaults_of_flags(run: Run) -> None:
    config = {"prompts": ["x"], "providers": ["echo"], "tests": [{}], "evaluateOptions": {"repeat": 3}}
    assert len(run(config)) == 3 and len(run(config, "--repeat", "2")) == 2


@pytest.mark.req("WORK-32")
def test_a_key_does_not_go_to_the_host_of_a_stranger(
    in_process: Run, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    write(
        {"prompts": ["x"], "providers": [{"id": "openai:gpt-4o", "config": {"apiBaseUrl": "https://evil.example/v1"}}]}
    )
    done = in_process("run", "promptfooconfig.yaml", "--no-checks")
    assert done.code == 2 and "[key_not_sent]" in done.err and "evil.example" in done.err


def test_a_config_beside_evalloom_yaml_keeps_its_target(run: Run, write: Callable[..., None]) -> None:
    write("evalloom.yaml", "target: prompt:mine.md\n")
    write("mine.md", "mine {{q}}")
    config = {"prompts": ["theirs"], "providers": ["echo"], "tests": [{"vars": {"q": "1"}}]}
    assert outputs(run(config, "--profile", "echo")) == [("echo", "mine 1")]


@pytest.mark.parametrize("name", [".h.json", ".cfg/a.json", "link.json", ".*.json", "*.json"])
def test_hidden_tests_are_not_read(in_process: Run, write: Callable[..., None], tmp_path: Path, name: str) -> None:
    for path in (".h.json", ".cfg/a.json"):
        write(path, '[{"vars": {"x": "hidden text"}}]')
    (tmp_path / "link.json").symlink_to(".h.json")
    write({"prompts": ["{{x}}"], "providers": ["echo"], "tests": [f"file://{name}"]})
    done = in_process("run", "promptfooconfig.yaml", "--no-checks")
    assert done.code == 2 and "is hidden" in done.err and "hidden text" not in done.out + done.err


@pytest.mark.parametrize("pattern", ["*/../../**/*.md", "a*/../x.md", "../*", "[.][.]/../*"])
def test_a_pattern_searches_nothing_outside(
    in_process: Run, write: Callable[..., None], tmp_path: Path, pattern: str
) -> None:
    (tmp_path / "ab").mkdir()
    for config in (
        {"prompts": [f"file://{pattern}"], "providers": ["echo"], "tests": [{}]},
        {"prompts": ["x"], "providers": ["echo"], "tests": [f"file://{pattern}"]},
    ):
        write(config)
        done = in_process("run", "promptfooconfig.yaml", "--no-checks")
        assert done.code == 2 and ("'..' after a pattern" in done.err or "is outside" in done.err), done.err


def test_a_provider_without_prompts_is_a_warning(in_process: Run, write: Callable[..., None]) -> None:
    write({"prompts": ["x"], "providers": ["echo", {"id": "echo", "label": "b", "prompts": ["none"]}], "tests": [{}]})
    done = in_process("run", "promptfooconfig.yaml", "--no-checks")
    assert "provider_without_prompt" in done.err and "'none'" in done.err


def test_a_label_does_not_take_the_place_of_echo_or_the_grader(in_process: Run, write: Callable[..., None]) -> None:
    unreachable = {"apiBaseUrl": "http://127.0.0.1:9/v1"}
    providers = [{"id": "ollama:x", "label": label, "config": unreachable} for label in ("echo", "grader")]
    grader = {"id": "ollama:y", "config": unreachable}
    write({"prompts": ["hi"], "providers": providers, "tests": [{}], "defaultTest": {"options": {"provider": grader}}})
    assert in_process("run", "promptfooconfig.yaml", "--no-checks", "--profile", "echo").code == 0
    plan = in_process("run", "promptfooconfig.yaml", "--no-checks", "--dry-run")
    assert plan.code == 0 and "echo (ollama:x)" in plan.out + plan.err


@pytest.mark.parametrize(
    ("providers", "code"),
    [
        ([{"openai": {"id": 5}}], "provider_unusable"),
        ([{"id": "echo", "prompts": [{"a": 1}, None, ["b"]]}], ""),
        ([{"id": "http", "config": {"url": "http://["}}], "provider_unusable"),
        ([{"id": "http", "config": {"url": "http://x:99999/"}}], "provider_unusable"),
        ([{"id": "openai:x", "delay": 1e-320}], "key_missing"),
        (["file://x.rb"], "provider_unusable"),
        (["ruby:x.rb"], "provider_unusable"),
        (["echo"] * 201, "too_many_providers"),
        ([{"id": "echo", "prompts": ["x"] * 10}] * 150, ""),
    ],
)
def test_odd_providers_are_messages(in_process: Run, write: Callable[..., None], providers: Any, code: str) -> None:
    write({"prompts": ["x"], "providers": providers, "tests": [{}]})
    done = in_process("run", "promptfooconfig.yaml", "--no-checks")
    assert "internal_error" not in done.err and code in done.err, done.err


def test_a_variable_of_the_environment_cannot_fill_the_memory(in_process: Run, write: Callable[..., None]) -> None:
    write({"env": {"X": "a" * 1_000_000}, "prompts": ["{{env.X}}" * 10_000], "providers": ["echo"], "tests": [{}]})
    done = in_process("run", "promptfooconfig.yaml", "--no-checks")
    assert done.code == 1 and "internal_error" not in done.err


def test_a_label_with_an_at_sign_can_be_chosen(run: Run) -> None:
    provider = {"id": "echo", "label": "a@b"}
    config = {"prompts": ["x", "y"], "providers": [provider, {"id": "echo", "label": "a"}], "tests": [{}]}
    assert [name for name, _ in outputs(run(config, "--profile", "a@b"))] == ["a@b@prompt 1", "a@b@prompt 2"]
    assert [name for name, _ in outputs(run(config, "--profile", "a"))] == ["a@prompt 1", "a@prompt 2"]


def test_too_many_columns_are_refused(in_process: Run, write: Callable[..., None]) -> None:
    write({"prompts": [f"p{number}" for number in range(1000)], "providers": ["echo"] * 11, "tests": [{}]})
    done = in_process("run", "promptfooconfig.yaml", "--no-checks")
    assert done.code == 2 and "too_many_columns" in done.err


def test_a_test_whose_file_is_not_read_counts_once(run: Run, write: Callable[..., None]) -> None:
    config = {"prompts": ["{{x}}"], "providers": ["echo"], "tests": [{"vars": {"x": "file://none.txt"}}]}
    (only,) = run(config, "--skip-invalid", expect=1)
    assert "error" in only and "output" not in only


def test_other_cases_run_with_the_prompts_and_providers_of_a_config(
    in_process: Run, write: Callable[..., None]
) -> None:
    write({"prompts": ["say {{x}}"], "providers": ["echo", "ollama:x"], "tests": [{"vars": {"x": "a"}}]})
    write("cases.jsonl", '{"id": "b", "x": "b", "expected_output": "contains:say b"}\n')
    flags = ("--target", "suite:promptfooconfig.yaml", "--profile", "echo")
    done = in_process("run", "cases.jsonl", *flags)
    assert done.code == 0 and "1 case passed" in done.out
    write("evalloom.yaml", "target: suite:promptfooconfig.yaml\n")
    assert "1 case passed" in in_process("run", "cases.jsonl", "--profile", "echo").out
    for name, got in (("cases.jsonl", "got another file"), ("x.yaml", "there is no such file")):
        done = in_process("run", "cases.jsonl", "--target", f"suite:{name}")
        assert done.code == 2 and "[no_suite]" in done.err and got in done.err


def test_a_column_by_its_name_keeps_the_grader(write: Callable[..., None], tmp_path: Path) -> None:
    default = {"options": {"provider": "ollama:y"}, "assert": [{"type": "llm-rubric", "value": "polite"}]}
    write({"prompts": ["hi"], "providers": [{"id": "echo", "label": "a"}], "tests": [{}], "defaultTest": default})
    judges = {}
    for name in ("a", "ollama:z"):
        suite = load().suite(tmp_path / "promptfooconfig.yaml", SuiteOptions(Settings(), TargetOptions(), (name,)))
        assert suite is not None
        judges[name] = suite.judge
    # Other llms in the place of the providers: the grader would be asked behind their back.
    assert judges == {"a": "grader", "ollama:z": ""}
