#include "installation.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tessera/config/option_table.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;

fs::path sibling_program(std::string const& name) {
  fs::path const file = fs::read_symlink("/proc/self/exe").parent_path() / name;
  TESSERA_VALIDATE(fs::exists(file), IoError, file.string(),
                   " is missing; the installation is incomplete, install Tessera again");
  return file;
}

fs::path shipped_file(fs::path const& relative) {
  return shipped_file(relative, fs::read_symlink("/proc/self/exe"));
}

fs::path shipped_file(fs::path const& relative, fs::path const& program) {
  // the installed layout of this build, and that of every build folder
  for (char const* data : {TESSERA_DATA_FROM_PROGRAMS, "../share/tessera"}) {
    fs::path const file = (program.parent_path() / data / relative).lexically_normal();
    if (fs::exists(file)) return file;
  }
  return {};
}

std::string read_text(fs::path const& file) {
  std::ifstream in(file, std::ios::binary);
  TESSERA_VALIDATE(in && !fs::is_directory(file), IoError, path_error("cannot read", file, errno));
  std::string text(std::istreambuf_iterator<char>(in), {});
  require_narrow(text, file.string());
  return text;
}

namespace fs = std::filesystem;
namespace {

constexpr char const* folder = "configs/machines";
/// What the process takes of a device besides what it counts: the device's context, NCCL,
/// libraries.
constexpr std::int64_t device_reserve = std::int64_t{1} << 30;
/// Host memory that MPI and libraries take.
constexpr std::int64_t host_reserve = std::int64_t{64} << 20;

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

plan::Limits limits_of(plan::MachineProfile const* machine) {
  plan::Limits out{.device_reserved = device_reserve, .host_reserved = host_reserve};
  if (!machine) return out;
  out.device = machine->device_memory;
  out.host = machine->host_memory;
  out.nvme = machine->nvme;
  if (machine->reserved_memory > 0)
    (machine->has_device ? out.device_reserved : out.host_reserved) = machine->reserved_memory;
  return out;
}

}  // namespace tessera::cli
