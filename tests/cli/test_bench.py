"""`tokpress bench`: measures what was asked for, where it was asked for."""

from __future__ import annotations

from pathlib import Path

from .conftest import Cli


class TestWorkers:
    def test_build_on_the_disk_that_is_named(self, cli: Cli, source: Path, tmp_path: Path) -> None:
        scratch = tmp_path / "not-mounted"
        result = cli("bench", "workers", source, "--tokenizer", "bytes", "--up-to", 1, "--scratch", scratch)
        assert result.code == 1
        assert f"error: {scratch}/tokpress-bench-" in result.err
