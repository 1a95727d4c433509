#include "tessera/train/report/metrics_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"

namespace tessera::train {
namespace fs = std::filesystem;

MetricsFile::MetricsFile(fs::path const& run_directory, std::int64_t first_step,
                         LastEvaluation last)
    : file_(run_directory / "metrics.jsonl") {
  std::string kept;
  if (first_step > 1) {
    std::ifstream in(file_);
    for (std::string line; std::getline(in, line);) {
      try {
        auto const record = ConfigTree::parse(line, file_.string());
        bool const is_repeated = last == LastEvaluation::repeated && record.contains("eval_loss");
        if (record.get_int("step", 0) + (is_repeated ? 1 : 0) < first_step) kept += line + "\n";
      } catch (DataError const&) {  // the incomplete last line of a killed run
      }
    }
  }
  write_file_atomically(file_, kept);
  descriptor_ = ::open(file_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) throw IoError(path_error("cannot open", file_, errno));
}

MetricsFile::~MetricsFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void MetricsFile::write(ConfigTree const& record) {
  try {
    write_all(descriptor_, record.dump() + "\n", file_);
  } catch (IoError const& e) {
    log::warning(concat("a metrics record could not be written: ", e.what()));
  }
}

void write_results(std::filesystem::path const& output_dir, std::string const& split,
                   ConfigTree const& results) {
  write_file_atomically(output_dir / (split + "_results.json"), results.dump(4) + "\n");
  auto const all_file = output_dir / "all_results.json";
  ConfigTree all = ConfigTree::object();
  if (std::filesystem::exists(all_file)) {
    try {
      all = ConfigTree::read(all_file);
    } catch (DataError const& e) {
      log::warning(concat(e.what(), "; it is replaced"));
    }
  }
  for (auto const& [key, value] : results.as_object()) all.set(key, value);
  write_file_atomically(all_file, all.dump(4) + "\n");
}

}  // namespace tessera::train
