#!/usr/bin/env python3
"""Records of CSV files by the csv loader of Hugging Face's datasets.

    python tests/oracles/csv_records.py tests/data/vectors/text

Writes the CSV files and csv.json: {file: [records]}. Needs datasets.
"""
import json
import sys
import tempfile

from datasets import load_dataset

FILES = {
    "table.csv": 'id,text,more\n1,plain words,x\n2,"with, comma and ""quotes""",y\n3,"two\nlines",z\n\n4,  spaces kept  ,w\n5,"日本語, ü",v\n'
                 '6,"ends in quote""",u\n7,half"quote,t\n8,"part"ial,s\n9,x\n',
    "first_column.csv": '\ufeffbody;x,n\r\none,1\r\n"two, 2",2\r\nthree,3',
}


def main(out):
    records = {}
    for name, text in FILES.items():
        with open(f"{out}/{name}", "w", encoding="utf-8", newline="") as f:
            f.write(text)
        with tempfile.TemporaryDirectory() as cache:
            data = load_dataset("csv", data_files={"train": f"{out}/{name}"}, split="train", cache_dir=cache)
            records[name] = list(data["text" if "text" in data.column_names else data.column_names[0]])
    with open(f"{out}/csv.json", "w", encoding="utf-8") as f:
        json.dump(records, f, ensure_ascii=False)
        f.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
