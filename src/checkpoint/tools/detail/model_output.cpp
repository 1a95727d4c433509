#include "tools/detail/model_output.hpp"

#include <algorithm>

#include "format/detail/file.hpp"
#include "interchange/detail/safetensors_layout.hpp"
#include "tessera/checkpoint/interchange/model_weights.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/text.hpp"

namespace tessera::checkpoint::detail {
namespace {

namespace fs = std::filesystem;

bool is_file(fs::path const& output) { return output_format(output) != OutputFormat::directory; }

/// Copies the files of the first place that has a tokenizer, or of a model any. A place that cannot
/// be read is one that has none.
void copy_first(std::vector<fs::path> const& places, Companions which, fs::path const& output,
                std::vector<fs::path>& copies) {
  for (auto const& place : places) {
    auto const files = companion_files(place, which);
    if (which == Companions::tokenizer && !has_vocabulary(place)) continue;
    for (auto const& from : files) {
      std::error_code error;
      fs::path const to = output / companion_name(from);
      if (fs::equivalent(from, to, error)) continue;
      make_directories(to.parent_path());
      copy_file_atomically(from, to);
      copies.push_back(to);
    }
    if (!files.empty()) return;
  }
}

void check_place(fs::path const& output, fs::path const& checkpoint) {
  TESSERA_VALIDATE(
      !output.empty(), UsageError,
      "the output has no name; give FILE.safetensors, FILE.bin, FILE.pt, FILE.h5 or a directory");
  fs::path const inside = fs::weakly_canonical(checkpoint),
                 place = fs::weakly_canonical(fs::absolute(output));
  bool const within =
      std::mismatch(inside.begin(), inside.end(), place.begin(), place.end()).first == inside.end();
  TESSERA_VALIDATE(!within, UsageError, "the output ", output.string(), " is in the checkpoint ",
                   checkpoint.string(), " itself; write it elsewhere");
  std::error_code error;
  auto const status = fs::status(output, error);
  if (is_file(output))
    TESSERA_VALIDATE(!fs::is_directory(status), UsageError, output.string(),
                     " is a directory; its suffix asks for a file: give another name");
  else
    TESSERA_VALIDATE(
        !fs::exists(status) || fs::is_directory(status), UsageError, output.string(),
        " is a file; without the suffix .safetensors, .bin, .pt or .h5 the output is a directory");
}

/// Names that a model's files have, for a directory.
bool is_ours(std::string const& final_name, fs::path const& output) {
  if (is_file(output)) return final_name == output.filename().string();
  return final_name == "config.json" || final_name == "model.safetensors.index.json" ||
         final_name == adapter_config_name || final_name == "adapter_model.safetensors" ||
         (final_name.rfind("model", 0) == 0 && fs::path(final_name).extension() == ".safetensors");
}

}  // namespace

OutputFormat output_format(fs::path const& output) {
  auto const suffix = output.extension();
  if (suffix == ".safetensors") return OutputFormat::safetensors;
  if (suffix == ".bin" || suffix == ".pt" || suffix == ".pth") return OutputFormat::torch;
  if (suffix == ".h5" || suffix == ".hdf5") return OutputFormat::hdf5;
  return OutputFormat::directory;
}

PreparedOutput prepare_output(OutputRequest const& request) {
  auto const& output = request.output;
  check_place(output, request.checkpoint);
  fs::path directory = is_file(output) ? output.parent_path() : output;
  if (directory.empty()) directory = ".";
  make_directories(directory);
  PreparedOutput prepared;
  for (auto const& entry : entries_of(directory))
    if (is_ours(entry.path().filename().string(), output))
      prepared.replaced.push_back(entry.path());
  std::sort(prepared.replaced.begin(), prepared.replaced.end());
  TESSERA_VALIDATE(prepared.replaced.empty() || request.when_present == WhenPresent::replace,
                   UsageError, output.string(), " holds a model already (",
                   prepared.replaced.back().filename().string(),
                   "); give another directory, or replace the model with --overwrite");
  prepared.leftovers =
      remove_leftovers(directory, [&](std::string const& name) { return is_ours(name, output); });
  std::int64_t const room = free_bytes(directory);
  TESSERA_VALIDATE(request.bytes <= room, IoError, "the model needs ", human_bytes(request.bytes),
                   ", ", directory.string(), " has ", human_bytes(room),
                   " left; make room, use another directory or --dtype bf16");
  return prepared;
}

std::vector<fs::path> companion_places(fs::path const& checkpoint,
                                       ConfigTree const& resolved_config) {
  fs::path const absolute = fs::absolute(checkpoint).lexically_normal();
  std::vector<fs::path> places{absolute, absolute.parent_path().parent_path(),
                               absolute.parent_path()};
  if (auto const* arguments = resolved_config.find("arguments"))
    for (char const* option : {"tokenizer_name", "model_name_or_path"})
      if (auto const* given = arguments->find(option))
        if (std::string const place = given->get_string("value", ""); !place.empty())
          places.emplace_back(fs::is_regular_file(place) ? fs::path(place).parent_path()
                                                         : fs::path(place));
  return places;
}

std::vector<fs::path> copy_companions(std::vector<fs::path> const& places, fs::path const& output) {
  std::vector<fs::path> copies;
  copy_first(places, Companions::tokenizer, output, copies);
  copy_first(places, Companions::model, output, copies);
  return copies;
}

}  // namespace tessera::checkpoint::detail
