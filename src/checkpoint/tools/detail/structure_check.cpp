#include "tools/detail/structure_check.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <fstream>
#include <set>

#include "format/detail/file.hpp"
#include "format/detail/hdf5.hpp"
#include "format/detail/json_reader.hpp"
#include "format/detail/shard_file.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

class Findings {
 public:
  Findings(std::string file, std::size_t most) : file_(std::move(file)), most_(most) {}
  void add(std::string const& text) {
    if (texts_.size() < most_) texts_.push_back(file_ + ": " + printable(text));
  }
  template <class Found, class Wanted>
  void expect(std::string const& what, Found const& found, Wanted const& wanted) {
    if (found != wanted) add(concat(what, " is ", found, ", the manifest says ", wanted));
  }
  /// An exception of @p check is a finding too.
  template <class Check>
  void guard(Check const& check) {
    try {
      check();
    } catch (std::exception const& e) {
      add(e.what());
    }
  }
  std::vector<std::string> take() { return std::move(texts_); }

 private:
  std::string file_;
  std::size_t most_;
  std::vector<std::string> texts_;
};

herr_t note_link(hid_t, char const* name, H5L_info_t const* info, void* out) {
  if (info->type != H5L_TYPE_HARD)
    static_cast<Findings*>(out)->add(
        concat(info->type == H5L_TYPE_EXTERNAL ? "external"
               : info->type == H5L_TYPE_SOFT   ? "symbolic"
                                               : "user-defined",
               " HDF5 link /", name,
               "; a checkpoint's files have none: do not open this file with other programs"));
  return 0;
}

/// Nothing in the file may lead out of it by a link.
void check_links(hid_t file, Findings& findings) {
  findings.guard([&] {
    h5::check(H5Lvisit(file, H5_INDEX_NAME, H5_ITER_NATIVE, note_link, &findings),
              "cannot list its HDF5 links");
  });
}

bool is_hard(hid_t file, std::string const& path) {
  H5L_info_t info = {};
  return H5Lget_info(file, path.c_str(), &info, H5P_DEFAULT) >= 0 && info.type == H5L_TYPE_HARD;
}

/// The dataset, reached without leaving the file. @throws DataError or IoError
h5::Id open_dataset(hid_t file, std::string const& state, std::string const& name) {
  std::string const path = "/" + state + "/" + name;
  bool const there = is_hard(file, "/" + state) && is_hard(file, path);
  TESSERA_VALIDATE(there, DataError, "has no dataset ", path);
  return h5::Id(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose, "cannot open dataset " + path);
}

h5::Id creation_of(hid_t dataset) {
  return h5::Id(H5Dget_create_plist(dataset), H5Pclose, "cannot ask how a dataset was made");
}

void compare_identity(hid_t file, Manifest const& manifest, char const* format,
                      Findings& findings) {
  findings.guard([&] {
    findings.expect("format", h5::string_attribute(file, "format"), std::string(format));
  });
  findings.guard(
      [&] { findings.expect("run_id", h5::string_attribute(file, "run_id"), manifest.run_id); });
  findings.guard(
      [&] { findings.expect("step", h5::integer_attribute(file, "step"), manifest.step); });
}

/// The stored chunks of a compressed dataset are those of the manifest, and HDF5 puts them where
/// the elements belong.
void compare_chunks(hid_t dataset, std::string const& name, StateLocation const& location,
                    std::int64_t chunk_numel, Findings& findings) {
  h5::Id const create = creation_of(dataset);
  hsize_t chunk[1] = {0};
  TESSERA_VALIDATE(H5Pget_layout(create) == H5D_CHUNKED && H5Pget_chunk(create, 1, chunk) == 1,
                   DataError, name, " is not chunked");
  findings.expect("elements of a chunk of " + name, static_cast<std::int64_t>(chunk[0]),
                  chunk_numel);
  for (std::size_t i = 0; i < location.chunks.size(); ++i) {
    hsize_t const at[1] = {static_cast<hsize_t>(i) * chunk[0]};
    unsigned mask = 0;
    haddr_t place = HADDR_UNDEF;
    hsize_t bytes = 0;
    h5::check(H5Dget_chunk_info_by_coord(dataset, at, &mask, &place, &bytes),
              "cannot find a chunk of " + name);
    std::string const which = concat("chunk ", i, " of ", name);
    findings.expect("place of " + which, static_cast<std::int64_t>(place),
                    location.chunks[i].offset);
    findings.expect("bytes of " + which, static_cast<std::int64_t>(bytes),
                    location.chunks[i].bytes);
    findings.expect("filters left out of " + which, mask, 0u);
  }
}

void compare_run(hid_t file, Manifest const& manifest, std::size_t state,
                 TensorRecord const& tensor, DatasetRun const& run, Findings& findings) {
  std::string const name = "/" + manifest.states[state] + "/" + tensor.name;
  h5::Id const dataset = open_dataset(file, manifest.states[state], tensor.name);
  h5::Id const create = creation_of(dataset);
  if (H5Pget_external_count(create) != 0) findings.add(name + " keeps its data in other files");
  findings.expect("offset of " + name, h5::integer_attribute(dataset, "offset"), run.offset);
  auto const& location = tensor.extents[run.first_extent].states[state];
  if (!location.chunks.empty())
    return compare_chunks(dataset, name, location, std::min(run.numel, manifest.checksum_chunk / 4),
                          findings);
  findings.expect("place of " + name, h5::offset_of(dataset, name), location.file_offset);
  findings.expect("bytes of " + name, static_cast<std::int64_t>(H5Dget_storage_size(dataset)),
                  run.numel * 4);
}

/// The datasets of a shard.
void compare_runs(hid_t file, Manifest const& manifest, int index, Findings& findings) {
  for (auto const& tensor : manifest.tensors)
    for (auto const& run : tensor.runs())
      for (std::size_t s = 0; s < manifest.states.size() && run.shard == index; ++s)
        findings.guard([&] { compare_run(file, manifest, s, tensor, run, findings); });
}

void compare_virtual(hid_t file, std::string const& state, TensorRecord const& tensor,
                     std::set<std::string> const& shards, Findings& findings) {
  std::string const name = "/" + state + "/" + tensor.name;
  h5::Id const dataset = open_dataset(file, state, tensor.name);
  h5::Id const space(H5Dget_space(dataset), H5Sclose, "cannot ask for the shape of " + name);
  std::vector<hsize_t> dims(static_cast<std::size_t>(
      h5::check(H5Sget_simple_extent_ndims(space), "cannot ask for the shape of " + name)));
  h5::check(H5Sget_simple_extent_dims(space, dims.data(), nullptr),
            "cannot ask for the shape of " + name);
  findings.expect("shape of " + name,
                  list_text(std::vector<std::int64_t>(dims.begin(), dims.end())),
                  list_text(tensor.shape));
  h5::Id const create = creation_of(dataset);
  TESSERA_VALIDATE(H5Pget_layout(create) == H5D_VIRTUAL, DataError, name, " is no virtual dataset");
  std::size_t sources = 0;
  h5::check(H5Pget_virtual_count(create, &sources), "cannot list the sources of " + name);
  for (std::size_t i = 0; i < sources; ++i) {
    char source[512] = {};
    h5::check(H5Pget_virtual_filename(create, i, source, sizeof source),
              "cannot read a source of " + name);
    TESSERA_VALIDATE(
        shards.contains(source), DataError, name, " takes elements from '", source,
        "', which is no shard of this checkpoint: do not open this view with other programs");
  }
}

}  // namespace

std::vector<std::string> compare_structure(Manifest const& manifest, int index, std::size_t most) {
  auto const path = manifest.shard_path(index);
  Findings findings(path.string(), most);
  findings.guard([&] {
    h5::Id const file = h5::open_file(path);
    check_links(file, findings);
    compare_identity(file, manifest, "tessera-shard", findings);
    findings.guard([&] {
      findings.expect("world_size", h5::integer_attribute(file, "world_size"),
                      std::int64_t{manifest.world_size});
    });
    compare_runs(file, manifest, index, findings);
    for (auto const& reduced : manifest.reduced_manifests())
      compare_runs(file, reduced, index, findings);
  });
  return findings.take();
}

std::vector<std::string> compare_view(Manifest const& manifest, std::size_t most) {
  auto const path = manifest.directory / "view.h5";
  Findings findings(path.string(), most);
  findings.guard([&] {
    h5::Id const file = h5::open_file(path);
    check_links(file, findings);
    compare_identity(file, manifest, "tessera-view", findings);
    std::set<std::string> shards;
    for (auto const& shard : manifest.shards) shards.insert(shard.file);
    auto layers = manifest.reduced_manifests();
    layers.insert(layers.begin(), manifest);
    for (auto const& layer : layers)
      for (auto const& state : layer.states)
        for (auto const& tensor : layer.tensors)
          findings.guard([&] { compare_virtual(file, state, tensor, shards, findings); });
  });
  return findings.take();
}

namespace {

constexpr std::size_t most_text = std::size_t{1} << 20;
constexpr rlim_t more_memory = rlim_t{512} << 20, most_seconds = 120;

/// Private writable memory of this process, what RLIMIT_DATA counts.
rlim_t data_bytes() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  for (int column = 0; column < 6; ++column) file >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

void limit(int resource, rlim_t value) {
  rlimit const bounds{value, value};
  (void)::setrlimit(static_cast<__rlimit_resource>(resource), &bounds);
}

void write_all(int fd, std::string const& text) {
  for (std::size_t done = 0; done < text.size();) {
    ssize_t const put = ::write(fd, text.data() + done, text.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    done += static_cast<std::size_t>(put);
  }
}

[[noreturn]] void child(int fd, std::function<std::vector<std::string>()> const& work) {
  for (int const number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGPIPE, SIGXCPU})
    (void)std::signal(number, SIG_DFL);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, most_seconds);
  if (rlim_t const used = data_bytes(); used > 0) limit(RLIMIT_DATA, used + more_memory);
  std::vector<std::string> lines;
  try {
    lines = work();
  } catch (std::exception const& e) {
    lines.emplace_back(e.what());
  }
  std::string text;
  for (auto& line : lines) {
    std::replace(line.begin(), line.end(), '\n', ' ');
    if (text.size() + line.size() < most_text) text += line + "\n";
  }
  write_all(fd, text);
  ::_exit(0);
}

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    ssize_t const got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace

SandboxResult run_sandboxed(std::function<std::vector<std::string>()> const& work) {
  int ends[2] = {};
  TESSERA_VALIDATE(::pipe2(ends, O_CLOEXEC) == 0, IoError,
                   with_errno("cannot make a pipe to a child process", errno));
  pid_t const pid = ::fork();
  int const error = errno;
  if (pid == 0) child(ends[1], work);
  ::close(ends[1]);
  SandboxResult result;
  if (pid > 0) {
    std::string const text = read_all(ends[0]);
    for (std::size_t at = 0; at < text.size();) {
      auto const end = std::min(text.find('\n', at), text.size());
      result.lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  }
  ::close(ends[0]);
  TESSERA_VALIDATE(pid > 0, IoError, with_errno("cannot make a child process", error));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFSIGNALED(status))
    result.failure =
        concat("was ended by signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)), ")");
  else if (WEXITSTATUS(status) != 0)
    result.failure = concat("ended with code ", WEXITSTATUS(status));
  return result;
}

}  // namespace tessera::checkpoint::detail
