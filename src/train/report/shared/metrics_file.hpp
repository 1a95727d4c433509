#pragma once
/// The numbers that a run writes: metrics.jsonl, one JSON object per line (fields:
/// docs/reference/run-directory.md), and the result files of run_clm.py.

#include <cstdint>
#include <filesystem>
#include <string>

#include "tessera/core/config_tree.hpp"

namespace tessera::train {

/// The evaluation after the last step before a resume.
enum class LastEvaluation { kept, repeated };

/// Appends records. A resume drops the records of steps that will run again.
class MetricsFile {
 public:
  /// @param first_step drops records from this step on; 1 starts an empty file
  MetricsFile(std::filesystem::path const& run_directory, std::int64_t first_step,
              LastEvaluation last = LastEvaluation::kept);
  ~MetricsFile();
  MetricsFile(MetricsFile const&) = delete;
  MetricsFile& operator=(MetricsFile const&) = delete;
  /// A failed write is logged as a warning; it does not end the run.
  void write(ConfigTree const& record);

 private:
  int descriptor_ = -1;
  std::filesystem::path file_;
};

/// Writes <split>_results.json and merges the members into all_results.json.
void write_results(std::filesystem::path const& output_dir, std::string const& split,
                   ConfigTree const& results);

}  // namespace tessera::train
