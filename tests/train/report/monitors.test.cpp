#include "tessera/train/report/monitors.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "scratch_files.hpp"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

std::string content(fs::path const& file) {
  std::ifstream in(file);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

TEST(Monitors, CsvFilesHaveOneHeaderAndNoRowTwice) {
  ScratchFiles const files;
  config::Reporting reporting;
  reporting.csv = files.directory() / "csv/job";
  {
    Monitors monitors(reporting, {1, 0});
    monitors.samples(8, {{"train_loss", 2.5}, {"lr", 0.125}});
    monitors.samples(16, {{"train_loss", 2.0}, {"lr", 0.25}});
    monitors.samples(24, {{"train_loss", 1.5}, {"lr", 0.5}});
  }
  EXPECT_EQ(content(reporting.csv / "Train_Samples_lr.csv"), "step,lr\n8,0.125\n16,0.25\n24,0.5\n");
  Monitors resumed(reporting, {3, 16});
  resumed.samples(24, {{"train_loss", 1.75}});
  EXPECT_EQ(content(reporting.csv / "Train_Samples_train_loss.csv"),
            "step,train_loss\n8,2.5\n16,2.0\n24,1.75\n");
  Monitors fresh(reporting, {1, 0});
  fresh.samples(8, {{"train_loss", 3.0}});
  EXPECT_EQ(content(reporting.csv / "Train_Samples_train_loss.csv"), "step,train_loss\n8,3.0\n");
}

TEST(Monitors, EachTensorBoardHasItsTags) {
  ScratchFiles const files;
  config::Reporting reporting;
  reporting.tensorboard = files.directory() / "deepspeed";
  reporting.trainer_tensorboard = files.directory() / "trainer";
  Monitors monitors(reporting, {1, 0});
  monitors.samples(8, {{"train_loss", 2.5}});
  monitors.steps(1, {{"train/loss", 2.5}});
  auto const only_file = [](fs::path const& directory) {
    return content(fs::directory_iterator(directory)->path());
  };
  EXPECT_NE(only_file(reporting.tensorboard).find("Train/Samples/train_loss"), std::string::npos);
  EXPECT_NE(only_file(reporting.trainer_tensorboard).find("train/loss"), std::string::npos);
  EXPECT_EQ(only_file(reporting.trainer_tensorboard).find("Samples"), std::string::npos);
}

}  // namespace
}  // namespace tessera::train
