/// The offline tools against plain reads and writes of the same bytes, in turns, each in a process
/// of its own whose peak memory is measured:
///   bench.tools [MILLION_PARAMETERS=100] [ROUNDS=3] [DIRECTORY=.]
/// One JSON line: medians and best times, ratios of both, peaks in MiB. The checkpoint holds the
/// weights of two ranks. What is written is flushed inside the time; what is read is dropped from
/// the page cache before it.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "bench_request.hpp"
#include "interleaved.hpp"
#include "tessera/checkpoint/save/save.hpp"
#include "tessera/checkpoint/tools/compare.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/checkpoint/tools/verify.hpp"
#include "tessera/core/error.hpp"

namespace {

using namespace tessera;
namespace fs = std::filesystem;

constexpr std::size_t part = std::size_t{4} << 20;

void must(bool ok, char const* what) {
  if (!ok) throw IoError(with_errno(what, errno));
}

void drop_cache(fs::path const& directory) {
  for (auto const& entry : fs::recursive_directory_iterator(directory)) {
    int const fd = ::open(entry.path().c_str(), O_RDONLY);
    if (fd < 0) continue;
    ::fsync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

/// Reads every file of a directory; with an output also writes the bytes and flushes them; with a
/// checksum also hashes them.
void plain(fs::path const& directory, fs::path const& output, bool checksum) {
  std::vector<char> data(part);
  int const out = output.empty() ? -1 : ::open(output.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
  std::uint64_t sum = 0;
  for (auto const& entry : fs::directory_iterator(directory)) {
    if (entry.path().filename().string().rfind("shard_", 0) != 0) continue;
    int const in = ::open(entry.path().c_str(), O_RDONLY);
    must(in >= 0, "open");
    ::posix_fadvise(in, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (ssize_t got = 0; (got = ::read(in, data.data(), part)) > 0;) {
      if (checksum) sum ^= XXH3_64bits(data.data(), static_cast<std::size_t>(got));
      if (out >= 0) must(::write(out, data.data(), static_cast<std::size_t>(got)) == got, "write");
    }
    ::close(in);
  }
  if (out >= 0) must(::fsync(out) == 0 && ::close(out) == 0, "fsync");
  volatile std::uint64_t const kept = sum;
  (void)kept;
}

struct Series {
  char const* name;
  std::function<void()> work;
  std::vector<double> seconds = {};
  double peak_mib = 0;

  void once() {
    double const time = bench::seconds_of([&] {
      pid_t const pid = ::fork();
      must(pid >= 0, "fork");
      if (pid == 0) {
        try {
          work();
        } catch (std::exception const& e) {
          std::fprintf(stderr, "%s: %s\n", name, e.what());
          ::_exit(1);
        }
        ::_exit(0);
      }
      int status = 0;
      rusage usage = {};
      must(::wait4(pid, &status, 0, &usage) == pid, "wait");
      TESSERA_VALIDATE(status == 0, InternalError, name, " failed");
      peak_mib = std::max(peak_mib, static_cast<double>(usage.ru_maxrss) / 1024);
    });
    seconds.push_back(time);
  }
};

fs::path make_checkpoint(fs::path const& base, std::int64_t numel) {
  std::int64_t const width = 1024;
  memory::ParameterSpec embedding;
  embedding.name = "wte";
  embedding.shape = {std::max<std::int64_t>(1, numel / width / 4), width};
  std::vector<memory::UnitSpec> units{{"embedding", {embedding}}};
  for (std::int64_t left = numel * 3 / 4, i = 0; left > 0; left -= 4 * width * width, ++i) {
    auto& unit = units.emplace_back();
    unit.name = concat("h.", i);
    for (int k = 0; k < 4; ++k) {
      memory::ParameterSpec spec;
      spec.name = concat("h.", i, ".", k);
      spec.shape = {width, width};
      unit.parameters.push_back(std::move(spec));
    }
  }
  zero::PartitionPlan const plan(units, 2);
  checkpoint::StreamedStates states{{"fp32"}, {}};
  states.read = [](std::string const&, zero::ShardExtent const& extent, std::int64_t first,
                   std::int64_t count, float* out) {
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = static_cast<float>((extent.parameter_offset.value() + first + i) % 9973) * 0.001f;
  };
  auto const request = bench::save_request(base / "checkpoints", plan, units);
  return checkpoint::save_all(request, states).directory;
}

void run(double millions, int rounds, fs::path const& base) {
  fs::path const step = make_checkpoint(base, static_cast<std::int64_t>(millions * 1e6));
  std::vector<Series> all;
  all.push_back({"copy", [&] { plain(step, base / "copy", false); }});
  all.push_back({"zero_to_fp32", [&] {
                   checkpoint::consolidate(
                       {.checkpoint = step, .output = base / "model.safetensors"});
                 }});
  all.push_back({"zero_to_fp32_bin", [&] {
                   checkpoint::consolidate({.checkpoint = step, .output = base / "model.bin"});
                 }});
  all.push_back({"read_and_hash", [&] { plain(step, "", true); }});
  all.push_back({"verify", [&] {
                   TESSERA_VALIDATE(checkpoint::verify(step).ok(), InternalError, "damaged");
                 }});
  all.push_back({"diff", [&] { (void)checkpoint::compare({.a = step, .b = step}); }});
  for (int r = 0; r < rounds; ++r)
    for (std::size_t i = 0; i < all.size(); ++i) {
      // every second round backwards: a disk remembers what was written to it just before
      auto& series = all[r % 2 ? all.size() - 1 - i : i];
      for (auto const* name : {"copy", "model.safetensors", "model.bin"}) fs::remove(base / name);
      drop_cache(base);
      series.once();
    }
  std::printf("{\"benchmark\": \"tools\", \"million_parameters\": %.0f, \"rounds\": %d", millions,
              rounds);
  for (auto const& series : all)
    std::printf(", \"%s_s\": %.3f, \"%s_best_s\": %.3f, \"%s_peak_mib\": %.0f", series.name,
                bench::summary(series.seconds).median, series.name,
                bench::summary(series.seconds).best, series.name, series.peak_mib);
  auto const ratio = [&](char const* name, Series const& plain_one, Series const& own) {
    auto const a = bench::summary(plain_one.seconds), b = bench::summary(own.seconds);
    std::printf(", \"plain_over_%s\": %.3f, \"plain_over_%s_best\": %.3f", name,
                a.median / b.median, name, a.best / b.best);
  };
  ratio("zero_to_fp32", all[0], all[1]);
  ratio("zero_to_fp32_bin", all[0], all[2]);
  ratio("verify", all[3], all[4]);
  std::printf("}\n");
}

}  // namespace

int main(int argc, char** argv) {
  fs::path const base = fs::path(argc > 3 ? argv[3] : ".") / concat("bench.tools.", ::getpid());
  int code = 1;
  try {
    fs::create_directories(base);
    run(argc > 1 ? std::atof(argv[1]) : 100, argc > 2 ? std::atoi(argv[2]) : 3, base);
    code = 0;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  fs::remove_all(base);
  return code;
}
