#include "tools/detail/model_output.hpp"

#include <algorithm>

#include "format/detail/file.hpp"
#include "interchange/detail/safetensors_layout.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/text.hpp"

namespace tessera::checkpoint::detail {
namespace {

namespace fs = std::filesystem;

std::vector<char const*> const tokenizer_files{"tokenizer.json",
                                               "tokenizer_config.json",
                                               "special_tokens_map.json",
                                               "added_tokens.json",
                                               "vocab.json",
                                               "merges.txt",
                                               "tokenizer.model",
                                               "chat_template.jinja"};

bool is_file(fs::path const& output) { return output_format(output) != OutputFormat::directory; }

/// Copies the named files of the first place that has one of @p marks. A place that cannot be read
/// is one that has none.
void copy_first(std::vector<fs::path> const& places, std::vector<char const*> const& marks,
                std::vector<char const*> const& names, fs::path const& output,
                std::vector<fs::path>& copies) {
  std::error_code error;
  auto const has = [&](fs::path const& place, char const* name) {
    return fs::is_regular_file(place / name, error);
  };
  auto const place = std::find_if(places.begin(), places.end(), [&](auto const& one) {
    return std::any_of(marks.begin(), marks.end(),
                       [&](auto const* mark) { return has(one, mark); });
  });
  if (place == places.end()) return;
  for (auto const* name : names) {
    fs::path const from = *place / name, to = output / name;
    if (!has(*place, name) || fs::equivalent(from, to, error)) continue;
    copy_file_atomically(from, to);
    copies.push_back(to);
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

std::vector<fs::path> copy_companions(fs::path const& checkpoint, ConfigTree const& resolved_config,
                                      fs::path const& output) {
  fs::path const absolute = fs::absolute(checkpoint).lexically_normal();
  std::vector<fs::path> places{absolute, absolute.parent_path().parent_path(),
                               absolute.parent_path()};
  if (auto const* arguments = resolved_config.find("arguments"))
    for (char const* option : {"tokenizer_name", "model_name_or_path"})
      if (auto const* given = arguments->find(option))
        if (std::string const place = given->get_string("value", ""); !place.empty())
          places.emplace_back(fs::is_regular_file(place) ? fs::path(place).parent_path()
                                                         : fs::path(place));
  std::vector<fs::path> copies;
  copy_first(places, {"tokenizer.json", "vocab.json"}, tokenizer_files, output, copies);
  copy_first(places, {"generation_config.json"}, {"generation_config.json"}, output, copies);
  return copies;
}

}  // namespace tessera::checkpoint::detail
