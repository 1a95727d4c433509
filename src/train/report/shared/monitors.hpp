#pragma once
/// The values of a run for TensorBoard, CSV files, W&B and MLflow: those of DeepSpeed's monitors by
/// samples, and those of the Trainer by steps. All files are written without Python.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tessera/config/reporting.hpp"
#include "tessera/train/report/tracker.hpp"

namespace tessera::train {

/// One file events.out.tfevents.* of TFRecords with scalar summaries. A start at a later step makes
/// TensorBoard drop what an earlier attempt wrote from that step on.
class EventFile : public Tracker {
 public:
  /// Creates @p directory and the file.
  /// @param first_step  the first step that will be written; at most 1: a fresh start
  /// @throws IoError
  EventFile(std::filesystem::path const& directory, std::int64_t first_step);
  ~EventFile() override;

  void write(std::int64_t step, std::vector<Scalar> const& scalars) override;
  void write_text(std::int64_t step, std::string const& tag, std::string const& text) override;
  std::filesystem::path const& file() const { return file_; }

 private:
  void append(std::string const& event);

  std::filesystem::path file_;
  int descriptor_ = -1;
};

/// The TFRecord of @p data: length, masked CRC-32C of the length, data, masked CRC-32C of the data.
std::string tf_record(std::string const& data);

class Monitors {
 public:
  struct Start {
    std::int64_t first_step = 1;  ///< first step of this attempt
    std::int64_t samples = 0;     ///< consumed before it; later rows of CSV files are dropped
    TrackedRun run = {};          ///< for W&B and MLflow
  };
  /// Opens what @p reporting names. @throws IoError
  Monitors(config::Reporting const& reporting, Start const& start);

  /// DeepSpeed's: at every step, with "Train/Samples/" before each tag.
  void samples(std::int64_t samples, std::vector<Scalar> const& scalars);
  /// The Trainer's: with a log line or an evaluation.
  void steps(std::int64_t step, std::vector<Scalar> const& scalars);
  /// A text of a step: a generated sample.
  void text(std::int64_t step, std::string const& tag, std::string const& text);
  /// The training is complete.
  void end();

 private:
  void append_row(std::int64_t samples, Scalar const& scalar);

  std::filesystem::path csv_;
  std::int64_t samples_before_;
  std::unique_ptr<EventFile> deepspeed_;
  std::vector<std::unique_ptr<Tracker>> trackers_;
  std::vector<std::string> opened_;  ///< tags whose CSV file this attempt has prepared
};

}  // namespace tessera::train
