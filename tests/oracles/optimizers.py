#!/usr/bin/env python3
"""Writes optimizers.json: 15 steps of the element-wise optimizers of torch.optim (the single-tensor CPU code), of Lion as
published and of Lamb as DeepSpeed's kernel computes, in fp32, with the weights and states at the end.

    python3 tests/oracles/optimizers.py      needs torch
"""
import json
import pathlib

import torch

N, STEPS = 17, 15
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
CASES = [
    ("Lion", dict(lr=1e-2, betas=[0.9, 0.99], weight_decay=0.1)),
    ("Lion", dict(lr=1e-3, betas=[0.95, 0.98], weight_decay=0.0)),
    ("Lamb", dict(lr=1e-2, betas=[0.9, 0.999], eps=1e-8, eps_inside_sqrt=False, weight_decay=0.1, max_coeff=10.0, min_coeff=0.01, bias_correction=True)),
    ("Lamb", dict(lr=1e-2, betas=[0.8, 0.95], eps=1e-6, eps_inside_sqrt=True, weight_decay=0.0, max_coeff=10.0, min_coeff=0.01, bias_correction=False)),
    ("Lamb", dict(lr=1e-2, betas=[0.9, 0.99], eps=1e-8, eps_inside_sqrt=False, weight_decay=0.01, max_coeff=0.3, min_coeff=0.2, bias_correction=True)),
    ("Adagrad", dict(lr=1e-1, lr_decay=0.0, weight_decay=0.0, initial_accumulator_value=0.0, eps=1e-10)),
    ("Adagrad", dict(lr=1e-2, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5, eps=1e-6)),
    ("RMSprop", dict(lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False)),
    ("RMSprop", dict(lr=1e-3, alpha=0.9, eps=1e-6, weight_decay=0.1, momentum=0.9, centered=False)),
    ("RMSprop", dict(lr=1e-3, alpha=0.95, eps=1e-6, weight_decay=0.01, momentum=0.0, centered=True)),
    ("RMSprop", dict(lr=1e-3, alpha=0.95, eps=1e-4, weight_decay=0.0, momentum=0.8, centered=True)),
    ("Adamax", dict(lr=1e-2, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.0)),
    ("Adamax", dict(lr=1e-3, betas=[0.8, 0.9], eps=1e-6, weight_decay=0.1)),
    ("NAdam", dict(lr=1e-2, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.0, momentum_decay=4e-3, decoupled_weight_decay=False)),
    ("NAdam", dict(lr=1e-3, betas=[0.8, 0.95], eps=1e-6, weight_decay=0.1, momentum_decay=0.1, decoupled_weight_decay=False)),
    ("NAdam", dict(lr=1e-3, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.1, momentum_decay=4e-3, decoupled_weight_decay=True)),
    ("RAdam", dict(lr=1e-2, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.0, decoupled_weight_decay=False)),
    ("RAdam", dict(lr=1e-3, betas=[0.9, 0.7], eps=1e-6, weight_decay=0.1, decoupled_weight_decay=False)),  # 1-5 plain, then rectified
    ("RAdam", dict(lr=1e-3, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1, decoupled_weight_decay=True)),
    ("AdamW", dict(lr=1e-2, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.1)),
    ("AdamW", dict(lr=1e-3, betas=[0.8, 0.95], eps=1e-6, weight_decay=0.0)),
    ("Adam", dict(lr=1e-3, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.1)),
    ("SGD", dict(lr=1e-3, momentum=0.0, dampening=0.0, weight_decay=0.1, nesterov=False)),
    ("SGD", dict(lr=1e-3, momentum=0.9, dampening=0.5, weight_decay=0.0, nesterov=False)),
    ("SGD", dict(lr=1e-3, momentum=0.9, dampening=0.0, weight_decay=0.1, nesterov=True)),
]


class Lion(torch.optim.Optimizer):
    """Chen et al., "Symbolic Discovery of Optimization Algorithms", Program 1."""

    def __init__(self, parameters, **values):
        super().__init__(parameters, values)

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                beta1, beta2 = group["betas"]
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                p.data.add_(torch.sign(m * beta1 + p.grad * (1 - beta1)), alpha=-group["lr"])
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class Lamb(torch.optim.Optimizer):
    """DeepSpeed 0.19.8's FusedLamb, as its CUDA kernel computes (csrc/lamb/fused_lamb_cuda_kernel.cu)."""

    def __init__(self, parameters, **values):
        super().__init__(parameters, values)
        self.t = 0

    def step(self):
        self.t += 1
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                v = self.state[p].setdefault("exp_avg_sq", torch.zeros_like(p))
                beta1, beta2 = group["betas"]
                m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                eps = group["eps"]
                u = m / ((v + eps).sqrt() if group["eps_inside_sqrt"] else v.sqrt() + eps) + group["weight_decay"] * p.data
                weights, update = p.data.norm().item(), u.norm().item()
                ratio = min(max(weights / update, group["min_coeff"]), group["max_coeff"]) if weights and update else 1.0
                rate = group["lr"]
                if group["bias_correction"]:
                    rate *= (1 - beta2 ** self.t) ** 0.5 / (1 - beta1 ** self.t)
                p.data.add_(u, alpha=-rate * ratio)


def optimizer_of(algorithm, weight, values):
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    if algorithm in ("Lion", "Lamb"):
        return globals()[algorithm]([weight], **values)
    return getattr(torch.optim, algorithm)([weight], foreach=False, **values)


def main():
    torch.manual_seed(20261123)
    start = torch.randn(N)
    gradients = torch.randn(STEPS, N) * torch.logspace(-4, 2, N)  # six orders of magnitude
    gradients += 1e-3 * torch.sign(gradients)                     # no cancellation to zero: centered forms divide by a difference
    out = {"torch": torch.__version__, "start": start.tolist(), "gradients": gradients.tolist(), "cases": []}
    for algorithm, values in CASES:
        def run(rounded):
            weight = torch.nn.Parameter(start.clone())
            optimizer = optimizer_of(algorithm, weight, values)
            for gradient in gradients:
                weight.grad = gradient.to(rounded).float()
                optimizer.step()
            return weight, optimizer.state[weight]

        weight, state = run(torch.float32)
        states = {k: v.tolist() for k, v in state.items() if torch.is_tensor(v) and v.numel() == N}
        # weights of 16-bit training: the gradients are rounded, weights and states are not
        halves = {f"weight_{name}": run(dtype)[0].tolist() for name, dtype in HALVES.items()}
        out["cases"].append({"algorithm": algorithm, **values, "weight": weight.tolist(), **halves, "states": states})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(out, separators=(",", ":")).replace('],"', '],\n"').replace("],[", "],\n[") + "\n")


if __name__ == "__main__":
    main()
