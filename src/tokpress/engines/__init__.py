"""Text -> token ids.

In: an Arrow array of documents. Out: one flat array of ids and the end of each document in it.

    base           the Engine protocol and what it says about a tokenizer
    table          which engines there are, and what packages add to them
    load           a tokenizer's name or path -> its files -> engines
    lookalike      files that are no tokenizer, by what they seem to be
    choice         the engine of a run: a fast one that is proved equal, else the reference
    huggingface, sentencepiece, tiktoken, bytes     the references: the libraries that define what is right
    tekken         Mistral's tekken.json as a rank file
    fast           a fast engine, and the reference for documents of which it is not sure
    native         our own for SentencePiece models, BPE and unigram
    native_json    the same encoder for unigram models in a tokenizer.json
    gigatoken      one that is fast; gigatoken_pieces for SentencePiece BPE models
    model_proto    a SentencePiece model, read from its bytes
    bpe_pieces     its pieces as a list of merges, and the proof that it is the same
    unsettled      characters on which it differs, because Unicode is of another year
    parity         the proof: both engines on the user's own text and on nasty strings
    starts         where tokens start in their text
    framing        BOS, EOS, range check, narrow dtype
    conformance    what every engine must do, as a suite that any engine can be put through
"""
