#!/usr/bin/env python3
"""Chat templates rendered by jinja2, in the environment that transformers' apply_chat_template makes.

    python tests/oracles/chat_templates.py --store > tests/data/vectors/chat/cases.json
    python tests/oracles/chat_templates.py --compare build/host/tests/bin/test.data.render_chats

--store writes what the templates in tests/data/vectors/chat render. --compare renders a larger corpus by jinja2 and by the
program, also for the templates of TRL's package where that is installed, and with ids and masks by transformers' own
apply_chat_template where transformers and tokenizers are. It ends with 77 where jinja2 is missing.
"""
import argparse
import datetime
import json
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    print("skipped: jinja2 is not installed (Debian: python3-jinja2)")
    sys.exit(77)

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data" / "vectors" / "chat"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
NOW = 1_700_000_000


class Generation(jinja2.ext.Extension):
    """The tag `generation` of transformers: where in the text its blocks are."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller):
        text = caller()
        start = len("".join(self.environment.blocks))
        self.environment.spans.append((start, start + len(text)))
        return text


def environment():
    out = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    out.filters["tojson"] = tojson
    out.globals["raise_exception"] = raise_exception
    out.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW).strftime(f)
    return out


def normalized(messages):
    """What apply_chat_template does to messages before a template sees them."""
    out = []
    for message in messages:
        message = {key: value for key, value in message.items() if value is not None}
        reasoning = next((message[k] for k in ("reasoning_content", "thinking", "reasoning") if k in message), None)
        if reasoning is not None:
            message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
        out.append(message)
    return out


def rendered(case):
    """{"text", "spans"} in bytes, or {"error"}."""
    env = environment()
    env.blocks, env.spans = [], []
    try:
        template = env.from_string(case["source"])
        for block in template.generate(**{
                **case.get("variables", {}), **case.get("chat_template_kwargs", {}), "messages": normalized(case["messages"]),
                "tools": case.get("tools"), "documents": case.get("documents"),
                "add_generation_prompt": case.get("add_generation_prompt", False)}):
            env.blocks.append(block)
        text = "".join(env.blocks)
        text.encode()
    except Exception as error:  # a template may fail in any way
        return {"error": str(error)}
    spans = [[len(text[:a].encode()), len(text[:b].encode())] for a, b in env.spans]
    return {"text": text, "spans": spans}


WORDS = ["", " ", "hello", "  spaced  ", "\n\nlines\r\nand\ttabs\n", "üñí 😀 漢字", "'quotes\" \\ \\n", "<think>\nwhy\n</think>\n\nanswer",
         "<tool_response>x</tool_response>", "{{ not }} {% code %}", "\u2028\u00a0\u200bodd\u0085", "é\u0301", "</s><s>[INST]", "a" * 300]


def text_of(random):
    return random.choice(WORDS) if random.random() < 0.7 else " ".join(random.choices(WORDS, k=3))


def value_of(random, depth=0):
    kinds = [1, -2.5, 1e22, True, False, None, "ü", "a\"b", [], {}, 12345678901]
    if depth < 3 and random.random() < 0.4:
        if random.random() < 0.5:
            return [value_of(random, depth + 1) for _ in range(random.randrange(4))]
        return {random.choice("abcüd") * n: value_of(random, depth + 1) for n in range(1, random.randrange(1, 5))}
    return random.choice(kinds)


def tool_of(random, number):
    properties = {f"p{i}": random.choice([
        {"type": "string", "description": text_of(random)}, {"type": "string", "enum": ["x", "y"]}, {"type": "integer"},
        {"type": ["string", "null"]}, {"type": "array", "items": {"type": "object", "properties": {"q": {"type": "string"}}}},
        {"type": "boolean", "default": True}]) for i in range(random.randrange(4))}
    return {"type": "function", "function": {
        "name": f"tool_{number}", "description": text_of(random),
        "parameters": {"type": "object", "properties": properties, "required": list(properties)[:1]}}}


def message_of(random, role):
    out = {"role": role, "content": text_of(random)}
    if random.random() < 0.15:
        out["content"] = [{"type": "text", "text": text_of(random)} for _ in range(random.randrange(1, 3))]
    if random.random() < 0.03:
        out["content"] = None
    if role == "assistant":
        if random.random() < 0.25:
            out[random.choice(["reasoning_content", "thinking", "reasoning"])] = text_of(random)
        if random.random() < 0.3:
            arguments = {f"k{i}": value_of(random) for i in range(random.randrange(3))}
            if random.random() < 0.2:
                arguments = json.dumps(arguments)
            calls = [{"id": "abcdefgh" + str(i), "type": "function", "function": {"name": f"tool_{i}", "arguments": arguments}}
                     for i in range(random.randrange(1, 3))]
            if random.random() < 0.2:
                calls = [call["function"] for call in calls]
            out["tool_calls"] = calls
            out["content"] = random.choice(["", None, text_of(random)])
    if role == "tool":
        out["name"] = "tool_0"
        out["tool_call_id"] = "abcdefgh0"
    return out


def conversation_of(random, most_tools):
    if random.random() < 0.6:  # an order that templates accept
        roles = ["system"] * (random.random() < 0.4)
        for _ in range(random.randrange(1, 4)):
            roles += ["user", "assistant"]
            if random.random() < 0.2:
                roles += ["tool", "assistant"]
        if random.random() < 0.3:
            roles = roles[:-1]
    else:
        roles = random.choices(["system", "user", "assistant", "tool", "developer"], k=random.randrange(1, 6))
    out = {"messages": [message_of(random, role) for role in roles], "add_generation_prompt": random.random() < 0.4}
    if random.random() < 0.3:
        out["tools"] = [tool_of(random, i) for i in range(random.choice([1, 2, most_tools]))]
    if random.random() < 0.2:
        out["documents"] = [{"title": text_of(random), "text": text_of(random)}]
    if random.random() < 0.3:
        out["chat_template_kwargs"] = random.choice([
            {"enable_thinking": False}, {"enable_thinking": True}, {"reasoning_effort": "high"}, {"clock": 1},
            {"date_string": "1 Jan"}, {"custom_tools": [1]}])
    return out


def own_templates():
    return {file.stem: file.read_bytes().decode() for file in sorted(FOLDER.glob("*.jinja"))}


def trl_templates():
    try:
        import trl
    except Exception as error:  # it imports torch
        print(f"templates of TRL are left out: {error}")
        return {}
    folder = pathlib.Path(trl.__file__).parent / "chat_templates"
    return {"trl/" + file.stem: file.read_bytes().decode() for file in sorted(folder.glob("*.jinja"))}


def cases_of(templates, count, seed, most_tools=30):
    """The conversations are the same for all templates."""
    draw = random.Random(seed)
    conversations = [conversation_of(draw, most_tools) for _ in range(count)]
    for name, source in templates.items():
        for i, conversation in enumerate(conversations):
            yield {"name": f"{name} #{i}", "source": source, "variables": TOKENS, **conversation}


def tokenizers_of(folder):
    """Directories of small tokenizers with the steps of Qwen, Llama 3, Llama 2 and Gemma."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>",
               "<start_of_turn>", "<end_of_turn>", "<think>", "</think>"]
    texts = [w for w in WORDS if w.isprintable()] * 3 + ["assistant user system hello world the answer is here"] * 9
    words = Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    for name in ("qwen", "llama3", "llama2", "gemma"):
        if name in ("qwen", "llama3"):
            made = Tokenizer(models.BPE())
            made.normalizer = normalizers.NFC() if name == "qwen" else None
            made.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Split(words, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
            made.decoder = decoders.ByteLevel()
            trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                          show_progress=False)
        else:
            made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
            steps = [normalizers.Replace(" ", "\u2581")]
            made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581")] * (name == "llama2") + steps)
            made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
            trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False,
                                          special_tokens=["<unk>"] + special + [f"<0x{i:02X}>" for i in range(256)])
        made.train_from_iterator(texts, trainer)
        if name == "llama2":
            tree = json.loads(made.to_str())  # byte tokens are no added tokens
            tree["added_tokens"] = [t for t in tree["added_tokens"] if not t["content"].startswith("<0x")]
            made = Tokenizer.from_str(json.dumps(tree))
        if name == "qwen":
            made.post_processor = processors.ByteLevel(trim_offsets=False)
        if name == "llama3":
            made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(
                single="<s> $A", special_tokens=[("<s>", made.token_to_id("<s>"))])])
        directory = folder / name
        directory.mkdir()
        made.save(str(directory / "tokenizer.json"))
        (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "bos_token": "<s>"}))
        yield directory


def run(program, cases):
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run([program], input=lines.encode(), capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{program} ended with {done.returncode}: {done.stderr.decode()[-500:]}")
    return [json.loads(line) for line in done.stdout.split(b"\n") if line]


def differences(cases, expected, found):
    out = 0
    for case, wanted, got in zip(cases, expected, found):
        same = ("error" in got) == ("error" in wanted) if "error" in wanted else got == wanted
        if same:
            continue
        out += 1
        if out <= 20:
            print(f"{case['name']}:\n  expected {json.dumps(wanted)[:1500]}\n  found    {json.dumps(got)[:1500]}")
    return out


def compare_text(program, count):
    wrong = total = 0
    for templates, each in ((own_templates(), count), (trl_templates(), count)):
        cases = list(cases_of(templates, each, seed=35))
        expected = [rendered(case) for case in cases]
        wrong += differences(cases, expected, run(program, cases))
        total += len(cases)
        print(f"{len(templates)} templates, {len(cases)} conversations rendered, {sum('error' in e for e in expected)} of them refused")
    return wrong


def compare_ids(program, count):
    try:
        import tokenizers  # noqa: F401
        import transformers
    except Exception as error:
        print(f"ids and masks are left out: {error}")
        return 0
    wrong = 0
    # transformers writes the time of its call
    templates = {name: own_templates()[name].replace('strftime_now("%Y")', '"2023"')
                 for name in ("chatml_training", "llama3", "qwen3", "mistral_small", "smollm3")}
    with tempfile.TemporaryDirectory() as scratch:
        for directory in tokenizers_of(pathlib.Path(scratch)):
            tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(directory)
            cases, expected = [], []
            for case in cases_of(templates, count, seed=36):
                case.update(tokenizer=str(directory), variables=tokenizer.special_tokens_map, name=f"{directory.name} {case['name']}")
                text = rendered(case)
                if "error" in text:
                    continue
                encoded = tokenizer.apply_chat_template(
                    case["messages"], tools=case.get("tools"), documents=case.get("documents"), chat_template=case["source"],
                    add_generation_prompt=case["add_generation_prompt"], return_assistant_tokens_mask=True,
                    **case.get("chat_template_kwargs", {}))
                cases.append(case)
                expected.append({**text, "ids": encoded["input_ids"], "mask": encoded["assistant_masks"]})
            wrong += differences(cases, expected, run(program, cases))
            print(f"{directory.name}: {len(cases)} conversations, {sum(sum(e['mask']) for e in expected)} tokens of assistants")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--compare", metavar="PROGRAM")
    parser.add_argument("--count", type=int, default=40)
    options = parser.parse_args()
    if options.store:
        cases = list(cases_of(own_templates(), 5, seed=1, most_tools=3))
        print(json.dumps([{**{k: v for k, v in case.items() if k != "source"}, "expected": rendered(case)} for case in cases], indent=0))
        return 0
    wrong = compare_text(options.compare, options.count) + compare_ids(options.compare, options.count)
    print(f"{wrong} differences")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
