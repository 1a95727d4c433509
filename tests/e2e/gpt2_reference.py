"""GPT-2 in plain Python and double precision, from a Hugging Face directory: the formulas of Radford et al. (2019) as transformers implements
them (pre-norm, gelu_new, tied head). For models of some thousand parameters per layer."""
import array
import json
import math

from support import safetensors


class Gpt2:
    def __init__(self, directory):
        self.config = json.loads((directory / "config.json").read_text())
        self.tensors = {}
        for name, (dtype, shape, data) in safetensors(directory / "model.safetensors").items():
            assert dtype == "F32", (name, dtype)
            values = array.array("f", data).tolist()
            name = name.removeprefix("transformer.")
            self.tensors[name] = values if len(shape) == 1 else [values[r * shape[1]:(r + 1) * shape[1]] for r in range(shape[0])]
            if len(shape) == 2 and name.startswith("h."):  # Conv1D stores [in, out]; products need [out, in]
                self.tensors[name] = [list(column) for column in zip(*self.tensors[name])]

    def linear(self, name, x):
        return [dot(row, x) + bias for row, bias in zip(self.tensors[name + ".weight"], self.tensors[name + ".bias"])]

    def norm(self, name, x):
        mean = sum(x) / len(x)
        scale = 1 / math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + self.config["layer_norm_epsilon"])
        return [(v - mean) * scale * g + b for v, g, b in zip(x, self.tensors[name + ".weight"], self.tensors[name + ".bias"])]

    def hidden(self, tokens):
        """Final hidden states, one per position."""
        states = [add(self.tensors["wte.weight"][t], self.tensors["wpe.weight"][i])
                  for i, t in enumerate(tokens)]
        for layer in range(self.config["n_layer"]):
            name = f"h.{layer}."
            mixed = self.attention(name, [self.linear(name + "attn.c_attn", self.norm(name + "ln_1", x)) for x in states])
            states = [add(x, self.linear(name + "attn.c_proj", m)) for x, m in zip(states, mixed)]
            for i, x in enumerate(states):
                inner = [gelu_new(v) for v in self.linear(name + "mlp.c_fc", self.norm(name + "ln_2", x))]
                states[i] = add(x, self.linear(name + "mlp.c_proj", inner))
        return [self.norm("ln_f", x) for x in states]

    def attention(self, name, qkv):
        width, heads = self.config["n_embd"], self.config["n_head"]
        size, out = width // heads, [[0.0] * width for _ in qkv]
        for head in range(heads):
            at = head * size
            for i, row in enumerate(qkv):
                scores = [dot(row[at:at + size], qkv[j][width + at:width + at + size]) / math.sqrt(size) for j in range(i + 1)]
                weights = softmax(scores)
                for k in range(size):
                    out[i][at + k] = sum(w * qkv[j][2 * width + at + k] for j, w in enumerate(weights))
        return out

    def logits(self, state):
        return [dot(row, state) for row in self.tensors["wte.weight"]]

    def losses(self, tokens):
        """Cross-entropy of each token after the first."""
        states = self.hidden(tokens)
        return [log_sum_exp(logits) - logits[target] for target, logits in ((t, self.logits(s)) for t, s in zip(tokens[1:], states))]

    def hits(self, tokens):
        """How many tokens after the first are the most likely ones."""
        ranked = (self.logits(state) for state in self.hidden(tokens)[:-1])
        return sum(logits.index(max(logits)) == target for target, logits in zip(tokens[1:], ranked))

    def greedy(self, tokens, count, end):
        """The most likely continuation, and the smallest lead of a chosen token over the second."""
        tokens, lead = list(tokens), math.inf
        for _ in range(count):
            ranked = sorted(((v, t) for t, v in enumerate(self.logits(self.hidden(tokens)[-1]))), reverse=True)
            lead = min(lead, ranked[0][0] - ranked[1][0])
            if ranked[0][1] == end:
                break
            tokens.append(ranked[0][1])
        return tokens, lead


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def add(a, b):
    return [x + y for x, y in zip(a, b)]


def softmax(scores):
    total = log_sum_exp(scores)
    return [math.exp(s - total) for s in scores]


def log_sum_exp(values):
    most = max(values)
    return most + math.log(math.fsum(math.exp(v - most) for v in values))


def gelu_new(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def ascii_text(directory, tokens):
    """Tokens of ASCII text as text, by the byte alphabet of tokenizer.json."""
    vocabulary = {i: t for t, i in json.loads((directory / "tokenizer.json").read_text())["model"]["vocab"].items()}
    return "".join(vocabulary[t] for t in tokens).replace("\u0120", " ").replace("\u010a", "\n")
