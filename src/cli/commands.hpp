#pragma once
/// The subcommands of `tessera`. Each adds its options to an App and does its work in the App's
/// callback; errors are thrown.

#include <CLI/CLI.hpp>
#include <string>

#include "tessera/core/dtype.hpp"

namespace tessera::cli {

void add_consolidate(CLI::App& app);
/// "fp32", "bf16", "float16", ... @throws UsageError
Dtype model_dtype(std::string const& name);
void add_checkpoint_commands(CLI::App& app);
void add_checkpoint_layouts(CLI::App& group);
void add_plot(CLI::App& app);
void add_config_commands(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_import(CLI::App& app);
void add_export(CLI::App& app);
void add_run_commands(CLI::App& app);
/// `tessera doctor --gpus`: what this node has, and what is wrong with it.
void print_gpus();
void add_doctor(CLI::App& app);
void add_submit(CLI::App& app);
void add_launch(CLI::App& app);
void add_selftest(CLI::App& app);
void add_manual(CLI::App& app);

}  // namespace tessera::cli
