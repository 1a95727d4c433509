#include "tessera/train/report/monitors.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/process.hpp"
#include "tessera/train/report/protobuf.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
using namespace protobuf;
namespace {

/// The header, and on a resume the rows up to @p samples.
void prepare_csv(fs::path const& file, std::string const& column, std::int64_t samples) {
  std::string kept = "step," + column + "\n";
  if (samples > 0) {
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    while (std::getline(in, line)) {
      char* end = nullptr;
      auto const of_row = std::strtoll(line.c_str(), &end, 10);
      if (*end == ',' && of_row <= samples) kept += line + "\n";
    }
  }
  write_file_atomically(file, kept);
}

}  // namespace

Monitors::Monitors(config::Reporting const& reporting, Start const& start)
    : csv_(reporting.csv), samples_before_(start.first_step > 1 ? start.samples : 0) {
  if (!reporting.tensorboard.empty())
    deepspeed_ = std::make_unique<EventFile>(reporting.tensorboard,
                                             start.first_step > 1 ? samples_before_ + 1 : 1);
  if (!reporting.trainer_tensorboard.empty())
    trackers_.push_back(
        std::make_unique<EventFile>(reporting.trainer_tensorboard, start.first_step));
  if (reporting.wandb) trackers_.push_back(wandb_run(start.run, start.first_step));
  if (reporting.mlflow) trackers_.push_back(mlflow_run(start.run, start.first_step));
  if (csv_.empty()) return;
  std::error_code error;
  fs::create_directories(csv_, error);
  TESSERA_VALIDATE(!error, IoError, "cannot create ", csv_.string(), ": ", error.message(),
                   "; choose an output_path of csv_monitor that can be written");
}

void Monitors::samples(std::int64_t samples, std::vector<Scalar> const& scalars) {
  if (!csv_.empty())
    for (auto const& scalar : scalars) append_row(samples, scalar);
  if (!deepspeed_) return;
  std::vector<Scalar> tagged = scalars;
  for (auto& scalar : tagged) scalar.tag = "Train/Samples/" + scalar.tag;
  deepspeed_->write(samples, tagged);
}

void Monitors::steps(std::int64_t step, std::vector<Scalar> const& scalars) {
  for (auto const& tracker : trackers_) tracker->write(step, scalars);
}

void Monitors::text(std::int64_t step, std::string const& tag, std::string const& text) {
  for (auto const& tracker : trackers_) tracker->write_text(step, tag, text);
}

void Monitors::end() {
  for (auto const& tracker : trackers_) tracker->end();
}

void Monitors::append_row(std::int64_t samples, Scalar const& scalar) {
  fs::path const file = csv_ / ("Train_Samples_" + scalar.tag + ".csv");
  try {
    if (std::ranges::find(opened_, scalar.tag) == opened_.end()) {
      prepare_csv(file, scalar.tag, samples_before_);
      opened_.push_back(scalar.tag);
    }
    std::ofstream out(file, std::ios::app);
    out << samples << ',' << ConfigTree(scalar.value).dump() << '\n';
    if (!out.flush()) throw IoError("cannot write " + file.string());
  } catch (IoError const& e) {
    log::warning(concat("a row of csv_monitor could not be written: ", e.what()));
  }
}

namespace {

constexpr std::uint32_t castagnoli = 0x82F63B78u;

std::string masked_crc(std::string const& bytes) {
  std::uint32_t const crc = crc32(bytes, castagnoli);
  return little_endian(((crc >> 15) | (crc << 17)) + 0xA282EAD8u);
}

/// tensorflow.Event: wall_time 1, step 2, file_version 3, summary 5, session_log 7.
std::string event(std::int64_t step, std::string const& content) {
  double const now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return key(1, Wire::bytes8) + little_endian(now) +
         varint_field(2, static_cast<std::uint64_t>(step)) + content;
}

/// tensorflow.Summary of values {tag 1, simple_value 2}.
std::string scalar_summary(std::vector<Scalar> const& scalars) {
  std::string out;
  for (auto const& scalar : scalars)
    out += text_field(1, text_field(1, scalar.tag) + key(2, Wire::bytes4) +
                             little_endian(static_cast<float>(scalar.value)));
  return text_field(5, out);
}

}  // namespace

std::string tf_record(std::string const& data) {
  std::string const length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + masked_crc(length) + data + masked_crc(data);
}

EventFile::EventFile(std::filesystem::path const& directory, std::int64_t first_step) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  TESSERA_VALIDATE(!error, IoError, "cannot create ", directory.string(), ": ", error.message(),
                   "; choose a --logging_dir or output_path that can be written");
  auto const now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  file_ = directory / concat("events.out.tfevents.", now, ".", host_name(), ".", ::getpid(), ".0");
  descriptor_ = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw IoError(with_errno("cannot open " + file_.string(), errno));
  append(event(0, text_field(3, "brain.Event:2")));
  constexpr std::uint64_t session_start = 1;
  if (first_step > 1) append(event(first_step, text_field(7, varint_field(1, session_start))));
}

EventFile::~EventFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void EventFile::write(std::int64_t step, std::vector<Scalar> const& scalars) {
  append(event(step, scalar_summary(scalars)));
}

/// tensorflow.Summary of one value {tag 1, tensor 8, metadata 9} for the text plugin; the tensor is
/// {dtype 1: DT_STRING, string_val 8} without dimensions.
void EventFile::write_text(std::int64_t step, std::string const& tag, std::string const& text) {
  constexpr std::uint64_t dt_string = 7;
  std::string const metadata = text_field(1, text_field(1, "text"));
  append(event(step, text_field(5, text_field(1, text_field(1, tag) + text_field(9, metadata) +
                                                     text_field(8, varint_field(1, dt_string) +
                                                                       text_field(8, text))))));
}

void EventFile::append(std::string const& data) {
  try {
    write_all(descriptor_, tf_record(data), file_);
  } catch (IoError const& e) {
    log::warning(concat("a TensorBoard record could not be written: ", e.what()));
  }
}

}  // namespace tessera::train
