"""`python -m tokpress` is the `tokpress` command."""

from tokpress.cli import main

main()
