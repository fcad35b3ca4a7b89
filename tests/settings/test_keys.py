"""Keys in texts: hidden in whatever form they appear."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest

from evalloom.settings.keys import HIDDEN, hidden

PLAIN, ODD = "sk-abcdefgh12345678", "pa ss/wörd+'12345678\"\\"


@pytest.mark.parametrize("secret", [PLAIN, ODD])
@pytest.mark.parametrize("user", ["", "u:", "us:", "user:"])
@pytest.mark.req("WORK-42")
def test_a_key_is_hidden_however_it_is_encoded(secret: str, user: str) -> None:
    pair = f"{user}{secret}{user}"
    for text in (
        pair,
        repr(pair),
        json.dumps(pair),
        json.dumps(json.dumps(pair, ensure_ascii=False)),
        f"https://host/?key={quote(secret, safe='')}",
        f"https://host/?key={quote_plus(secret)}",
        "Basic " + base64.b64encode(pair.encode()).decode(),
        base64.urlsafe_b64encode(pair.encode()).decode(),
    ):
        shown = hidden(text, [secret])
        assert HIDDEN in shown
        assert secret not in shown


def test_other_texts_stay() -> None:
    text = "Basic dXNlcjpwYXNz and sk-learn"

    assert hidden(text, [PLAIN, ODD]) == text
