"""DeepSpeed's checkpoints of other optimizers than AdamW and SGD."""
from support import close, continues


def imported_adagrad_continues(b):
    for case, ranks, stage in (("adagrad_z0_w2", 1, 3), ("adagrad_z2_w2", 2, 1), ("adagrad_z3_w2", 3, 2)):
        losses, expected = continues(b, case, ranks, stage)
        close(losses, expected, 1e-5, f"{case} on {ranks} ranks in stage {stage} against DeepSpeed continuing")


def imported_lamb_continues(b):
    for ranks, stage in ((1, 0), (2, 3)):
        losses, expected = continues(b, "lamb_z0_w2", ranks, stage)
        close(losses, expected, 1e-5, f"Lamb on {ranks} ranks in stage {stage} against DeepSpeed continuing")


def imported_lion_continues(b):
    """Written with offload, by CPULion, which has an exp_avg_sq that it does not use."""
    for ranks, stage in ((1, 1), (2, 3)):
        losses, expected = continues(b, "lion_z2_w2_offload", ranks, stage)
        close(losses, expected, 1e-5, f"Lion on {ranks} ranks in stage {stage} against DeepSpeed continuing")
