"""Running one case from the page: the form of the contract, the card, the conversation."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.req("HOP-21")
RUN = "/hop/credit/run"


def send(somebody: Any, server: Any, text: str) -> Any:
    """Run a text, and wait for the result."""
    page = somebody.page
    page.goto(server.url + RUN)
    page.fill("textarea[name='in.text']", text)
    page.click("button.primary")
    page.wait_for_selector("#last:not(:has([data-step]))", timeout=30_000)
    return page


def test_the_form_has_a_field_for_each_type(server: Any, signed_in: Callable[..., Any]) -> None:
    somebody = signed_in()
    page = somebody.page
    page.goto(server.url + RUN)
    assert page.get_attribute("[name='in.text']", "rows") == "6"
    assert page.locator("select[name='in.level'] option").all_inner_texts() == ["–", "low", "high"]
    amount = page.locator("[name='in.amount']")
    assert (amount.get_attribute("min"), amount.get_attribute("max")) == ("1", "5")
    assert page.locator("[type=checkbox][name='in.is_new']").count() == 1
    assert page.locator("textarea[data-json=object][name='in.details']").count() == 1
    page.click("text=Fill example")
    assert page.input_value("[name='in.text']") == "fine"
    page.click("text=Next example")
    assert page.input_value("[name='in.amount']") == "3"
    page.click("button.primary")
    page.wait_for_selector(".hop-score")
    words = page.inner_text(".hop-score")
    assert "Credit Score: 4/5" in words and "expected 2" in words and "≠" in words
    somebody.picture("hop-run")
    assert somebody.accessibility() == []


@pytest.mark.parametrize(
    "options", [{"locale": "zh-CN", "color_scheme": "dark"}, {"viewport": {"width": 390, "height": 800}}]
)
def test_missing_information_is_asked_for_until_there_is_enough(
    server: Any, signed_in: Callable[..., Any], options: dict[str, Any]
) -> None:
    somebody = signed_in(**options)
    page = send(somebody, server, "lack of it")
    assert "LACK_OF_INFO" in page.inner_text("#last") and "Which year?" in page.inner_text(".hop-questions")
    hint = page.get_attribute("#feedback", "placeholder")
    assert hint == ("请补充信息……" if "locale" in options else "Add the missing information …")
    for reply in ("2024", "and 2025"):
        page.fill("#feedback", reply)
        page.click(".hop-reply button.primary")
        page.wait_for_selector(f".said:has-text('{reply}')")
        page.wait_for_selector("#last:not(:has([data-step]))", timeout=30_000)
    assert "lack of it / 2024 / and 2025" in page.inner_text("#last .hop-summary")
    assert page.locator(".severity.high").count() == 1 and page.locator("#feedback").count() == 0
    somebody.picture(f"hop-conversation-{'zh' if 'locale' in options else 'phone'}")
    assert somebody.accessibility() == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_uncertain_result_can_be_confirmed(server: Any, signed_in: Callable[..., Any]) -> None:
    page = send(signed_in(), server, "unsure")
    assert "UNCERTAIN" in page.inner_text("#last") and "No errors detected" in page.inner_text("#last")
    page.click("text='Confirm'")
    page.wait_for_selector("#last:has-text('CONFIRMED')")
    assert page.locator(".hop-reply").count() == 0


def test_a_failure_can_be_tried_again_and_a_slow_run_cancelled(server: Any, signed_in: Callable[..., Any]) -> None:
    somebody = signed_in()
    page = send(somebody, server, "fail")
    assert "ValueError" in page.inner_text(".hop-error") and "<script>" in page.inner_text(".hop-error")
    page.click("text='Retry'")
    page.wait_for_selector("#last .hop-error")
    page.goto(server.url + RUN)
    page.fill("textarea[name='in.text']", "slow")
    page.click("button.primary")
    page.wait_for_selector("[data-step]:has-text('look: read slow')")
    assert len(children(server)) == 1
    page.click("text='Cancel'")
    page.wait_for_selector("#last:has-text('Cancelled.')")
    assert page.locator("text='Retry'").count() == 1
    assert children(server) == []


def children(server: Any) -> list[str]:
    """The hoplets that the server runs."""
    found = subprocess.run(
        ["pgrep", "-P", str(server.process.pid), "-f", "evalloom.hop.turn"], capture_output=True, text=True
    )
    return found.stdout.split()


def test_all_works_without_a_script(server: Any, signed_in: Callable[..., Any]) -> None:
    somebody = signed_in(java_script_enabled=False)
    page = somebody.page
    page.goto(server.url + RUN)
    page.fill("textarea[name='in.text']", "fine")
    page.fill("[name='in.details']", "[1]")
    page.click("button.primary")
    assert "Expected a JSON object" in page.inner_text(".field .bad") and page.input_value("[name='in.text']") == "fine"
    page.fill("[name='in.details']", '{"a": 1}')
    page.click("button.primary")
    while page.locator("text='Reload'").count():
        page.click("text='Reload'")
    assert "Credit Score: 4/5" in page.inner_text("#last")


def test_the_twin_runs_a_case_too(server: Any, session: Any) -> None:
    cookie = "; ".join(f"{each['name']}={each['value']}" for each in session["cookies"])
    location = post(server, f"/api{RUN}", cookie, {"in.text": "fine", "in.amount": 9})
    assert location["fields"][2]["error"].startswith("Expected a number from 1 to 5")
    location = post(server, f"/api{RUN}", cookie, {"in.text": "unsure"})["location"]
    twin = server.json(location.removeprefix("/api").partition("#")[0])
    assert twin["conversation"]["turns"][0]["state"] in ("UNCERTAIN", "running")


def post(server: Any, path: str, cookie: str, body: Any, token: str = "") -> Any:
    """Send a JSON body as a program would, and return the answer, also that of an error."""
    headers = {"Content-Type": "application/json", "Cookie": cookie, "Origin": server.url}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read())
    except urllib.error.HTTPError as error:
        return json.loads(error.read())


def test_nothing_starts_without_a_session_or_the_permission(
    server: Any, visitor: Callable[..., Any], serve_pages: Callable[..., Any], project: Path
) -> None:
    assert post(server, f"/api{RUN}", "", {"in.text": "x"})["error"] == "session_needed"
    page = visitor().page
    page.goto(server.url + RUN)
    assert page.locator("button.primary").count() == 0 and page.locator("text='Sign in to run'").count() == 1
    token = "0123456789abcdef"
    reading = serve_pages(project, "serve", "--token-env", "PAGE_TOKEN", env={"PAGE_TOKEN": token})
    assert post(reading, f"/api{RUN}", "", {"in.text": "x"}, token)["error"] == "not_allowed_here"


@pytest.mark.parametrize("name", ["..", "%2e%2e/x", "nothing", ".git", "credit/Hoplet", "a%00b", "%5c"])
def test_only_task_folders_of_the_project_are_found(server: Any, name: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.get(f"/hop/{name}/run")
    assert refused.value.code == 404
