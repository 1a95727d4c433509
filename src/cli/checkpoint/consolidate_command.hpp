#pragma once
/// `zero-to-fp32`: the arguments of DeepSpeed's zero_to_fp32.py, and --dtype.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::cli {

/// The data type named "fp32", "float32", "bf16", "bfloat16", "fp16" or "float16". @throws
/// UsageError
Dtype model_dtype(std::string const& name);

/// After a model was written. @throws DataError naming the tensors when @p found is not empty
void require_finite(std::vector<checkpoint::NonFinite> const& found, std::string const& output,
                    Dtype dtype);
/// Prints which files of earlier runs were removed or replaced.
void print_replaced(checkpoint::ConsolidateReport const& report);

/// Adds the options to @p app, which is the program zero-to-fp32 or a subcommand of tessera.
void add_consolidate(CLI::App& app);

}  // namespace tessera::cli
