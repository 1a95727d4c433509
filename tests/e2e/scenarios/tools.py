"""The tools on damaged, closed and used directories: they say so, exit accordingly and destroy nothing."""
import json
import os
import shutil
import subprocess

from support import damage, other_user, safetensors


def checkpoints_of(run):
    return sorted(p.name for p in (run / "checkpoints").iterdir() if p.name.startswith("step_"))


def damaged_latest_is_refused(b):
    """Each tool that takes the latest checkpoint refuses a damaged one with 65, or takes an older one with --allow_older."""
    b.train(2, b.common("run", per_device_train_batch_size=4, save_strategy="steps", save_steps=3))
    good, newest = b.work / "good", "step_00000006"
    shutil.copytree(b.work / "run", good)
    tools = {"verify": ["checkpoint", "verify"], "info": ["checkpoint", "info"], "zero-to-fp32": ["zero-to-fp32"], "export": ["export"],
             "convert": ["checkpoint", "convert"], "view": ["checkpoint", "view"]}
    for kind in ("truncated", "removed", "no manifest", "edited manifest", "no directory"):
        run = b.work / "run"
        shutil.rmtree(run)
        shutil.copytree(good, run)
        manifest = run / "checkpoints" / newest / "manifest.json"
        if kind == "no manifest":
            manifest.unlink()
        elif kind == "edited manifest":
            manifest.write_text(manifest.read_text().replace('"step": 6', '"step": 7'))
        elif kind == "no directory":
            shutil.rmtree(manifest.parent)
        else:
            damage(b, "run", 6, kind)
        for name, words in tools.items():
            output = b.work / f"out {kind} {name}"
            place = [output] if name in ("zero-to-fp32", "export", "convert") else []
            done = b.tool(words + [run] + place, expect=65)
            assert newest in done.stderr and not output.exists(), (kind, name, done.stderr)
            if name != "verify":
                assert "--allow_older" in done.stderr and "step_00000003" in done.stderr, (kind, name, done.stderr)
            done = b.tool(words + [run] + place + ["--allow_older"])
            assert newest in done.stderr and "step_00000003" in done.stderr, (kind, name, done.stderr)
            b.tool(words + [run] + place[:0] + ([b.work / f"tag {kind} {name}"] if place else []) + ["--tag", "3"])
        b.tool(["checkpoint", "diff", run, good], expect=65)
        b.tool(["checkpoint", "diff", run, good, "--allow_older"])
        all_of_them = b.tool(["checkpoint", "verify", "--all", run], expect=0 if kind == "no directory" else 65)
        assert "step_00000003: complete" in all_of_them.stdout, all_of_them.stdout
        if kind != "no directory":
            assert "1 of 2 checkpoints is damaged: step_00000006" in all_of_them.stderr, all_of_them.stderr
            found = json.loads(b.tool(["checkpoint", "verify", "--all", "--json", run], expect=65).stdout)
            assert [one["whole"] for one in found] == [True, False], found
    done = b.tool(["checkpoint", "verify", "--all", good])
    assert done.stdout.count("complete") == 2, done.stdout
    done = b.train(1, b.common("next", max_steps=7, resume_from_checkpoint=str(good)))
    assert f"resuming from {good}/checkpoints/{newest}" in done.stderr, done.stderr
    (good / "checkpoints/latest").unlink()
    assert json.loads(b.tool(["checkpoint", "info", good, "--json"]).stdout)["step"] == 6


def all_checkpoints_damaged(b):
    """Damage of every checkpoint is 65 in tools and in training; the message names it and no advice removes anything."""
    words = b.common("run", per_device_train_batch_size=4, save_strategy="steps", save_steps=3)
    b.train(2, words)
    run = b.work / "run"
    for step in (3, 6):
        damage(b, "run", step, "truncated")
    before = sorted(str(p) for p in run.rglob("*"))
    for done in [b.train(2, words, expect=65), b.train(2, words + ["--resume_from_checkpoint", "auto"], expect=65),
                 b.train(2, words + ["--resume_from_checkpoint", "latest"], expect=65),
                 b.tool(["export", run, b.work / "model"], expect=65), b.tool(["checkpoint", "info", run, "--allow_older"], expect=65),
                 b.tool([run, b.work / "model"], expect=65, program="zero-to-fp32")]:
        assert "shard_00001.h5" in done.stderr and "both checkpoints" in done.stderr and "from a copy" in done.stderr, done.stderr
        assert "overwrite" not in done.stderr and "remove" not in done.stderr, done.stderr
    assert "2 of 2 checkpoints are damaged" in b.tool(["checkpoint", "verify", "--all", run], expect=65).stderr
    assert sorted(str(p) for p in run.rglob("*")) == before, "a refused command changed the run"


def deepspeed_latest_names_a_missing_tag(b):
    data = b.source / "tests/checkpoint/data/deepspeed/z2_w3_groups"
    source = b.work / "ds"
    shutil.copytree(data, source)
    shutil.copytree(source / "step3", source / "step12")
    (source / "latest").write_text("step20\n")
    for words in (["export", source, b.work / "a"], ["import", source, b.work / "b"], ["zero-to-fp32", source, b.work / "c"]):
        done = b.tool(words, expect=65)
        assert "'step20'" in done.stderr and "step3, step12" in done.stderr and "--tag" in done.stderr, done.stderr
        done = b.tool(words + ["--allow_older"])
        assert "step12 is used" in done.stderr, done.stderr
    shutil.rmtree(source / "step12")
    assert "'step20'" in b.tool(["zero-to-fp32", source, b.work / "d"], expect=65).stderr
    b.tool(["zero-to-fp32", source, b.work / "d", "--tag", "step3"])
    assert safetensors(b.work / "d/model.safetensors") == safetensors(b.work / "c/model.safetensors")


def import_keeps_out_of_runs(b):
    """An import would give `latest` another step: it is refused where checkpoints are."""
    data = b.source / "tests/checkpoint/data/deepspeed"
    b.train(1, b.common("run", save_strategy="steps", save_steps=3))
    before = {p: p.read_bytes() for p in (b.work / "run").rglob("*") if p.is_file()}
    for source in (data / "bin_model", data / "z1_w1"):
        for place in (b.work / "run/checkpoints", b.work / "run"):
            done = b.tool(["import", source, place], expect=64)
            assert "step_00000006" in done.stderr and "without checkpoints" in done.stderr, done.stderr
    assert {p: p.read_bytes() for p in (b.work / "run").rglob("*") if p.is_file()} == before
    b.tool(["import", data / "z1_w1", b.work / "imported/checkpoints"])
    b.tool(["import", data / "z1_w1", b.work / "imported/checkpoints"], expect=64)
    (b.work / "empty/checkpoints").mkdir(parents=True)
    assert "empty/checkpoints" in b.tool(["import", data / "z1_w1", b.work / "empty"], expect=64).stderr


def export_keeps_models(b):
    """export replaces a model only with --overwrite; zero-to-fp32, as DeepSpeed's script, replaces and says so."""
    b.train(1, b.common("run", save_strategy="steps", save_steps=3))
    run, model = b.work / "run", b.work / "model"
    b.tool(["export", run, model, "--tag", "3"])
    first = (model / "model.safetensors").read_bytes()
    for place in (model, run):
        done = b.tool(["export", run, place], expect=64)
        assert "holds a model already" in done.stderr and "--overwrite" in done.stderr, done.stderr
    assert (model / "model.safetensors").read_bytes() == first
    done = b.tool(["export", run, model, "--overwrite"])
    assert f"replaced {model / 'model.safetensors'}" in done.stdout, done.stdout
    assert (model / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes() != first
    for name in ("all.bin", "all"):
        assert "replaced" not in b.tool([run, b.work / name], program="zero-to-fp32").stdout
        done = b.tool([run, b.work / name], program="zero-to-fp32")
        assert f"replaced {b.work / name}" in done.stdout, done.stdout


def closed_directories(b):
    """Permission errors are 74 and name the directory that is closed; nothing is removed, nothing crashes."""
    user = other_user(b)
    data = b.source / "tests/checkpoint/data/deepspeed"
    b.train(1, b.common("closed/run", save_strategy="steps", save_steps=3))
    shutil.copytree(b.work / "closed/run", b.work / "half")
    shutil.copytree(b.work / "closed/run", b.work / "fixed")
    mine, closed, half, fixed = (b.work / name for name in ("mine", "closed", "half", "fixed"))
    mine.mkdir()
    shutil.copytree(closed, mine / "copy")
    shutil.copytree(data / "z1_w1", closed / "ds")
    (closed / "ds.json").write_text("{}")
    mine.chmod(0o777)
    closed.chmod(0)
    (half / "checkpoints/step_00000006").chmod(0)
    fixed.chmod(0o555)
    latest = half / "checkpoints/step_00000006"

    def refuses(words, place, program="tessera", **options):
        command = user + ([str(b.bin / program)] + [str(w) for w in words] if program != "tessera-train" else b.command(2, words))
        done = subprocess.run(command, env=dict(b.environment(), HOME=str(mine)), cwd=mine, capture_output=True, text=True, timeout=120)
        said = done.stdout + done.stderr
        assert done.returncode == 74, f"exit {done.returncode}\n{words}\n{said}"
        assert str(place) in said and ("is closed to user" in said or "Permission denied" in said), f"{words}\n{said}"
        assert "unexpected" not in said and "terminate called" not in said, said

    try:
        for words in (["ls"], ["info"], ["verify"], ["verify", "--all"], ["prune", "--keep", "1"], ["prune", "--damaged"], ["view"]):
            refuses(["checkpoint", words[0], closed / "run"] + words[1:], closed)
        for words in (["info"], ["verify"], ["verify", "--all"], ["prune", "--keep", "1"], ["prune", "--damaged", "--keep", "1"]):
            refuses(["checkpoint", words[0], half] + words[1:], latest)
        for words in (["export", closed / "run", mine / "a"], ["zero-to-fp32", closed / "run", mine / "a.bin"], ["import", closed / "ds", mine / "b"],
                      ["import", data / "z1_w1", closed / "b"], ["export", mine / "copy/run", closed / "c"], ["zero-to-fp32", mine / "copy/run", closed / "c.pt"],
                      ["checkpoint", "convert", mine / "copy/run", closed / "d"], ["checkpoint", "diff", mine / "copy/run", closed / "run"]):
            refuses(words, closed)
        for words in (["status", closed / "run"], ["status", "--code", closed / "run"], ["doctor", "--why", closed / "run"], ["plot", closed / "run"],
                      ["config", "check", closed / "ds.json"], ["tokenize", closed, "text"], ["submit", closed / "ds.json"], ["launch", closed / "ds"]):
            refuses(words, f"{closed} (owner ")
        refuses(["export", half, mine / "a"], latest)
        refuses(["export", mine / "copy/run", fixed / "model"], fixed)
        common = lambda **flags: b.common("mine/new", **flags)
        refuses(common(output_dir=str(closed / "run")), closed, program="tessera-train")
        refuses(common(output_dir=str(closed / "new/run")), closed, program="tessera-train")
        refuses(common(output_dir=str(fixed)), fixed, program="tessera-train")
        refuses(common(output_dir=str(fixed / "new")), fixed, program="tessera-train")
        refuses(common(train_file=str(closed / "text.txt")), closed, program="tessera-train")
        refuses(common(tokenizer_name=str(closed / "run")), closed, program="tessera-train")
        refuses(common(model_type=None, config_overrides=None, model_name_or_path=str(closed / "run")), closed, program="tessera-train")
        refuses(common(resume_from_checkpoint=str(closed / "run")), closed, program="tessera-train")
        refuses(common(resume_from_checkpoint=str(half)), latest, program="tessera-train")
        refuses(common(deepspeed=str(closed / "ds.json")), closed, program="tessera-train")
        refuses(common(log_dir=str(closed / "logs")), closed, program="tessera-train")
    finally:
        for place in (closed, latest, fixed):
            place.chmod(0o755)
    assert checkpoints_of(half) == checkpoints_of(fixed) == checkpoints_of(closed / "run") == ["step_00000003", "step_00000006"]


def model_directories_are_complete(b):
    """A directory has the tokenizer, chat templates and generation_config.json, also of a run that stopped early; FILE.pt is a file."""
    model = b.work / "base"
    b.train(1, b.common("base", max_steps=1))
    (model / "generation_config.json").write_text('{"eos_token_id": 0, "max_new_tokens": 7}\n')
    (model / "chat_template.jinja").write_text("{{ messages[0]['content'] }}\n")
    (model / "additional_chat_templates").mkdir()
    (model / "additional_chat_templates/rag.jinja").write_text("{{ documents }}\n")
    (model / "preprocessor_config.json").write_text('{"size": 3}\n')
    start = dict(model_type=None, config_overrides=None, tokenizer_name=None, model_name_or_path=str(model))
    log = b.train(1, b.common("run", save_strategy="steps", save_steps=3, **start)).stderr
    (wrote,) = [line for line in log.splitlines() if "wrote the model" in line]
    assert all(name in wrote for name in ("tokenizer.json", "chat_template.jinja", "additional_chat_templates/rag.jinja", "preprocessor_config.json")), wrote
    companions = sorted(p.name for p in model.iterdir() if "token" in p.name or p.name in ("generation_config.json", "vocab.json", "merges.txt"))
    companions += ["chat_template.jinja", "additional_chat_templates/rag.jinja", "preprocessor_config.json"]
    assert "generation_config.json" in companions and len(companions) >= 5, companions
    for name in companions:
        assert (b.work / "run" / name).read_bytes() == (model / name).read_bytes(), name
    for name in companions + ["config.json", "model.safetensors"]:
        (b.work / "run" / name).unlink()  # as after a stop before the end
    b.tool([b.work / "run", b.work / "out"], program="zero-to-fp32")
    b.tool(["export", b.work / "run", b.work / "exported"])
    for name in companions:
        assert (b.work / "out" / name).read_bytes() == (b.work / "exported" / name).read_bytes() == (model / name).read_bytes(), name
    for name in ("c.pt", "c.pth", "c.bin"):
        b.tool([b.work / "run", b.work / name], program="zero-to-fp32")
        assert (b.work / name).is_file() and (b.work / name).read_bytes()[:2] == b"PK", name
    assert (b.work / "c.pt").stat().st_size == (b.work / "c.bin").stat().st_size
    source = json.loads((b.source / "configs/gpt2-8m/tokenizer.json").read_text())
    losses = []
    for name, normalizer in (("null", None), ("empty", {"type": "Sequence", "normalizers": []}),
                             ("nested", {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": []}]})):
        tokenizer = b.work / f"tokenizer-{name}"
        shutil.copytree(b.source / "configs/gpt2-8m", tokenizer)
        (tokenizer / "tokenizer.json").write_text(json.dumps(dict(source, normalizer=normalizer)))
        b.train(1, b.common(f"with-{name}", tokenizer_name=str(tokenizer), max_steps=2))
        losses.append(b.losses(f"with-{name}"))
    assert losses[0] == losses[1] == losses[2], losses
    (tokenizer / "tokenizer.json").write_text(json.dumps(dict(source, normalizer={"type": "Sequence", "normalizers": [{"type": "ByteLevel"}]})))
    assert "normalizer" in b.train(1, b.common("with-bert", tokenizer_name=str(tokenizer)), expect=78).stderr




def no_room_at_the_end(b):
    """A model that cannot be written at the end leaves a directory from which the same command finishes, on any rank and at any call."""
    settings = dict(max_steps=4, per_device_train_batch_size=4)
    b.train(2, b.common("good", **settings))
    model = safetensors(b.work / "good/model.safetensors")
    faults = ("call=write,path=.model.safetensors,rank=1,do=ENOSPC", "call=reserve,path=.model.safetensors,rank=0,do=ENOSPC",
              "call=fsync,path=.model.safetensors,rank=0,do=EIO", "call=write,path=.config.json,rank=0,do=ENOSPC",
              "call=write,path=.tokenizer.json,rank=0,do=EDQUOT")
    for saving in (dict(), dict(save_strategy="steps", save_steps=2)):
        for i, fault in enumerate(faults):
            run = f"run{len(saving)}{i}"
            words = b.common(run, **settings, **saving)
            done = b.train(2, words, expect=74, faults=fault)
            left = sorted(p.name for p in (b.work / run).iterdir())
            assert not [n for n in left if "model" in n or "config" in n or "tokenizer" in n or "results" in n], (fault, left)
            assert b.status(run)["exit_code"] == 74 and str(b.work / run) in done.stderr, done.stderr
            done = b.train(2, words)
            assert ("all 4 steps are already done" in done.stderr) == bool(saving), done.stderr
            assert safetensors(b.work / run / "model.safetensors") == model, fault
            assert (b.work / run / "config.json").read_bytes() == (b.work / "good/config.json").read_bytes()


def room_is_checked_before_training(b):
    """Room for the model, once, is enough; less is refused before the first step. Needs the right to mount."""
    b.needs_mounts("no_room_at_the_end covers failing writes")
    b.train(2, b.common("good"))
    good = b.work / "good"
    bytes_of_model = sum(p.stat().st_size for p in good.iterdir() if p.name.startswith(("model", "config", "tokenizer")))
    script = r"""
mount -t tmpfs -o "size=$2" tmpfs "$1" || exit 99
at=$1; again=$3; shift 3
"$@" 2>"$at.err"; code=$?
cat "$at.err" >&2; ls -A "$at"; cat "$at/metrics.jsonl"
[ "$code" = 74 ] && mount -o "remount,size=$again" "$at" && { "$@" 2>>"$at.err"; echo "again $?"; ls -A "$at"; }
exit $code"""

    def run(name, size, expect, **settings):
        place = b.work / name
        place.mkdir()
        done = subprocess.run(["unshare", "-m", "bash", "-c", script, "bash", str(place), str(size), "64m"] + b.command(2, b.common(name, **settings)),
                              env=b.environment(), capture_output=True, text=True, timeout=240)
        assert done.returncode == expect, f"exit {done.returncode}, expected {expect}\n{done.stdout}\n{done.stderr}"
        return done

    done = run("once", bytes_of_model + 192 * 1024, 0)
    assert "model.safetensors" in done.stdout and '"loss"' in done.stdout, done.stdout
    for name, size, settings in (("small", bytes_of_model // 2, {}), ("checkpoints", bytes_of_model + 192 * 1024, dict(save_strategy="steps", save_steps=3))):
        done = run(name, size, 74, **settings)
        assert "the trained model needs" in done.stderr and "make room" in done.stderr, done.stderr
        assert ("each checkpoint" in done.stderr) == (name == "checkpoints"), done.stderr
        before, after = done.stdout.split("again ")
        assert '"loss"' not in before and "model.safetensors" not in before, before
        assert after.startswith("0") and "model.safetensors" in after, done.stdout
