#!/usr/bin/env python3
"""Token ids by Hugging Face's tokenizers and transformers for small tokenizers of every kind that Tessera reads.

    python tests/oracles/tokenizer.py tests/data/vectors/tokenizer configs/gpt2-8m

Trains byte-level BPE on a few sentences in many scripts, writes the tokenizers' files and cases.json (which also has the shipped one):
{"texts": [string or {"hex": bytes that are not UTF-8}], "ids": {tokenizer: [ids of each text]}, "decoded": the same as texts,
"facts": {tokenizer: {...}}}.
Needs tokenizers and transformers.
"""
import json
import os
import random
import shutil
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and it's the dog's fault that they're late; we'll see, I'd say we've won.",
    "In the beginning there was the word, and the word was with the reader. The words of the reader are the words of the writer.",
    "Numbers: 0 1 2 10 12 123 1234 12345 3.14159 1e-6 2024-01-01 12:30 50% (42) [7] {x} <tag> a_b c-d e/f g\\h.",
    "for (int i = 0; i < n; ++i) {\n    sum += x[i] * y[i];  // dot product\n}\n\treturn sum;\n\n\n",
    "Ĝis revido! Größe, naïve café, żółw, år, œuvre, ſtraße, ΑΒΓ αβγ, привет мир, שלום עולם, مرحبا بالعالم, नमस्ते दुनिया, สวัสดี",
    "日本語の文章です。中文句子也在这里。한국어 문장도 있습니다. 🙂🙃👩‍👩‍👧‍👦🇪🇺👍🏽 ½ ² Ⅷ ① ٣ ४",
    "    four spaces        eight\t\ttabs \r\n windows line \u00a0 nbsp \u2028 line separator \u3000 wide",
] * 4

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

TEXTS = [
    "", " ", "  ", "\n", "\n\n", " \n", "\n ", "\t", "\r", "\r\n", "a", " a", "a ", "  a  ", "Hello world", " Hello  world ",
    "it's", "IT'S", "we'll they've I'm you're he'd can't 'tis 'twas ''s '' 's's", "ſ'ſ x'ſ", "don\u2019t", "o'clock's",
    "0", "007", "1234567890", "3.14", "1,000,000", "x1y2z3", "½²Ⅷ①٣४", "12 345  678", "2024-01-01T12:30:00Z",
    "hello\tworld\t\tagain", "line one\nline two\r\nline three\rline four", "trailing   ", "   leading", "a   b    c", "a\n  b",
    "a \n b", "a\n\n\n b", " \t \n \t ", "   \n   \n", "x" * 200, "the " * 60, " " * 300, "\n" * 50, "ab" * 100, "=" * 77 + "x",
    "日本語の文章です。", "中文 句子", "한국어 문장", "🙂🙃", "👩‍👩‍👧‍👦 family", "🇪🇺👍🏽", "e\u0301 a\u0308\u0323 combining", "\u0301", "नमस्ते दुनिया",
    "مرحبا بالعالم", "שָׁלוֹם", "สวัสดี", "ßẞſŒœ", "Ǆǅǆ ʰʱ ªº", "\u00a0", "a\u00a0b", "a\u00a0\u00a0b", " \u00a0 x", "\u2028", "a\u2028b\u2029c",
    "\u3000wide", "\u200bzero\u200dwidth\ufeff", "\u180emongolian", "\u0085next line", "\u001c\u001d\u001e\u001f", "\u0000", "a\u0000b",
    "\u0001\u0002\u007f\u0080\u009f", "\ufffd", "\ufffe\uffff", "\U0010ffff", "\U00010000", "\U0001e030\u1c89\U00011f50",
    "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> ", "<|endoftext|><|endoftext|>", "x <|endoftext|>\n\ny", "<|endoftext|", "<|endoftext|>>",
    "<|end|>", "<|end|>oftext|>", "<|im_start|>user\nhi<|im_end|>\n", "left   <left>   left", "right   <right>   right", "word wordx xword word.",
    "both\u00a0 <both> \n\nboth", "<left><right> <both>", "<norm> x<norm>y", "<norm><|endoftext|><norm>", "éaddéd é", "wordword word",
    "The quick brown fox jumps over the lazy dog.", "for (int i = 0; i < n; ++i) {\n        sum += x[i];\n}\n",
    "https://example.org/a/b?c=d&e=f#g", "snake_case CamelCase kebab-case", "!!! ??? ...", "\"quoted\" 'single' `back`", "a/b\\c|d", "$1.50 €2 £3",
    "tHE wORD", "THE WORD'S", "the\n\n\n\nword", "word\n    indented\n\tword", "  \n\n  word", "word \n", "word\n ", "...\n\n", "?!\r\n\r\nX",
]
INVALID = ["ff", "61ff62", "c3", "c328", "e282", "e28261", "eda080", "f0808080", "f09f98", "f09f9861", "f5808080", "f4908080", "c0af", "80", "8080",
           "e0809f", "20ff20", "61c3a9ff", "3c7cff7c3e", "f09f9982f09f99"]


def random_texts(count):
    pool = list("aabcdeehilnorsttTHEw  \n\t'0123.,-<|>") + ["'s", "'ll", " the", "word", "  ", "\r\n", "\u00a0", "é", "e\u0301", "日", "한", "🙂", "\u2028",
                "Ω", "ю", "ع", "<|endoftext|>", "<norm>", " <left>", "<right> ", "<|end|>", "\u0000", "\u200d", "½", "٣"]
    rng = random.Random(7)
    return ["".join(rng.choice(pool) for _ in range(rng.randrange(1, 60))) for _ in range(count)]


def script_texts(count):
    """Characters of one or two blocks of Unicode 14 each, mixed with others and with what tokenizers treat specially."""
    pool = list("ae t\n'01.,-") + ["'s", " the", "\r\n", "\u00a0", "e\u0301", "日", "🙂", "\u200d", "\u2581", "<0x41>", "<s>", "</s>", "<unk>", "\u2581the", "½", "٣"]
    blocks = {}
    for code in range(0x20000):
        if not 0xD800 <= code < 0xE000 and unicodedata.category(chr(code)) not in ("Cn", "Co"):
            blocks.setdefault(code >> 7, []).append(chr(code))
    keys = [key for key in blocks if not (0x3400 <= key << 7 < 0xA000 or 0xAC00 <= key << 7 < 0xD7A4)]
    rng = random.Random(11)
    out = []
    for _ in range(count):
        chosen = [blocks[rng.choice(keys)] for _ in range(rng.randrange(1, 3))]
        out.append("".join(rng.choice(rng.choice(chosen)) if rng.random() < 0.8 else rng.choice(pool) for _ in range(rng.randrange(1, 26))))
    return out


def train(pre, alphabet=True, size=640):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [])
    tok.train_from_iterator(CORPUS, trainer)
    return tok


def byte_level(prefix=False, regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def split(pattern, **kwargs):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), **kwargs), byte_level(regex=False)])


def special(text, **kwargs):
    return AddedToken(text, special=True, normalized=False, **kwargs)


def gpt2():
    tok = train(byte_level())
    tok.add_special_tokens([special("<|endoftext|>")])
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return tok


def flags():
    tok = train(byte_level(prefix=True), size=400)
    tok.add_special_tokens([special("<|endoftext|>"), special("<|end|>"), special("<|endoftext|>>"), special("<left>", lstrip=True),
                            special("<right>", rstrip=True), special("<both>", lstrip=True, rstrip=True)])
    tok.add_tokens([AddedToken("word", single_word=True), AddedToken("<norm>", normalized=True), AddedToken("éaddéd", normalized=False)])
    return tok


def llama3():
    tok = train(split(LLAMA3, behavior="isolated"), size=440)
    state = json.loads(tok.to_str())
    for word in ("Ġbrown", "dog", "Ġlazy", "word", "\u010a\u010a\u010a"):  # whole words that no merge makes
        state["model"]["vocab"].setdefault(word, len(state["model"]["vocab"]))
    state["model"]["ignore_merges"] = True
    tok = Tokenizer.from_str(json.dumps(state))
    tok.add_special_tokens([special("<|begin|>"), special("<|endoftext|>"), special("<|im_start|>"), special("<|im_end|>")])
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B:1",
                                      special_tokens=[("<|begin|>", tok.token_to_id("<|begin|>"))])])
    return tok


def qwen():
    tok = train(split(QWEN, behavior="isolated"), size=400)
    tok.add_special_tokens([special("<|endoftext|>"), special("<|im_start|>"), special("<|im_end|>")])
    return tok


def o200k():
    tok = train(split(O200K, behavior="removed", invert=True), size=400)
    tok.add_special_tokens([special("<|endoftext|>")])
    return tok


def bigcode():
    tok = train(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level()]), size=400)
    tok.add_special_tokens([special("<|endoftext|>")])
    return tok


def narrow():
    """No full byte alphabet: bytes without a token become <unk>, runs of them one."""
    tok = train(byte_level(), alphabet=False, size=330)
    state = json.loads(tok.to_str())
    vocab = {t: i for i, (t, _) in enumerate(sorted(state["model"]["vocab"].items(), key=lambda kv: kv[1]))}
    vocab["<unk>"] = len(vocab)
    state["model"].update(vocab=vocab, unk_token="<unk>", fuse_unk=True)
    return Tokenizer.from_str(json.dumps(state))


def train_characters(size=520):
    """SentencePiece's BPE as Llama's and Gemma's files have it: words begin with \u2581, characters without a token are bytes."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, show_progress=False, limit_alphabet=70,
                                  special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)])
    tok.train_from_iterator(CORPUS, trainer)
    return tok


def begins(tok):
    return processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B:1", special_tokens=[("<s>", tok.token_to_id("<s>"))])


def llama2():
    tok = train_characters()
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tok.pre_tokenizer = None
    tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tok.add_tokens([AddedToken("word", normalized=True)])
    tok.post_processor = begins(tok)
    return tok


def metaspace(scheme, split):
    tok = train_characters()
    tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    tok.decoder = decoders.Metaspace(prepend_scheme=scheme, split=split)
    tok.add_special_tokens([special("<|endoftext|>")])
    return tok


def gemma():
    tok = train_characters()
    tok.normalizer = normalizers.Replace(" ", "\u2581")
    tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tok.add_special_tokens([special("<|endoftext|>")])
    tok.post_processor = begins(tok)
    return tok


DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")


def deepseek():
    """Several patterns one after the other."""
    tok = train(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"), pre_tokenizers.Split(Regex("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"), "isolated"),
        pre_tokenizers.Split(Regex(DEEPSEEK), "isolated"), byte_level(regex=False)]), size=400)
    tok.add_special_tokens([special("<|endoftext|>")])
    return tok


def bloom():
    """A class inside a class."""
    return train(split(r" ?[^(\s|[.,!?…。，、।۔،])]+", behavior="isolated"), size=400)


def neox():
    tok = train(byte_level(), size=400)
    tok.normalizer = normalizers.NFC()
    tok.add_special_tokens([special("<|endoftext|>")])
    return tok


def nfkc_parts():
    """Other forms of normalization and every behavior of Split."""
    tok = train(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"[,;]"), "merged_with_previous"), pre_tokenizers.Split("<", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"\p{N}"), "contiguous"), pre_tokenizers.Split(Regex(r"\n+"), "removed"), byte_level()]), size=400)
    tok.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip(True, True), normalizers.NFD()])
    return tok


def unknown():
    """Characters without a token and without bytes: <unk>, once per run or per character."""
    tok = train_characters()
    state = json.loads(tok.to_str())
    state["model"].update(byte_fallback=False, fuse_unk=False)
    return Tokenizer.from_str(json.dumps(state))


def write(folder, tok, pairs=False, config=None):
    os.makedirs(folder)
    state = json.loads(tok.to_str())
    if not pairs:
        if "merges" in state["model"]:
            state["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in state["model"]["merges"]]
    with open(f"{folder}/tokenizer.json", "w") as f:
        json.dump(state, f, ensure_ascii=False, separators=(",", ":"))
    if config is not None:
        with open(f"{folder}/tokenizer_config.json", "w") as f:
            json.dump(config, f)


def write_two_files(folder, tok, config=None):
    """vocab.json and merges.txt; <|endoftext|> is in neither and is added by GPT2Tokenizer."""
    os.makedirs(folder)
    model = json.loads(tok.to_str())["model"]
    with open(f"{folder}/vocab.json", "w") as f:
        json.dump(model["vocab"], f, ensure_ascii=False, separators=(",", ":"))
    with open(f"{folder}/merges.txt", "w") as f:
        f.write("#version: 0.2\n" + "".join((m if isinstance(m, str) else " ".join(m)) + "\n" for m in model["merges"]))
    if config is not None:
        with open(f"{folder}/tokenizer_config.json", "w") as f:
            json.dump(config, f)


def main(out, shipped):
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import AutoTokenizer, GPT2Tokenizer, PreTrainedTokenizerFast
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    texts = TEXTS + random_texts(120) + script_texts(60)
    decoded = texts + [bytes.fromhex(h).decode("utf-8", errors="replace") for h in INVALID]
    cases = {"texts": texts + [{"hex": h} for h in INVALID], "ids": {}, "decoded": {}, "facts": {}}
    made = {"gpt2": gpt2(), "flags": flags(), "llama3": llama3(), "qwen": qwen(), "o200k": o200k(), "bigcode": bigcode(), "narrow": narrow(), "llama2": llama2(),
            "metaspace_first": metaspace("first", False), "metaspace_always": metaspace("always", True), "metaspace_never": metaspace("never", True),
            "gemma": gemma(), "neox": neox(), "nfkc_parts": nfkc_parts(), "unknown": unknown(), "deepseek": deepseek(), "bloom": bloom()}
    config = {"eos_token": "<|endoftext|>", "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512}
    more = {"eos_token": {"__type": "AddedToken", "content": "<eos>", "lstrip": True, "special": True}, "pad_token": "<pad>",
            "bos_token": "<|endoftext|>", "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1e30, "add_bos_token": True}
    for name, tok in made.items():
        write(f"{out}/{name}", tok, pairs=name == "flags", config={"gpt2": config, "qwen": more}.get(name))
    write_two_files(f"{out}/two_files", made["gpt2"])
    write_two_files(f"{out}/two_files_config", made["bigcode"],
                    {"add_bos_token": True, "add_prefix_space": True, "eos_token": "<eos>", "model_max_length": 77,
                     "additional_special_tokens": ["<left>"]})

    for name in [*made, "two_files", "two_files_config", "gpt2_8m"]:
        if name.startswith("two_files"):
            tok = GPT2Tokenizer.from_pretrained(f"{out}/{name}")
        elif name == "gpt2_8m":
            tok = AutoTokenizer.from_pretrained(shipped)
        else:
            tok = PreTrainedTokenizerFast.from_pretrained(f"{out}/{name}")
        cases["ids"][name] = [tok(t)["input_ids"] for t in decoded]
        if name in ("llama2", "metaspace_first", "metaspace_always", "metaspace_never", "gemma"):
            cases["decoded"][name] = [tok.decode(i, clean_up_tokenization_spaces=False) for i in cases["ids"][name]]
        ids = sorted(tok.get_vocab().values())
        cases["facts"][name] = {"size": len(tok), "max_id": ids[-1], "eos_id": -1 if tok.eos_token_id is None else tok.eos_token_id,
                                "model_max_length": min(tok.model_max_length, 2**63 - 1)}
    with open(f"{out}/cases.json", "w") as f:
        json.dump(cases, f, separators=(",", ":"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
