"""The delayed update of ZeRO-Offload: what a run says of it, resuming, refusals."""
import shutil

from support import close, refused, safetensors, zero

BOUND = ["--device_memory", "256MiB"]


def delayed_words(b, output, stage, start=2, weights="none", device="cpu", optimizer=None, **flags):
    document = zero(stage, bf16={"enabled": True})
    if device != "none":
        document["zero_optimization"].update(offload_optimizer={"device": device, "nvme_path": str(b.work), "buffer_count": 3}, sub_group_size=5000)
    if weights != "none":
        document["zero_optimization"]["offload_param"] = {"device": weights}
    if optimizer:
        document["optimizer"] = {"type": optimizer, "params": {"lr": "auto"}}
    return b.common(output, **dict(dict(bf16=True, max_steps=8, deepspeed=b.config(output + ".json", document), delayed_update_from_step=start), **flags))


def delayed_update_trains_and_resumes(b):
    """Stages and numbers of ranks agree; a run that resumes has the bits of the run that saved; without the option the losses are others."""
    runs = {}
    saves = dict(save_strategy="steps", save_steps=4)
    for stage, ranks, weights in ((1, 1, "none"), (2, 2, "none"), (3, 2, "none"), (3, 2, "cpu")):
        name = f"delayed_{stage}_{ranks}_{weights}"
        done = b.train(ranks, delayed_words(b, name, stage, weights=weights, per_device_train_batch_size=8 // ranks, **saves) + BOUND)
        text = done.stdout + done.stderr
        assert "delayed update: from optimizer step 2 on the CPU updates while the next step computes" in text, text
        runs[name] = b.losses(name)
        close(runs[name], runs["delayed_1_1_none"], 5e-3, name)
    model = safetensors(b.work / "delayed_3_2_none/model.safetensors")
    assert runs["delayed_3_2_cpu"] == runs["delayed_3_2_none"] and safetensors(b.work / "delayed_3_2_cpu/model.safetensors") == model

    b.train(1, delayed_words(b, "prompt", 1, start=None, **saves) + BOUND)
    prompt, delayed = b.losses("prompt"), runs["delayed_1_1_none"]
    assert prompt[:2] == delayed[:2], "step 3 is the first whose weights lack an update"
    assert abs(prompt[2] - delayed[2]) > 0.02, (prompt, delayed)

    for weights in ("none", "cpu"):
        shutil.copytree(b.work / f"delayed_3_2_{weights}", b.work / f"resumed_{weights}")
        shutil.rmtree(b.work / f"resumed_{weights}/checkpoints/step_00000008")
        b.train(2, delayed_words(b, f"resumed_{weights}", 3, weights=weights, per_device_train_batch_size=4, **saves) + BOUND)
        assert b.losses(f"resumed_{weights}") == runs["delayed_3_2_none"], (b.losses(f"resumed_{weights}"), runs["delayed_3_2_none"])
        assert safetensors(b.work / f"resumed_{weights}/model.safetensors") == model

    # the evaluation after the last step sees the model that is saved
    evaluates = dict(do_eval=True, validation_file=str(b.text), max_eval_samples=16)
    b.train(2, delayed_words(b, "evaluated", 2, per_device_train_batch_size=4, **evaluates) + BOUND)
    words = b.common("evaluated_again", do_train=None, max_steps=None, learning_rate=None, save_strategy=None, logging_steps=None, train_file=None,
                     train_sampling_strategy=None, model_type=None, config_overrides=None, per_device_train_batch_size=None, bf16=True,
                     model_name_or_path=b.work / "evaluated", deepspeed=b.config("plain.json", zero(2, bf16={"enabled": True})), **evaluates)
    b.train(2, words + BOUND)
    found = [[m["eval_loss"] for m in b.metrics(name) if "eval_loss" in m] for name in ("evaluated", "evaluated_again")]
    assert found[0] == found[1] and len(found[0]) == 1, found


def delayed_update_refusals(b):
    refused(b, 78, delayed_words(b, "a", 2), "this run computes on CPUs")
    refused(b, 78, delayed_words(b, "b", 2, device="none") + BOUND, "offload_optimizer.device is \"none\"; use device \"cpu\"")
    refused(b, 78, delayed_words(b, "c", 2, device="nvme") + BOUND, "offload_optimizer.device is \"nvme\"; use device \"cpu\"")
    refused(b, 78, delayed_words(b, "d", 2, optimizer="Lamb") + BOUND, "another element-wise optimizer")
    refused(b, 64, delayed_words(b, "e", 2, start=-1) + BOUND, "--delayed_update_from_step")
    refused(b, 64, delayed_words(b, "f", 2, start="soon") + BOUND, "--delayed_update_from_step")
