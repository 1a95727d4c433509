"""Wrong arguments, files and configurations, and the help texts."""
import json
import os

from support import TINY, zero, refused


def wrong_arguments(b):
    refused(b, 64, b.common("x") + ["--learning_rat", "1"], "learning_rat", "learning_rate")
    refused(b, 64, b.common("x", learning_rate="fast"), "learning_rate", "fast")
    refused(b, 64, b.common("x", per_device_train_batch_size=-1), "per_device_train_batch_size", "-1")
    refused(b, 64, b.common("x", model_type=None, config_overrides=None), "--model_name_or_path")
    refused(b, 64, b.common("x", tokenizer_name=None), "--tokenizer_name")
    assert not (b.work / "x/checkpoints").exists()


def wrong_files(b):
    refused(b, 74, b.common("x", train_file=str(b.work / "missing.txt")), "missing.txt: there is no such file")
    short = b.work / "short.txt"
    short.write_text("too short\n")
    refused(b, 65, b.common("x", train_file=str(short), overwrite_output_dir=True), "short.txt", "block_size")
    refused(b, 74, b.common("x", tokenizer_name=str(b.work / "no_tokenizer"), overwrite_output_dir=True), "no tokenizer at", "no_tokenizer")
    broken = b.work / "broken"
    broken.mkdir()
    (broken / "tokenizer.json").write_text('{"model": ')
    refused(b, 65, b.common("x", tokenizer_name=str(broken), overwrite_output_dir=True), "tokenizer.json")
    refused(b, 74, b.common("x", model_type=None, config_overrides=None, config_name=str(b.work / "no_config"), overwrite_output_dir=True), "--config_name", "no_config: there is no")
    refused(b, 74, b.common("x", deepspeed=str(b.work / "no_ds.json"), overwrite_output_dir=True), "no_ds.json")
    if os.geteuid() != 0:
        (b.work / "locked").mkdir(mode=0o500)
        refused(b, 74, b.common("locked/x"), "locked")
    refused(b, 74, b.common("text.txt/x"), "text.txt")
    model = b.work / "model"
    b.train(1, b.common("model", max_steps=1))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(dict(config, n_embd=64)))
    refused(b, 65, b.common("x", model_type=None, config_overrides=None, model_name_or_path=str(model), overwrite_output_dir=True), "wte", "64")
    tensors = bytearray((model / "model.safetensors").read_bytes())
    (model / "config.json").write_text(json.dumps(config))
    (model / "model.safetensors").write_bytes(tensors[:len(tensors) // 2])
    refused(b, 65, b.common("x", model_type=None, config_overrides=None, model_name_or_path=str(model), overwrite_output_dir=True), "model.safetensors")


def wrong_configurations(b):
    refused(b, 65, b.common("x", config_overrides=TINY.replace("vocab_size=4096", "vocab_size=500")), "the text has the token", "embeddings for ids below 500")
    refused(b, 78, b.common("x", config_overrides=TINY.replace("n_head=2", "n_head=5"), overwrite_output_dir=True), "n_embd 32 is not a multiple of n_head 5")
    refused(b, 78, b.common("x", deepspeed=b.config("a.json", zero(2, gradient_cliping=1.0)), overwrite_output_dir=True), "gradient_cliping", "gradient_clipping")
    refused(b, 78, b.common("x", deepspeed=b.config("b.json", zero(2, train_batch_size=17)), overwrite_output_dir=True), "train_batch_size", "17")
    refused(b, 78, b.common("x", deepspeed=b.config("c.json", zero(7)), overwrite_output_dir=True), "stage is 7")
    broken = b.work / "broken.json"
    broken.write_text('{"zero_optimization": {')
    refused(b, 65, b.common("x", deepspeed=str(broken), overwrite_output_dir=True), "broken.json")
    refused(b, 78, b.common("x", block_size=100, overwrite_output_dir=True), "block_size is 100 but the model has 64 positions")


def occupied_directory(b):
    occupied = b.work / "occupied"
    occupied.mkdir()
    (occupied / "thesis.txt").write_text("mine")
    refused(b, 64, b.common("occupied"), "occupied", "--overwrite_output_dir")
    b.train(1, b.common("occupied", overwrite_output_dir=True))
    assert (occupied / "thesis.txt").read_text() == "mine"


def help_texts(b):
    text = b.tool(["--help"], program="tessera-train").stdout
    for name in ("--per_device_train_batch_size", "--deepspeed", "--resume_from_checkpoint", "--block_size"):
        assert name in text, f"{name} is not in --help"
    assert max(len(line) for line in text.splitlines()) <= 110
    for program, words in (("tessera", ["--help"]), ("zero-to-fp32", ["--help"]), ("tessera", ["checkpoint", "--help"]), ("tessera-train", ["--version"])):
        assert len(b.tool(words, program=program).stdout) > 40
    b.tool(["checkpoint", "list"], expect=64)
    b.tool([], expect=64)
    b.tool(["onlyone"], expect=64, program="zero-to-fp32")
