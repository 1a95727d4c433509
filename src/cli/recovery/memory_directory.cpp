#include "recovery/memory_directory.hpp"

#include <unistd.h>

#include <charconv>
#include <chrono>

#include "launch/run_program.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;
namespace {

constexpr std::chrono::seconds removal_limit{20};

std::string own_prefix() { return concat("tessera-run-", host_name(), "-"); }

/// True for the directory of a process of this host that no longer lives.
bool has_no_owner(std::string const& name) {
  std::string const prefix = own_prefix();
  if (!name.starts_with(prefix)) return false;
  std::int64_t pid = 0;
  auto const* const end = name.data() + name.size();
  auto const [last, error] = std::from_chars(name.data() + prefix.size(), end, pid);
  return error == std::errc() && last == end && !process_stat(pid);
}

}  // namespace

MemoryDirectory::MemoryDirectory(fs::path const& parent)
    : path_(parent / concat(own_prefix(), ::getpid())) {
  std::error_code failed;
  std::vector<fs::path> left;
  for (fs::directory_iterator it(parent, failed), end; !failed && it != end; it.increment(failed))
    if (has_no_owner(it->path().filename().string())) left.push_back(it->path());
  for (auto const& directory : left) fs::remove_all(directory, failed);
  fs::remove_all(path_, failed);  // an earlier process had this id
}

MemoryDirectory::~MemoryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string MemoryDirectory::remove_on(LaunchRequest launch) const {
  for (auto& node : launch.hosts) node.slots = {0};
  launch.program = {"rm", "-rf", path_.string()};
  launch.exports.clear();
  int const code = run_program(launch_line(launch), removal_limit).code;
  return code == 0 ? ""
                   : concat(path_.string(), " could not be removed on all nodes (exit code ", code,
                            " of the launcher); remove it there by hand");
}

}  // namespace tessera::cli
