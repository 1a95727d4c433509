"""Sequences that hold several documents: attention, positions and losses stop at their borders."""
import json

from support import close, refused, zero
from scenarios.texts import sentences

RESET = dict(reset_attention_mask=True, reset_position_ids=True, eod_mask_loss=True)
SIZES = {"gpt2": None, "llama": "hidden_size=32,intermediate_size=48,num_hidden_layers=2,num_attention_heads=4,num_key_value_heads=2,vocab_size=4096,"
                                "max_position_embeddings=64"}


def packed(b, name, rows, **more):
    path = b.work / "documents.txt"
    path.write_text("\n".join(sentences(400)))
    return b.common(name, train_file=str(path), validation_file=str(path), per_device_train_batch_size=rows, append_eos=True, max_steps=4, max_eval_samples=10,
                    do_eval=True, **more)


def documents_agree_on_all_stages(b):
    """Losses of stages 0 to 3 on one, two and four ranks agree, with a loss that leaves out the borders; each option changes the losses."""
    for family, sizes in SIZES.items():
        model = dict(model_type=family, **({"config_overrides": sizes} if sizes else {}))
        b.train(1, packed(b, family, 4, **RESET, **model))
        for ranks, stage, flags in ((1, 3, {}), (2, 1, {}), (2, 2, dict(gradient_checkpointing=True)), (4, 0, {}), (4, 3, {})):
            name = f"{family}_{ranks}_{stage}"
            b.train(ranks, packed(b, name, 4 // ranks, **RESET, **model, **flags, deepspeed=b.config(f"{stage}.json", zero(stage))))
            close(b.losses(name), b.losses(family), 5e-6, name)
            close([m["eval_loss"] for m in b.metrics(name) if "eval_loss" in m], [m["eval_loss"] for m in b.metrics(family) if "eval_loss" in m], 5e-6, name)
        seen = {tuple(b.losses(family))}
        for option in RESET:
            b.train(1, packed(b, option + family, 4, **{option: True}, **model))
            seen.add(tuple(b.losses(option + family)))
        b.train(1, packed(b, "plain" + family, 4, **model))
        assert len(seen | {tuple(b.losses("plain" + family))}) == 5, seen


def documents_of_token_files(b):
    """Files of token ids have the borders that tessera tokenize wrote; texts without a border, and tokenizers that name none, are refused."""
    words = packed(b, "text", 4, **RESET)
    b.train(2, words)
    tokenizer = b.source / "configs/gpt2-8m"
    b.tool(["tokenize", tokenizer, "--file", b.work / "documents.txt", "--output", b.work / "ids.bin", "--append_eos"])
    ids = dict(train_file=str(b.work / "ids.bin"), validation_file=str(b.work / "ids.bin"), per_device_train_batch_size=4, max_steps=4, **RESET)
    b.train(2, b.common("ids", **ids))
    assert b.losses("ids") == b.losses("text")
    refused(b, 65, b.common("without", **dict(ids, train_file=str(b.text), validation_file=str(b.text))), "--reset_attention_mask: no sequence of",
            "has the tokenizer's eos_token", "--append_eos")
    refused(b, 78, b.common("twice", **ids, append_eos=True), "holds token ids already")
    nameless = b.work / "tokenizer"
    nameless.mkdir()
    document = json.loads((tokenizer / "tokenizer.json").read_text())
    document["added_tokens"] = []
    (nameless / "tokenizer.json").write_text(json.dumps(document))
    refused(b, 78, packed(b, "nameless", 4, tokenizer_name=str(nameless), eod_mask_loss=True), "--eod_mask_loss", "names no eos_token")


def documents_resume(b):
    """A resume on another number of ranks continues the losses; a changed option is named."""
    b.train(1, packed(b, "full", 4, **RESET, lr_scheduler_type="constant"))
    options = dict(lr_scheduler_type="constant", save_strategy="steps", save_steps=2)
    words = packed(b, "cut", 2, **RESET, **options)
    words[words.index("--max_steps") + 1] = "2"
    b.train(2, words)
    done = b.train(1, packed(b, "cut", 4, reset_attention_mask=True, eod_mask_loss=True, reset_position_ids=True, **options))
    close(b.losses("cut"), b.losses("full"), 5e-6, "resumed")
    done = b.train(1, [*packed(b, "cut", 4, reset_attention_mask=True, **options), "--max_steps", "5"])
    assert "eod_mask_loss was true, is false" in done.stderr, done.stderr
