"""Writes the recorded rows of tests/cli/deepspeed_estimate.test.cpp: DeepSpeed's own memory estimates.

Needs deepspeed (0.19.8 wrote the rows). Run: python3 deepspeed_estimates.py
"""
import contextlib
import io

from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as zero3, estimate_zero3_model_states_mem_needs_all_cold as print3
from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as zero2, estimate_zero2_model_states_mem_needs_all_cold as print2

CASES = [(2783959040, 65798144, 1, 1, 1.5), (2783959040, 65798144, 1, 2, 1.5), (2783959040, 65798144, 4, 8, 1.5), (2851000000, 32000000, 1, 8, 1.5),
         (124439808, 38597376, 3, 5, 1.25), (174604259328, 617558016, 64, 8, 1.0)]


def rows(values):
    return "{" + ", ".join("{%d, %d}" % (cpu, gpu) for cpu, gpu in values) + "}"


for total, largest, nodes, gpus, factor in CASES:
    hardware = dict(num_gpus_per_node=gpus, num_nodes=nodes, additional_buffer_factor=factor)
    two = [zero2(total, cpu_offload=offload, **hardware) for offload in (True, False)]
    three = [zero3(total, largest, cpu_offload=optimizer, cpu_offload_params=params, zero_init=init, **hardware)[:2]
             for optimizer, params in ((True, True), (True, False), (False, False)) for init in (True, False)]
    print(f"    {{{{{total}, {largest}}}, {{{nodes}, {gpus}, {factor}}}, {rows(two)}, {rows(three)}}},")
for printer, arguments in ((print3, (2783959040, 65798144, 2, 1)), (print2, (2783959040, 8, 4))):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        printer(*arguments)
    print(text.getvalue())
