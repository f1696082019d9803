"""The card of a store on the Hub: what it is, what it was made with, how to load it.

In: a manifest and the address. Out: README.md, as bytes.
"""

from __future__ import annotations

from tokpress.records import Manifest

_MARK = b"<!-- written by tokpress publish -->"  # a card without it is its owner's, and stays


def is_ours(card: bytes) -> bool:
    return not card or _MARK in card


def card_of(manifest: Manifest, url: str) -> bytes:
    tokenizer = manifest.tokenizer
    name = url.rpartition("/")[2].partition("@")[0]
    splits = "".join(
        f"| {split} | {entry.docs:,} | {entry.tokens:,} | {len(entry.shards):,} |\n"
        for split, entry in manifest.splits.items()
    )
    size = sum(
        file.bytes for split in manifest.splits.values() for shard in split.shards for file in shard.files.values()
    )
    text = f"""---
tags:
- tokpress
- tokenized
viewer: false
---
{_MARK.decode()}
# {name}

Tokens for training, made by [tokpress](https://pypi.org/project/tokpress/): raw ids in shards, and the
tokenizer that made them.

| split | documents | tokens | shards |
|---|---|---|---|
{splits}
| | |
|---|---|
| tokenizer | {tokenizer.kind}, {tokenizer.vocab_size:,} tokens, fingerprint `{tokenizer.fingerprint}` |
| ids | `{manifest.dtype}`, BOS {_id(manifest.bos_id)}, EOS {_id(manifest.eos_id)} |
| bytes | {size:,} |
| fingerprint of the tokens | `{manifest.fingerprint}` |

## How to load it
```bash
pip install 'tokpress[remote]'
tokpress copy {url} tokens        # verified on arrival; stopped, the same command goes on
```
```python
import tokpress

data = tokpress.PretokenizedDataset("tokens", seq_len=2048)  # or from where it is: "{url}"
loader = tokpress.Loader(data, batch_size=16, seed=0)
```
`tokpress verify tokens` compares every byte with its checksum, `tokpress inspect tokens` shows what is in it.
"""
    return text.encode()


def _id(number: int | None) -> str:
    return "none" if number is None else str(number)
