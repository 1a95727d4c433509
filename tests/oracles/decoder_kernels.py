#!/usr/bin/env python3
"""Writes decoder_kernels.json: small inputs, results and gradients of the parts of transformers' decoders (RMS norms, rotary
embeddings, gated MLPs, attention with a sliding window and a soft cap, capped logits) in fp32, norms and rotations also in bf16,
and frequencies and tables of every rope type.

    python3 tests/oracles/decoder_kernels.py      needs torch and transformers
"""
import json
import pathlib

import torch
import torch.nn.functional as F
import transformers
from transformers import LlamaConfig
from transformers.activations import ACT2FN
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm, eager_attention_forward
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

torch.manual_seed(1)


def numbers(tensor):
    return [float(f"{x:.9g}") for x in tensor.detach().float().flatten().tolist()]  # nine digits hold every fp32 number


def leaf(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype).requires_grad_()


def rms_norms():
    rows, columns = 3, 19
    out = []
    for name, kind in (("llama", LlamaRMSNorm), ("gemma", Gemma2RMSNorm), ("olmo2", Olmo2RMSNorm)):
        for dtype in (torch.float32, torch.bfloat16):
            norm = kind(columns, eps=1e-5)
            norm.weight.data.copy_(torch.randn(columns))
            norm = norm.to(dtype)
            x, dout = leaf(rows, columns, dtype=dtype), torch.randn(rows, columns).to(dtype)
            y = norm(x)
            y.backward(dout)
            out.append({"family": name, "dtype": str(dtype)[6:], "rows": rows, "columns": columns, "gamma": numbers(norm.weight), "in": numbers(x),
                        "dout": numbers(dout), "out": numbers(y), "din": numbers(x.grad), "dgamma": numbers(norm.weight.grad)})
    return out


def rotations():
    batch, length, heads, head_dim, first = 2, 3, 2, 12, 7
    out = []
    for rotary_dim in (12, 4):
        for dtype in (torch.float32, torch.bfloat16):
            rotary = LlamaRotaryEmbedding(LlamaConfig(hidden_size=rotary_dim * heads, num_attention_heads=heads, rope_parameters={"rope_type": "default", "rope_theta": 100.0}))
            x, dout = leaf(batch, length, heads, head_dim, dtype=dtype), torch.randn(batch, length, heads, head_dim).to(dtype)
            cos, sin = rotary(x, torch.arange(first, first + length)[None])
            y = apply_rotary_pos_emb(x.transpose(1, 2), x.transpose(1, 2), cos, sin)[0].transpose(1, 2)
            y.backward(dout)
            out.append({"dtype": str(dtype)[6:], "batch": batch, "length": length, "heads": heads, "head_dim": head_dim, "first": first, "rotary_dim": rotary_dim,
                        "theta": 100.0, "in": numbers(x), "dout": numbers(dout), "out": numbers(y), "din": numbers(x.grad)})
    return out


def activations():
    out = []
    for name in ("gelu_new", "gelu_pytorch_tanh", "gelu", "silu", "relu", "quick_gelu", "relu2"):
        gate, up, dout = leaf(2, 9), leaf(2, 9), torch.randn(2, 9)
        gate.data *= 3
        y = ACT2FN[name](gate) * up
        y.backward(dout)
        out.append({"name": name, "gate": numbers(gate), "up": numbers(up), "dout": numbers(dout), "out": numbers(y), "dgate": numbers(gate.grad), "dup": numbers(up.grad)})
    return out


class Group:
    """What eager_attention_forward asks of its module."""
    num_key_value_groups, training = 2, False


def attentions():
    batch, length, heads, kv_heads, head_dim, scale = 1, 9, 4, 2, 8, 0.4
    out = []
    for window, cap in ((0, 0.0), (4, 0.0), (0, 2.0), (1, 0.0), (5, 3.0)):
        q, k, v = leaf(batch, length, heads, head_dim), leaf(batch, length, kv_heads, head_dim), leaf(batch, length, kv_heads, head_dim)
        t, s = torch.arange(length)[:, None], torch.arange(length)[None]
        seen = (s <= t) & ((s > t - window) if window else torch.ones_like(s <= t))
        mask = torch.where(seen, 0.0, float("-inf"))[None, None]
        y, _ = eager_attention_forward(Group, q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask, scaling=scale, softcap=cap or None)
        dout = torch.randn_like(y)
        y.backward(dout)
        out.append({"batch": batch, "length": length, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "scale": scale, "window": window, "cap": cap,
                    "query": numbers(q), "key": numbers(k), "value": numbers(v), "dout": numbers(dout), "out": numbers(y), "dquery": numbers(q.grad),
                    "dkey": numbers(k.grad), "dvalue": numbers(v.grad)})
    return out


def capped_loss():
    rows, columns, cap = 3, 13, 2.5
    x, targets = leaf(rows, columns), torch.tensor([4, -100, 12])
    x.data *= 4
    losses = F.cross_entropy(torch.tanh(x / cap) * cap, targets, reduction="none")
    losses.sum().backward()
    return {"rows": rows, "columns": columns, "cap": cap, "logits": numbers(x), "targets": targets.tolist(), "losses": numbers(losses), "dlogits": numbers(x.grad)}


ROPE = [
    (dict(rope_type="default", rope_theta=10000.0), 64, 0),
    (dict(rope_type="default", rope_theta=500000.0), 128, 0),
    (dict(rope_type="linear", rope_theta=10000.0, factor=4.0), 64, 0),
    (dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0), 64, 0),
    (dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0), 64, 5000),
    (dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=512), 64, 0),
    (dict(rope_type="yarn", rope_theta=1000000.0, factor=8.0, original_max_position_embeddings=1024, beta_fast=16.0, beta_slow=2.0, truncate=False), 128, 0),
    (dict(rope_type="yarn", rope_theta=10000.0, factor=40.0, original_max_position_embeddings=4096, mscale=1.0, mscale_all_dim=0.707), 64, 0),
    (dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=512, attention_factor=1.5), 64, 0),
    (dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192), 128, 0),
    (dict(rope_type="llama3", rope_theta=10000.0, factor=32.0, low_freq_factor=2.0, high_freq_factor=8.0, original_max_position_embeddings=256), 64, 0),
]


def rope():
    positions = [1, 100, 8191]
    out = []
    for parameters, head_dim, length in ROPE:
        config = LlamaConfig(hidden_size=2 * head_dim, num_attention_heads=2, max_position_embeddings=2048, rope_parameters=dict(parameters))
        rotary = LlamaRotaryEmbedding(config)
        if length:  # recomputes the frequencies
            rotary(torch.zeros(1), torch.arange(length)[None])
        cos, sin = (table[0, :, :head_dim // 2] for table in LlamaRotaryEmbedding.forward.__wrapped__.__wrapped__(rotary, torch.zeros(1), torch.tensor([positions])))
        out.append({"parameters": parameters, "rotary_dim": head_dim, "max_positions": 2048, "length": length, "inverse": numbers(rotary.inv_freq),
                    "scaling": rotary.attention_scaling, "positions": positions, "cos": numbers(cos), "sin": numbers(sin)})
    return out


def main():
    out = {"torch": torch.__version__, "transformers": transformers.__version__, "rms_norm": rms_norms(), "rotary": rotations(), "activation": activations(),
           "attention": attentions(), "capped_loss": capped_loss(), "rope": rope()}
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(out, separators=(",", ":")).replace('},{"', '},\n{"') + "\n")


if __name__ == "__main__":
    main()
