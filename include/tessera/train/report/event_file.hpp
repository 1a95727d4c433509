#pragma once
/// TensorBoard event files, without Python.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera::train {

struct Scalar {
  std::string tag;  ///< "train/loss"
  double value = 0.0;
};

/// One file events.out.tfevents.* of TFRecords with scalar summaries. A start at a later step makes
/// TensorBoard drop what an earlier attempt wrote from that step on.
class EventFile {
 public:
  /// Creates @p directory and the file.
  /// @param first_step  the first step that will be written; at most 1: a fresh start
  /// @throws IoError
  EventFile(std::filesystem::path const& directory, std::int64_t first_step);
  ~EventFile();
  EventFile(EventFile const&) = delete;
  EventFile& operator=(EventFile const&) = delete;

  /// A failed write is logged as a warning; it does not end the run.
  void write(std::int64_t step, std::vector<Scalar> const& scalars);
  std::filesystem::path const& file() const { return file_; }

 private:
  void append(std::string const& event);

  std::filesystem::path file_;
  int descriptor_ = -1;
};

/// The TFRecord of @p data: length, masked CRC-32C of the length, data, masked CRC-32C of the data.
std::string tf_record(std::string const& data);

}  // namespace tessera::train
