"""Reads API keys from the environment and `.env`, and recognises and redacts keys in texts."""

from __future__ import annotations

import json
import os
import re
from binascii import b2a_base64
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from evalloom.core.digest import digest_bytes
from evalloom.core.lazy import lazy_pattern

PREFIX = "HOP_KEY_"
HIDDEN = "[hidden]"
"""Replaces a secret."""
COMMON_NAMES = {"anthropic": ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")}
"""The variables to try after an llm's own one, by protocol; by HOP-5, OPENAI_API_KEY is the last."""

_LINE = lazy_pattern(
    r"\s*(?:export\s+)?([^\W\d]\w*)\s*=\s*(?:'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|(.*?))\s*(?:(?<=\s)#.*)?"
)
_NEEDS_NO_QUOTES = lazy_pattern(r"[A-Za-z0-9_.~-]*")
_SHORTEST_BASE64 = 8
_ESCAPED = lazy_pattern(r"\\(.)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_VARIABLE = lazy_pattern(r"\$\{([^\W\d]\w*)\}")
_SECRET_NAME = lazy_pattern(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_SUSPICIOUS_NAME = lazy_pattern(r"PASS|PWD|CREDENTIAL|AUTH|DSN|COOKIE|SESSION", re.IGNORECASE)
_USER_IN_URL = lazy_pattern(r"://[^/?#\s]*@")
_KEY_ENDINGS = ("_API_KEY", "_API_TOKEN", "_MASTER_KEY", "_SDK_TOKEN")
_KEY_VARIABLES = ("HF_TOKEN", "GITHUB_TOKEN", "ABLIT_KEY")
_KEY_FIELDS = ("key", "token", "secret", "password")
_API_KEY_FIELD = lazy_pattern(r"hopkey.*|.*(apikey|secretkey|accesskey|accesstoken|authtoken|authorization)")
_KEY_HEADERS = ("authorization", "proxyauthorization", "xapikey", "apikey", "xauthtoken")
_KEY_VALUE = lazy_pattern(r"(?:bearer\s+)?sk-[\w-]{6,}|(?:bearer\s+)?(?:gsk_|hf_|xai-|ghp_|AIza)[\w-]{16,}", re.I)
_KEY_INSIDE = lazy_pattern(r"(?<![\w-])sk-[\w-]{20,}")
_KEY_START = "sk-|gsk_|hf_|xai-|ghp_|AIza"
# A key has a digit; sk-learn-and-its-friends is not a key.
_KEY_IN_TEXT = lazy_pattern(rf"(?<![\w-])(?:{_KEY_START})(?=[\w-]*\d)[\w-]{{16,}}")


def environment(folder: Path = Path()) -> dict[str, str]:
    """The variables of the process, which override those of `.env` in `folder` and in the working folder."""
    return {**read_dotenv(folder), **os.environ}


def read_dotenv(folder: Path = Path()) -> dict[str, str]:
    """The variables of `.env` in `folder`, which override those of the one in the working folder."""
    variables: dict[str, str] = {}
    for path in (Path(".env"), folder / ".env"):
        try:
            text = path.read_text(encoding="utf-8-sig", errors="replace")
        except OSError:
            # An unreadable file counts as absent: the message about a missing key says what to do.
            continue
        for match in filter(None, map(_LINE.fullmatch, text.splitlines())):
            name, single, double, bare = match.groups()
            if double is not None:
                double = _ESCAPED.sub(lambda escaped: _ESCAPES.get(escaped[1], escaped[1]), double)
            variables[name] = next(value for value in (single, double, bare) if value is not None)
    return variables


def names_for(llm: str, protocol: str) -> tuple[str, ...]:
    """The variables that may contain the key of an llm; the first one that is set is used."""
    own = PREFIX + re.sub(r"\W", "_", llm).upper()
    return (own, *COMMON_NAMES.get(protocol, ("OPENAI_API_KEY",)))


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name most likely contains a secret."""
    return bool(_SECRET_NAME.search(name))


def is_key_variable(name: str) -> bool:
    """Whether a variable has the name of a provider's key: any of vendors.py, and others named like them."""
    # By their form, since the table itself is imported only when a provider is used.
    return name.endswith(_KEY_ENDINGS) or name in _KEY_VARIABLES


def may_be_secret(name: str, value: str) -> bool:
    """Whether a variable may contain a secret, by its name or its value; when in doubt, it does."""
    return bool(
        is_secret_name(name) or _SUSPICIOUS_NAME.search(name) or looks_like_key(value) or _USER_IN_URL.search(value)
    )


def variables_in(text: str) -> list[str]:
    """The variables that a text refers to as `${NAME}`."""
    return _VARIABLE.findall(text)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace every `${NAME}` once. Raises KeyError with the name that is not set."""
    return _VARIABLE.sub(lambda match: variables[match[1]], text)


def is_key_field(name: str) -> bool:
    """Whether a field of this name, directly at an llm, is meant for its key."""
    return _plain(name) in _KEY_FIELDS


def is_api_key_field(name: str) -> bool:
    """Whether a field of this name is meant for a key, wherever it is."""
    return bool(_API_KEY_FIELD.fullmatch(_plain(name)))


def is_key_header(name: str) -> bool:
    """Whether an HTTP header of this name carries a secret."""
    return _plain(name) in _KEY_HEADERS


def looks_like_key(value: str) -> bool:
    """Whether a text is or contains a key in the format of a provider: `sk-…` and the like."""
    return bool(_KEY_VALUE.fullmatch(value.strip()) or _KEY_INSIDE.search(value))


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


@lru_cache(maxsize=64)
def forms(secret: str) -> tuple[str, ...]:
    """A secret as plain text, encoded as in URLs and headers, and as JSON nested up to three levels; longest first."""
    all_forms = level = {secret, repr(secret)[1:-1], *_percent_forms(secret)}
    for _ in range(3):
        level = {json.dumps(form, ensure_ascii=is_ascii)[1:-1] for form in level for is_ascii in (True, False)}
        all_forms = all_forms | level
    return tuple(sorted(all_forms | _base64_forms(secret), key=len, reverse=True))


def _percent_forms(secret: str) -> set[str]:
    if _NEEDS_NO_QUOTES.fullmatch(secret):
        return set()
    from urllib.parse import quote, quote_plus  # deferred: most keys need no quotes, and most commands no urllib

    # With surrogates, as an environment that is not UTF-8 has them.
    encoded = secret.encode("utf-8", "surrogateescape")
    return {quote(encoded, safe=""), quote(encoded), quote_plus(encoded)}


def _base64_forms(secret: str) -> set[str]:
    """What a secret looks like inside Base64, as in `Authorization: Basic`, whatever stands before and after it."""
    all_forms: set[str] = set()
    encoded = secret.encode("utf-8", "surrogateescape")
    for before in range(3):
        # A character is six bits: those with bits of a neighbour are left out.
        text = b2a_base64(bytes(before) + encoded, newline=False).decode()
        text = text[-(-before * 8 // 6) : (before + len(encoded)) * 8 // 6]
        all_forms |= {text, text.replace("+", "-").replace("/", "_")}
    return {form for form in all_forms if len(form) >= _SHORTEST_BASE64}


def hidden(text: str, secrets: Iterable[str]) -> str:
    """Replace the secrets in a text, in any of their forms."""
    for secret in secrets:
        for form in forms(secret):
            text = text.replace(form, HIDDEN)
    return text


class Redactor:
    """Redacts secrets from stored data: known ones, and texts in the format of a provider's keys."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # Longest first: a shorter one may be part of a longer one.
        self._secrets = sorted(secrets, key=lambda secret: (-len(secret), secret))
        literals = [re.escape(form) for secret in self._secrets for form in forms(secret)]
        self._literals = re.compile("|".join(literals)) if literals else None
        self._suspects = re.compile("|".join([*literals, _KEY_START]))
        self._suspect_bytes = re.compile(self._suspects.pattern.encode())

    def fingerprint(self, salt: bytes) -> str:
        """Equal for redactors of equal secrets; without the salt, guesses cannot be tested against it."""
        return digest_bytes(json.dumps(self._secrets).encode(), 8, salt)

    def is_clean(self, text: str) -> bool:
        """Whether a text certainly contains no secret. Fast; False means that it may."""
        return self._suspects.search(text) is None

    def text(self, text: str) -> str:
        """A text without secrets."""
        if self._literals is not None:
            text = self._literals.sub(HIDDEN, text)
        return _KEY_IN_TEXT.sub(HIDDEN, text)

    def value(self, value: Any) -> Any:
        """A JSON value without secrets in its keys and values."""
        encoded = msgspec.json.encode(value)
        if not self._suspect_bytes.search(encoded):
            return value
        try:
            return self._walk(value)
        except RecursionError:
            return msgspec.json.decode(self.text(encoded.decode()))

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(name): self._walk(inner) for name, inner in value.items()}
        return [self._walk(inner) for inner in value] if isinstance(value, list) else value
