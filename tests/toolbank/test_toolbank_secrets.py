"""Credentials in tool documents, against a stated set of made-up keys and harmless look-alikes."""

from __future__ import annotations

import random
import string
import time
from typing import Any

import pytest

from astra.toolbank.clean import REDACTED, scrub

LETTERS = string.ascii_letters + string.digits
CAPITALS = string.ascii_uppercase + string.digits
HEX = "0123456789abcdef"


def drawn(length: int, letters: str = LETTERS) -> str:
    """Random letters, one digit among them: no key stands in this file."""
    rng = random.Random(length)
    return "7" + "".join(rng.choice(letters) for _ in range(length - 1))


KEYS = {
    "anthropic": "sk-ant-api03-" + drawn(93),
    "aws": "AKIA" + drawn(16, CAPITALS),
    "aws for a session": "ASIA" + drawn(16, CAPITALS),
    "azure": drawn(86) + "==",
    "digitalocean": "dop_v1_" + drawn(64, HEX),
    "discord": "M" + drawn(23) + "." + drawn(6) + "." + drawn(27),
    "github": "ghp_" + drawn(36),
    "github, fine-grained": "github_pat_" + drawn(22) + "_" + drawn(59),
    "gitlab": "glpat-" + drawn(20),
    "google": "AIza" + drawn(35),
    "hugging face": "hf_" + drawn(34),
    "json web token": f"eyJ{drawn(17)}.eyJ{drawn(20)}.{drawn(43)}",
    "mailchimp": drawn(32, HEX) + "-us14",
    "notion": "secret_" + drawn(43),
    "npm": "npm_" + drawn(36),
    "openai": "sk-" + drawn(48),
    "openai, of a project": "sk-proj-" + drawn(20) + "_" + drawn(60),
    "pypi": "pypi-" + drawn(90),
    "sendgrid": "SG." + drawn(22) + "." + drawn(43),
    "shopify": "shpat_" + drawn(32, HEX),
    "slack": f"xoxb-{drawn(12, string.digits)}-{drawn(24)}",
    "stripe": "sk_live_" + drawn(24),
    "telegram": f"{drawn(10, string.digits)}:AA{drawn(33)}",
    "twilio": "SK" + drawn(32, HEX),
}
BEFORE = {"azure": "AccountKey="}
HARMLESS = [
    "550e8400-e29b-41d4-a716-446655440000",
    "d41d8cd98f00b204e9800998ecf8427e",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "sk-learn-contrib-tools",
    "mark_task_completedbyidentifier",
    "desk_1234567890abcdef1234",
    "pk_customer_identifier",
    "risk-assessment-20250101000000000",
    "AKIA is the prefix of access keys",
    "ghp_ followed by 36 characters",
    "xoxb is a bot token type",
    "eyJ is how the header starts",
    "SG.UN is listed on Euronext",
    "npm_config_registry",
    "hf_transfer_enabled",
    "Set `api_key=YOUR_API_KEY` in the environment",
    "api_key: xxxxxxxxxxxxxxxx",
    "password: your password here",
    "password must be at least 12 characters",
    "access_token: string, required",
    "api-key: see the page on authentication",
    "token_type=bearer&expires_in=3600",
    "Authorization: Bearer ${API_TOKEN}",
    "Bearer <token>",
    "the bearer authentication_scheme_of_the_service",
    "postgres://user:password@localhost/db",
    "dialect+driver://username:password@host:port/database",
    "https://user@example.com/path",
    'client_secret=os.environ["CLIENT_SECRET"]',
    "0x52908400098527886E0F7030069857D2E4169EE7",
    "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKPBdG",
    "GB29NWBK60161331926819",
    "4111 1111 1111 1111",
    "ISBN 978-3-16-148410-0",
    "2026-03-14T09:30:00.000Z",
    "get_all_transactions_by_customer_identifier",
    "com.example.android.application.MainActivity",
    "arn:aws:iam::123456789012:role/service-role/MyLambdaRole",
    "-----BEGIN CERTIFICATE-----",
    "spreadsheetId 1BxiMVs0XRA5nFMdKvBdBZjgmUUqptlbs74OgvE2upms",
]


@pytest.mark.parametrize("text", ["The key {} signs in.", "curl -H 'X-Key: {}' URL", "e.g. `{}`"])
@pytest.mark.parametrize("vendor", KEYS)
def test_keys_of_vendors_are_redacted_whole(vendor: str, text: str) -> None:
    told = text.format(BEFORE.get(vendor, "") + KEYS[vendor])
    assert scrub({"description": told}) == (
        {"description": text.format(BEFORE.get(vendor, "") + REDACTED)},
        1,
    )


@pytest.mark.parametrize("text", HARMLESS)
def test_look_alikes_stay(text: str) -> None:
    assert scrub([text]) == ([text], 0)


def test_keys_are_found_by_what_stands_before_them() -> None:
    for before in (
        "Authorization: Bearer ",
        "https://hooks.slack.com/services/",
        'api_key = "',
        "client-secret: ",
    ):
        assert scrub(before + drawn(40)) == (before + REDACTED, 1)
    found = scrub(f"postgres://app:{drawn(14)}@db.example.com/x")
    assert found == (f"postgres://{REDACTED}@db.example.com/x", 1)


def test_a_private_key_goes_with_its_body() -> None:
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{drawn(64)}\n-----END RSA PRIVATE KEY-----"
    assert scrub(f"use\n{key}\nhere") == (f"use\n{REDACTED}\nhere", 1)


HOSTILE: dict[str, Any] = {
    "run": "a" * 200_000,
    "digits": "7" * 200_000,
    "tokens": "eyJ" * 60_000,
    "discord": "M" * 200_000,
    "dots": ("M" * 24 + ".") * 8_000,
    "keys": "-----BEGIN PRIVATE KEY-----" * 5_000,
    "addresses": "http://a:b" * 20_000,
    "assignments": "password=" * 20_000,
    "bearers": "Bearer " * 30_000,
    "bearer": "Bearer " + "a" * 200_000,
    "prefixes": "sk-ant-" * 30_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_scans_stay_short_on_any_text(name: str) -> None:
    start = time.process_time()
    scrub(HOSTILE[name])
    assert time.process_time() - start < 2
