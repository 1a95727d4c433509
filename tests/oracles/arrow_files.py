#!/usr/bin/env python3
"""Small Parquet and Arrow files and directories of datasets.save_to_disk, and their records.

    python tests/oracles/arrow_files.py tests/data/vectors/arrow

Needs datasets and pyarrow.
"""
import json
import pathlib
import shutil
import sys

import datasets
import pyarrow
import pyarrow.parquet

TEXTS = ["one\n", "", "\u65e5\u672c\u8a9e \U0001f642", "a\u0000b", "last " * 30] + [f"row {i}" for i in range(20)]


def main(out):
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    table = pyarrow.table({"id": range(len(TEXTS)), "tags": [["x", "y"]] * len(TEXTS), "text": TEXTS})
    pyarrow.parquet.write_table(table, out / "text.parquet", row_group_size=7, compression="zstd")
    pyarrow.parquet.write_table(pyarrow.table({"content": pyarrow.array(TEXTS, pyarrow.large_string())}), out / "first.parquet", compression="snappy")
    pyarrow.parquet.write_table(pyarrow.table({"text": [1, 2]}), out / "numbers.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a", None, "b"]}), out / "null.parquet")
    with pyarrow.ipc.new_file(str(out / "file.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=6)
    data = datasets.Dataset.from_dict({"text": TEXTS})
    data.save_to_disk(str(out / "saved"), num_shards=2)
    datasets.DatasetDict({"train": data, "test": data.select([0])}).save_to_disk(str(out / "dict"))
    (out / "records.json").write_text(json.dumps(TEXTS))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
