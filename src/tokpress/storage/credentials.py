"""What the client library does not find by itself of what each cloud's own tools would: profiles, endpoints, accounts.

In: the environment and the clouds' own files. Out: settings for the library, which are held in memory and shown nowhere.
Keys in AWS_* and AZURE_*, instance and workload roles, GOOGLE_APPLICATION_CREDENTIALS and gcloud's login
the library finds alone.
"""

from __future__ import annotations

import configparser
import os
from pathlib import Path

_PROFILE = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
    "endpoint_url": "endpoint",
}
_ACCOUNT = {
    "AccountName": "account_name",
    "AccountKey": "account_key",
    "BlobEndpoint": "endpoint",
    "SharedAccessSignature": "sas_key",
}
_AZURITE = {"use_emulator": "true"}


def s3_settings() -> dict[str, str]:
    """From ~/.aws, then from the environment."""
    environment = os.environ
    found = {"disable_bulk_delete": "true"}  # which not all servers have that speak S3
    for variable, default, prefix in (
        ("AWS_CONFIG_FILE", "config", "profile "),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", ""),
    ):
        path = Path(environment.get(variable) or Path.home() / ".aws" / default)
        found |= _profile(path, environment.get("AWS_PROFILE") or "default", prefix)
    if environment.get("AWS_ACCESS_KEY_ID"):
        for name in ("access_key_id", "secret_access_key", "session_token"):
            found.pop(name, None)
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    if endpoint:
        found["endpoint"] = endpoint
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    found["region"] = region or found.get("region") or "us-east-1"
    return found


def _profile(path: Path, name: str, prefix: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text())
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {}
    for section in (name, f"{prefix}{name}"):
        if parser.has_section(section):
            return {_PROFILE[key]: value for key, value in parser.items(section) if key in _PROFILE}
    return {}


def gcs_settings() -> dict[str, str]:
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    if not emulator:
        return {}
    return {"base_url": emulator if "://" in emulator else f"http://{emulator}", "bearer_token": "none"}


def azure_settings() -> dict[str, str]:
    text = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    if parts.get("UseDevelopmentStorage", "").lower() == "true":
        return _AZURITE
    return {name: parts[key] for key, name in _ACCOUNT.items() if key in parts}


def is_plain_http(settings: dict[str, str]) -> bool:
    """Whether an endpoint was named that has no encryption: a server of one's own."""
    named = [settings.get("endpoint", ""), settings.get("base_url", ""), os.environ.get("AZURE_STORAGE_ENDPOINT", "")]
    return settings is _AZURITE or any(endpoint.startswith("http://") for endpoint in named)
