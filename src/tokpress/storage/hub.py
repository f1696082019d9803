"""A dataset on the Hugging Face Hub at one commit: its files, and their bytes.

In: `hf://datasets/ORG/NAME[@REVISION]`. Out: the commit that the revision is now, the files there with sizes and checksums,
and ranges of their bytes at that commit, which never change. `huggingface_hub` resolves and lists, once; bytes are read
through the same client as those of buckets. The token is found as `huggingface_hub` finds it and sent in a header: it is
part of no address, record or error. `HF_ENDPOINT` names another hub.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar

from tokpress.errors import InputError, UsageError
from tokpress.storage.base import Stat
from tokpress.storage.requests import library, request, request_timeout, requests_in_flight

HUB = "hf://"
_ATTEMPTS = 6
_BUSY = (429, 500, 502, 503, 504)
_LONGEST_PAUSE = 60.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HubAddress:
    """What `hf://datasets/ORG/NAME[@REVISION]/PATH` says."""

    repo: str
    revision: str | None
    path: str


def parse_address(url: str) -> HubAddress:
    kind, _, rest = url.removeprefix(HUB).partition("/")
    repo, at, tail = rest.partition("@")
    if at:
        parts = tail.split("/")
        width = 3 if parts[0] == "refs" else 1  # refs/convert/parquet, refs/pr/7
        revision, path = "/".join(parts[:width]), "/".join(parts[width:])
    else:
        parts = rest.split("/")
        repo, revision, path = "/".join(parts[:2]), "", "/".join(parts[2:])
    if kind != "datasets" or repo.count("/") != 1 or not all(repo.split("/")):
        raise UsageError(f"{url} names no dataset of the Hub. Write hf://datasets/ORG/NAME/FILES, like *.parquet.")
    return HubAddress(repo, revision.replace("%2F", "/") or None, path.strip("/"))


class HubDataset:
    """The files of a dataset at one commit."""

    def __init__(self, repo: str, sha: str) -> None:
        self.repo, self.sha = repo, sha

    @property
    def url(self) -> str:
        return f"{HUB}datasets/{self.repo}@{self.sha}"

    def location(self, key: str) -> str:
        return f"{self.url}/{key}"

    def list_stats(self, prefix: str = "") -> list[tuple[str, Stat]]:
        """All files under a folder, with sizes and checksums: of large files sha-256, else git's."""

        def listed() -> list[tuple[str, Stat]]:
            tree = api().list_repo_tree(
                self.repo, prefix or None, recursive=True, revision=self.sha, repo_type="dataset"
            )
            return sorted((item.path, _stat(item)) for item in tree if hasattr(item, "size"))

        try:
            return ask(self.url, listed)
        except FileNotFoundError:
            return []

    def stat(self, key: str) -> Stat | None:
        found = ask(self.url, lambda: api().get_paths_info(self.repo, [key], revision=self.sha, repo_type="dataset"))
        return next((_stat(item) for item in found if hasattr(item, "size") and item.path == key), None)

    def read_range(self, key: str, start: int, stop: int, version: str | None = None) -> Any:  # noqa: ARG002 - a commit
        """The bytes [start, stop) of a file. The address holds the commit, so they are always the same."""

        def get() -> Any:
            path = f"datasets/{self.repo}/resolve/{self.sha}/{key}"
            data = library().get(self._store, path, options={"range": (start, stop)}).bytes()
            if len(data) != stop - start:
                raise OSError("a short answer")
            return data

        return request(self.location(key), get) if stop > start else b""

    @cached_property
    def _store(self) -> Any:
        from huggingface_hub import get_token

        token, endpoint = get_token(), _endpoint()
        timeout = timedelta(seconds=request_timeout())
        return library().store.HTTPStore(
            endpoint,
            client_options={
                "timeout": timeout,
                "pool_max_idle_per_host": str(requests_in_flight()),
                "allow_http": endpoint.startswith("http://"),
                "default_headers": {"authorization": f"Bearer {token}"} if token else {},
            },
            retry_config={"max_retries": 0, "retry_timeout": timeout},
        )


@dataclass(frozen=True, slots=True)
class HubInfo:
    """A revision of a dataset as it is now."""

    dataset: HubDataset
    card: dict[str, Any]  # the head of its README


def resolve(repo: str, revision: str | None) -> HubInfo:
    """The commit that a revision (a branch, a tag, a commit; else the main branch) is at this moment."""
    place = f"{HUB}datasets/{repo}" + (f"@{revision}" if revision else "")
    info = ask(place, lambda: api().dataset_info(repo, revision=revision or "main"))
    card = info.card_data.to_dict() if info.card_data is not None else {}
    return HubInfo(HubDataset(repo, str(info.sha)), card)


def _endpoint() -> str:
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def api() -> Any:
    from huggingface_hub import HfApi

    return HfApi(endpoint=_endpoint())


def _stat(item: Any) -> Stat:
    return Stat(int(item.size), str(item.lfs.sha256 if item.lfs else item.blob_id))


def ask(place: str, call: Callable[[], T]) -> T:
    """A question to the Hub, asked again while it is busy. Of its own words nothing is passed on."""
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    for attempt in range(_ATTEMPTS):
        status: int | None = None
        try:
            return call()
        except OfflineModeIsEnabled:
            raise InputError(f"{place} cannot be read: HF_HUB_OFFLINE is set. Unset it.") from None
        except EntryNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", place) from None
        except GatedRepoError:
            raise UsageError(
                f"{place} is gated: accept its terms on its page, then log in: hf auth login (or set HF_TOKEN)."
            ) from None
        except RevisionNotFoundError:
            raise UsageError(f"{place}: there is no such revision. Name a branch, a tag or a commit.") from None
        except RepositoryNotFoundError:
            raise UsageError(
                f"{place}: the Hub has no such dataset, or does not show it to you. Check the name; if it is private, "
                "log in: hf auth login (or set HF_TOKEN)."
            ) from None
        except HfHubHTTPError as error:
            status = error.response.status_code
            pause = _pause(error.response.headers.get("retry-after"), attempt)
            if status in (401, 403):
                raise UsageError(
                    f"{place}: the Hub refuses the token: it is expired, or may not do this. Log in: hf auth login"
                ) from None
            if status not in _BUSY:
                raise InputError(f"{place} cannot be read: the Hub answered with status {status}.") from None
        except OSError:
            pause = _pause(None, attempt)
        except Exception as error:
            if type(error).__module__.split(".")[0] not in ("httpx", "httpx2", "httpcore", "requests"):
                raise
            pause = _pause(None, attempt)
        if attempt < _ATTEMPTS - 1:
            time.sleep(pause)
    why = f"it is busy (status {status})" if status else "it cannot be reached"
    raise InputError(f"{place} cannot be read: the Hub does not answer, {why}. Run the same command again later.")


def _pause(retry_after: str | None, attempt: int) -> float:
    asked = float(retry_after) if retry_after and retry_after.isdigit() else 0.2 * 2**attempt
    return min(asked, _LONGEST_PAUSE)
