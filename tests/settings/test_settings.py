"""Settings: what evalloom.yaml may say, every error at its place, and keys that come from the environment only."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom import catalog, settings
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Profile
from evalloom.settings import PROTOCOLS, LlmSettings, Price, RunSettings, Settings

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "settings.md"
SECRET = "sk-abc123def456"
SECTIONS = catalog.load().sections

Write = Callable[[str], Path]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty working folder, and none of the variables that a developer's machine may have."""
    monkeypatch.chdir(tmp_path)
    for name in list(settings.environment()):
        if name.startswith(("HOP_KEY_", "OPENAI_", "ANTHROPIC_")):
            monkeypatch.delenv(name)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        (tmp_path / "evalloom.yaml").write_text(text, encoding="utf-8")
        return Path("evalloom.yaml")

    return write


def errors(path: Path) -> list[str]:
    with pytest.raises(EvalloomError) as error:
        settings.load(path, SECTIONS)
    assert (error.value.code, error.value.exit_code) == ("bad_settings", 2)
    return str(error.value).removesuffix(" [bad_settings]").splitlines()


def code(call: Callable[[], Any]) -> str:
    with pytest.raises(EvalloomError) as error:
        call()
    assert error.value.exit_code == 2
    return error.value.code


def message(call: Callable[[], Any]) -> str:
    with pytest.raises(EvalloomError) as error:
        call()
    return str(error.value)


# -- reading ------------------------------------------------------------------------------------------


@pytest.mark.req("HOP-5")
def test_defaults_llms_and_profiles(write: Write) -> None:
    write(
        "defaults: {temperature: 0.1, max_tokens: 4000}\n"
        "llms:\n"
        "  kimi: {base_url: 'https://api.moonshot.cn/v1', model: kimi-k2, max_tokens: 10}\n"
        "  other: {model: o4, temperature: null, params: {top_p: 1, modle: x}}\n"
        "profiles:\n"
        "  fast: {run: other}\n"
        "  sure: {run: kimi, verify: other, params: {temperature: 0}}\n"
    )
    found = settings.load()
    assert found.llms["kimi"].params == {"temperature": 0.1, "max_tokens": 10}
    assert found.llms["other"].params == {"max_tokens": 4000, "top_p": 1, "modle": "x"}
    assert settings.first_profile(found) == Profile("fast", "other", "other")
    assert settings.profile(found, "sure") == Profile("sure", "kimi", "other", {"temperature": 0})


def test_the_example_of_the_documentation_is_read(write: Write, tmp_path: Path) -> None:
    for name in ("cases.jsonl", "rules.yaml"):
        (tmp_path / name).write_text("{}\n", encoding="utf-8")
    example = re.search(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert example
    found = settings.load(write(example[1]), SECTIONS)
    assert list(found.llms) == ["kimi", "reasoner", "claude", "gateway", "local", "offline"]
    assert found.llms["claude"].price == Price(3, 15) and found.llms["kimi"].price == Price(4, 16, 1)
    assert found.run.profiles == ["default", "careful"] and found.run.max_cost == 5
    assert (found.judge, found.target, found.datasets) == ("claude", "prompt:prompt.md", ["cases.jsonl"])


def test_the_documentation_names_every_key() -> None:
    page = PAGE.read_text(encoding="utf-8")
    # What no file says: it follows from the name and the provider.
    own = {"name", "folder", "vendor", "key_name", "is_trusted"}
    fields = {*LlmSettings.__struct_fields__, *RunSettings.__struct_fields__, *settings.schema(SECTIONS)["properties"]}
    assert [name for name in sorted(fields - own) if name not in page] == []


def test_paths_are_taken_from_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "a.jsonl").touch()
    (tmp_path / "suite" / "rules.yaml").touch()
    text = "datasets: [a.jsonl, ../suite]\nllms: {s: {protocol: scripted, file: rules.yaml}}\n"
    (tmp_path / "suite" / "settings.yaml").write_text(text)
    found = settings.load(Path("suite/settings.yaml"))
    assert found.datasets == ["suite/a.jsonl", "suite/../suite"]
    assert settings.llm_of(found, "s").folder / settings.llm_of(found, "s").file == Path("suite/rules.yaml")


def test_without_a_file_settings_are_empty() -> None:
    assert settings.load() == Settings()
    assert errors(Path("other.yaml")) == ["other.yaml: there is no such file. Check the path and the working folder"]


def test_a_key_with_nothing_behind_it_is_not_written(write: Write) -> None:
    found = settings.load(
        write("datasets:\nrun: {limit: null}\nllms:\n  a: {model: m, headers: null, params: null, price: null}\n")
    )
    assert found.datasets == [] and found.run == RunSettings()
    assert found.llms["a"] == LlmSettings("a", model="m")


def test_datasets(write: Write, tmp_path: Path) -> None:
    assert code(settings.find_datasets) == "no_paths"
    (tmp_path / "a.jsonl").touch()
    write("datasets: [a.jsonl]\n")
    assert settings.find_datasets() == ["a.jsonl"] and settings.find_datasets(tmp_path) == [str(tmp_path / "a.jsonl")]
    write("judge: echo\n")
    assert code(settings.find_datasets) == "bad_settings"


# -- errors -------------------------------------------------------------------------------------------


def test_all_errors_are_listed_at_once_with_their_places(write: Write) -> None:
    text = (
        "llms:\n"
        "  kimi: {model: k, modle: x, api_base: y}\n"
        "  local:\n"
        "    model: [1]\n"
        "    temperature: hot\n"
        "    protocol: opnai\n"
        "    base_url: localhost\n"
        "    price: {input: -1}\n"
        "profiles:\n"
        "  a: {run: kmi, tries: 3}\n"
        "  b:\n"
        "datasets: [nope.jsonl, 5]\n"
        "run: {concurrency: 0, fail_under: 90, filter: 'a =', cache: no}\n"
        "profils: {}\n"
    )
    assert errors(write(text)) == [
        "evalloom.yaml:2:27: llms.kimi.modle: unknown key. Did you mean 'model'? A parameter of that name goes under params",
        "evalloom.yaml:2:40: llms.kimi.api_base: unknown key. Did you mean 'base_url'? A parameter of that name goes under params",
        "evalloom.yaml:4:12: llms.local.model: expected a string, got a list",
        "evalloom.yaml:5:18: llms.local.temperature: expected a number, got 'hot'",
        f"evalloom.yaml:6:15: llms.local.protocol: expected {', '.join(sorted(PROTOCOLS))}, got 'opnai'. Did you mean 'openai'?",
        "evalloom.yaml:7:15: llms.local.base_url: expected a URL such as http://localhost:8000/v1, got 'localhost'",
        "evalloom.yaml:8:12: llms.local.price.output: missing. Price of a million tokens of the answer.",
        "evalloom.yaml:8:20: llms.local.price.input: expected 0 or more, got -1",
        "evalloom.yaml:10:12: profiles.a.run: there is no llm 'kmi'. Did you mean 'kimi'?",
        "evalloom.yaml:10:24: profiles.a.tries: unknown key. Known: run, verify, params",
        "evalloom.yaml:11:5: profiles.b.run: missing. The llm that answers.",
        "evalloom.yaml:12:12: datasets[0]: there is no file or folder 'nope.jsonl'",
        "evalloom.yaml:12:24: datasets[1]: expected a string, got 5",
        "evalloom.yaml:13:20: run.concurrency: expected 1 or more, got 0",
        "evalloom.yaml:13:35: run.fail_under: expected 1 or less, got 90",
        "evalloom.yaml:13:47: run.filter: column 3: write '==' in place of '='",
        "evalloom.yaml:13:61: run.cache: expected true or false, got 'no'",
        "evalloom.yaml:14:10: profils: unknown key. Did you mean 'profiles'?",
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("run: {limit: 5.0}", "1:14: run.limit: expected an integer, got 5.0"),
        ("llms: {'7': {model: m, retries: -1}}", "1:33: llms.7.retries: expected 0 or more, got -1"),
        ("llms: {'07': {model: m, stream: 1}}", "1:7: llms: expected true or false, got 1"),
        ("llms: {7: {model: m, n: 0}}", "1:25: llms.7.n: expected 1 or more, got 0"),
        ("llms: 5", "1:7: llms: expected an object, got 5"),
        ("llms: {a: 5}", "1:11: llms.a: expected an object, got 5"),
        ("target: 5", "1:9: target: expected a string or an object, got 5"),
        ("run: {timeout_s: soon}", "1:18: run.timeout_s: expected a number of seconds, got 'soon'"),
        ("run: {timeout_s: 0}", "1:18: run.timeout_s: expected more than 0, got 0"),
    ],
)
def test_the_structs_decide_what_is_right(write: Write, text: str, error: str) -> None:
    assert f"evalloom.yaml:{error}" in errors(write(text))


def test_a_file_without_errors_needs_no_json_schema(write: Write) -> None:
    path = write("llms:\n  kimi: {model: m, price: }\nrun: {limit: 3}\n")
    code = "import sys; from evalloom import settings; settings.load(); print('jsonschema_rs' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=path.parent, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "evalloom.yaml: expected keys such as llms, profiles, datasets, got an empty file"),
        ("# nothing\n", "evalloom.yaml: expected keys such as llms, profiles, datasets, got an empty file"),
        ("hello", "evalloom.yaml: expected keys such as llms, profiles, datasets, got a string"),
        ("- a\n- b\n", "evalloom.yaml: expected keys such as llms, profiles, datasets, got a list"),
        ("judge: echo\njudge: echo\n", "evalloom.yaml:2:1: the key 'judge' is written twice. Remove one of them"),
        ("datasets: 5\n", "evalloom.yaml:1:11: datasets: expected a list of paths, got 5"),
        ("judge: nobody\n", "evalloom.yaml:1:8: judge: there is no llm 'nobody'. Without a declaration: "),
        ("llms: {a: {protocol: scripted}}", "evalloom.yaml:1:11: llms.a.file: missing. "),
        ("llms: {a: {protocol: scripted, file: b}}", "evalloom.yaml:1:38: llms.a.file: there is no file 'b'"),
        ("llms:\n  a:\n", "evalloom.yaml:2:5: llms.a.model: missing. "),
        ("llms: {a: {model: m, key_env: 'my key'}}", "evalloom.yaml:1:31: llms.a.key_env: expected the name of "),
        (
            'llms: {a: {model: m, headers: {X: "a\\nb"}}}',
            "evalloom.yaml:1:35: llms.a.headers.X: is not an HTTP header: ",
        ),
        ('"j\\e[31m": 1', "evalloom.yaml:1:12: j\\x1b[31m: unknown key. "),
        ('profiles: {"a\\nb": {run: echo}}', "evalloom.yaml:1:20: profiles.a\\nb: expected a name on one line"),
    ],
)
def test_an_error_says_what_to_do(write: Write, text: str, error: str) -> None:
    (found,) = errors(write(text))
    assert found.startswith(error)


def test_tabs_get_a_hint(write: Write) -> None:
    (found,) = errors(write("llms:\n\tkimi: 1\n"))
    assert found.startswith("evalloom.yaml:2:1: is not YAML here: ") and "Indent YAML with spaces" in found


def test_own_keys_for_anchors(write: Write) -> None:
    found = settings.load(write("x-base: &base {model: m, seed: 1}\nllms: {a: {<<: *base, seed: 2}}\n"))
    assert found.llms["a"] == LlmSettings("a", model="m", params={"seed": 2})


@pytest.mark.req("HOP-5")
@pytest.mark.parametrize(
    "text",
    [
        "llms: {kimi: {model: m, api_key: VALUE}}",
        "llms: {kimi: {model: m, key: VALUE}}",
        "llms: {kimi: {model: m, token: VALUE}}",
        "llms: {kimi: {model: m, params: {apiKey: VALUE}}}",
        "llms: {kimi: {model: m, extra_body: {auth: {access_token: VALUE}}}}",
        "llms: {kimi: {model: m, headers: {Authorization: Bearer VALUE}}}",
        "llms: {kimi: {model: m, headers: {x-api-key: VALUE}}}",
        "defaults: {password: VALUE}",
        "HOP_KEY_KIMI: VALUE",
        "openai_api_key: [VALUE]",
        "profiles: {a: {run: echo, params: {api_key: VALUE}}}",
        "target: {http: 'https://example.com', headers: {Authorization: VALUE}}",
    ],
)
@pytest.mark.parametrize("value", ["plainword99", "99887766", SECRET])
def test_a_key_in_the_file_is_an_error_that_does_not_show_it(write: Write, text: str, value: str) -> None:
    found = "\n".join(errors(write(text.replace("VALUE", value))))
    assert "a key does not belong in this file. Set HOP_KEY_" in found
    assert value not in found


@pytest.mark.req("HOP-5")
@pytest.mark.parametrize(
    "text",
    [
        "judge: VALUE",
        "llms: {kimi: {model: VALUE}}",
        "llms: {kimi: {model: m, key_env: VALUE}}",
        "llms: {kimi: {model: m, temperature: VALUE}}",
        "run: {filter: 'a = \"VALUE\"', tags: VALUE}",
        "datasets: [VALUE]",
        "target: {command: 'curl -H \"Authorization: Bearer VALUE0000000000\" x'}",
    ],
)
def test_what_looks_like_a_key_is_found_anywhere(write: Write, text: str) -> None:
    assert SECRET not in "\n".join(errors(write(text.replace("VALUE", SECRET))))


@pytest.mark.parametrize(
    "url", ["http://u:hunter22@host/v1", "https://hunter22@host", "u:hunter22@host", "http://[hunter22"]
)
def test_a_password_in_a_url_is_refused_and_not_shown(write: Write, url: str) -> None:
    (found,) = errors(write(f"llms: {{a: {{model: m, base_url: '{url}'}}}}"))
    assert "llms.a.base_url: " in found and "hunter22" not in found


def test_words_that_only_sound_like_keys_are_fine(write: Write) -> None:
    text = (
        "llms: {token: {model: task-based-model, tokens_per_minute: 5, max_tokens: 9,\n"
        "  headers: {X-Trace: on, Authorization: 'Bearer ${MINE}'},\n"
        "  response_format: {schema: {properties: {key: {type: string}, token: {const: abc}}}}}}\n"
        "target: {http: 'https://example.com', body: {key: '{{key}}'}}\n"
    )
    assert list(settings.load(write(text)).llms) == ["token"]


# -- looking things up --------------------------------------------------------------------------------


def test_llms_on_the_spot(write: Write, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").touch()
    found = settings.load(write("defaults: {temperature: 0, timeout_s: 5}\nprices: {m: {input: 1, output: 2}}\n"))
    llm = settings.llm_of(found, "openai:m")
    assert llm == LlmSettings(
        "openai:m",
        model="m",
        base_url="https://api.openai.com/v1",
        params={"temperature": 0},
        timeout_s=5,
        price=Price(1, 2),
    )
    assert settings.llm_of(found, "anthropic:c").base_url == "https://api.anthropic.com"
    assert settings.llm_of(found, "scripted:rules.yaml").file == "rules.yaml"
    assert settings.llm_of(found, "echo").protocol == "echo"
    assert settings.profile(found, "echo") == Profile("echo", "echo", "echo")


@pytest.mark.parametrize("name", ["kmi", "scripted", "scripted:", "openai:", "echo:x", "", "prompt:x"])
def test_unknown_names(write: Write, name: str) -> None:
    found = settings.load(write("llms: {kimi: {model: m}}\nprofiles: {fast: {run: kimi}}\n"))
    assert code(lambda: settings.llm_of(found, name)) == "unknown_llm"
    assert code(lambda: settings.profile(found, name)) == "unknown_profile"
    assert "Did you mean 'fast'?" in message(lambda: settings.profile(found, "fsat"))
    assert "Did you mean 'kimi'?" in message(lambda: settings.llm_of(found, "kmi"))


def test_the_first_profile_is_declared_or_an_llm_or_from_the_environment(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.first_profile(settings.load(write("llms: {b: {model: m}, a: {model: m}}\n"))).run == "b"
    assert code(lambda: settings.first_profile(Settings())) == "no_profile"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    assert code(lambda: settings.first_profile(Settings())) == "model_missing"
    monkeypatch.setenv("OPENAI_MODEL", "tiny")
    assert settings.first_profile(Settings()).run == "openai:tiny"
    llm = settings.llm_of(Settings(), "openai")
    assert (llm.model, llm.base_url, settings.key_of(llm)) == ("tiny", "http://localhost:1/v1", "")


def test_a_bad_url_in_the_environment_is_told_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://me:hunter22@host/v1")
    told = message(lambda: settings.llm_of(Settings(), "openai:m"))
    assert told.startswith("OPENAI_BASE_URL: ") and told.endswith("[bad_base_url]") and "hunter22" not in told


def test_headers_take_variables(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings.load(write("llms: {a: {model: m, headers: {X-Team: 'team ${TEAM_ID}'}}}\n"))
    assert code(lambda: settings.llm_of(found, "a")) == "variable_missing"
    monkeypatch.setenv("TEAM_ID", "${HOME}-red")
    assert settings.llm_of(found, "a").headers == {"X-Team": "team ${HOME}-red"}
    monkeypatch.setenv("TEAM_ID", "a\nb: c")
    assert code(lambda: settings.llm_of(found, "a")) == "bad_header"


# -- keys ---------------------------------------------------------------------------------------------


@pytest.mark.req("HOP-5")
def test_the_key_of_an_llm_is_its_own_or_the_common_one(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = LlmSettings("kimi-k2.5", model="m")
    told = message(lambda: settings.key_of(llm))
    assert told == "llm 'kimi-k2.5': no API key. Set HOP_KEY_KIMI_K2_5 or OPENAI_API_KEY. [key_missing]"
    monkeypatch.setenv("OPENAI_API_KEY", "common")
    assert settings.key_of(llm) == "common"
    monkeypatch.setenv("HOP_KEY_KIMI_K2_5", " own\n")
    assert settings.key_of(llm) == "own"


def test_the_key_of_anthropic_and_of_a_named_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    claude = LlmSettings("claude", protocol="anthropic", model="m")
    named = LlmSettings("a", model="m", key_env="MY_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", "common")
    assert settings.key_of(claude) == "common"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "theirs")
    assert settings.key_of(claude) == "theirs"
    assert "Set MY_KEY." in message(lambda: settings.key_of(named))


@pytest.mark.parametrize(
    "llm",
    [
        LlmSettings("a", protocol="echo"),
        LlmSettings("a", protocol="scripted"),
        LlmSettings("a", key_env="none"),
        LlmSettings("a", base_url="http://127.0.0.1:8000/v1"),
        LlmSettings("a", base_url="http://localhost/v1"),
        LlmSettings("a", headers={"authorization": "Bearer ${X}"}),
    ],
)
def test_some_llms_need_no_key(llm: LlmSettings) -> None:
    assert settings.key_of(llm) == ""


def test_a_key_that_cannot_stand_in_a_header_is_told_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "abc\ndef")
    told = message(lambda: settings.key_of(LlmSettings("a", model="m")))
    assert told.startswith("OPENAI_API_KEY: ") and told.endswith("[bad_key]") and "abc" not in told


@pytest.mark.req("HOP-5")
def test_dotenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "suite").mkdir()
    (tmp_path / ".env").write_text("A=here\nB=here\nC=here\n")
    lines = [
        "# c",
        "",
        "export B = 'one # two'",
        'C="a\\n\\"b\\"" # c',
        "D=x#y # c",
        "E=",
        "bad line",
        "9=x",
        "F='open",
        "HOME=z",
    ]
    (tmp_path / "suite" / ".env").write_text("\n".join(lines), encoding="utf-8-sig")
    monkeypatch.setenv("HOME", "real")
    found = settings.environment(Path("suite"))
    assert {name: found.get(name) for name in "ABCDEF"} == {
        "A": "here",
        "B": "one # two",
        "C": 'a\n"b"',
        "D": "x#y",
        "E": "",
        "F": "'open",
    }
    assert found["HOME"] == "real" and "9" not in found


def test_dotenv_gives_keys_and_leaves_the_environment_alone(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("HOP_KEY_KIMI=from-file\n")
    assert settings.key_of(LlmSettings("kimi", model="m")) == "from-file"
    (tmp_path / ".env").unlink()
    assert "HOP_KEY_KIMI" not in settings.environment()
    (tmp_path / ".env").mkdir()
    assert code(lambda: settings.key_of(LlmSettings("kimi", model="m"))) == "key_missing"


def test_secrets_are_everything_that_must_not_be_shown(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("DB_PASSWORD=password-1\nCOLOUR=not-secret\nSHORT_KEY=12345\nWORD_KEY=anything\n")
    text = (
        "llms: {a: {model: m, key_env: MINE, headers: {X-A: '${HEADER_A}'}}}\n"
        "target: {http: 'https://example.com/${HOME}', headers: {X-B: '${HEADER_B}'}}\n"
    )
    found = settings.load(write(text))
    values = {
        "MINE": "mine-000",
        "HEADER_A": "header-a1",
        "HEADER_B": "header-bb2",
        "HOP_KEY_ELSE": "else-0000",
        "HOME": "/home/me",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    assert settings.secrets(found) == ["header-bb2", "password-1", "else-0000", "header-a1", "mine-000"]


# -- laws ---------------------------------------------------------------------------------------------

SCALARS = st.booleans() | st.integers(-2, 2**70) | st.floats(allow_nan=False) | st.text(max_size=6)
WORDS = st.sampled_from(
    [*settings.schema(SECTIONS)["properties"], *LlmSettings.__struct_fields__, "input", "run", "verify", "x-a"]
)
VALUES = st.recursive(
    SCALARS | st.sampled_from(["echo", "openai:m", "scripted", "http://localhost"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
FILES = st.dictionaries(WORDS, VALUES, max_size=4)
NULLS = st.dictionaries(WORDS, st.none() | st.dictionaries(WORDS, st.none() | st.lists(st.none())))
LLM = st.fixed_dictionaries(
    {"model": st.just("m")}, optional={name: SCALARS for name in ("price", "retries", "stream", "seed")}
)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settings") / "evalloom.yaml"


def loaded(path: Path, text: str) -> Settings | None:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        return settings.load(path, SECTIONS)
    except EvalloomError as error:
        assert error.code == "bad_settings"
        return None


@given(
    text=st.text() | FILES.map(json.dumps) | NULLS.map(json.dumps) | st.text("abl:m-&*!{}[]'\"\n\t #%|>", max_size=30)
)
def test_any_text_is_read_or_refused(scratch: Path, text: str) -> None:
    loaded(scratch, text)


@given(written=FILES | st.fixed_dictionaries({"llms": st.dictionaries(st.text(max_size=3), LLM, max_size=2)}))
def test_what_is_read_obeys_the_schema(scratch: Path, written: dict[str, Any]) -> None:
    if loaded(scratch, json.dumps(written)) is not None:
        jsonschema.validate(written, settings.schema(SECTIONS))


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(settings.schema(SECTIONS))
