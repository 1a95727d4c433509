#!/usr/bin/env python3
"""Validates JSON files against a schema: validate.py SCHEMA FILE...   One line a file: "valid" or what is wrong. Exit 77: no jsonschema."""
import json
import sys

try:
    import jsonschema
except ImportError:
    print(f"{sys.executable} has no jsonschema.")
    sys.exit(77)

with open(sys.argv[1]) as file:
    schema = json.load(file)
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
for name in sys.argv[2:]:
    with open(name) as file:
        errors = list(validator.iter_errors(json.load(file)))
    print("valid" if not errors else "invalid at " + "/".join(map(str, errors[0].absolute_path)) + ": " + errors[0].message[:200].replace("\n", " "))
