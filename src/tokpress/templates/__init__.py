"""Records -> text, and which of it is learned.

In: `TextBatch`es whose text is what the reader took out of each record. Out: `Rendered` batches: the text that is encoded,
and the spans of it that the loss is computed on. Plain text passes through as it is.

    base               the Template protocol, and what it gives back
    load               which template a build uses, and what its readers must take out of a record
    plain              the text itself
    prompt_completion  two fields, of which the second is learned; joined in Arrow
    chat               messages, rendered with the tokenizer's chat template as `transformers` renders it
    jinja              anything else: --template FILE, with {% loss %} around what is learned
    sandbox            what the last two share: Jinja2 without a way out, with bounds that do not depend on the machine
"""
