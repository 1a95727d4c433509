#include "tessera/train/report/monitors.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
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
    trainer_ = std::make_unique<EventFile>(reporting.trainer_tensorboard, start.first_step);
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
  if (trainer_) trainer_->write(step, scalars);
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

}  // namespace tessera::train
