"""Texts of several files and formats, files of token ids, and tokenizers that are trained here."""
import gzip
import json
import shutil
import subprocess

from support import refused


def sentences(count, start=0):
    return [f"the hacker reads line {i} of the manual and rewrites {i * i % 97} systems" for i in range(start, start + count)]


def texts_of_many_files(b):
    """Several files of several formats train as one text; a broken record is named by file and line, or skipped."""
    parts = [sentences(60, 60 * k) for k in range(4)]
    (b.work / "a.jsonl").write_text("".join(json.dumps({"text": s}) + "\n" for s in parts[0]))
    (b.work / "b.csv").write_text("id,text\n" + "".join(f'{i},"{s}"\n' for i, s in enumerate(parts[1])))
    (b.work / "c.txt.gz").write_bytes(gzip.compress("\n".join(parts[2]).encode()))
    (b.work / "d.txt").write_text("\n".join(parts[3]))
    names = ["a.jsonl", "b.csv", "c.txt.gz", "d.txt"]
    if shutil.which("zstd"):
        subprocess.run(["zstd", "-q", "--rm", str(b.work / "d.txt")], check=True)
        names[3] = "d.txt.zst"
    (b.work / "all.jsonl").write_text("".join(json.dumps({"text": s}) + "\n" for part in parts[:2] for s in part))
    options = dict(validation_split_percentage=0, per_device_train_batch_size=4)
    b.train(2, b.common("one", train_file=str(b.work / "all.jsonl"), **options))
    b.train(2, b.common("two", train_file=f"{b.work}/a.jsonl,{b.work}/[b].csv", preprocessing_num_workers=2, **options))
    assert b.losses("one") == b.losses("two")
    done = b.train(1, b.common("four", train_file=",".join(str(b.work / n) for n in names), **options))
    assert "240 records" in done.stderr, done.stderr

    with open(b.work / "a.jsonl", "a") as f:
        f.write('{"text": "no end\n{"text": 7}\n')
    done = b.train(2, b.common("broken", train_file=str(b.work / "a.jsonl"), **options), expect=65)
    assert "a.jsonl line 61, record 61" in done.stderr, done.stderr
    done = b.train(2, b.common("broken", train_file=str(b.work / "a.jsonl"), skip_broken_records=True, **options))
    assert "a.jsonl line 62, record 62" in done.stderr and "skipped 2 broken records" in done.stderr and "60 records" in done.stderr, done.stderr


def mixtures(b):
    """Weights share the sequences; a resume on another number of ranks reads what an uninterrupted run reads; other weights are refused."""
    for name, start in (("a", 0), ("b", 1000)):
        (b.work / f"{name}.txt").write_text("\n".join(sentences(120, start)))
    options = dict(train_file=f"{b.work}/a.txt,{b.work}/b.txt", data_mixture="0.75,0.25", validation_split_percentage=0, train_sampling_strategy="random",
                   per_device_train_batch_size=4, save_strategy="steps", save_steps=4)
    done = b.train(1, b.common("one", **dict(options, per_device_train_batch_size=8, max_steps=8)))
    shares = [int(line.split("mixture: ")[1].split()[0].replace(",", "")) for line in done.stderr.splitlines() if "mixture: " in line]
    assert len(shares) == 2 and abs(shares[0] - 3 * shares[1]) <= 4, done.stderr
    b.train(2, b.common("two", **dict(options, max_steps=8)))
    assert all(abs(x - y) < 1e-5 for x, y in zip(b.losses("one"), b.losses("two"))), (b.losses("one"), b.losses("two"))
    b.train(1, b.common("two", **dict(options, per_device_train_batch_size=8, max_steps=12)))
    b.train(1, b.common("one", **dict(options, per_device_train_batch_size=8, max_steps=12)))
    assert all(abs(x - y) < 1e-5 for x, y in zip(b.losses("one"), b.losses("two"))), (b.losses("one"), b.losses("two"))
    assert len(b.losses("two")) == 12
    done = b.train(1, b.common("two", **dict(options, per_device_train_batch_size=8, max_steps=16, data_mixture="0.5,0.5")), expect=64)
    assert "data_mixture" in done.stderr, done.stderr
    done = b.train(1, b.common("bad", **dict(options, data_mixture="0.5")), expect=78)
    assert "names 2 data sets" in done.stderr, done.stderr


def token_ids_train_as_their_text(b):
    """tessera tokenize --output writes what --train_file reads; another kind of file is refused with the way out."""
    tokenizer = b.source / "configs/gpt2-8m"
    text = b.work / "short.txt"  # below 1,000 records, so that groups drop nothing in between
    text.write_text("\n".join(sentences(500)))
    done = b.tool(["tokenize", tokenizer, "--file", text, "--output", b.work / "ids.bin", "--threads", "2"])
    assert "500 records" in done.stderr, done.stderr
    options = dict(validation_split_percentage=0)
    b.train(1, b.common("text", train_file=str(text), **options))
    b.train(1, b.common("ids", train_file=str(b.work / "ids.bin"), **options))
    assert b.losses("text") == b.losses("ids")
    b.train(1, b.common("split", train_file=str(b.work / "ids.bin"), validation_split_percentage=20, do_eval=True))
    (b.work / "raw.bin").write_bytes(bytes(5000))
    done = b.train(1, b.common("raw", train_file=str(b.work / "raw.bin"), **options), expect=78)
    assert "tessera tokenize --output" in done.stderr, done.stderr
    (b.work / "a.parquet").write_bytes(b"PAR1")
    done = b.train(1, b.common("raw", train_file=str(b.work / "a.parquet"), **options), expect=78)
    assert "Dataset.from_parquet(" in done.stderr, done.stderr
    done = b.train(1, b.common("raw", train_file=str(b.work / "none*.txt"), **options), expect=74)
    assert "no file matches" in done.stderr, done.stderr


def trained_tokenizer(b):
    """A tokenizer of the text's own needs fewer tokens than that of another text, and a model trains with it."""
    folder = b.work / "tokenizer"
    done = b.tool(["tokenizer", "train", b.text, "--vocab_size", "400", "--output", folder])
    assert "400 tokens" in done.stdout or "no more pairs" in done.stdout, done.stdout
    count = len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])
    b.train(1, b.common("run", tokenizer_name=str(folder)))
    own = b.tool(["tokenize", folder, "--file", b.text]).stdout.split()
    other = b.tool(["tokenize", b.source / "configs/gpt2-8m", "--file", b.text]).stdout.split()
    assert len(own) < len(other) and max(map(int, own)) < count, (len(own), len(other))
    b.tool(["tokenizer", "train", b.text, "--vocab_size", "100", "--output", folder], expect=78)
    b.tool(["tokenizer", "train", b.text, "--vocab_size", "many", "--output", folder], expect=64)


def the_column_is_that_of_the_training_file(b):
    """Without `text` the first member of the first file is read in all files, whatever their order; others end with 65."""
    lines = b.text.read_text().splitlines()
    def write(name, *order, texts=lines):
        (b.work / name).write_text("".join(json.dumps({key: {"body": line, "title": "a title"}[key] for key in order}) + "\n" for line in texts))
        return str(b.work / name)
    first, second = write("a.jsonl", "body", "title", texts=lines[:20]), write("b.jsonl", "title", "body", texts=lines[20:])
    same, valid, valid_first = write("c.jsonl", "body", "title", texts=lines[20:]), write("v.jsonl", "title", "body"), write("w.jsonl", "body", "title")
    flags = dict(max_steps=2, do_eval=True)
    b.train(1, b.common("mixed", train_file=f"{first},{second}", validation_file=valid, **flags))
    b.train(1, b.common("same", train_file=f"{first},{same}", validation_file=valid_first, **flags))
    assert b.losses("mixed") == b.losses("same")
    evaluations = [json.loads((b.work / run / "eval_results.json").read_text())["eval_loss"] for run in ("mixed", "same")]
    assert evaluations[0] == evaluations[1], evaluations
    refused(b, 65, b.common("none", train_file=first, validation_file=write("x.jsonl", "title"), **flags), "has no member 'body'", "a.jsonl has")
