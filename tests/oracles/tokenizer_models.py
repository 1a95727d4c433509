#!/usr/bin/env python3
"""Token ids by Hugging Face's tokenizers for Unigram, WordPiece and Falcon's kind of BPE, with the normalizers and pre_tokenizers of T5, ALBERT, XLNet and BERT.

    python tests/oracles/tokenizer_models.py tests/data/vectors/tokenizer_models

The files are those of tokenizer.py. Needs tokenizers, transformers and sentencepiece (it compiles the small precompiled_charsmap).
"""
import base64
import json
import os
import shutil
import sys
import tempfile

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import tokenizer as base

RULES = {"\ufb01": "fi", "\uff21": "A", "\u00bd": "1/2", "\u2026": "...", "\t": " ", "\r": " ", "\n": " ", "\u00a0": " ", "\u3000": " ", "\u200d": "", "\u0000": "",
         "e\u0301": "\u00e9", "\u212b": "\u00c5", "\u2460": "1", "\u0928\u093f": "NI", "a\u0308": "\u00e4", "\U0001f642": ":)", "\u0600": "", "\ufdfa": "\u0635\u0644\u0649"}


def charsmap(rules=None, name=None):
    """A charsmap that SentencePiece compiled from these rules, or one of its own."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/rules.tsv", "w") as f:
            for source, target in (rules or {}).items():
                if source != "\u0000":
                    f.write(" ".join(f"{ord(c):X}" for c in source) + "\t" + " ".join(f"{ord(c):X}" for c in target) + "\n")
        with open(f"{folder}/text", "w") as f:
            f.write("\n".join(base.CORPUS))
        how = {"normalization_rule_name": name} if name else {"normalization_rule_tsv": f"{folder}/rules.tsv"}
        sentencepiece.SentencePieceTrainer.train(input=f"{folder}/text", model_prefix=f"{folder}/m", vocab_size=300, minloglevel=2, hard_vocab_limit=False, **how)
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString(open(f"{folder}/m.model", "rb").read())
        return proto.normalizer_spec.precompiled_charsmap


def unigram(normalizer, pre, size=360, **model):
    tok = Tokenizer(models.Unigram())
    tok.normalizer, tok.pre_tokenizer = normalizer, pre
    tok.train_from_iterator(base.CORPUS, trainers.UnigramTrainer(vocab_size=size, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False))
    state = json.loads(tok.to_str())
    vocab = [[t, round(s, 4)] for t, s in state["model"]["vocab"]]  # stored short; ids are computed from these
    state["model"].update(vocab=vocab, **model)
    return Tokenizer.from_str(json.dumps(state))


def t5(name=None):
    tok = unigram(normalizers.Sequence([normalizers.Precompiled(charsmap(RULES, name)), normalizers.Replace(Regex(" {2,}"), " ")]), pre_tokenizers.Metaspace())
    tok.decoder = decoders.Metaspace()
    tok.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return tok


def albert(name=None):
    tok = unigram(normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                        normalizers.Precompiled(charsmap(RULES, name)), normalizers.Replace(Regex(" {2,}"), " ")]),
                  pre_tokenizers.Metaspace(prepend_scheme="always"))
    tok.decoder = decoders.Metaspace()
    tok.post_processor = processors.BertProcessing(("</s>", 1), ("<pad>", 0))
    return tok


def xlnet():
    tok = unigram(normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Strip(True, True)]),
                  pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first")]))
    tok.decoder = decoders.Metaspace()
    return tok


def unigram_bytes():
    """One piece per text, and bytes for characters without a token."""
    tok = unigram(normalizers.Replace(" ", "\u2581"), None)
    state = json.loads(tok.to_str())
    state["model"]["vocab"] += [[f"<0x{b:02X}>", 0.0] for b in range(256)] + [["\u65e5\u672c\u8a9e", -100.0]]
    state["model"]["byte_fallback"] = True
    tok = Tokenizer.from_str(json.dumps(state))
    tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tok


def word_piece(normalizer, pre, **model):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer, tok.pre_tokenizer = normalizer, pre
    tok.train_from_iterator(base.CORPUS, trainers.WordPieceTrainer(vocab_size=520, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    state = json.loads(tok.to_str())
    state["model"]["vocab"] = {t: i for i, t in enumerate(sorted(state["model"]["vocab"], key=lambda t: (not t.startswith("["), t)))}  # training numbers them at random
    state["model"].update(**model)
    return Tokenizer.from_str(json.dumps(state))


def bert():
    tok = word_piece(normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer())
    tok.decoder = decoders.WordPiece()
    ids = [(t, tok.token_to_id(t)) for t in ("[SEP]", "[CLS]")]
    tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids)
    return tok


def bert_cased():
    tok = word_piece(normalizers.BertNormalizer(lowercase=False, strip_accents=True, handle_chinese_chars=False), pre_tokenizers.BertPreTokenizer(), max_input_chars_per_word=12)
    tok.decoder = decoders.WordPiece(cleanup=False)
    return tok


def words():
    """Whitespace, Punctuation and CharDelimiterSplit."""
    tok = word_piece(normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]),
                     pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.CharDelimiterSplit("_")]))
    tok.decoder = decoders.WordPiece()
    return tok


def bpe(pre, size=400):
    tok = base.train(pre, size=size)
    tok.add_special_tokens([base.special("<|endoftext|>")])
    return tok


def falcon():
    return bpe(pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), base.byte_level(), pre_tokenizers.Digits(individual_digits=False),
                                        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]))


def escapes():
    """\\w, \\d, \\W, \\S and \\P in patterns."""
    return bpe(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"[\w']+|\d+(?=\W)|\P{L}\S|[^\s\d]+"), "isolated"), base.byte_level(regex=False)]))


KINDS = {"t5": t5, "albert": albert, "xlnet": xlnet, "unigram_bytes": unigram_bytes, "bert": bert, "bert_cased": bert_cased, "words": words, "falcon": falcon, "escapes": escapes}


def main(out):
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import PreTrainedTokenizerFast
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    extra = ["\ufb01ne \u2026 e\u0301e\u0301 a\u0308\u0301 \U0001f642\u200d\U0001f642", "\u0928\u093f \ufdfa \u0600 \uff21\u0301", "I\u0130\u0130 \u03a3\u03a3 \u1e9e", "a`b``c''d", "\u65e5\u672c\u8a9e\u65e5",
             "[CLS] [sep] [MASK]x", "donaudampfschifffahrt unaffable", "don't . do not ! he 's", "1234567 12,345.678", "a_b__c _ d", "\u00b2\u00b9\u00bc x\u00b2y", "<unk>\u65e5<unk>"]
    texts = base.TEXTS + extra + base.random_texts(60) + base.script_texts(90)
    cases = {"texts": texts, "ids": {}, "decoded": {}, "facts": {}}
    for name, make in KINDS.items():
        base.write(f"{out}/{name}", make())
        tok = PreTrainedTokenizerFast.from_pretrained(f"{out}/{name}")
        cases["ids"][name] = [tok(t)["input_ids"] for t in texts]
        if name not in ("falcon", "escapes"):
            cases["decoded"][name] = [tok.decode(i, clean_up_tokenization_spaces=False) for i in cases["ids"][name]]
        ids = sorted(tok.get_vocab().values())
        cases["facts"][name] = {"size": len(tok), "max_id": ids[-1], "eos_id": -1, "model_max_length": min(tok.model_max_length, 2**63 - 1)}
    with open(f"{out}/cases.json", "w") as f:
        json.dump(cases, f, separators=(",", ":"))


if __name__ == "__main__":
    main(sys.argv[1])
