#pragma once
/// The values of a run for TensorBoard and CSV files: those of DeepSpeed's monitors by samples, and
/// those of the Trainer by steps.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/config/reporting.hpp"
#include "tessera/train/report/event_file.hpp"

namespace tessera::train {

class Monitors {
 public:
  struct Start {
    std::int64_t first_step = 1;  ///< of this attempt
    std::int64_t samples = 0;     ///< consumed before it; later rows of CSV files are dropped
  };
  /// Opens what @p reporting names. @throws IoError
  Monitors(config::Reporting const& reporting, Start const& start);

  /// DeepSpeed's: at every step, with "Train/Samples/" before each tag.
  void samples(std::int64_t samples, std::vector<Scalar> const& scalars);
  /// The Trainer's: with a log line or an evaluation.
  void steps(std::int64_t step, std::vector<Scalar> const& scalars);

 private:
  void append_row(std::int64_t samples, Scalar const& scalar);

  std::filesystem::path csv_;
  std::int64_t samples_before_;
  std::unique_ptr<EventFile> deepspeed_, trainer_;
  std::vector<std::string> opened_;  ///< tags whose CSV file this attempt has prepared
};

}  // namespace tessera::train
