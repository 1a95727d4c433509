#include "plan/machine_files.hpp"

#include <algorithm>
#include <filesystem>

#include "installation.hpp"
#include "tessera/config/option_table.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;
namespace {

constexpr char const* folder = "configs/machines";

}  // namespace

std::vector<std::string> shipped_machines() {
  std::vector<std::string> out;
  auto const directory = shipped_file(folder);
  if (directory.empty()) return out;
  for (auto const& entry : fs::directory_iterator(directory))
    if (entry.path().extension() == ".json") out.push_back(entry.path().stem().string());
  std::sort(out.begin(), out.end());
  return out;
}

plan::MachineProfile find_machine(std::string const& name) {
  fs::path file = name;
  if (!fs::exists(file)) {
    auto const names = shipped_machines();
    auto const near = config::nearest_name(name, names);
    TESSERA_VALIDATE(std::find(names.begin(), names.end(), name) != names.end(), UsageError,
                     "--machine ", name, " is neither a file nor a shipped profile (", join(names),
                     ")", near.empty() ? "" : concat("; did you mean ", near, "?"),
                     "; tessera selftest --profile FILE measures this machine");
    file = shipped_file(fs::path(folder) / (name + ".json"));
  }
  return plan::read_profile(ConfigTree::read(file), file.string());
}

}  // namespace tessera::cli
