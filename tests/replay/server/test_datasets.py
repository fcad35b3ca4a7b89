"""Datasets over HTTP, as JSON and as files."""

import json
from typing import Any

import pytest

JSON = {"Content-Type": "application/json"}


@pytest.mark.req("REPLAY-14")
def test_a_dataset_is_created_listed_read_and_deleted(service: Any) -> None:
    made = service.post("/api/datasets", {"name": "rows", "rows": [{"q": number} for number in range(5)]})
    at = made.headers["Location"]
    assert made.status == 201 and made.value["rowCount"] == 5
    listed = [one for one in service.get("/api/datasets?limit=10000").value if one["id"] == made.value["id"]]
    assert listed == [made.value] and set(made.value) == {"id", "name", "rowCount", "updatedAt"}
    assert service.get(f"{at}?limit=2&offset=3").value["rows"] == [{"q": 3}, {"q": 4}]
    assert service.ask("DELETE", at).status == 204
    assert service.get(at).error == (404, "dataset_not_found")


NO_ROWS: list[Any] = [None, 1, "x", {}]
NO_DATASETS: list[Any] = [
    *({}, {"name": "x"}, {"rows": []}, [], "text"),
    *({"name": name, "rows": []} for name in ("", " ", None, 1)),
    *({"name": "x", "rows": rows} for rows in NO_ROWS),
]


@pytest.mark.req("REPLAY-14")
@pytest.mark.parametrize("body", NO_DATASETS)
def test_what_is_no_dataset_is_refused(service: Any, body: Any) -> None:
    assert service.post("/api/datasets", body).error == (400, "validation_failed")


@pytest.mark.req("REPLAY-14")
@pytest.mark.parametrize("row", [None, 1, "x", [], True])
def test_a_row_that_is_no_object_is_told_with_its_index(service: Any, row: Any) -> None:
    refused = service.post("/api/datasets", {"name": "x", "rows": [{}, {"variables": 1}, row]})
    assert refused.error == (400, "row_invalid") and refused.value["index"] == 2


@pytest.mark.req("REPLAY-14")
def test_more_than_200000_rows_are_refused(service: Any) -> None:
    body = b'{"name": "x", "rows": [%b{}]}' % (b"{}," * 200_000)
    assert service.post("/api/datasets", body, **JSON).error == (400, "limit_exceeded")
    lines = service.post("/api/datasets", b"{}\n" * 200_001, **{"Content-Type": "application/jsonl"})
    assert lines.error == (400, "limit_exceeded")


@pytest.mark.req("REPLAY-14")
@pytest.mark.parametrize(
    "kind, body",
    [
        ("text/csv", 'q,n\n你好,1\n"a, b",2\n'.encode()),
        ("text/csv; charset=utf-8; header=present", b'\xef\xbb\xbfq,n\n\xe4\xbd\xa0\xe5\xa5\xbd,1\n"a, b",2\n'),
        ("application/x-ndjson", '{"q":"你好","n":"1"}\n\n{"q":"a, b","n":"2"}\n'.encode()),
        ("application/jsonl", '{"q":"你好","n":"1"}\r\n{"q":"a, b","n":"2"}'.encode()),
    ],
)
def test_a_file_is_uploaded(service: Any, kind: str, body: bytes) -> None:
    made = service.post("/api/datasets?name=%E6%96%87", body, **{"Content-Type": kind})
    assert made.status == 201 and made.value["name"] == "文"
    rows = service.get(made.headers["Location"]).value["rows"]
    assert rows == [{"q": "你好", "n": "1"}, {"q": "a, b", "n": "2"}]


def test_a_file_may_be_in_another_encoding(service: Any) -> None:
    body = "q\n你好\n".encode("gb18030")
    made = service.post("/api/datasets", body, **{"Content-Type": 'text/csv; charset="gb18030"'})
    assert service.get(made.headers["Location"]).value["rows"] == [{"q": "你好"}]
    unknown = service.post("/api/datasets", body, **{"Content-Type": "text/csv; charset=base64"})
    assert unknown.error == (400, "validation_failed") and unknown.value["message"].startswith("body: charset: ")
    refused = service.post("/api/datasets", body, **{"Content-Type": "text/csv"})
    assert refused.error == (400, "validation_failed") and "pass its charset" in refused.value["message"]


def test_every_line_that_cannot_be_read_is_told(service: Any) -> None:
    body = b'{"a":1}\n{"a":\n{"a":2}\nnonsense\n'
    refused = service.post("/api/datasets", body, **{"Content-Type": "application/x-ndjson"})
    assert refused.error == (400, "validation_failed")
    assert [error["path"] for error in refused.value["faults"]] == ["line 2", "line 4"]


def test_a_line_that_is_no_object_is_told_with_its_index(service: Any) -> None:
    refused = service.post("/api/datasets", b'{"a":1}\n[1]\n', **{"Content-Type": "application/x-ndjson"})
    assert refused.error == (400, "row_invalid") and refused.value["index"] == 1


@pytest.mark.parametrize("body", [b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd\x00", b"a\x00b", b"PK\x03\x04"])
def test_packed_and_binary_files_are_refused(service: Any, body: bytes) -> None:
    assert service.post("/api/datasets", body, **{"Content-Type": "text/csv"}).error == (400, "validation_failed")


def test_any_value_of_a_row_comes_back_as_it_was(service: Any) -> None:
    rows = [{"𝔘\u202e\u0000": "😀\u200b", "n": [1.0, 1, -0.5, 10**30, None, True], "../x": {"": {}}}]
    made = service.post("/api/datasets", {"name": "../../etc/passwd", "rows": rows})
    got = service.get(made.headers["Location"]).body
    assert json.loads(got)["rows"] == rows and b"1.0," in got
