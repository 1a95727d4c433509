#pragma once
/// Entry points of the readers for hostile bytes. A reader answers with a value or with a
/// tessera::Error; anything else (crash, other exception, endless loop, much memory) is a finding.
/// Run by libFuzzer where clang is there, and with seeded mutations everywhere.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/error.hpp"

namespace tessera::fuzz {

struct Target {
  std::string_view name;
  void (*run)(std::string_view bytes);
};
std::span<Target const> targets();
/// @throws UsageError naming the known ones
Target const& find_target(std::string_view name);

/// A directory of this process, in memory where there is a file system for that; removed at the
/// end.
std::filesystem::path const& folder();
/// Writes a file there and returns its path.
std::filesystem::path put(std::string const& name, std::string_view bytes);

/// Seeds of a target: what the programs themselves write, and files of the tests.
std::vector<std::string> seeds(std::string_view target);

// json_targets.cpp, model_targets.cpp, torch_targets.cpp, text_targets.cpp, shard_target.cpp
void json(std::string_view bytes);
void manifest(std::string_view bytes);
void model_config(std::string_view bytes);
void deepspeed_config(std::string_view bytes);
void training_options(std::string_view bytes);
void safetensors(std::string_view bytes);
void torch_file(std::string_view bytes);
void torch_pickle(std::string_view bytes);
void deepspeed(std::string_view bytes);
void tokenizer(std::string_view bytes);
void vocabulary(std::string_view bytes);
void chat(std::string_view bytes);
void records(std::string_view bytes);
void blocks(std::string_view bytes);
void shard(std::string_view bytes);

/// A checkpoint of two tensors in folder().
std::filesystem::path tiny_checkpoint(std::string const& name, int ranks);
/// The archive that torch.save would write around a pickle: @p storages storages of 16 KiB before
/// it, all checksums right.
std::string archive_of(std::string const& root, std::string_view pickle, int storages);

}  // namespace tessera::fuzz
