#include "tools/detail/model_output.hpp"

#include <algorithm>

#include "format/detail/file.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::checkpoint::detail {
namespace {

namespace fs = std::filesystem;

void check_place(fs::path const& output, fs::path const& checkpoint) {
  TESSERA_VALIDATE(
      !output.empty(), UsageError,
      "the output has no name; give FILE.safetensors, FILE.bin, FILE.h5 or a directory");
  fs::path const inside = fs::weakly_canonical(checkpoint),
                 place = fs::weakly_canonical(fs::absolute(output));
  bool const within =
      std::mismatch(inside.begin(), inside.end(), place.begin(), place.end()).first == inside.end();
  TESSERA_VALIDATE(!within, UsageError, "the output ", output.string(), " is in the checkpoint ",
                   checkpoint.string(), " itself; write it elsewhere");
  std::error_code error;
  auto const status = fs::status(output, error);
  if (is_model_file(output))
    TESSERA_VALIDATE(!fs::is_directory(status), UsageError, output.string(),
                     " is a directory; its suffix asks for a file: give another name");
  else
    TESSERA_VALIDATE(
        !fs::exists(status) || fs::is_directory(status), UsageError, output.string(),
        " is a file; without the suffix .safetensors, .bin or .h5 the output is a directory");
}

/// Names that a model's files have, for a directory.
bool is_ours(std::string const& final_name, fs::path const& output) {
  if (is_model_file(output)) return final_name == output.filename().string();
  return final_name == "config.json" || final_name == "model.safetensors.index.json" ||
         (final_name.rfind("model", 0) == 0 && fs::path(final_name).extension() == ".safetensors");
}

}  // namespace

bool is_model_file(fs::path const& output) {
  for (auto const* suffix : {".safetensors", ".bin", ".h5", ".hdf5"})
    if (output.extension() == suffix) return true;
  return false;
}

std::vector<std::string> prepare_output(fs::path const& output, fs::path const& checkpoint,
                                        std::int64_t bytes) {
  check_place(output, checkpoint);
  fs::path directory = is_model_file(output) ? output.parent_path() : output;
  if (directory.empty()) directory = ".";
  make_directories(directory);
  auto const removed =
      remove_leftovers(directory, [&](std::string const& name) { return is_ours(name, output); });
  std::int64_t const room = free_bytes(directory);
  TESSERA_VALIDATE(bytes <= room, IoError, "the model needs ", human_bytes(bytes), ", ",
                   directory.string(), " has ", human_bytes(room),
                   " left; make room, use another directory or --dtype bf16");
  return removed;
}

}  // namespace tessera::checkpoint::detail
