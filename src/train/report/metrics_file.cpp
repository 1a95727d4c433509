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

MetricsFile::MetricsFile(fs::path const& run_directory, std::int64_t first_step)
    : file_(run_directory / "metrics.jsonl") {
  std::string kept;
  if (first_step > 1) {
    std::ifstream in(file_);
    for (std::string line; std::getline(in, line);) {
      try {
        if (ConfigTree::parse(line, file_.string()).get_int("step", 0) < first_step)
          kept += line + "\n";
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

}  // namespace tessera::train
