"""Context recipes: order, templates, variables, traces, clamps and digests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.digest import sha256_base64
from evalloom.replay.recipe.assemble import AssembledRow, messages_of, trace_of
from evalloom.replay.recipe.parse import RecipeError, read_recipe
from evalloom.replay.resolvers import MOST_BYTES, Resolution

HELLO = [("a", "System", "Hello {{name}}"), ("b", "User", "Ask: {{q}}")]
TEXTS = st.text(alphabet=st.characters(codec="utf-8"))


def state_of(nodes: list[tuple[str, str, str]], edges: list[tuple[str, str]] = [], variables: Any = ()) -> Any:  # noqa: B006
    return {
        "nodes": [{"id": id, "data": {"label": label, "type": "", "content": text}} for id, label, text in nodes],
        "edges": [{"source": source, "target": target} for source, target in edges],
        "variables": [{"id": f"v_{name}", "name": name, "type": "static", "value": value} for name, value in variables],
    }


def text_of(row: Any, content: str, *variables: tuple[str, Any]) -> str:
    found = read_recipe(state_of([("n", "N", content)], variables=variables)).assemble(row)
    return found.text.removeprefix("--- N ---\n")


def dynamic(name: str, resolver: str = "env://X") -> dict[str, str]:
    return {"id": f"v_{name}", "name": name, "type": "dynamic", "value": "", "resolver": resolver}


def order_of(*edges: tuple[str, str]) -> list[str]:
    made = read_recipe(state_of([(id, id, "") for id in "cadb"], list(edges)))
    return [node.node_id for node in made.nodes]


@pytest.mark.req("REPLAY-3", "REPLAY-8")
def test_example_of_the_specification() -> None:
    made = read_recipe(state_of(HELLO)).assemble({"name": "Alice", "q": "hi"})
    assert made.text == "--- System ---\nHello Alice\n\n--- User ---\nAsk: hi"
    assert made.digest == "Iap+GZAYbfg+d6LXKtwTRC+NFywBzO2QkAmaqm+JskQ="
    assert made.status == "succeeded"


@pytest.mark.req("REPLAY-8")
def test_digest_of_nothing() -> None:
    made = read_recipe(state_of([])).assemble({})
    assert (made.text, made.digest) == ("", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")


@pytest.mark.req("REPLAY-1")
@pytest.mark.parametrize(
    ("type", "kind"),
    [
        *(("system_prompt", "system"), ("user_input", "user"), ("messages", "assistant"), ("tools", "tool")),
        *(("memory", "memory"), ("retrieval", "retrieval"), ("sticky_note", "text"), ("", "text")),
    ],
)
def test_type_becomes_kind(type: str, kind: str) -> None:
    state = {"nodes": [{"id": "n", "position": {"x": 1}, "data": {"label": "L", "type": type, "content": "c"}}]}
    assert [node.kind for node in read_recipe(state).nodes] == [kind]


@pytest.mark.req("REPLAY-2")
def test_order() -> None:
    assert order_of() == ["c", "a", "d", "b"]
    assert order_of(("d", "a")) == ["b", "c", "d", "a"]
    assert order_of(("d", "c"), ("c", "b"), ("d", "c"), ("c", "nowhere")) == ["a", "d", "c", "b"]
    assert order_of(("a", "nowhere"), ("nobody", "b")) == ["c", "a", "d", "b"]


@pytest.mark.req("REPLAY-2", "REPLAY-9")
@pytest.mark.parametrize(
    ("edges", "nodes"),
    [([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")], ["a", "b", "c"]), ([("d", "d")], ["d"])],
)
def test_cycle_names_its_nodes(edges: list[tuple[str, str]], nodes: list[str]) -> None:
    made = read_recipe(state_of([(id, id, "{{x}}") for id in "abcd"], edges)).assemble({})
    assert (made.status, made.text, made.segments) == ("failed", "", [])
    [error] = made.errors
    assert (error.error_code, error.node_id) == ("dependency_cycle", nodes[0])
    assert all(repr(node) in error.message for node in nodes)
    details = {"errorCode": "dependency_cycle", "nodeId": nodes[0], "nodeIds": nodes}
    assert made.messages[0].details == details and made.messages[0].message == error.message


@pytest.mark.req("REPLAY-6")
@pytest.mark.parametrize("row", [3, None, {"variables": [1]}, {"variables": "x"}])
def test_trace_of_an_invalid_row_says_what_is_wrong(row: object) -> None:
    made = read_recipe(state_of([("a", "a", "{{x}}")])).assemble(row)
    [message], [error] = made.messages, made.errors
    assert (message.severity, message.code, message.details) == ("error", "row_invalid", {"errorCode": "row_invalid"})
    assert message.message == error.message and "expected an object, got" in message.message


@pytest.mark.req("REPLAY-6")
def test_trace_names_code_variable_and_node_of_an_unresolved_variable() -> None:
    state = state_of([("a", "a", "{{x}}"), ("b", "b", "{{x}}")])
    state["variables"] = [{"id": "v", "name": "x", "type": "dynamic", "resolver": "file://x"}]
    made = read_recipe(state).assemble({}, {"x": Resolution(error_code="not_found", message="gone")})
    [message] = made.messages
    named = {name: message.details[name] for name in ("errorCode", "variableId", "nodeId", "nodeIds")}
    assert named == {"errorCode": "not_found", "variableId": "v", "nodeId": "a", "nodeIds": ["a", "b"]}
    assert [segment.messages[0].details for segment in made.segments] == [
        {"errorCode": "not_found", "variableId": "v", "nodeId": node} for node in "ab"
    ]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")), max_size=12))
@pytest.mark.req("REPLAY-2")
def test_order_follows_every_edge_or_tells_a_cycle(edges: list[tuple[str, str]]) -> None:
    made = read_recipe(state_of([(id, id, "") for id in "fedcba"], edges))
    order = [node.node_id for node in made.nodes]
    if made.cycle:
        assert all(pair in edges for pair in zip(made.cycle, made.cycle[1:] + made.cycle[:1], strict=True))
    else:
        assert sorted(order) == list("abcdef")
        assert all(order.index(source) < order.index(target) for source, target in edges)


@pytest.mark.req("REPLAY-3")
@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{{ q }}{{q}}{{\tq\n}}", "hihihi"),
        ("{{a}}", "{{q}}"),
        ("{{{q}}}", "{hi}"),
        ("{{}} {{ }} {q} {{q} }}", "{{}} {{ }} {q} {{q} }}"),
        ("{{问题}} {{two words}} {{a.b}}", "好 2 dotted"),
        ("{{nobody}} {{ somebody }}", "{{nobody}} {{ somebody }}"),
    ],
)
def test_holes(content: str, text: str) -> None:
    row = {"q": "hi", "a": "{{q}}", "问题": "好", "two words": 2, "a.b": "dotted"}
    assert text_of(row, content) == text


@pytest.mark.req("REPLAY-3", "REPLAY-9")
def test_missing_names_are_listed_once_and_sorted() -> None:
    made = read_recipe(state_of([("a", "A", "{{z}}{{b}}{{z}}"), ("b", "B", "{{b}}{{q}}")])).assemble({"q": "hi"})
    assert [segment.missing for segment in made.segments] == [["b", "z"], ["b"]]
    assert (made.status, made.missing) == ("succeeded", 2)
    told = [message for message in made.messages if message.code == "missing_variable"]
    assert [(one.severity, one.details) for one in told] == [
        ("warn", {"variableName": "b", "nodeIds": ["a", "b"]}),
        ("warn", {"variableName": "z", "nodeIds": ["a"]}),
    ]
    assert [one.code for one in made.segments[0].messages] == ["missing_variable"] * 2


@pytest.mark.req("REPLAY-4")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        *(("x", "x"), (True, "true"), (None, "null"), (1.5, "1.5"), (1.0, "1.0"), (12, "12"), (10**30, str(10**30))),
        *(({"b": 1, "a": [True]}, '{"a":[true],"b":1}'), (["é", "中"], '["é","中"]'), ("", "")),
    ],
)
def test_values_become_texts(value: Any, text: str) -> None:
    assert text_of({"v": value}, "<{{v}}>") == f"<{text}>"


@pytest.mark.req("REPLAY-4")
def test_where_variables_come_from() -> None:
    assert text_of({"q": "row"}, "{{q}} {{p}}", ("q", "project"), ("p", "kept")) == "row kept"
    assert text_of({"variables": {"q": 1, "_x": 2}, "p": 3}, "{{q}} {{p}} {{_x}}") == "1 {{p}} {{_x}}"
    assert text_of({"_meta": 1, "q": 2}, "{{_meta}} {{q}}") == "{{_meta}} 2"


@pytest.mark.req("REPLAY-4", "REPLAY-9")
@pytest.mark.parametrize("row", [None, [], "x", 1, {"variables": None}, {"variables": []}, {"variables": "x"}])
def test_invalid_row_fails(row: Any) -> None:
    made = read_recipe(state_of(HELLO)).assemble(row)
    assert (made.status, made.text, made.missing) == ("failed", "", 0)
    assert [error.error_code for error in made.errors] == ["row_invalid"]


@pytest.mark.req("REPLAY-4")
def test_value_nested_too_deeply_fails_its_row() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    made = read_recipe(state_of(HELLO)).assemble({"q": value})
    assert [error.error_code for error in made.errors] == ["row_invalid"]


def broken(*names: str) -> dict[str, Resolution]:
    return {name: Resolution(error_code="timeout", message=f"{name}: no value", duration_ms=5.0) for name in names}


@pytest.mark.req("REPLAY-5", "REPLAY-9")
def test_unresolved_variable_fails_the_rows_that_use_it() -> None:
    state = state_of([("a", "A", "{{d}}"), ("b", "B", "{{d}} {{gone}}"), ("c", "C", "-")])
    state["variables"] = [dynamic("d"), dynamic("unused")]
    made = read_recipe(state).assemble({}, broken("d"))
    assert made.status == "failed"
    assert [(one.error_code, one.variable_id, one.node_id) for one in made.errors] == [
        *(("timeout", "v_d", "a"), ("timeout", "v_d", "b"))
    ]
    assert [segment.missing for segment in made.segments] == [[], ["gone"], []]
    assert made.segments[0].messages[0].code == "timeout"
    assert "{{d}}" in made.text
    assert read_recipe(state).assemble({"d": "given"}).status == "succeeded"


@pytest.mark.req("REPLAY-5")
def test_only_what_some_row_needs_is_resolved() -> None:
    state = state_of([("a", "A", "{{d}} {{e}}")])
    state["variables"] = [dynamic("d"), dynamic("e"), dynamic("unused")]
    made = read_recipe(state)
    assert made.needs([{"d": 1, "e": 2}, {"variables": {"d": 1, "e": 1}}, {"variables": 3}]) == set()
    assert made.needs([{"d": 1, "e": 2}, {"variables": {"d": 1}, "e": 1}]) == {"e"}


@pytest.mark.req("REPLAY-6")
def test_every_variable_leaves_a_message() -> None:
    state = state_of([("a", "A", "{{d}} {{s}} {{new}}")], variables=[("s", "四"), ("idle", "x")])
    state["variables"] += [dynamic("d"), dynamic("unused")]
    made = read_recipe(state).assemble({"new": "row", "s": "own"}, {"d": Resolution("found", duration_ms=1.25)})
    keys = ("variableId", "variableName", "type", "durationMs", "valueBytes", "truncated")
    assert [tuple(message.details[key] for key in keys) for message in made.messages] == [
        ("v_s", "s", "static", 0.0, 3, False),
        ("v_idle", "idle", "static", 0.0, 1, False),
        ("v_d", "d", "dynamic", 1.25, 5, False),
        ("v_unused", "unused", "dynamic", 0.0, 0, False),
        ("new", "new", "static", 0.0, 3, False),
    ]
    alone = read_recipe(state).assemble({"new": "row"}, {"d": Resolution("found")})
    assert alone.messages[0].details["valueBytes"] == 3


@pytest.mark.req("REPLAY-6")
def test_trace_has_every_field() -> None:
    made = read_recipe(state_of(HELLO))
    trace = trace_of(made.nodes, made.assemble({"name": "A"}), "r-0", "2026-11-16T00:00:00.000Z")
    assert (trace.run_id, trace.output_style) == ("r-0", "labeled")
    first, second = trace.segments
    assert (first.node_id, first.label, first.kind) == ("a", "System", "text")
    assert (first.template, first.rendered) == ("Hello {{name}}", "Hello A")
    assert second.missing_variables == ["q"]


@pytest.mark.req("REPLAY-10")
@pytest.mark.parametrize("sign", ["x", "é", "中", "🧵"])
def test_values_segments_and_text_are_clamped(sign: str) -> None:
    state = state_of([("a", "A", "{{v}}{{v}}"), ("b", "B", "{{v}}")])
    made = read_recipe(state).assemble({"v": sign * 30_000})
    size = len(sign.encode())
    least = MOST_BYTES - size
    details = made.messages[0].details
    assert least < details["valueBytes"] <= MOST_BYTES and details["truncated"] is True
    assert all(segment.truncated and least < len(segment.text.encode()) <= MOST_BYTES for segment in [made.segments[0]])
    assert made.truncated and least < len(made.text.encode()) <= MOST_BYTES
    assert made.digest == sha256_base64(made.text)


@pytest.mark.req("REPLAY-10")
def test_what_fits_is_not_marked() -> None:
    made = read_recipe(state_of([("a", "A", "{{v}}")])).assemble({"v": "x" * MOST_BYTES})
    assert made.messages[0].details["truncated"] is False
    assert not made.segments[0].truncated
    assert made.truncated  # the label comes on top


@pytest.mark.req("REPLAY-11", "REPLAY-8")
@given(st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), st.booleans(), st.lists(TEXTS))), TEXTS)
def test_same_row_same_digest(row: dict[str, Any], content: str) -> None:
    state = state_of([("a", "A", content), ("b", "B", "{{q}}")])
    once = read_recipe(state).assemble(row)
    again = read_recipe(json.loads(json.dumps(state))).assemble(dict(reversed(row.items())))
    assert (once.digest, once.text) == (again.digest, again.text)


@pytest.mark.req("REPLAY-3")
@given(TEXTS, TEXTS)
def test_values_are_never_looked_into(value: str, around: str) -> None:
    plain = around.replace("{", "").replace("}", "")
    assert text_of({"v": value}, f"<{plain}{{{{v}}}}>").strip() == f"<{plain}{value}>".strip()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXTS,
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "nodes",
                        "edges",
                        "variables",
                        "id",
                        "data",
                        "label",
                        "content",
                        "name",
                        "type",
                        "value",
                        "source",
                        "target",
                        "resolver",
                    ]
                ),
                inner,
            )
        ),
    )
)
def test_reading_never_raises_anything_else(state: Any) -> None:
    try:
        assert isinstance(read_recipe(state).assemble({}, {}), AssembledRow)
    except RecipeError as error:
        assert error.errors
    except KeyError:
        assert read_recipe(state).dynamic


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"nodes": None}, "state.nodes"),
        ({"nodes": [1]}, "state.nodes[0]"),
        ({"nodes": [{"id": 1, "data": {}}]}, "state.nodes[0].id"),
        ({"nodes": [{"id": " ", "data": {}}]}, "state.nodes[0].id"),
        ({"nodes": [{"id": "a"}]}, "state.nodes[0].data"),
        ({"nodes": [{"id": "a", "data": {"content": None}}]}, "state.nodes[0].data.content"),
        ({"nodes": [{"id": "a", "data": {"label": 3}}]}, "state.nodes[0].data.label"),
        ({"nodes": [{"id": "a", "data": {"variables": {}}}]}, "state.nodes[0].data.variables"),
        ({"nodes": [{"id": "a", "data": {}}, {"id": "a", "data": {}}]}, "state.nodes[1].id"),
        ({"edges": {}}, "state.edges"),
        ({"edges": [{"source": "a"}]}, "state.edges[0].target"),
        ({"variables": [{"id": "v"}]}, "state.variables[0].name"),
        ({"variables": [{"id": "v", "name": "n", "type": "dynamc"}]}, "state.variables[0].type"),
        ({"variables": [{"id": "v", "name": "n", "resolver": 1}]}, "state.variables[0].resolver"),
        ({"variables": [{"id": "1", "name": "n"}, {"id": "2", "name": "n"}]}, "state.variables[1].name"),
    ],
)
def test_faults_say_where(change: dict[str, Any], path: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read_recipe({"nodes": [], **change})
    assert [at for at, _ in caught.value.errors] == [path]


@pytest.mark.req("REPLAY-17")
def test_messages_for_a_model() -> None:
    nodes = [("s", "system_prompt"), ("m", "memory"), ("h", "messages"), ("u", "user_input")]
    state = {"nodes": [{"id": id, "data": {"label": id, "type": type, "content": id * 2}} for id, type in nodes]}
    made = read_recipe(state)
    assert messages_of(made.nodes, made.assemble({})) == [
        {"role": "system", "content": "--- s ---\nss\n\n--- m ---\nmm"},
        {"role": "assistant", "content": "--- h ---\nhh"},
        {"role": "user", "content": "--- u ---\nuu"},
    ]
    alone = read_recipe({"nodes": state["nodes"][:2]})
    assert [one["role"] for one in messages_of(alone.nodes, alone.assemble({}))] == ["user"]


def test_million_braces_take_one_pass() -> None:
    made = read_recipe(state_of([("a", "A", "{{" * 500_000), ("b", "B", "{{x" * 300_000)])).assemble({"x": "y"})
    assert (made.status, made.missing, made.truncated) == ("succeeded", 0, True)


def test_ten_thousand_variables_are_told_of_shortly() -> None:
    names = [f"v{number}" for number in range(10_000)]
    made = read_recipe(state_of([("a", "A", "{{v7}}")], variables=[(name, "x") for name in names])).assemble({})
    assert made.text == "--- A ---\nx"
    assert len(made.messages) == 1_000
    assert made.messages[-1].code == "messages_left_out"


def test_a_value_in_a_hundred_thousand_places_takes_no_memory() -> None:
    made = read_recipe(state_of([("a", "A", "{{v}}" * 150_000 + "{{gone}}")])).assemble({"v": "x" * 20_000})
    assert (made.segments[0].text, made.segments[0].truncated) == ("x" * 20_000, True)
    assert made.segments[0].missing == ["gone"]


def test_messages_that_are_left_out_are_those_nobody_needs() -> None:
    names = [f"v{number}" for number in range(1_500)]
    made = read_recipe(state_of([("a", "A", "{{v1400}}")], variables=[(name, "x") for name in names])).assemble({})
    assert "v1400" in [message.details.get("variableName") for message in made.messages]
    many = "".join(f"{{{{m{number}}}}}" for number in range(1_500))
    made = read_recipe(state_of([("a", "A", many)])).assemble({"idle": 1})
    assert made.missing == 1_500 and len(made.messages) == 1_000
    assert made.messages[-1].message == "502 more messages are left out"
    made = read_recipe(state_of([("a", "A", many)])).assemble({})
    assert [message.code for message in made.messages[-2:]] == ["missing_variable", "messages_left_out"]
    assert made.messages[-1].message == "501 more messages are left out"


def test_warnings_are_not_left_out_for_variables() -> None:
    names = [f"v{number}" for number in range(1_500)]
    used = "".join(f"{{{{{name}}}}}" for name in names)
    state = state_of([("a", "A", used + "{{gone}}{{lost}}")], variables=[(name, "x") for name in names])
    messages = read_recipe(state).assemble({}).messages
    assert [one.details["variableName"] for one in messages if one.code == "missing_variable"] == ["gone", "lost"]
    assert messages[-1].message == "503 more messages are left out"


def test_too_many_placeholders_are_refused() -> None:
    many = "".join(f"{{{{a{at}}}}}" for at in range(100_001))
    with pytest.raises(RecipeError, match="100,001") as caught:
        read_recipe(state_of([("n", "N", many)]))
    assert caught.value.code == "limit_exceeded"


def test_broken_variables_in_many_nodes_are_told_shortly() -> None:
    names = [f"d{number}" for number in range(100)]
    content = "".join(f"{{{{{name}}}}}" for name in names)
    state = state_of([(f"n{number:03}", "N", content) for number in range(200)])
    state["variables"] = [dynamic(name) for name in names]
    made = read_recipe(state).assemble({}, broken(*names))
    assert (made.status, made.missing, len(made.errors)) == ("failed", 0, 1_000)
    assert all(segment.missing == [] for segment in made.segments)
