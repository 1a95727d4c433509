#pragma once
/// --do_generate and --eval_prompts: prompts as text, generated text.

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/train/generate/generator.hpp"
#include "tessera/train/setup/training_run.hpp"
#include "tessera/train/step/outcome.hpp"
#include "tessera/train/step/stop_request.hpp"

namespace tessera::train {

/// Prompts of a file: of .jsonl the field "prompt", else "text", of each line; otherwise each line.
/// Empty lines are no prompts. @throws IoError, DataError naming file and line
std::vector<std::string> read_prompts(std::filesystem::path const& file);

/// The tokens that end a text: eos_token_id (a number or a list) of generation_config.json in
/// @p model_directory, else of @p model_config. Values outside of the vocabulary are left out.
/// Empty: neither has one.
Tokens ends_of_text(std::filesystem::path const& model_directory, ConfigTree const& model_config,
                    std::int64_t vocabulary);

/// Continues --prompt, printing the text as it grows, or the prompts of --prompt_file, printing a
/// line of JSON for each. Collective.
/// @return done; stopped_early after a stop request
Outcome generate_text(JobContext const& job, TrainingRun const& run, StopCheck& stop_check);

/// Texts after the prompts of --eval_prompts, as --prompt_file prints them; on rank 0. Collective.
/// @throws StopBetweenLayers
std::vector<ConfigTree> sample_texts(JobContext const& job, TrainingRun const& run,
                                     StopCheck& stop_check);

}  // namespace tessera::train
