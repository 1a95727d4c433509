#include "tessera/data/text/text_files.hpp"

#include <glob.h>

#include <algorithm>
#include <memory>
#include <string>

#include "tessera/core/error.hpp"
#include "tessera/core/words.hpp"
#include "text/record_reader.hpp"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> matches(std::string const& pattern) {
  glob_t found{};
  std::unique_ptr<glob_t, void (*)(glob_t*)> const owner(&found, &globfree);
  int const status = ::glob(pattern.c_str(), 0, nullptr, &found);
  TESSERA_VALIDATE(status == 0, IoError, "no file matches ", pattern,
                   status == GLOB_NOMATCH ? "" : ": a directory on the way cannot be read",
                   "; give an existing file, or a pattern such as 'data/*.jsonl' in quotes");
  return {found.gl_pathv, found.gl_pathv + found.gl_pathc};
}

/// Refuses formats that need Arrow's libraries; Python's datasets converts them in one line.
void refuse_arrow(fs::path const& file) {
  auto const convert = [&](std::string const& what, std::string const& call) {
    throw ConfigError(concat("cannot read ", file.string(), ": ", what,
                             " needs Apache Arrow, and this Tessera was built without it "
                             "(TESSERA_ENABLE_ARROW); convert it with Python: import datasets; "
                             "datasets.",
                             call, ".to_json('train.jsonl')"));
  };
  std::string const name = "('" + file.string() + "')";
  if (file.extension() == ".parquet") convert("Parquet", "Dataset.from_parquet" + name);
  if (file.extension() == ".arrow") convert("an Arrow file", "Dataset.from_file" + name);
  if (!detail::is_saved_dataset(file)) return;
  bool const several = fs::exists(file / "dataset_dict.json");
  convert("a directory of datasets.save_to_disk",
          "load_from_disk" + name + (several ? "['train']" : ""));
}

/// The files of a directory that datasets wrote, or the file itself.
void append_files(fs::path const& named, std::vector<fs::path>& out) {
  if (!detail::reads_arrow()) refuse_arrow(named);
  if (!fs::is_directory(named)) {
    out.push_back(named);
    return;
  }
  TESSERA_VALIDATE(detail::is_saved_dataset(named), ConfigError, "cannot read ", named.string(),
                   ": it is a directory; name its files with a pattern, such as '",
                   (named / "*.jsonl").string(), "'");
  for (auto& file : detail::files_of_saved_dataset(named)) out.push_back(std::move(file));
}

std::vector<fs::path> split_list(std::string const& list) {
  std::vector<fs::path> out;
  for (auto& name : split(list, ',')) {
    TESSERA_VALIDATE(!name.empty(), ConfigError, "the list of files '", list,
                     "' has an empty entry; separate the files by single commas");
    out.emplace_back(std::move(name));
  }
  return out;
}

}  // namespace

std::vector<fs::path> parts_of_list(fs::path const& named) {
  return fs::exists(named) ? std::vector{named} : split_list(named.string());
}

fs::path kind_of_file(fs::path const& file) {
  bool const compressed = file.extension() == ".gz" || file.extension() == ".zst";
  return (compressed ? file.stem() : file).extension();
}

std::vector<fs::path> find_text_files(fs::path const& named) {
  std::vector<fs::path> out;
  for (auto const& part : parts_of_list(named)) {
    if (fs::exists(part) || part.string().find_first_of("*?[") == std::string::npos) {
      TESSERA_VALIDATE(fs::exists(part), IoError, "cannot read ", part.string(),
                       ": there is no such file");
      append_files(part, out);
    } else {
      for (auto const& file : matches(part.string())) append_files(file, out);
    }
  }
  return out;
}

}  // namespace tessera::data
