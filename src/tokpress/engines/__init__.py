"""Text -> token ids.

In: an Arrow array of documents. Out: one flat array of ids and the end of each document in it.

    base           the Engine protocol and what it says about a tokenizer
    load           a tokenizer's name or path -> its files -> engines
    huggingface, sentencepiece, tiktoken, bytes     the references: the libraries that define what is right
    gigatoken      the fast one, used where it is proved equal
    unsettled      characters on which it is not, because Unicode is of another year
    parity         the proof: both engines on the user's own text and on nasty strings
    framing        BOS, EOS, range check, narrow dtype
    conformance    what every engine must do, as a suite that any engine can be put through
"""
