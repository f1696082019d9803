"""Records -> documents.

In: `TextBatch`es whose text is what the reader took out of each record. Out: the text that is encoded with the spans of it
that the loss is computed on (`Rendered`), and, once there are ids, documents as they are stored (`DocumentBatch`).

    base               the Template protocol, and what it gives back
    templates          which template a build uses, and what its readers must take out of a record
    plain              the text itself
    prompt_completion  two fields, of which the second is in the loss; joined in Arrow
    chat               messages, rendered with the tokenizer's chat template as `transformers` renders it
    answers            what the assistant says in a chat, without its thinking or its tool calls if that is asked for
    jinja              anything else: --template FILE, with {% loss %} around what is in the loss
    sandbox            what the last two share: Jinja2 without a way out, with bounds that do not depend on the machine
    spending           what a template may spend on a record, and what it may write
    growth             how much a filter may make of little
    shape              template, frame, loss mask, length: batches and their ids -> documents
    frame              BOS, EOS, range check, narrow dtype
    starts             where tokens start in their text, for the loss mask
    splits             which split a record belongs to
    batching           joining small batches, setting records aside
    rejects            how many bad records are too many
"""
